"""Are the heads that do a task found, however they share it? Recall on models of known truth.

Models are built with known heads (`interp_studies.challenge.families.shared_work`): nine layouts,
one to four heads
that share the work by attention, by output, by tokens, or back each other up, among decoys, sinks,
idle and noisy heads. Each is analyzed on its own rows with answers, and on the prompts that the
toolkit makes by itself. What a head is worth is measured again by an oracle (`plain_attention`).

On own rows
- recall: of the heads that do the task and whose relation, knocked out, costs at least FELT of the
  behavior (alone, or restored), the share detected under their relation;
- false: of what is detected, the share that costs nothing (less than MATERIAL answers, or less than
  three times the control);
- words: of the heads whose attention was knocked out, the share with a causal word that the oracle
  contradicts (`contradicts`); the rest are right, undecided, or of heads that were not knocked
  out.

On made prompts: recall of the heads (but answer heads) that attend to the relation with at least
ATTENDS there, and false detections: heads that do not.

The figure: the share of work heads detected, by what each pays to the relation and by how many
share the work, so that all of them are needed.

Run: python benchmarks/head_recall.py [--models 60] [--power 4] [--json FILE] [--html FILE]
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from plain_attention import Cost, Oracle, PlainModel, relation_mask
from rich.progress import track

import interp_toolkit as it
from interp_studies.challenge.families.layouts import (
    BOS,
    RELATIONS,
    SHORTEST,
    Layout,
)
from interp_studies.challenge.families.shared_work import Work, shared_work
from interp_toolkit.errors import InputError

ROWS = 384  # that are analyzed; the oracle has as many others
FELT = 0.05  # of the behavior: what a true head must cost to be asked for
MATERIAL = 0.03  # of the answers: what a detected head must cost
TIMES_CONTROL = 3
ATTENDS = 0.3  # of a head's attention on made prompts
SLACK = 0.03  # of the behavior: what the oracle's rows and the analysis's may differ by
NOISE = {1: 0.0, 2: 0.2, 3: 0.25, 4: 0.3}  # of GAIN, by heads: all of them are needed
SEVERAL = ("induction", "previous-token", "duplicate-token", "first-token")  # places may ask
EXACT = ("duplicate-token", "mixed")  # layouts with a threshold instead of noise
POWER_SHARES = (0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0)
POWER_LAYOUTS = ("pointer", "previous-token", "first-token", "induction")
POWER_CTX = 16

#: how the work is shared -> settings of `Work`
SHARINGS: dict[str, dict[str, Any]] = {
    "one": {"n": 1},
    "attention, 2": {"n": 2},
    "attention, 3": {"n": 3},
    "attention, 4": {"n": 4},
    "diluted, 2": {"n": 2, "dilution": "uniform"},
    "diluted, 3": {"n": 3, "dilution": "uniform"},
    "output, 2": {"n": 2, "attention": 1.0},
    "output, 4": {"n": 4, "attention": 1.0},
    "redundant, 2": {"n": 2, "sharing": "redundant"},
    "redundant, 3": {"n": 3, "sharing": "redundant", "across": True},
    "tokens, 2": {"n": 2, "sharing": "tokens"},
    "tokens, 3": {"n": 3, "sharing": "tokens"},
}

Place = tuple[str, int, int]  # relation, layer, head


def draw_work(layout: str, sharing: str, seed: int) -> Work | None:
    """A model's make, in a size drawn at random; None for a layout that cannot share so."""
    settings = dict(SHARINGS[sharing])
    drawn_by = [seed, list(RELATIONS).index(layout), list(SHARINGS).index(sharing)]
    rng = np.random.default_rng(drawn_by)
    short = sharing in ("one", "output, 2", "redundant, 2") and rng.random() < 1 / 2
    least = SHORTEST[layout]
    n_ctx = int(rng.integers(least, max(least, 8) + 1)) if short else int(rng.integers(9, 17))
    n_ctx += layout == "lookup" and n_ctx % 2
    n_content = n_ctx + int(rng.integers(0, 7))
    asked = int(rng.integers(1, 5)) if layout in SEVERAL and not short else 1
    asked = 4 if layout == "mixed" and n_ctx > least + 2 else 2 if layout == "mixed" else asked
    noise = 0.0 if layout in EXACT or settings.get("sharing") else NOISE[settings["n"]]
    beside = {kind: int(rng.integers(0, 3)) for kind in ("decoys", "sinks", "idle")}
    try:
        sized = Layout(layout, max(n_ctx, least + asked - 1), n_content + asked, asked)
        return Work(sized, noise=noise, seed=seed, **settings, **beside)
    except InputError:
        return None


