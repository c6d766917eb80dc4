"""4,096 SAE latents on a layer of SmolLM2-135M: U-AND of their 8.4 million pairs, and skip-bigrams.

The latents are made here, since none are published for this model: each encoder column is the
activation of one position less the mean, and its threshold is such that it is on at 1 % of the
positions (JumpReLU, saved as SAELens saves it). They resemble a trained dictionary in number, in
rate and in that they are on together in related contexts. Texts are those of Python's own manual
(`pydoc_data`). Each analysis runs as one command in a process of its own: its elapsed and processor
time, and the peak of memory of that process, with imports and the model.

`uand` is compared with brute force, in float64 and by other arithmetic (normal equations, all
held-out inputs): the listed pairs by their errors, and random pairs by whether one that is read
better than the worst listed one is missing.

Run: python benchmarks/many_features.py [--features 4096] [--positions 30000] [--threads 2]
     [--only uand skip-bigrams] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from interp_toolkit.files import replacing
from interp_toolkit.testing.real import smollm2_path

LAYER, LENGTH, RATE = 14, 128, 0.01
FEATURES_AT, NEURONS = f"blocks.{LAYER}.hook_resid_mid", f"blocks.{LAYER}.mlp.hook_post"
SAMPLE = 400  # pairs compared with brute force, of the listed and of all


def make_inputs(folder: Path, n_features: int, n_positions: int) -> None:
    """Tokens and an SAE, as files."""
    from pydoc_data.topics import topics

    import torch
    from safetensors.torch import save_file

    import interp_toolkit as it
    from interp_toolkit.models.running.streaming import collect

    model = it.load(smollm2_path())
    tokens = model.tokenizer("\n".join(topics.values()), add_special_tokens=False).input_ids
    n_rows = n_positions // LENGTH
    rows = np.array(tokens[: 2 * n_rows * LENGTH]).reshape(-1, LENGTH)
    np.savez(folder / "tokens.npz", tokens=rows[::2][:n_rows])
    x = collect(model, rows[1::2], FEATURES_AT, "all")[FEATURES_AT].flatten(0, 1).float()
    mean = x.mean(0)
    drawn = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:n_features]
    directions = torch.nn.functional.normalize(x[drawn] - mean, dim=1)
    thresholds = torch.empty(n_features)
    for some in torch.arange(n_features).split(256):
        thresholds[some] = torch.quantile((x - mean) @ directions[some].T, 1 - RATE, dim=0)
    tensors = {
        "W_enc": directions.T.contiguous(),
        "W_dec": directions,
        "b_enc": torch.zeros(n_features),
        "b_dec": mean,
        "threshold": thresholds,
    }
    (folder / "sae").mkdir()
    save_file(tensors, folder / "sae" / "sae_weights.safetensors")
    settings = {
        "architecture": "jumprelu",
        "d_in": x.shape[1],
        "d_sae": n_features,
        "dtype": "float32",
        "hook_name": FEATURES_AT,
        "apply_b_dec_to_input": True,
        "normalize_activations": "none",
    }
    (folder / "sae" / "cfg.json").write_text(json.dumps(settings))


def measured(arguments: list[str], threads: int) -> dict[str, Any]:
    """A command in a process of its own."""
    line = [sys.executable, "-m", "interp_toolkit", "analyze", str(smollm2_path()), *arguments]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    ran = subprocess.run(line, env=environment, stdout=subprocess.DEVNULL)
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if ran.returncode:
        raise SystemExit(f"exit code {ran.returncode}")
    return {
        "seconds": seconds,
        "processor_seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "peak_gib": after.ru_maxrss / 2**20,
    }


def brute_errors(
    X: np.ndarray, labels: np.ndarray, fitted: np.ndarray, held_out: np.ndarray, pairs: np.ndarray
) -> np.ndarray:
    """Worst errors after gain and bias of these pairs' readouts, from the normal equations."""
    x = X[fitted].astype(np.float64)
    mean, deviation = x.mean(0), x.std(0)
    x = (x - mean) / deviation
    h = (X[held_out].astype(np.float64) - mean) / deviation
    inverse = np.linalg.inv(x.T @ x / len(x) + 1e-3 * np.eye(x.shape[1]))
    errors = np.empty(len(pairs))
    for k, (i, j) in enumerate(pairs):
        both = labels[fitted, i] & labels[fitted, j]
        scores = h @ (inverse @ x[both].mean(0))
        on = labels[held_out, i] & labels[held_out, j]
        spread = max(np.ptp(scores[on]), np.ptp(scores[~on]))
        room = scores[on].min() - scores[~on].max() + spread
        errors[k] = min(0.5, spread / (2 * room)) if room > 0 else 0.5
    return errors


