"""What the pages say is what the code does."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any, get_args

import pytest

from interp_toolkit.report.format import LEGEND, PLAIN_SIGN, SIGNS, tone_of
from interp_toolkit.results import SCHEMA, Status

DOCS = Path(__file__).parents[1] / "docs"
spec = importlib.util.spec_from_file_location("shown", DOCS / "shown.py")
assert spec is not None
assert spec.loader is not None
shown = importlib.util.module_from_spec(spec)
spec.loader.exec_module(shown)


def text_of(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def test_every_status_word_has_the_sign_that_the_report_gives_it() -> None:
    said = {}
    for sign, words in re.findall(r"^\| (\S) \| .*? \| (`.*`) \|$", text_of("json.md"), re.M):
        said |= dict.fromkeys(re.findall(r"`(\w+)`", words), sign)
    tones = {word: tone_of(word) for word in get_args(Status)}
    assert said == {w: SIGNS[tone] if tone else PLAIN_SIGN for w, tone in tones.items()}


def test_what_a_sign_claims_is_said_as_the_report_says_it() -> None:
    for tone, claim in LEGEND.items():
        assert f"| {SIGNS[tone]} | {claim} |" in text_of("json.md")


def test_the_schema_is_the_one_described() -> None:
    assert f'"schema": "{SCHEMA}"' in text_of("json.md")


def test_the_glossary_has_one_line_a_word() -> None:
    rows = re.findall(r"^\| (.+?) \| (.+?) \|(.*)\|$", text_of("glossary.md"), re.M)
    words = [word for word, meaning, _ in rows if word not in ("word", "---")]
    assert len(words) > 50
    assert {word for word in words if words.count(word) > 1} <= {"undecided"}


ANALYSES = sorted((DOCS / "analyses").glob("*.md"))
HEADINGS = ("Question", "Example", "How it decides", "Null and error rates", "Limits", "Source")


def test_every_analysis_has_a_page() -> None:
    from interp_toolkit.registry import names

    told = [
        name
        for path in ANALYSES
        for name in re.findall(r"`([\w-]+)`", path.read_text(encoding="utf-8").splitlines()[1])
    ]
    assert sorted(told) == sorted(names("probes"))


@pytest.mark.parametrize("page", ANALYSES, ids=lambda page: page.stem)
def test_a_page_of_an_analysis_has_all_its_parts(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    parts = re.split(r"^## ", text, flags=re.M)[1:]
    for heading in HEADINGS:
        [part] = [part for part in parts if part.startswith(heading)]
        assert len(part.removeprefix(heading).split()) > 4
    assert "interp analyze" in text
    assert shown.EXAMPLE.search(text) or page.stem == "roles"  # no toy has names to move


@pytest.mark.slow
@pytest.mark.parametrize("page", ANALYSES, ids=lambda page: page.stem)
def test_the_output_of_an_example_is_what_the_analysis_prints(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert shown.update_output(text) == text, "python docs/shown.py rewrites it"


@pytest.mark.parametrize("page", sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")))
def test_links_lead_somewhere(page: str) -> None:
    made = {"reference.md", "gallery.md"}
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text_of(page)):
        inside = "://" not in target and target not in made
        assert not inside or ((DOCS / page).parent / target).exists(), target


@pytest.mark.parametrize("page", sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")))
def test_code_on_a_page_is_that_of_the_example(page: str) -> None:
    assert shown.update_code(text_of(page)) == text_of(page), "python docs/shown.py rewrites it"


UNCLEAR = r"models of strangers|\bat home\b|made prompts|handed back|(is|are) told\b|thereof"


@pytest.mark.parametrize("page", sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")))
def test_pages_use_the_words_of_the_field(page: str) -> None:
    generated = page.startswith("results") or page == "challenge_card.md"
    assert generated or not re.search(UNCLEAR, text_of(page))


def test_the_valid_line_is_the_one_that_errors_show() -> None:
    from interp_toolkit.data.features import EXAMPLE

    assert f"```json\n{EXAMPLE}\n```" in text_of("behaviours.md")


def test_every_task_and_metric_has_its_row() -> None:
    from interp_toolkit.circuits.metrics.metrics import METRICS
    from interp_toolkit.registry import names

    rows = re.findall(r"^\| `([\w-]+)` \|", text_of("behaviours.md"), re.M)
    assert sorted(rows) == sorted([*names("tasks"), *METRICS])


def test_the_task_on_the_page_makes_rows() -> None:
    from tiny_tokenizers import word_level

    code = re.findall(r"```python\n(.*?)```", text_of("behaviours.md"), re.S)[-1]
    known: dict[str, Any] = {}
    exec(code, known)
    words = "In , the The capital main city of is France Italy Japan Spain China "
    words += "Paris Rome Tokyo Madrid Beijing"
    data = known["CAPITALS"].make(word_level(words.split()), 8, 0)
    assert len(data) == 8
    assert data.corrupted is not None


def test_the_numbers_of_circuits_are_those_of_the_code() -> None:
    from interp_toolkit.circuits.edges import checks, figures, screened, search
    from interp_toolkit.circuits.edges.checks import SHARE
    from interp_toolkit.formatting import percent

    said = " ".join(text_of("analyses/circuit.md").split())
    standard = search.STANDARD
    gradients = ("no", "one", "two", "three", "four", "five")[search.STEPS]
    for words in (
        f"Up to {search.MANY:,} edges",
        f"its effect is at least {percent(SHARE)}",
        f"and {gradients} gradients",
        f"between them have a faithfulness of {percent(screened.NODES_KEEP)}",
        f"until faithfulness is {percent(screened.EDGES_KEEP)}",
        f"the {standard.ablated} with the largest estimates and a random sample of "
        f"{standard.sample} others",
        f"in blocks of {screened.BLOCK} until no edge of a block matters or "
        f"{search.THOROUGH.ablated} have been ablated, and draws a sample of "
        f"{search.THOROUGH.sample}",
        f"The {standard.nodes} nodes of the circuit",
        f"ablates {search.THOROUGH.nodes} nodes",
        f"{checks.TESTED} edges ({standard.tested} in models with more than {search.MANY:,} edges) "
        "are removed",
        f"more than the {100 * checks.UNUSUAL:.0f}th percentile",
        f"a CI within {percent(1 - checks.EQUAL)} to {percent(1 + checks.EQUAL)}",
        f"on {checks.DRAWS} bootstrap samples",
        f"at most {percent(checks.MOST)} of the model's edges",
        f"in at least {percent(checks.STABLE)} of the samples",
        f"faithfulness of {checks.RIVALS} other circuits",
        f"the {figures.MOST_EDGES} largest edges",
    ):
        assert words in said, words


def test_the_calls_that_replace_others_give_the_same() -> None:
    """The code of docs/coming-from.md, run from the top."""
    import torch

    text = (DOCS / "coming-from.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
    assert len(blocks) == text.count("```python")
    names: dict[str, Any] = {}
    for block in blocks:
        exec(block, names)
    model, tokens, hook = names["model"], names["tokens"], "blocks.1.hook_resid_post"
    whole = names["cache"][hook]
    assert torch.allclose(names["values"][hook], whole, atol=1e-5)
    assert torch.allclose(torch.from_numpy(names["X"]), whole[:, -1], atol=1e-5)
    assert torch.equal(names["rows"], torch.arange(len(tokens)))
    before = names["cache"]["blocks.0.hook_resid_post"][:, -1]
    assert torch.allclose(names["layer_0"], before, atol=1e-5)
    assert torch.allclose(names["attention"], names["cache"]["pattern", 1][0], atol=1e-5)

    def zero(value: torch.Tensor, hook: Any) -> torch.Tensor:
        value[:, :, 0] = 0
        return value

    with torch.no_grad():
        z = "blocks.1.attn.hook_z"
        halved = model.run_with_hooks(tokens, fwd_hooks=[(z, lambda value, hook: value / 2)])
        without = model.run_with_hooks(tokens, fwd_hooks=[(z, zero)])
    assert torch.allclose(names["halved"], halved, atol=1e-5)
    assert torch.allclose(names["without"], without, atol=1e-5)
    assert set(names["heads"]["name"]) == {f"L{n}H{h}" for n in range(2) for h in range(3)}
    assert names["alone"].shape[:2] == tokens.shape
