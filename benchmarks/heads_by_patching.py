"""Which heads the answer depends on: `patching` of heads alone, and transformerlens-fdr's audit.

Both patch every head of the same HookedTransformer, with the compiled weights of
`tracr_programs`, from the clean into the corrupted prompts, and test the effects by sign flips over
prompts. Ours (`--probe patching --kind head`) adjusts for all heads by the largest statistic,
compares with another prompt's activation, and asks for at least 5 % of the difference; theirs has
false discovery rates (Benjamini and Hochberg), its default. Each is run once before it is timed,
then in turn; times are processor seconds, medians of the rounds. True heads move the logit
difference if they alone are patched; false ones are not in the program.

Run, with `pip install --no-deps transformerlens-fdr` and tracr:
    python benchmarks/heads_by_patching.py [--rounds 7] [--only NAME ...] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from tracr_programs import MATTERS, PROGRAMS, PROMPTS, Plain, compile_program, program_rows

import interp_toolkit as it
from interp_toolkit.files import replacing

Heads = set[tuple[int, int]]


def theirs(plain: Plain) -> Heads:
    """Heads that the audit of transformerlens-fdr finds significant."""
    from transformerlens_fdr import PatchingAuditor

    def difference(logits: Any, correct: Any, wrong: Any) -> Any:
        rows = torch.arange(len(logits))
        at = logits[rows, plain.positions[: len(logits), 0]]
        return at[rows, correct] - at[rows, wrong]

    answers, others = plain.answers[:, 0], plain.wrong[:, 0]
    audit = PatchingAuditor(plain.model, difference).run_patching_audit(
        plain.clean, plain.corrupted, answers, others, method="signflip"
    )
    return {(int(i), int(h)) for i, h in audit.significant_mask.nonzero().tolist()}


def ours(plain: Plain, data: Any) -> Heads:
    """Heads that `patching` detects."""
    result = it.analyze(plain.model, "patching", data=data, kinds=("head",))
    return {(site.layer, site.head) for site in result.sites if site.status == "detected"}


@torch.no_grad()
def truth(plain: Plain, program_heads: Heads) -> tuple[Heads, Heads]:
    """Heads that restore MATTERS of the difference if patched alone; heads not in the program."""
    _, cache = plain.model.run_with_cache(plain.clean)
    start = plain.difference(plain.model(plain.corrupted))
    whole = (plain.difference(plain.model(plain.clean)) - start).abs().mean()
    true, every = set[tuple[int, int]](), set[tuple[int, int]]()
    for layer in range(plain.model.cfg.n_layers):
        for head in range(plain.model.cfg.n_heads):

            def put(value: Any, hook: Any, head: int = head) -> Any:
                value[:, :, head] = cache[hook.name][:, :, head]
                return value

            hooks = [(f"blocks.{layer}.attn.hook_z", put)]
            logits = plain.model.run_with_hooks(plain.corrupted, fwd_hooks=hooks)
            every.add((layer, head))
            if abs(float((plain.difference(logits) - start).mean() / whole)) >= MATTERS:
                true.add((layer, head))
    return true, every - program_heads


def timed(work: Callable[[], Heads]) -> tuple[float, Heads]:
    """Processor seconds, and what was found."""
    began = time.process_time()
    found = work()
    return time.process_time() - began, found


def judged(name: str, rounds: int) -> dict[str, Any]:
    """Times and heads of both on one program."""
    program = PROGRAMS[name](np.random.default_rng([0, 2]))
    made = compile_program(program, 0)
    data = program_rows(program, 0, PROMPTS)
    plain = Plain(made, data, torch.float32)
    ways = {"ours": lambda: ours(plain, data), "theirs": lambda: theirs(plain)}
    found = {way: work() for way, work in ways.items()}
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, work in ways.items():
            seconds[way].append(timed(work)[0])
    true, false = truth(plain, {(h.layer, h.head) for h in made.heads})
    return {
        "program": name,
        "heads": plain.model.cfg.n_layers * plain.model.cfg.n_heads,
        "seconds": {way: statistics.median(times) for way, times in seconds.items()},
        "ratio": statistics.median(
            a / b for a, b in zip(seconds["ours"], seconds["theirs"], strict=True)
        ),
        "true": len(true),
        "right": {way: len(heads & true) for way, heads in found.items()},
        "wrong": {way: len(heads & false) for way, heads in found.items()},
    }


def main() -> None:
    """Print and keep."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", nargs="+", choices=list(PROGRAMS), default=list(PROGRAMS))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    programs = [judged(name, options.rounds) for name in track(options.only, "programs")]
    columns = ("program", "heads", "ours, s", "theirs, s", "ours / theirs", "ours", "theirs")
    table = Table(*columns, title="true heads found, and wrong ones")
    for p in programs:
        cells = [f"{p['right'][w]} of {p['true']}, {p['wrong'][w]} wrong" for w in p["right"]]
        times = [f"{p['seconds'][w]:.3f}" for w in p["seconds"]]
        table.add_row(p["program"], str(p["heads"]), *times, f"{p['ratio']:.2f}", *cells)
    Console(width=130).print(table)
    if options.json:
        with replacing(options.json) as partial:
            partial.write_text(json.dumps({"programs": programs}, indent=1) + "\n")


if __name__ == "__main__":
    main()
