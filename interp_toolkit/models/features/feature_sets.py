"""Features: named directions, and the positions of a text at which they are on.

- **Token sets**, `.json` {"name": [token ids], ...}: on where the token is in the set.
- **Embeddings**, the word `embeddings`: every token of the vocabulary is a feature.
- **SAE latents**, a folder as SAELens saves it: on where the latent is above a threshold.
- **Directions**, `.npy`, `.npz` or `.safetensors` [feature d_model], or an array: directions only,
  without information on when they are on.

The direction of a token is its contribution to the residual stream that enters block 0 (after the
norm of the embeddings, if a model has one); that of a set is the mean over its tokens; that of a
latent is its decoder row or its encoder column. Directions are not normalized.

`FeatureOptions` are the options of analyses whose features may come from outside the data.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Shaped
from pydantic import Field, model_validator
from torch import Tensor

from interp_toolkit.errors import InputError, reason_of
from interp_toolkit.files import read_whole_text
from interp_toolkit.formatting import ShortRepr
from interp_toolkit.models.features.direction_files import (
    SUFFIXES,
    direction_names,
    read_directions,
)
from interp_toolkit.models.features.sae import Side, SparseAutoencoder
from interp_toolkit.models.features.sae_files import read_sae
from interp_toolkit.models.loading.formats.files import sha256
from interp_toolkit.models.model import Model
from interp_toolkit.models.running.forward import device_of, probe_tokens
from interp_toolkit.models.running.hooks import expand_hooks, hook_points
from interp_toolkit.models.running.streaming import collect
from interp_toolkit.models.weights.view import weights
from interp_toolkit.options import Flag, Options

EMBEDDINGS = "embeddings"
#: `FeatureSet.reads` of features that the token alone determines
TOKENS = "tokens"


@dataclass(frozen=True, eq=False)
class FeatureSet(ShortRepr):
    """Named features; see the module.

    Attributes:
        names: unique names, one per feature.
        source: where they come from, as a phrase.
        directions: one per feature; None if features have none.
        reads: the input that determines which features are on: "tokens", or the name of a hook
            point; None if it is unknown.
        sha256: hash of the source file, if it is one.
        on: the function behind `label`.

    Examples:
        >>> import interp_toolkit as it
        >>> from interp_toolkit.models.features.feature_sets import read_features
        >>> features = read_features("embeddings", it.load("toy:induction"))
        >>> len(features.names), features.reads
        (64, 'tokens')
    """

    names: tuple[str, ...]
    source: str
    directions: Float[Tensor, "feature d"] | None = None
    reads: str | None = None
    sha256: str | None = None
    on: Callable[[Tensor], Tensor] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if len(set(self.names)) < len(self.names) or not all(self.names):
            raise InputError(f"{self.source}: feature names must differ and not be empty")
        if self.directions is not None and len(self.directions) != len(self.names):
            raise InputError(
                f"{self.source}: {len(self.names)} names for {len(self.directions)} directions"
            )

    def __len__(self) -> int:
        return len(self.names)

    def label(self, values: Shaped[Tensor, "position ..."]) -> Bool[Tensor, "position feature"]:
        """The active features, for token ids or for activations at the hook point `reads`.

        Raises InputError for features without information on when they are on, and for activations
        of another width.
        """
        if self.on is None:
            raise InputError(
                f"{self.source}: directions alone do not say when a feature is on; give token "
                "sets, an SAE whose cfg.json names its hook point, or data with feature columns"
            )
        return self.on(values)

    def described(self) -> dict[str, Any]:
        """A description for a result's provenance."""
        return {"source": self.source, "sha256": self.sha256, "features": len(self)}


