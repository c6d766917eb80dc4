"""Boolean functions, composition, collapse, OV, sorting in strangers' models, by other means.

Takes the folder that `zoo_heads.py` takes. Per model, each against a truth from other code:

- boolean: XOR, AND and OR of the first two features, after the last attention layer and the last
  block. Whether a hyperplane exists is decided by a linear program (SciPy's HiGHS), and the
  accuracy held out by scikit-learn's `LogisticRegressionCV`, both on activations that
  TransformerLens caches. Then the same with the features' rows shuffled, where nothing can be
  read: how often the p-value says that something can.
- composition: each direct path from a head into the queries, keys or values of a later one is cut
  (what the writer adds is replaced by its mean over rows, position by position) with hooks of
  TransformerLens. A path matters that costs MATTERS of the accuracy, and is idle below IDLE.
- collapse: the mean cosine of states at positions with different tokens, in plain PyTorch.
- ov: heads whose attention to the answer's token, or to what followed a token before, the task
  needs (`truth.json`) have to copy it: how many of them does the OV circuit say it of.
- sorting: of models that sort, whether the algorithm is the one that outputs follow when the token
  before is swapped (`truth.json`), and what share of lists is sorted.

Run: python benchmarks/zoo_others.py FOLDER [--only NAME ...] [--ask QUESTION ...] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.progress import track
from scipy.optimize import linprog
from sklearn.linear_model import LogisticRegressionCV
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from transformer_lens import HookedTransformer, HookedTransformerConfig

import interp_toolkit as it
from interp_toolkit.data import FeatureData

MATTERS, IDLE = 0.03, 0.005  # of the accuracy
FUNCTIONS = {"xor": "0110", "and": "0001", "or": "0111"}
ASKED = ("boolean", "composition", "collapse", "ov", "sorting")
SHUFFLES = 2  # of the features, per function
ROWS = 512  # of the rows for cut paths


def plain_model(folder: Path) -> HookedTransformer:
    """The model as TransformerLens alone makes it."""
    saved = torch.load(folder / "model.pt", map_location="cpu", weights_only=True)
    model = HookedTransformer(HookedTransformerConfig(**saved["cfg"]))
    model.load_state_dict(saved["state_dict"], strict=False)
    return model.eval()


def gap_of(points: np.ndarray, labels: np.ndarray) -> float:
    """The gap of the hyperplane that a linear program finds, on the points; 0 for none."""
    centred = points - points.mean(0)
    scaled = centred / np.abs(centred).max()
    signs = np.where(labels, 1.0, -1.0)
    matrix = -signs[:, None] * np.hstack([scaled, np.ones((len(points), 1))])
    n = matrix.shape[1]
    found = linprog(
        np.zeros(n), A_ub=matrix, b_ub=-np.ones(len(matrix)), bounds=(None, None), method="highs"
    )
    if found.status != 0:
        return 0.0
    along = centred @ (found.x[:-1] / np.linalg.norm(found.x[:-1]))
    return max(0.0, float(along[labels].min() - along[~labels].max()))


def agreement(site: Any, states: np.ndarray, labels: np.ndarray, gap: float) -> str:
    """How our verdict compares with a gap found otherwise.

    A hyperplane is wrong if it leaves no gap on these states; a certificate if there is a gap above
    the residual that it names.
    """
    if site.status == "separable":
        return "same" if site.hyperplane.verify(states[labels], states[~labels]) > 0 else "wrong"
    if site.status == "not_separable":
        if gap > site.certificate.residual:
            return "wrong"
        return "gap below the residual" if gap else "same"
    return "undecided"


def held_out(points: np.ndarray, labels: np.ndarray) -> float:
    """Balanced accuracy by scikit-learn, on five folds, at the odds of the rows fitted to."""
    probe = make_pipeline(
        StandardScaler(), LogisticRegressionCV(Cs=5, cv=3, scoring="neg_log_loss", max_iter=2000)
    )
    right: dict[bool, list[bool]] = {True: [], False: []}
    for fitted, held in StratifiedKFold(5, shuffle=True, random_state=0).split(points, labels):
        share = labels[fitted].mean()
        chances = probe.fit(points[fitted], labels[fitted]).predict_proba(points[held])[:, 1]
        for label, chance in zip(labels[held], chances, strict=True):
            right[bool(label)].append(bool((chance > share) == label))
    return float(np.mean([np.mean(r) for r in right.values()]))


def rows_with(arrays: dict[str, Any], features: np.ndarray) -> FeatureData:
    """The zoo's rows with these features, which go by the names of the first."""
    return FeatureData(
        tokens=arrays["tokens"],
        features=features,
        names=tuple(arrays["names"][: features.shape[1]].tolist()),
        positions=arrays["position"],
    )


