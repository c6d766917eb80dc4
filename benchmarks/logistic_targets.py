"""990 boolean targets at one site, solved together, against a loop over scikit-learn.

45 boolean features, each true in half of the rows, are written along random directions into
4,000 x 512 activations, beside the output of a random ReLU layer that reads the same features
(so that their pairs are partly readable) and Gaussian noise; all in float32, as models give it.
Of the 990 pairs of features, in lexicographic order, every even one is asked for its AND and
every odd one for its XOR: 495 of each.

Both sides minimize the same objective with the same C, each at its default tolerance. The loop is
timed on a seeded random part of the targets, in rounds that take turns with ours, and scaled to
990 (`--full` times all of them). Agreement is counted on the rows, in percent, against fits by
Newton's method to a tolerance of 1e-10.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import statistics
import time
import warnings

import numpy as np
import sklearn
import torch
from rich.console import Console
from rich.table import Table
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from interp_toolkit.files import replacing
from interp_toolkit.probes.estimators.logistic import fit_logistic_targets

N_ROWS, D_MODEL, N_FEATURES, D_HIDDEN = 4_000, 512, 45, 512
DIRECTION_NORM, HIDDEN_NORM, NOISE = 3.0, 2.0, 1.0
C = 1.0


def make_site(seed):
    """Activations [n, d] float32 and labels [n, 990]."""
    rng = np.random.default_rng(seed)
    features = rng.random((N_ROWS, N_FEATURES)) < 0.5
    directions = rng.standard_normal((N_FEATURES, D_MODEL)) * DIRECTION_NORM / np.sqrt(D_MODEL)
    read = rng.standard_normal((N_FEATURES, D_HIDDEN)) / np.sqrt(N_FEATURES / 4)
    write = rng.standard_normal((D_HIDDEN, D_MODEL)) * HIDDEN_NORM / np.sqrt(D_HIDDEN)
    hidden = np.maximum((features - 0.5) @ read, 0)
    noise = NOISE * rng.standard_normal((N_ROWS, D_MODEL))
    activations = (features @ directions + hidden @ write + noise).astype(np.float32)
    pairs = itertools.combinations(range(N_FEATURES), 2)
    labels = [
        features[:, a] ^ features[:, b] if odd % 2 else features[:, a] & features[:, b]
        for odd, (a, b) in enumerate(pairs)
    ]
    return activations, np.stack(labels, axis=1)


def time_ours(X, Y, device):
    site = torch.from_numpy(X).to(device)
    if device.type == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    fitted = fit_logistic_targets(site, Y, C=C)
    return time.perf_counter() - start, fitted


def time_loop(X, Y, targets):
    """Seconds for these targets one by one, the probes, and how many hit the iteration limit."""
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        probes = [LogisticRegression(C=C).fit(X, Y[:, target]) for target in targets]
    return time.perf_counter() - start, probes, len(caught)


def agreement(X, Y, targets, predictions):
    """Percent of rows predicted as the tightly converged fit predicts them, per target."""
    X = X.astype(np.float64)
    percent = []
    for target, predicted in zip(targets, predictions, strict=True):
        reference = LogisticRegression(C=C, solver="newton-cholesky", tol=1e-10, max_iter=1_000)
        percent.append(100 * np.mean(reference.fit(X, Y[:, target]).predict(X) == predicted))
    return percent


def run(options):
    device = torch.device(options.device)
    X, Y = make_site(options.seed)
    n_target = Y.shape[1]
    rng = np.random.default_rng(options.seed + 1)
    n_timed = n_target if options.full else options.targets
    timed = rng.permutation(n_target)[:n_timed]
    time_ours(X, Y[:, :50], device)  # warm up: thread pools, the GPU's kernels

    ours, theirs, missed = [], [], 0
    probes = []
    for targets in np.array_split(timed, options.rounds):
        seconds, fitted = time_ours(X, Y, device)
        ours.append(seconds)
        seconds, some, unconverged = time_loop(X, Y, targets)
        theirs.append(seconds * n_target / len(targets))
        probes += some
        missed += unconverged
    ratios = [loop / together for loop, together in zip(theirs, ours, strict=True)]

    checked = timed[: options.targets]
    scores = fitted.decision_function(X)
    ours_agree = agreement(X, Y, checked, (scores[:, checked] > 0).T)
    theirs_agree = agreement(X, Y, checked, [probe.predict(X) for probe in probes[: len(checked)]])
    return {
        "benchmark": "logistic_targets",
        "rows": N_ROWS,
        "d_model": D_MODEL,
        "targets": {"and": 495, "xor": 495},
        "C": C,
        "seed": options.seed,
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "threads": torch.get_num_threads(),
        "cpus": os.cpu_count(),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "sklearn": sklearn.__version__,
        },
        "ours_seconds": ours,
        "ours_converged": int(fitted.converged.sum()),
        "ours_iterations_mean": float(fitted.n_iter.mean()),
        "loop_targets_timed": len(timed),
        "loop_seconds_scaled": theirs,
        "loop_hit_iteration_limit": missed,
        "ratio_median": statistics.median(ratios),
        "ratios": ratios,
        "agreement_percent_min": {"ours": min(ours_agree), "loop": min(theirs_agree)},
        "agreement_percent_mean": {
            "ours": statistics.fmean(ours_agree),
            "loop": statistics.fmean(theirs_agree),
        },
    }


def show(figures):
    table = Table(title="990 boolean targets, 4,000 x 512 float32 activations, C = 1")
    for column in ("", "seconds, median (range)", "agreement, mean (worst)", "converged"):
        table.add_column(column)
    timed = figures["loop_targets_timed"]
    rows = (
        (f"together, {figures['device']}", "ours", figures["ours_seconds"]),
        (f"scikit-learn loop, {timed} targets scaled", "loop", figures["loop_seconds_scaled"]),
    )
    for name, key, seconds in rows:
        spread = f"{statistics.median(seconds):.2f} ({min(seconds):.2f} to {max(seconds):.2f})"
        mean = figures["agreement_percent_mean"][key]
        worst = figures["agreement_percent_min"][key]
        converged = (
            f"{figures['ours_converged']} of 990"
            if key == "ours"
            else f"{timed - figures['loop_hit_iteration_limit']} of {timed}"
        )
        table.add_row(name, spread, f"{mean:.2f} % ({worst:.2f} %)", converged)
    console = Console()
    console.print(table)
    ratios = figures["ratios"]
    console.print(
        f"{figures['ratio_median']:.0f} times faster, the median of {len(ratios)} rounds "
        f"({min(ratios):.0f} to {max(ratios):.0f})"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", help="cpu or cuda, for our side")
    parser.add_argument("--targets", type=int, default=40, help="targets to time the loop on")
    parser.add_argument("--rounds", type=int, default=5, help="times both sides take turns")
    parser.add_argument("--full", action="store_true", help="time the loop on all 990 targets")
    parser.add_argument("--seed", type=int, default=0, help="of the data and of the choice")
    parser.add_argument("--json", metavar="FILE", help="also write the figures here")
    options = parser.parse_args()
    figures = run(options)
    show(figures)
    if options.json:
        with replacing(options.json) as path:
            path.write_text(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
