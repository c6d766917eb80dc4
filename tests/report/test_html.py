from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from interp_toolkit.errors import InputError
from interp_toolkit.plots import CLASS_COLORS, NEUTRAL, translucent
from interp_toolkit.report import html
from interp_toolkit.report.html import (
    is_identifier,
    prose,
    script_text,
    to_html,
    to_json,
    write_report,
)
from interp_toolkit.results import Evidence, Figure, Table


@dataclass(frozen=True)
class Loose(Evidence):
    """Evidence of any shape, as a plugin's may be."""

    held: Any


VOID = {"meta", "br", "hr", "img", "input", "link"}
HOSTILE = (
    "</script></style></title>--><script>hacked()</script><img src=x onerror=hacked()>\"'&amp;"
)


@dataclass
class Element:
    tag: str
    attributes: dict[str, str]
    parent: Element | None
    children: list[Element] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return " ".join("".join(self.pieces).split())

    def all(self, *tags: str) -> list[Element]:
        found = [self] if self.tag in tags or not tags else []
        return found + [e for child in self.children for e in child.all(*tags)]


class Page(HTMLParser):
    """The page as a tree; a tag that is not closed where it should be is an error."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.root = self.open = Element("", {}, None)
        self.feed(text)
        self.close()
        assert self.open is self.root, f"<{self.open.tag}> is never closed"

    def handle_starttag(self, tag, attrs):
        element = Element(tag, dict(attrs), self.open)
        assert len(element.attributes) == len(attrs), f"<{tag}> has an attribute twice"
        self.open.children.append(element)
        if tag not in VOID:
            self.open = element

    def handle_endtag(self, tag):
        assert self.open.tag == tag, f"</{tag}> closes <{self.open.tag}>"
        self.open = self.open.parent

    def handle_data(self, data):
        element = self.open
        while element is not None:
            element.pieces.append(data)
            element = element.parent

    def all(self, *tags: str) -> list[Element]:
        return self.root.all(*tags)

    def one(self, tag: str) -> Element:
        [element] = self.all(tag)
        return element

    def by_id(self, name: str) -> Element:
        [element] = [e for e in self.all() if e.attributes.get("id") == name]
        return element


@pytest.fixture
def page(separable, not_separable) -> Page:
    return Page(to_html([not_separable, separable]))


@pytest.fixture
def hostile(separable):
    """A result that is hostile wherever a string can stand."""
    figure = Figure(
        HOSTILE,
        HOSTILE,
        [{"type": "scatter", "x": [0], "y": [0], "name": HOSTILE, "text": [HOSTILE]}],
        {"xaxis": {"title": {"text": HOSTILE}}},
    )
    source = separable.provenance

    class Hostile(type(separable)):
        def tables(self):
            return [Table(HOSTILE, [HOSTILE, "n"], [[HOSTILE, 1]], HOSTILE)]

    fields = separable.arguments | {
        "probe": HOSTILE,
        "verdict": HOSTILE,
        "evidence": Loose(HOSTILE, {HOSTILE: {HOSTILE: HOSTILE}, "list": [HOSTILE]}),
        "provenance": replace(source, model={"name": HOSTILE, HOSTILE: HOSTILE}),
        "plots": [figure],
    }
    return Hostile(**fields)


def test_the_verdict_then_the_picture_then_the_evidence_then_the_tables_then_the_source(
    page, texts
):
    beside, section, _ = page.all("section")
    texts([e.text for e in beside.all("h2", "h3")])
    order = [e.attributes.get("class", e.tag).split()[0] for e in section.children]
    assert order == ["h2", "verdict", "figure", "h3", "caption", "table", *["details"] * 3]
    texts([e.text for e in section.all("h3")])
    texts(section.all("p")[0].text)
    texts(section.all("figcaption")[0].text)


def test_the_title_names_the_models(page, separable):
    assert page.one("title").text == "toy:xor-1head, toy:xor-2head · interp-toolkit report"
    assert page.one("h1").text == "toy:xor-1head, toy:xor-2head"
    alone = Page(to_html([separable]))
    assert alone.one("title").text == "toy:xor-2head · interp-toolkit report"
    assert not alone.all("nav")


def test_several_results_open_with_all_verdicts_and_a_link_to_each(page):
    links = page.one("nav").all("a")
    assert [a.attributes["href"] for a in links] == ["#result-1", "#result-2"]
    assert links[0].text.startswith("toy:xor-1head ✗ XOR is not")
    assert links[1].text.startswith("toy:xor-2head ✓ XOR is")


def test_outcomes_have_a_sign_and_a_class(page):
    classes = [p.attributes["class"] for p in page.all("p") if "verdict" in str(p.attributes)]
    assert classes == [f"verdict headline {word}" for word in ("no", "yes", "no", "yes")]
    cells = [td for td in page.all("td") if "outcome" in td.attributes.get("class", "")]
    assert {(td.text, td.attributes["class"]) for td in cells} == {
        ("separable", "deciding outcome yes"),
        ("not separable", "deciding outcome no"),
        ("undecided", "deciding outcome open"),
    }


def test_tables_have_scoped_headings_right_aligned_numbers_and_the_row_in_question(page, texts):
    table = page.all("table")[2]
    assert [(th.text, th.attributes["scope"]) for th in table.all("thead")[0].all("th")] == [
        (name, "col") for name in ("hook", "position", "function", "status", "margin", "accuracy")
    ]
    rows = table.all("tbody")[0].all("tr")
    assert [[cell.text for cell in row.children] for row in rows] == [
        ["blocks.0.hook_resid_pre", "2", "XOR", "not separable", "–", "0.5000"],
        ["blocks.0.hook_resid_post", "2", "XOR", "separable", "0.2175", "1.0000"],
        ["blocks.0.hook_resid_post", "2", "AND", "not separable", "–", "0.7500"],
        ["blocks.0.hook_resid_post", "1", "XOR", "undecided", "2.00e-13", "–"],
    ]
    assert [row.attributes.get("class") for row in rows] == [None, "highlight", None, None]
    assert all(row.children[0].attributes["scope"] == "row" for row in rows)
    assert [cell.attributes.get("class") for cell in rows[1].children] == [
        "identifier",
        "number",
        "whole",
        "deciding outcome yes",
        "number",
        "number",
    ]
    caption = page.by_id(table.attributes["aria-describedby"])
    texts(caption.text)


def test_headings_descend_one_level_at_a_time(page):
    levels = [int(e.tag[1]) for e in page.all("h1", "h2", "h3", "h4", "h5", "h6")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b <= a + 1 for a, b in pairwise(levels))


def test_everything_is_labelled_and_every_reference_leads_somewhere(page):
    ids = [e.attributes["id"] for e in page.all() if "id" in e.attributes]
    assert len(ids) == len(set(ids))
    for element in page.all():
        for name in ("aria-labelledby", "aria-describedby"):
            assert element.attributes.get(name, ids[0]) in ids
        if element.attributes.get("href", "").startswith("#"):
            assert element.attributes["href"][1:] in ids
        if element.attributes.get("role") in {"region", "group"}:
            assert {"aria-labelledby", "aria-label"} & set(element.attributes)
    plots = [e for e in page.all("div") if e.attributes.get("class") == "plot"]
    assert len(plots) == 3
    assert all(p.attributes["aria-label"].startswith("Plot: ") for p in plots)
    boxes = [e for e in page.all("div") if e.attributes.get("class") == "table"]
    assert all(box.attributes["tabindex"] == "0" for box in boxes)  # scrolls by keyboard
    assert all(b.text for b in page.all("button"))
    assert page.one("html").attributes["lang"] == "en"


def test_what_a_figure_shows_is_linked_from_tables_of_the_same_result(separable):
    class OfHeads(type(separable)):
        def tables(self):
            return [Table("Heads", ["head", "score"], [["L0H0", 0.1], ["L0H1", 0.9]])]

    shown = Figure("Attention", "Of one head.", [{"type": "scatter", "y": [1]}], shows=["L0H1"])
    one = OfHeads(**separable.arguments | {"plots": [*separable.plots, shown]})
    page = Page(to_html([one, OfHeads(**separable.arguments)]))
    links = [e for e in page.all("a") if e.text in ("L0H0", "L0H1")]
    number = len(separable.plots) + 1
    assert [(e.text, e.attributes["href"]) for e in links] == [("L0H1", f"#figure-{number}")]
    assert "Attention" in page.by_id(f"figure-{number}").text


def test_nothing_on_the_page_points_outside_it(page):
    for element in page.all():
        assert element.tag not in {"link", "iframe", "object", "embed", "base", "form", "img"}
        assert not [name for name in element.attributes if name.startswith("on")]
        for name in ("src", "srcset", "action", "data", "poster", "formaction", "style"):
            assert name not in element.attributes
        assert element.attributes.get("href", "#").startswith("#")
    css = page.one("style").text
    assert "url(" not in css
    assert "@import" not in css
    own = html._source("page.js")
    assert not re.search(r"https?:|fetch\(|XMLHttpRequest|WebSocket|sendBeacon|import\(", own)


def test_the_policy_allows_these_scripts_and_no_network(page):
    [policy] = [m.attributes["content"] for m in page.all("meta") if "http-equiv" in m.attributes]
    directives = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert directives["default-src"] == "'none'"
    assert directives["img-src"] == "data: blob:"
    assert "connect-src" not in directives  # so that default-src holds for it
    [script] = [s for s in page.all("script") if s.attributes.get("type") is None]
    packed = base64.b64decode("".join(page.by_id("plotly").pieces))
    hashes = [
        base64.b64encode(hashlib.sha256(source).digest()).decode()
        for source in ("".join(script.pieces).encode(), gzip.decompress(packed))
    ]
    assert directives["script-src"].split() == [f"'sha256-{h}'" for h in hashes]


def test_the_page_carries_all_its_numbers(page, separable, not_separable):
    document = json.loads("".join(page.by_id("document").pieces))
    assert document == to_json([not_separable, separable])
    figures = json.loads("".join(page.by_id("figures").pieces))
    assert [[trace["type"] for trace in figure["data"]] for figure in figures] == [
        ["scatter"] * 5,
        ["scatter3d"],
        ["scatter"] * 5,
    ]


def test_a_hostile_string_is_shown_and_never_runs(hostile):
    text = to_html([hostile])
    page = Page(text)
    assert text.count("<script>hacked()") == 0
    assert not page.all("img")
    assert len(page.all("script")) == 5
    assert len(page.all("title")) == 1
    assert page.one("h1").text == HOSTILE
    assert page.one("h2").text == HOSTILE
    assert page.all("h3")[0].text == HOSTILE
    assert page.all("tbody")[0].all("th")[0].text == HOSTILE
    [verdict] = [p for p in page.all("p") if "verdict" in p.attributes.get("class", "")]
    assert verdict.text == f"• {HOSTILE}"
    [plot] = [e for e in page.all("div") if e.attributes.get("class") == "plot"]
    assert plot.attributes["aria-label"] == f"Plot: {HOSTILE}"
    assert json.loads("".join(page.by_id("document").pieces)) == to_json([hostile])
    [figure] = json.loads("".join(page.by_id("figures").pieces))
    assert figure["data"][0]["text"] == [HOSTILE]


def test_a_page_weighs_little_more_than_the_bundle_that_its_traces_need(separable):
    flat = replace(separable, plots=[Figure("F", "c", [{"type": "scatter", "y": [1]}])])
    deep = replace(separable, plots=[Figure("F", "c", [{"type": "mesh3d", "x": [1]}])])
    plain = replace(separable, plots=[])
    sizes = [len(to_html([result]).encode()) for result in (plain, flat, deep)]
    assert sizes[0] < 40_000
    assert sizes[1] < sizes[0] + 700_000
    assert 1_500_000 < sizes[2] < 2_200_000
    assert len(Page(to_html([plain])).all("script")) == 4


@pytest.mark.slow
def test_reports_of_toys_weigh_less_than_a_megabyte_and_a_half(analyzed):
    probes = ("heads", "circuit", "patching", "logit-attribution")
    page = to_html([analyzed("toy:induction", probe) for probe in probes])
    assert 500_000 < len(page.encode()) < 1_500_000
    assert len(to_html([analyzed("toy:xor-2head", "xor")]).encode()) < 800_000


def test_the_small_bundle_has_the_traces_that_its_list_says_and_is_of_plotly_s_own_version():
    source = gzip.decompress(html._plotly(cartesian=True)).decode()
    everything = gzip.decompress(html._plotly(cartesian=False)).decode()
    version = re.compile(r"plotly\.js (?:\(cartesian - minified\) )?v(\d+)\.")
    assert version.search(source)[1] == version.search(everything)[1]  # the major one
    named = re.compile(r'moduleType:"trace",name:"(\w+)"')
    assert set(named.findall(source)) == html.CARTESIAN_TRACES
    assert set(named.findall(everything)) > html.CARTESIAN_TRACES


def test_the_same_results_give_the_same_bytes(separable, tmp_path):
    first, second = tmp_path / "a.html", tmp_path / "b.html"
    write_report([separable], first)
    write_report([separable], second)
    assert first.read_bytes() == second.read_bytes()
    assert sorted(tmp_path.iterdir()) == [first, second]


def test_what_cannot_be_written_is_one_clear_line(separable, tmp_path, texts):
    with pytest.raises(InputError, check=texts):
        write_report([], tmp_path / "report.html")
    with pytest.raises(InputError, check=texts):
        write_report([separable], tmp_path / "no" / "report.html")


@pytest.mark.parametrize("kind", ["scattergl", "parcoords", "choroplethmap", "scattermapbox"])
def test_a_trace_that_needs_eval_or_the_network_is_refused(separable, kind, texts):
    result = replace(separable, plots=[Figure("F", "c", [{"type": kind}])])
    with pytest.raises(ValueError, check=texts):
        to_html([result])


@pytest.mark.parametrize("kind", ["scatter", "scatter3d", "bar", "heatmap", "surface", "mesh3d"])
def test_other_traces_are_not_refused(separable, kind):
    to_html([replace(separable, plots=[Figure("F", "c", [{"type": kind}])])])


def test_a_script_cannot_close_its_element_and_its_lines_end_as_the_browser_reads_them():
    assert script_text("a('</script>');\r\nb('</SCRIPT >')") == (
        "a('<\\/script>');\nb('<\\/SCRIPT >')"
    )


def test_hook_names_in_sentences_are_set_in_fixed_width():
    assert prose("at blocks.0.hook_resid_post (position 2)") == (
        "at <code>blocks.0.hook_resid_post</code> (position 2)"
    )
    assert prose("e.g. a < b and/or c: 0.5") == "e.g. a &lt; b and/or c: 0.5"


def test_a_number_with_an_exponent_is_not_broken_over_two_lines():
    assert prose("residual 2.8e-17, <3e5.") == (
        'residual <span class="whole">2.8e-17</span>, &lt;<span class="whole">3e5</span>.'
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("blocks.0.hook_resid_post", True),
        ("toy:xor-2head", True),
        ("a1" * 32, True),
        ("XOR", False),
        ("not_separable", False),
        ("3.9.0", False),
        ("a sentence.", False),
        (0.5, False),
    ],
)
def test_a_machine_s_name_is_told_from_words_and_numbers(value, expected):
    assert is_identifier(value) is expected


def luminance(color: str) -> float:
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(a: str, b: str) -> float:
    """WCAG 2's contrast ratio."""
    dark, light = sorted((luminance(a), luminance(b)))
    return (light + 0.05) / (dark + 0.05)


def themes() -> list[dict[str, str]]:
    css = (Path(html.__file__).parent / "page.css").read_text()
    blocks = re.findall(r":root[^{]*\{([^}]*)\}", css)
    return [dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", block)) for block in blocks]


def test_the_two_ways_into_the_dark_theme_are_one_theme():
    light, chosen, preferred = themes()
    assert chosen == preferred
    assert set(chosen) == set(light)


@pytest.mark.parametrize("theme", [0, 1])
def test_text_and_figures_stand_out_in_both_themes(theme):
    colors = themes()[theme]
    for name in ("ink", "soft", "yes", "no", "open", "plain"):
        assert contrast(colors[name], colors["paper"]) >= 4.5  # WCAG AA for text
        assert contrast(colors[name], colors["wash"]) >= 4.5
    for color in (*CLASS_COLORS, NEUTRAL):
        assert contrast(color, colors["paper"]) >= 3.4  # 3 for graphics


def test_a_translucent_colour_is_the_colour_with_an_alpha():
    assert translucent("#1f7fc0", 0.25) == "rgba(31, 127, 192, 0.25)"