def compared(folder: Path, n_features: int) -> dict[str, Any]:
    """The pairs that `uand` lists, against brute force."""
    import interp_toolkit as it
    from interp_toolkit.data import read_data
    from interp_toolkit.models.features.feature_sets import read_features
    from interp_toolkit.models.features.samples import labelled_samples, read_at
    from interp_toolkit.probes.uand.site import _observed_pairs, split

    model, data = it.load(smollm2_path()), read_data(folder / "tokens.npz", feature_names=())
    features = read_features(folder / "sae", model)
    result = it.analyze(
        model, "uand", data=data, features=features, position="all", hooks=NEURONS,
        most_features=n_features, reinitialisations=0,
    )  # fmt: skip
    frame = result.to_frame()
    samples = labelled_samples(model, data, features, position="all", most=30_000)
    X, rows = read_at(model, samples, NEURONS)[NEURONS], split(samples, 0)
    number = {name: k for k, name in enumerate(samples.names)}
    listed = np.column_stack([frame[side].map(number) for side in ("first", "second")])
    errors = frame.worst_after_offset.to_numpy()
    rng = np.random.default_rng(0)
    some = rng.choice(len(listed), min(SAMPLE, len(listed)), replace=False)
    brute = brute_errors(X, samples.labels, rows.fitted, rows.held_out, listed[some])
    others = _observed_pairs(rows, SAMPLE)
    of_others = brute_errors(X, samples.labels, rows.fitted, rows.held_out, others)
    names = {tuple(pair) for pair in listed.tolist()}
    cutoff = errors[frame.claim != "computed"].max(initial=0.0) - 1e-3
    missing = [pair for pair, e in zip(others.tolist(), of_others, strict=True)
               if e < min(cutoff, 0.249) and tuple(pair) not in names]  # fmt: skip
    return {
        "counts": dict(result.pairs["counts"]),
        "listed": len(frame),
        "compared": len(some),
        "largest_difference": float(np.abs(brute - errors[some]).max()),
        "random_pairs": len(others),
        "random_pairs_read": int((of_others < 0.249).sum()),
        "missing": len(missing),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--features", type=int, default=4096)
    parser.add_argument("--positions", type=int, default=30_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=["uand", "compare", "skip-bigrams"])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    figures: dict[str, Any] = {}
    if options.json is not None and options.json.exists():
        figures = json.loads(options.json.read_text())
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        make_inputs(folder, options.features, options.positions)
        files = ["--features", str(folder / "sae")]
        text = ["--data", str(folder / "tokens.npz"), "--position", "all"]
        many = ["--most-features", str(options.features), "--hook", NEURONS]
        if "uand" in options.only:
            figures["uand"] = measured(["--probe", "uand", *files, *text, *many], options.threads)
            print(json.dumps(figures["uand"]), flush=True)
        if "compare" in options.only:
            figures["compared"] = compared(folder, options.features)
            print(json.dumps(figures["compared"]), flush=True)
        if "skip-bigrams" in options.only:
            layer = ["--probe", "skip-bigrams", "--layer", str(LAYER)]
            figures["skip-bigrams"] = measured([*layer, *files], options.threads)
            print(json.dumps(figures["skip-bigrams"]), flush=True)
    if options.json is not None:
        with replacing(options.json) as partial:
            partial.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