def boolean_of(folder: Path, model: HookedTransformer) -> dict[str, Any]:
    """Agreement on separability and on accuracy, and what shuffled features give."""
    with np.load(folder / "prompts.npz") as data:
        arrays = dict(data)
    features = arrays["features"][:, :2].astype(bool)
    tokens = torch.as_tensor(arrays["tokens"])
    at = torch.as_tensor(arrays["position"]).long()
    _, cache = model.run_with_cache(tokens)
    rng = np.random.default_rng(0)
    counts: Counter[str] = Counter()
    pairs: list[tuple[str, float, float]] = []
    for function, table in FUNCTIONS.items():
        a, b = features.T
        labels = np.array([table[2 * int(x) + int(y)] == "1" for x, y in zip(a, b, strict=True)])
        if min(labels.sum(), (~labels).sum()) < 20:
            continue
        result: Any = it.analyze(folder / "model.pt", function, data=rows_with(arrays, features))
        for site in result.sites:
            states = cache[site.hook][torch.arange(len(at)), at].double().numpy()
            counts[agreement(site, states, labels, gap_of(states, labels))] += 1
            pairs.append(
                (function, site.held_out.balanced_accuracy, held_out(states, labels))
                if site.held_out is not None
                else (function, float("nan"), float("nan"))
            )
        for _ in range(SHUFFLES):
            shuffled = rows_with(arrays, features[rng.permutation(len(features))])
            null: Any = it.analyze(folder / "model.pt", function, data=shuffled)
            tested = [site.held_out.p_value for site in null.sites if site.held_out is not None]
            counts["shuffled"] += bool(tested)
            counts["shuffled, p at most 0.05"] += bool(tested) and min(tested) <= 0.05
    return {"counts": dict(counts), "accuracies": pairs}


def accuracy_of(logits: torch.Tensor, answers: torch.Tensor, at: torch.Tensor) -> float:
    """Share of answers named."""
    named = logits.argmax(-1).gather(1, at % logits.shape[1])
    return float((named == answers).float().mean())


def composition_of(folder: Path, model: HookedTransformer) -> dict[str, Any]:
    """What each direct path costs, and which of them are significant by the weights."""
    with np.load(folder / "answers.npz") as data:
        tokens, answers, at = (
            torch.as_tensor(data[k][:ROWS]).long()
            for k in ("tokens", "answers", "answer_positions")
        )
    model.set_use_split_qkv_input(True)
    model.set_use_attn_result(True)
    with torch.no_grad():
        logits, cache = model.run_with_cache(tokens)
        whole = accuracy_of(logits, answers, at)
        costs = []
        cfg = model.cfg
        for writer in range(cfg.n_layers):
            for w in range(cfg.n_heads):
                adds = cache[f"blocks.{writer}.attn.hook_result"][:, :, w]
                change = adds.mean(0) - adds
                for reader in range(writer + 1, cfg.n_layers):
                    for r in range(cfg.n_heads):
                        for mode in "QKV":

                            def cut(x, hook, r=r, change=change):  # type: ignore[no-untyped-def]
                                x[:, :, r] += change
                                return x

                            name = f"blocks.{reader}.hook_{mode.lower()}_input"
                            logits = model.run_with_hooks(tokens, fwd_hooks=[(name, cut)])
                            cost = whole - accuracy_of(logits, answers, at)
                            costs.append((mode, f"L{writer}H{w}", f"L{reader}H{r}", cost))
    model.set_use_split_qkv_input(False)
    model.set_use_attn_result(False)
    frame: Any = it.analyze(folder / "model.pt", "composition").to_frame()
    p = {
        (
            row.mode,
            f"L{row.writer_layer}H{row.writer_head}",
            f"L{row.reader_layer}H{row.reader_head}",
        ): row.p_adjusted
        for row in frame.itertuples()
    }
    counts: Counter[str] = Counter()
    for mode, written, read, cost in costs:
        kind = "matters" if cost >= MATTERS else "idle" if abs(cost) < IDLE else "between"
        counts[kind] += 1
        counts[f"{kind}, significant"] += p[mode, written, read] <= 0.05
    return {"counts": dict(counts), "costs": costs}


def just_tokens(tokens: torch.Tensor) -> FeatureData:
    """Rows without features."""
    rows = tokens.numpy()
    return FeatureData(rows, np.zeros((len(rows), 0), dtype=bool), ())


