"""An audit stored before its data are seen: claims, plan, seed and level, and their hash.

The file's SHA-256 covers all its other content, as JSON with sorted keys. An author who publishes
the hash first cannot change the plan afterwards without being noticed. Only the author can vouch
that the data were unseen, and the time in the file is that of the machine on which it was written.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from interp_toolkit._version import __version__
from interp_toolkit.auditing.claims.kinds import BaseClaim, as_claim
from interp_toolkit.auditing.claims.plan import plan_of
from interp_toolkit.auditing.parts import checked_level
from interp_toolkit.errors import InputError, reason_of
from interp_toolkit.files import read_whole_text, replacing

SCHEMA = "interp-toolkit/seal/1"


@dataclass(frozen=True)
class Sealed:
    """A sealed audit.

    Attributes:
        claims: the claims, in order.
        seed, level: seed and error level of the audit.
        sha256: hash of the file's other content.
        sealed_at: time in the file.
        version: version of this package, when it was sealed.
    """

    claims: tuple[BaseClaim, ...]
    seed: int
    level: float
    sha256: str
    sealed_at: str
    version: str


def write_seal(
    claims: Sequence[BaseClaim],
    path: str | os.PathLike[str],
    *,
    seed: int = 0,
    level: float = 0.05,
) -> Sealed:
    """Write an audit to a file, to be run later on unseen data.

    Args:
        claims: the claims to be tested.
        path: the file.
        seed: random seed of every draw.
        level: error level.

    Raises:
        InputError: no claim, a level out of range, a file that exists already, or one that cannot
            be written.
    """
    if not claims:
        raise InputError("there is no claim to seal")
    level = checked_level(level)
    if Path(path).exists():
        raise InputError(
            f"{os.fspath(path)} already exists, and seals are not overwritten; give another file"
        )
    content: dict[str, Any] = {
        "schema": SCHEMA,
        "sealed_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "version": __version__,
        "seed": seed,
        "level": level,
        "claims": [claim.model_dump(mode="json", exclude_none=True) for claim in claims],
        "plan": plan_of(claims, level),
    }
    content["sha256"] = _digest(content)
    try:
        with replacing(path) as partial:
            partial.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n")
    except OSError as error:
        raise InputError(f"cannot write {os.fspath(path)}: {reason_of(error)}") from error
    return _sealed(content)


def read_seal(path: Path) -> Sealed:
    """Read a sealed audit, and check that it is unchanged.

    Raises:
        InputError: a file that cannot be read, is not a sealed audit, was changed, or has another
            plan than this version of the package.
    """
    try:
        content = json.loads(read_whole_text(path))
        digest = _digest(content) if isinstance(content, dict) else ""
    except OSError as error:
        raise InputError(f"{path}: {reason_of(error)}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON") from error
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise InputError(
            f"{path} is not a sealed audit; make one with interp audit CLAIM --seal FILE"
        )
    if content.get("exhaustive"):
        raise InputError(
            f"{path} uses a row selection that is no longer supported: seal the claims again"
        )
    if content.get("sha256") != digest:
        raise InputError(f"{path} has changed since it was sealed: its hash does not match")
    try:
        sealed = _sealed(content)
        same = content["plan"] == plan_of(sealed.claims, sealed.level)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} is not a sealed audit: {error}") from error
    if not same:
        raise InputError(
            f"{path}: its plan (version {sealed.version}) differs from how this version "
            f"({__version__}) tests these claims; seal them again"
        )
    return sealed


def _sealed(content: dict[str, Any]) -> Sealed:
    seed, level = content["seed"], content["level"]
    if not isinstance(seed, int) or not isinstance(level, float):
        raise ValueError("seed and level must be numbers")
    if not isinstance(content["claims"], list) or not all(
        isinstance(one, dict) for one in content["claims"]
    ):
        raise ValueError("its claims must be a list of mappings")
    for one in content["claims"]:
        named = [key for key in ("direction", "circuit") if isinstance(one.get(key), str)]
        if named:
            raise ValueError("a sealed claim must hold its values instead of file names")
    return Sealed(
        claims=tuple(as_claim(dict(one)) for one in content["claims"]),
        seed=seed,
        level=level,
        sha256=str(content["sha256"]),
        sealed_at=str(content["sealed_at"]),
        version=str(content["version"]),
    )


def _digest(content: dict[str, Any]) -> str:
    rest = {key: value for key, value in content.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()