def draw_works(count: int) -> list[tuple[str, Work]]:
    """Every layout with every way of sharing that it has, again and again with other seeds."""
    works: list[tuple[str, Work]] = []
    for seed in range(count):
        for sharing in SHARINGS:
            for layout in RELATIONS:
                work = draw_work(layout, sharing, seed)
                works += [] if work is None else [(sharing, work)]
        if len(works) >= count:
            break
    order = np.random.default_rng(0).permutation(len(works))
    return [works[i] for i in sorted(order[:count])]


@dataclass
class Found:
    """What one model's analysis says, held against the truth."""

    layout: str
    sharing: str
    n_ctx: int
    accuracy: float
    at_home: bool | None = None
    wanted: list[Place] = field(default_factory=list)
    missed: list[dict[str, Any]] = field(default_factory=list)
    unfelt: list[Place] = field(default_factory=list)
    named: list[Place] = field(default_factory=list)
    false: list[dict[str, Any]] = field(default_factory=list)
    words: Counter[str] = field(default_factory=Counter)
    wrong_words: list[dict[str, Any]] = field(default_factory=list)
    made_home: bool | None = None
    made_wanted: list[Place] = field(default_factory=list)
    made_missed: list[Place] = field(default_factory=list)
    made_named: list[Place] = field(default_factory=list)
    made_false: list[Place] = field(default_factory=list)
    seconds: float = 0.0


def contradicts(word: str, cost: Cost) -> bool:
    """Whether the oracle says otherwise than a causal word; see the module for what is allowed."""
    best, both = cost.largest, (cost.alone, cost.restored)
    return {
        "major": best < 0.5 - SLACK,
        "contributes": best <= 0,
        "negligible": max(abs(s) for s in both) > 0.05 + SLACK,
        "suppresses": min(both) >= 0 or best > SLACK,
    }.get(word, False)


def is_right(cost: Cost, whole: float) -> bool:
    """Whether the behavior rests on a head's relation."""
    control = max(cost.control, 0.0)
    return cost.largest * whole >= MATERIAL and cost.joint >= TIMES_CONTROL * control


def look(sharing: str, work: Work) -> Found:
    """Build one model and look at it on its own rows, and on made ones."""
    start = time.perf_counter()
    model = shared_work(work, torch.float32)
    oracle = Oracle(PlainModel(model.state_dict(), model.cfg.n_layers), work.layout.rows(ROWS, 1))
    found = Found(work.layout.name, sharing, work.layout.n_ctx, oracle.intact)
    _on_own_rows(found, model, oracle, work)
    if work.layout.n_ctx > 8:
        _on_made_rows(found, model, oracle.model)
    found.seconds = time.perf_counter() - start
    return found


def _on_own_rows(found: Found, model: Any, oracle: Oracle, work: Work) -> None:
    result = it.analyze(model, "heads", data=work.layout.rows(ROWS, 2))
    found.at_home = result.performs_task
    heads = {(h.detector, h.layer, h.head): h for h in result.heads}
    groups = {g.detector: [tuple(h) for h in g.heads] for g in result.groups}
    truth: set[Place] = model.ground_truth.true

    def cost(at: Place) -> Cost:
        return oracle.cost(at[0], at[1:], groups.get(at[0], ()))

    for at in sorted(truth):
        felt = cost(at).largest >= FELT
        (found.wanted if felt else found.unfelt).append(at)
        if felt and (at not in heads or not heads[at].detected):
            reason = heads[at].reason if at in heads else "no such detector here"
            word = heads[at].causal if at in heads else "not_tested"
            found.missed.append({"at": at, "reason": reason, "word": word})
        if at not in heads or heads[at].knockout is None:
            found.words["not_tested"] += 1
    for at, head in heads.items():
        if head.detected:
            found.named.append(at)
            if not is_right(cost(at), oracle.whole):
                found.false.append({"at": at, "cost": vars(cost(at)), "word": head.causal})
        if head.knockout is None:
            continue
        wrong = contradicts(head.causal, cost(at))
        found.words["wrong" if wrong else _kind(head.causal)] += 1
        if wrong:
            shares = {k: vars(v) for k, v in {**head.knockout.own}.items()}
            entry = {"at": at, "word": head.causal, "cost": vars(cost(at)), "own": shares}
            found.wrong_words.append(entry)


