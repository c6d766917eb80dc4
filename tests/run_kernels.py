"""The tests that compare numbers, under the kernels of several processors: `make test-kernels`.

How a sum is split up, and whether a product is rounded before it is added, depends on the processor
and the threads. What is tested must hold for each. OpenBLAS (NumPy, SciPy), MKL, oneDNN and ATen
(PyTorch) take an older processor's kernels on request; a newer one's cannot be run and are skipped.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
#: packages whose tests compare numbers, without what is slow there
TESTS = (
    "tests/circuits/metrics",
    "tests/circuits/test_composition.py",
    "tests/circuits/edges/test_patched_pass.py",
    "tests/circuits/heads",
    "tests/circuits/test_qk_ov.py",
    "tests/circuits/skip_bigrams",
    "tests/circuits/sorting/test_activations.py",
    "tests/circuits/sorting/test_weights.py",
    "tests/circuits/sorting/test_evaluation.py",
    "tests/circuits/sorting/test_fingerprint.py",
    "tests/circuits/weights",
    "tests/models/running",
    "tests/models/transformer",
    "tests/models/weights",
    "tests/probes",
    "tests/test_epsilon.py",
    "tests/test_stats.py",
    "tests/toys",
)
AVX2 = {"avx2", "fma"}
AVX512 = AVX2 | {"avx512f", "avx512bw", "avx512dq", "avx512vl"}


class Kernels(NamedTuple):
    """One processor's kernels, by the names that each library has for them."""

    openblas: str
    aten: str
    mkl: str
    onednn: str
    needs: set[str]


KERNELS = {
    "prescott": Kernels("Prescott", "default", "COMPATIBLE", "SSE41", set()),
    "haswell": Kernels("Haswell", "avx2", "AVX2", "AVX2", AVX2),
    "skylakex": Kernels("SkylakeX", "avx512", "AVX512", "AVX512_CORE", AVX512),
    "zen": Kernels("Zen", "avx2", "AVX2", "AVX2", AVX2),
}
#: kernels and threads; the first ones differ most from each other
SETTINGS = (
    *("prescott-1", "haswell-2", "skylakex-1", "zen-2"),
    *("prescott-2", "haswell-1", "skylakex-2", "zen-1"),
)


def environment(setting: str) -> dict[str, str]:
    """What a setting adds to the environment."""
    name, threads = setting.split("-")
    kernels = KERNELS[name]
    return {
        "OPENBLAS_CORETYPE": kernels.openblas,
        "ATEN_CPU_CAPABILITY": kernels.aten,
        "MKL_CBWR": kernels.mkl,
        "ONEDNN_MAX_CPU_ISA": kernels.onednn,
        "OMP_NUM_THREADS": threads,
        "OMP_WAIT_POLICY": "passive",  # threads that spin keep other tests from the processor
        "OPENBLAS_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
    }


def processor_flags() -> set[str] | None:
    """What this processor can do; None where it is no x86 or does not say."""
    file = Path("/proc/cpuinfo")
    if platform.machine() not in ("x86_64", "AMD64") or not file.exists():
        return None
    found = re.search(r"^flags\s*:(.*)$", file.read_text(), re.MULTILINE)
    return set(found[1].split()) if found else None


def why_not(setting: str, flags: set[str] | None) -> str:
    """Why this processor cannot run a setting; empty if it can."""
    if flags is None:
        return "no x86 processor that says what it can do"
    lacking = sorted(KERNELS[setting.split("-")[0]].needs - flags)
    return f"this processor has no {', '.join(lacking)}" if lacking else ""


def chosen(words: list[str], flags: set[str] | None) -> list[str]:
    """The settings asked for: by name, or the first so many that can be run here."""
    if len(words) == 1 and words[0].isdecimal():
        runnable = [setting for setting in SETTINGS if not why_not(setting, flags)]
        return runnable[: int(words[0])] or list(SETTINGS[: int(words[0])])
    return words or list(SETTINGS)


def run(setting: str, tests: list[str], workers: int) -> tuple[bool, str]:
    """Whether the tests pass under a setting, and pytest's counts."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow and not browser"]
    at_once = max(1, workers // int(setting.split("-")[1]))
    command += ["-p", "no:cacheprovider", "-n", str(at_once), *tests]
    added = environment(setting)
    print(f"== {setting}: {' '.join(f'{k}={v}' for k, v in added.items())}", flush=True)
    lines = []
    with subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, **added}, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        try:
            for line in child.stdout:
                print(line, end="", flush=True)
                lines.append(line)
        except BaseException:
            child.terminate()
            raise
    counts = [re.findall(r"\d+ (?:passed|failed|errors?|skipped)", line) for line in lines]
    told = next((", ".join(found) for found in reversed(counts) if found), "no tests ran")
    return child.returncode == 0, told


def main() -> int:
    """Run the settings; 1 if a test fails under one of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--settings",
        nargs="+",
        default=[],
        metavar="N|NAME",
        help=f"how many, or which: {', '.join(SETTINGS)} (default: all)",
    )
    parser.add_argument("--workers", type=int, default=2, help="threads at once (default: 2)")
    parser.add_argument("tests", nargs="*", help="instead of all that compare numbers")
    given = parser.parse_intermixed_args()
    unknown = [w for w in given.settings if w not in SETTINGS]
    if unknown and not (len(given.settings) == 1 and unknown[0].isdecimal()):
        parser.error(f"no setting {unknown[0]}: they are {', '.join(SETTINGS)}")
    # A shell ignores it in what it starts in the background, and so would all that is tested.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    flags = processor_flags()
    rows, failed = [], False
    for setting in chosen(given.settings, flags):
        reason = why_not(setting, flags)
        if reason:
            rows.append((setting, "skipped", reason, ""))
            continue
        start = time.monotonic()
        passed, told = run(setting, given.tests or list(TESTS), given.workers)
        failed |= not passed
        seconds = f"{time.monotonic() - start:.0f} s"
        rows.append((setting, "passed" if passed else "FAILED", told, seconds))
    widths = [max(len(row[k]) for row in rows) for k in range(4)]
    print("\nsetting: kernels and threads")
    for row in rows:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
