"""The numbers behind a sorting verdict on lists of 50: how long one reading and its measures take.

`--probe sorting` takes them of the model and of 20 reinitialized ones. The model is untrained (one
head, a norm, 102 positions, 64 values), as what a weight is changes no time. Beside ours, the parts
as they were written at first and simply: one pass over all lists, and each place's attention
against every other's for the filter score; both sides agree. One thread; medians of rounds taken in
turn.
Run: python benchmarks/sorting_long_lists.py [--rounds 3] [--lists 2000] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time

import torch

from interp_toolkit.circuits.sorting.activations import above_scores, read
from interp_toolkit.circuits.sorting.measures import measure
from interp_toolkit.data.lists.draws import ListSource
from interp_toolkit.data.lists.layout import parse_layout
from interp_toolkit.files import replacing
from interp_toolkit.models.running import forward
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer

LAYOUT = "64 list50 65 sorted50"
MODELS = 21  # the model and 20 reinitialized ones
WANTED_SECONDS = 120


def untrained():
    return Transformer(
        TransformerConfig(
            n_layers=1,
            n_heads=1,
            d_model=128,
            d_head=32,
            d_vocab=66,
            n_ctx=102,
            attn_only=True,
            normalization_type="LN",
            seed=0,
        )
    )


def in_one_pass(model, layout, lists):
    cached, forward.CACHED_TOKENS = forward.CACHED_TOKENS, 2**62
    try:
        return read(model, layout, lists)
    finally:
        forward.CACHED_TOKENS = cached


def filter_place_by_place(reading):
    """The share of pairs that values above the previous one win, ties half."""
    at = torch.nonzero(reading.rows.present[:, 1:])
    row, item = at[:, 0], at[:, 1]
    key, previous = reading.lists.values[row], reading.rows.answer[row, item]
    paid = reading.at_list[row, 0, item + 1]
    above = key > previous[:, None]
    won = total = 0.0
    for place in range(paid.shape[1]):
        pairs = above[:, place : place + 1] & ~above
        more = (paid[:, place : place + 1] - paid).sign()
        won += float(((more + 1) / 2 * pairs).sum())
        total += float(pairs.sum())
    return won / total


def seconds(made):
    start = time.perf_counter()
    found = made()
    return time.perf_counter() - start, found


def run(options):
    torch.set_num_threads(1)
    model = untrained()
    layout = parse_layout(LAYOUT, d_vocab=66, d_vocab_out=66, n_ctx=102)
    lists = ListSource("distinct", 64, 50, 50).draw(options.lists, torch.Generator().manual_seed(0))
    reading = read(model, layout, lists)
    sides = {
        "reading": lambda: read(model, layout, lists),
        "reading, in one pass": lambda: in_one_pass(model, layout, lists),
        "attention scores": lambda: above_scores(reading, reading.at_list[:, 0]),
        "filter score, place by place": lambda: filter_place_by_place(reading),
        "reading and all measures": lambda: measure(model, read(model, layout, lists)),
    }
    taken = {name: [] for name in sides}
    found = {}
    for _ in range(options.rounds):
        for name, made in sides.items():
            spent, found[name] = seconds(made)
            taken[name].append(spent)
    torch.testing.assert_close(found["reading"].logits, found["reading, in one pass"].logits)
    scores = found["attention scores"].filter_score, found["filter score, place by place"]
    assert math.isclose(*scores)
    return {
        "benchmark": "sorting_long_lists",
        "lists": options.lists,
        "threads": 1,
        "seconds": taken,
        "median_seconds": {name: statistics.median(spent) for name, spent in taken.items()},
    }


def show(figures):
    middle = figures["median_seconds"]
    for name, spent in middle.items():
        print(f"{name:32} {spent:7.2f} s")
    old, new = "reading, in one pass", "reading"
    print(f"batches that caches hold: {middle[old] / middle[new]:.1f} times as fast")
    old, new = "filter score, place by place", "attention scores"
    print(f"pairs counted in order, all scores: {middle[old] / middle[new]:.1f} times as fast")
    whole = MODELS * middle["reading and all measures"]
    print(f"{MODELS} models: {whole:.0f} s (wanted: {WANTED_SECONDS})")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="times all sides take turns")
    parser.add_argument("--lists", type=int, default=2000, help="of a reading")
    parser.add_argument("--json", metavar="FILE", help="also write the figures here")
    options = parser.parse_args()
    figures = run(options)
    show(figures)
    if options.json:
        with replacing(options.json) as path:
            path.write_text(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