def _kind(word: str) -> str:
    return word if word in ("undecided", "not_tested") else "right"


def _on_made_rows(found: Found, model: Any, plain: PlainModel) -> None:
    result = it.analyze(model, "heads")
    found.made_home = result.performs_task
    relations = sorted({h.detector for h in result.heads})
    shares = attention_on_repeats(plain, relations, model.cfg.d_vocab, model.cfg.n_ctx)
    truth = {at for at in model.ground_truth.true if at[0] in relations}
    detected = {(h.detector, h.layer, h.head) for h in result.heads if h.detected}
    found.made_wanted = sorted(at for at in truth if shares[at] >= ATTENDS)
    found.made_missed = sorted(set(found.made_wanted) - detected)
    found.made_named = sorted(detected)
    found.made_false = sorted(at for at in detected if shares[at] < ATTENDS)


def attention_on_repeats(
    plain: PlainModel, relations: Iterable[str], d_vocab: int, n_ctx: int
) -> dict[Place, float]:
    """What each head pays to a relation on repeated random tokens, with BOS or without."""
    rng = np.random.default_rng(0)
    shares: dict[Place, float] = {}
    for bos in (False, True):
        rows = []
        for _ in range(16):
            period = int(rng.integers(max(3, n_ctx // 3), n_ctx // 2 + 1))
            rows.append(np.resize(rng.permutation(np.arange(1, d_vocab))[:period], n_ctx))
        tokens = np.stack(rows)
        tokens[:, 0] = BOS if bos else tokens[:, 0]
        nothing = np.full((len(tokens), 1), -1)
        for relation in relations:
            mask = relation_mask(relation, tokens, nothing, np.zeros_like(nothing))
            for (layer, head), share in plain.attention(tokens, mask).items():
                at = (relation, layer, head)
                shares[at] = max(shares.get(at, 0.0), share)
    return shares


def power(count: int, n_ctx: int) -> dict[int, list[float]]:
    """By number of heads, the share of work heads detected, at each share of attention."""
    curves: dict[int, list[float]] = {n: [] for n in NOISE}
    for share in track(POWER_SHARES, "power"):
        for n, noise in NOISE.items():
            hits, all_ = 0, 0
            for seed in range(count):
                name = POWER_LAYOUTS[seed % len(POWER_LAYOUTS)]
                layout = Layout(name, n_ctx, n_ctx + 8)
                work = Work(layout, n=n, attention=share, noise=noise or 0.1, seed=seed)
                model = shared_work(work, torch.float32)
                rows = layout.rows(ROWS // 2, seed)
                kinds = sorted({at[0] for at in model.ground_truth.true})
                result = it.analyze(model, "heads", data=rows, detectors=kinds)
                named = {(h.detector, h.layer, h.head) for h in result.heads if h.detected}
                wanted = {at for at in model.ground_truth.true if at[0] == RELATIONS[name]}
                hits, all_ = hits + len(wanted & named), all_ + len(wanted)
            curves[n].append(hits / all_)
    return curves


def figure(curves: dict[int, list[float]]) -> Any:
    import plotly.graph_objects as go

    lines = [
        go.Scatter(
            x=POWER_SHARES,
            y=values,
            name="1 head" if n == 1 else f"{n} heads share",
            mode="lines+markers",
        )
        for n, values in curves.items()
    ]
    return go.Figure(
        lines,
        {
            "title": {"text": "Heads that do the task found, by attention and by how many share"},
            "xaxis": {"title": {"text": "share of each head's attention to the relation"}},
            "yaxis": {"title": {"text": "share of those heads detected"}, "range": [0, 1.02]},
            "template": "plotly_white",
        },
    )


def summary(found: Sequence[Found]) -> dict[str, Any]:
    """Totals."""
    words: Counter[str] = sum((f.words for f in found), Counter())
    return {
        "models": len(found),
        "at_home": sum(bool(f.at_home) for f in found),
        "wanted": sum(len(f.wanted) for f in found),
        "found": sum(len(f.wanted) - len(f.missed) for f in found),
        "unfelt": sum(len(f.unfelt) for f in found),
        "named": sum(len(f.named) for f in found),
        "false": sum(len(f.false) for f in found),
        "words": dict(words),
        "made_wanted": sum(len(f.made_wanted) for f in found),
        "made_found": sum(len(f.made_wanted) - len(f.made_missed) for f in found),
        "made_named": sum(len(f.made_named) for f in found),
        "made_false": sum(len(f.made_false) for f in found),
    }


def say_one(number: int, f: Found) -> None:
    """One model in a line."""
    print(
        f"{number:3} {f.layout}, {f.sharing}, {f.n_ctx} positions: "
        f"{len(f.wanted) - len(f.missed)} of {len(f.wanted)} found, {len(f.false)} false, "
        f"{len(f.wrong_words)} wrong words; made: {len(f.made_missed)} missed of "
        f"{len(f.made_wanted)}, {len(f.made_false)} false; {f.seconds:.0f} s",
        flush=True,
    )


def say(found: Sequence[Found]) -> None:
    """The tables, and all that is missed or wrong."""
    for title, key in (("sharing", "sharing"), ("layout", "layout")):
        print(
            f"\n{title:16}models  recall        false        words right/wrong/undecided/untested"
        )
        for name in dict.fromkeys(getattr(f, key) for f in found):
            _say_line(name, summary([f for f in found if getattr(f, key) == name]))
    print()
    short = [f for f in found if f.n_ctx <= 8]
    one = [f for f in found if f.sharing == "one"]
    for name, some in (
        ("one, above 8", [f for f in one if f.n_ctx > 8]),
        ("contexts to 8", short),
        ("contexts 9 on", [f for f in found if f.n_ctx > 8]),
        ("all", found),
    ):
        _say_line(name, summary(some))
    s = summary(found)
    print(
        f"made prompts: {s['made_found']} of {s['made_wanted']} found; {s['made_false']} of "
        f"{s['made_named']} detected do not attend so"
    )
    for f in found:
        for miss in f.missed:
            print(f"missed: {f.layout}, {f.sharing}, {f.n_ctx} positions: {miss}")
        for wrong in [*f.false, *f.wrong_words]:
            print(f"wrong: {f.layout}, {f.sharing}, {f.n_ctx} positions: {wrong}")
        if f.made_false:
            print(f"made, wrong: {f.layout}, {f.sharing}: {f.made_false}")


def _say_line(name: str, s: dict[str, Any]) -> None:
    words = [s["words"].get(kind, 0) for kind in ("right", "wrong", "undecided", "not_tested")]
    print(
        f"{name:16}{s['models']:6}  {s['found']:3} of {s['wanted']:3}    {s['false']:3} of "
        f"{s['named']:3}    {' / '.join(map(str, words))}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=60)
    parser.add_argument("--power", type=int, default=0, help="models at each point of the figure")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--power-positions", type=int, default=POWER_CTX, help="of its rows")
    parser.add_argument("--html", type=Path, help="the power curves")
    options = parser.parse_args()
    torch.set_num_threads(1)
    start = time.perf_counter()
    found = []
    for number, work in enumerate(draw_works(options.models), start=1):
        found.append(look(*work))
        say_one(number, found[-1])
    if found:
        say(found)
    wanted = options.power or (len(POWER_LAYOUTS) if options.html else 0)
    curves = power(wanted, options.power_positions) if wanted else {}
    for n, values in curves.items():
        points = zip(POWER_SHARES, values, strict=True)
        print(f"power, {n} heads:", " ".join(f"{s}:{v:.2f}" for s, v in points))
    print(f"{time.perf_counter() - start:.0f} s")
    if options.json:
        report = {"summary": summary(found), "models": [vars(f) for f in found], "power": curves}
        options.json.write_text(json.dumps(report, indent=1))
    if options.html:
        options.html.write_text(figure(curves).to_html(config={"displayModeBar": False}))


if __name__ == "__main__":
    main()