def read_features(
    spec: str | Path | FeatureSet | Tensor | np.ndarray,
    model: Model,
    *,
    side: Side = "decoder",
    threshold: float = 0.0,
) -> FeatureSet:
    """The features specified by a word, a file, a folder or an array.

    Args:
        spec: "embeddings", a file of token sets or directions, an SAE's folder (see
            `models.features.feature_sets`), directions [feature d_model], or a `FeatureSet`, which
            is returned unchanged.
        model: any TransformerLens model; the features are checked against it.
        side: side of SAE latents: directions from the "decoder" or the "encoder".
        threshold: SAE latents above it are on; 0 or more.

    Raises:
        InputError: the source is missing, cannot be read or does not fit the model; or a word, a
            file or an array is given with `side` or `threshold`, which only an SAE's folder has.

    Examples:
        >>> import interp_toolkit as it
        >>> read_features(np.eye(288)[:2], it.load("toy:induction")).names
        ('f0', 'f1')
    """
    if isinstance(spec, FeatureSet):
        return spec
    if isinstance(spec, Tensor | np.ndarray):
        if side != "decoder" or threshold:
            raise InputError("side and threshold apply only to an SAE folder, not to an array")
        return _directions(_as_tensor(spec), None, "the directions given", model)
    try:
        path = Path(spec).expanduser()
        is_folder = str(spec) not in (EMBEDDINGS, "") and path.is_dir()
    except (OSError, ValueError, RuntimeError) as error:  # the same errors as in `load`
        raise InputError(f"features {str(spec)!r} cannot be read: {error}") from error
    if is_folder:
        sae = read_sae(path, device=device_of(model))
        return sae_features(sae, model, side=side, threshold=threshold)
    if side != "decoder" or threshold:
        raise InputError(f"side and threshold apply only to an SAE folder, not to {spec}")
    return embedding_features(model) if str(spec) == EMBEDDINGS else _read_file(path, model)


def _read_file(path: Path, model: Model) -> FeatureSet:
    if path.suffix.lower() in SUFFIXES:
        matrix, names = read_directions(path)
        return _directions(matrix, names, f"the directions in {path}", model, sha256(path))
    if path.suffix.lower() == ".json":
        return token_set_features(_read_token_sets(path), model, f"the token sets in {path}", path)
    raise InputError(
        f"features {str(path)!r} not understood: give {EMBEDDINGS!r}, the folder of an SAE, or a "
        f"file of token sets (.json) or directions ({', '.join(SUFFIXES)})"
    )


def embedding_features(model: Model) -> FeatureSet:
    """Every token as a feature. Raises InputError if the embedding cannot be read."""
    directions = _token_directions(model)
    n_tokens = len(directions)
    everyone = torch.arange(n_tokens)
    return FeatureSet(
        names=_token_names(model, n_tokens),
        source="the model's token embeddings",
        directions=directions,
        reads=TOKENS,
        on=lambda tokens: tokens.cpu()[:, None] == everyone,
    )


def token_set_features(
    sets: Mapping[str, Sequence[int]],
    model: Model,
    source: str = "token sets",
    path: Path | None = None,
) -> FeatureSet:
    """Features that are on at the tokens of a set, by name.

    Raises InputError for a set that is empty or has tokens outside the model's vocabulary.
    """
    d_vocab = int(model.cfg.d_vocab)
    if not sets:
        raise InputError(f"{source}: there are no features")
    members = torch.zeros(len(sets), d_vocab, dtype=torch.bool)
    for number, (name, tokens) in enumerate(sets.items()):
        outside = [token for token in tokens if not 0 <= token < d_vocab]
        if outside:
            raise InputError(
                f"{source}: {name!r} has token {outside[0]}; the vocabulary is 0 to {d_vocab - 1}"
            )
        if not tokens:
            raise InputError(f"{source}: {name!r} has no tokens")
        members[number, list(tokens)] = True
    embedded = _token_directions(model)
    return FeatureSet(
        names=tuple(sets),
        source=source,
        directions=torch.stack([embedded[row.to(embedded.device)].mean(0) for row in members]),
        reads=TOKENS,
        sha256=None if path is None else sha256(path),
        on=lambda tokens: members.T[tokens.cpu()],
    )


def sae_features(
    sae: SparseAutoencoder, model: Model, *, side: Side = "decoder", threshold: float = 0.0
) -> FeatureSet:
    """The latents of a sparse autoencoder that was trained on this model.

    Raises InputError if the model lacks the hook point or has another width there, for a negative
    threshold, and for an invalid side.
    """
    if side not in ("decoder", "encoder"):
        raise InputError(f"side must be 'decoder' or 'encoder', not {side!r}")
    if not 0 <= threshold < float("inf"):
        raise InputError(f"the threshold of a latent must be 0 or above, got {threshold}")
    if sae.hook is not None:
        _check_hook(sae, model)
    at = f", above {threshold:g}" if threshold else ""
    return FeatureSet(
        names=tuple(f"latent{k}" for k in range(len(sae))),
        source=f"the latents of {sae.source}{at}, directions of the {side}",
        directions=sae.directions(side),
        reads=sae.hook,
        sha256=sae.sha256,
        on=None if sae.hook is None else lambda activations: sae.on(activations, threshold),
    )