def collapse_of(folder: Path, model: HookedTransformer) -> dict[str, Any]:
    """The largest difference between the cosines, theirs and ours."""
    with np.load(folder / "answers.npz") as data:
        tokens = torch.as_tensor(data["tokens"][:64]).long()
    result = it.analyze(folder / "model.pt", "collapse", data=just_tokens(tokens))
    with torch.no_grad():
        _, cache = model.run_with_cache(tokens)
    differ = tokens[:, :, None] != tokens[:, None, :]
    gaps = []
    for layer in result.layers:
        states = cache[layer.hook]
        if layer.site_name == "final norm":
            states = model.ln_final(states).detach()
        states = states.double()
        unit = states / states.norm(dim=-1, keepdim=True)
        cosines = unit @ unit.mT
        rows = (cosines * differ).sum((1, 2)) / differ.sum((1, 2))
        assert layer.cosine is not None
        gaps.append(abs(float(rows[differ.any((1, 2))].mean()) - layer.cosine))
    return {"largest gap": max(gaps), "places": len(gaps), "status": result.status}


def ov_of(folder: Path, truth: dict[str, Any]) -> dict[str, Any]:
    """Of heads that have to copy, how many are said to; and of the heads that need not."""
    result = it.analyze(folder / "model.pt", "ov")
    must = {h["head"] for h in truth["heads"] if h["kind"] in ("answer", "induction")}
    counts: Counter[str] = Counter()
    for head in result.heads:
        kind = "copies" if head.name in must else "other"
        p = head.ov_p_adjusted
        counts[kind] += 1
        counts[f"{kind}, significant"] += p is not None and p <= 0.05
    return {"counts": dict(counts)}


def sorting_of(folder: Path, truth: dict[str, Any]) -> dict[str, Any]:
    """Whether the algorithm named is the one that their swap test names."""
    result: Any = it.analyze(folder / "model.pt", "sorting", layout=truth["sorting"]["layout"])
    swap = truth["sorting"]["swap"]
    first = swap["least_above"] > swap["kth"]
    theirs = "min_greater_than_previous" if first else "argmax_piecewise_linear"
    right = result.status == "detected" and result.algorithm == theirs
    return {"counts": {"as swapped": int(right)}, "verdict": result.verdict}


def one(folder: Path, asked: Sequence[str]) -> dict[str, Any]:
    """Everything of one model; what could not be asked, in words."""
    truth = json.loads((folder / "truth.json").read_text())
    model = plain_model(folder)
    with np.load(folder / "prompts.npz") as data:
        features = "features" in data and data["features"].shape[1] >= 2
    found: dict[str, Any] = {"name": folder.name}
    asks: dict[str, tuple[Callable[[], dict[str, Any]], bool]] = {
        "boolean": (lambda: boolean_of(folder, model), features),
        "composition": (lambda: composition_of(folder, model), model.cfg.n_layers > 1),
        "collapse": (lambda: collapse_of(folder, model), True),
        "ov": (lambda: ov_of(folder, truth), True),
        "sorting": (lambda: sorting_of(folder, truth), truth.get("sorting") is not None),
    }
    for name, (ask, possible) in asks.items():
        if not possible or name not in asked:
            continue
        try:
            found[name] = ask()
        except it.InputError as error:
            found[name] = {"refused": str(error)}
    return found


def summary_of(rows: list[dict[str, Any]], asked: Sequence[str]) -> dict[str, Any]:
    """Sums over models, by question."""
    told: dict[str, Any] = {}
    for name in asked:
        answers = [row[name] for row in rows if name in row]
        told[name] = {
            "models": sum("refused" not in one for one in answers),
            "refused": [one["refused"] for one in answers if "refused" in one],
        }
        sums: Counter[str] = Counter()
        for answer in answers:
            sums.update(answer.get("counts", {}))
        told[name] |= dict(sums)
        gaps = [
            ours - theirs
            for answer in answers
            for _, ours, theirs in answer.get("accuracies", [])
            if ours == ours
        ]
        if gaps:
            told[name]["accuracy, ours less theirs"] = {
                "least": min(gaps),
                "median": float(np.median(gaps)),
                "greatest": max(gaps),
            }
        if name == "sorting":
            told[name]["verdicts"] = [one["verdict"] for one in answers if "verdict" in one]
        if name == "collapse":
            told[name]["largest gap"] = max(one["largest gap"] for one in answers)
            told[name]["places"] = sum(one["places"] for one in answers)
    return told


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--ask", nargs="*", choices=ASKED, default=ASKED)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    folders = sorted(path.parent for path in options.folder.glob("*/truth.json"))
    folders = [path for path in folders if not options.only or path.name in options.only]
    rows = [one(folder, options.ask) for folder in track(folders, "models")]
    told = summary_of(rows, options.ask)
    print(json.dumps(told, indent=1))
    if options.json:  # what was asked at another time stays
        kept = json.loads(options.json.read_text()) if options.json.exists() else {}
        options.json.write_text(json.dumps(kept | told, indent=1) + "\n")


if __name__ == "__main__":
    main()