def _check_hook(sae: SparseAutoencoder, model: Model) -> None:
    assert sae.hook is not None
    if sae.hook not in hook_points(model):
        raise InputError(
            f"{sae.source} was trained at {sae.hook}, a hook point that this model does not have"
        )
    expand_hooks(model, sae.hook)  # raises if a setting of the model silences the hook
    sae.flat_input(collect(model, probe_tokens(model), sae.hook, -1)[sae.hook])


def _as_tensor(array: Tensor | np.ndarray) -> Tensor:
    if isinstance(array, np.ndarray) and array.dtype.kind not in "fiu":
        raise InputError(f"directions must be numbers, not {array.dtype}")
    return torch.as_tensor(array)


def _directions(
    matrix: Tensor,
    names: Sequence[str] | None,
    source: str,
    model: Model,
    digest: str | None = None,
) -> FeatureSet:
    d_model = int(model.cfg.d_model)
    if matrix.ndim != 2 or not len(matrix) or matrix.shape[1] != d_model:
        raise InputError(
            f"{source} have shape {list(matrix.shape)}; this model needs [feature, {d_model}]"
        )
    matrix = matrix if matrix.is_floating_point() else matrix.double()
    for what, bad in (("not finite", ~matrix.isfinite().all(1)), ("zero", ~matrix.any(1))):
        if bad.any():
            raise InputError(f"{source}: direction {int(bad.nonzero()[0])} is {what}")
    names = direction_names(len(matrix)) if names is None else names
    return FeatureSet(tuple(names), source, matrix.to(device_of(model)), sha256=digest)


def _token_directions(model: Model) -> Float[Tensor, "d_vocab d_model"]:
    view = weights(model)
    if view.embed_norm.kind is None:
        return view.W_E.detach()
    with torch.no_grad():
        return view.embed(torch.arange(view.d_vocab))


def _token_names(model: Model, n_tokens: int) -> tuple[str, ...]:
    """Token ids, with their text if there is a tokenizer (texts alone may coincide)."""
    decode = getattr(getattr(model, "tokenizer", None), "decode", None)
    if decode is None:
        return tuple(map(str, range(n_tokens)))
    return tuple(f"{token} {decode([token])!r}" for token in range(n_tokens))


def _read_token_sets(path: Path) -> dict[str, list[int]]:
    if not path.is_file():
        raise InputError(f"{path}: there is no such file")
    try:
        content = json.loads(
            read_whole_text(path, encoding="utf-8-sig"), object_pairs_hook=_no_repeats
        )
    except OSError as error:
        raise InputError(f"{path} cannot be read: {reason_of(error)}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not a JSON file of token sets: {error}") from error
    if not isinstance(content, dict) or not content:
        raise InputError(f'{path} must hold one JSON object of token sets: {{"name": [ids], ...}}')
    for name, tokens in content.items():
        if not name or not isinstance(tokens, list) or not all(type(t) is int for t in tokens):
            raise InputError(f"{path}: {name!r} is not a list of token ids")
    return content


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"two sets are called {next(n for n in names if names.count(n) > 1)!r}")
    return unique


class FeatureOptions(Options):
    """Options for the source of features, and for an SAE's latents."""

    features: Annotated[Any, Flag(metavar="SAE_FOLDER|embeddings|FILE")] = Field(
        None,
        description="Features: an SAE's latents, tokens, token sets or directions; default: the "
        "data's columns, or tokens.",
    )
    feature_side: Literal["decoder", "encoder"] | None = Field(
        None, description="Directions of an SAE's latents; default: decoder."
    )
    threshold: float | None = Field(
        None, description="Activation above which an SAE's latent is on; default: 0."
    )

    @model_validator(mode="after")
    def _about_features(self) -> FeatureOptions:
        values = [self.features, *(getattr(self, name, None) for name in _SIDES)]
        if all(spec is None for spec in values):
            for name in ("feature_side", "threshold"):
                if getattr(self, name) is not None:
                    flag = f"--{name.replace('_', '-')}"
                    raise ValueError(f"{flag} needs --features")
        return self

    def read(self, spec: Any, model: Any) -> FeatureSet | None:
        """The features specified by a word, a file, a folder or an array; None for None.

        Raises InputError as `read_features`.
        """
        if spec is None:
            return None
        side, threshold = self.feature_side or "decoder", self.threshold or 0.0
        return read_features(spec, model, side=side, threshold=threshold)


_SIDES = ("query_features", "key_features")
