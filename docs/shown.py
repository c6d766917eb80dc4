"""Example output and example code on pages.

A page holds a command and its output (the headline and the findings) as text:

    ```console
    $ interp analyze toy:xor-2head --probe xor
    ✓ XOR is linearly separable ...
    ```

The site adds the first figure and the main table of the same analysis below it. plotly.js is a file
of the site, so that pages need no network.

Code of a file in `examples` stands in a block with the file's path and, where one is marked in the
file, a section as its title:

    ```python title="examples/check_claims.py:claims"

Run: python docs/shown.py [PAGE ...]    rewrites both on these pages, or on all
"""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import interp_toolkit as it
from interp_toolkit.report.format import sign_of_status

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PLOTLY = "assets/javascripts/plotly.min.js"
EXAMPLE = re.compile(
    r"^(?P<command>```console\n\$ interp analyze (?P<model>toy:\S+) --probe (?P<probe>\S+)\n)"
    r".*?^```$",
    re.M | re.S,
)
CODE = re.compile(
    r'^(?P<fence>```\w+ title="(?P<path>examples/[^":]+)(?::(?P<section>[\w-]+))?"\n).*?^```$',
    re.M | re.S,
)
MARK = re.compile(r"^<!-- figures of (?P<model>\S+) (?P<probe>\S+) -->$", re.M)


@cache
def analyze(model: str, probe: str) -> Any:
    """The result of an example."""
    return it.analyze(model, probe)


def output(model: str, probe: str) -> str:
    """The headline with its sign, then the findings."""
    result = analyze(model, probe)
    lines = [f"{sign_of_status(result.status)} {result.headline}"]
    return "".join(f"{line}\n" for line in [*lines, *(f"• {text}" for text in result.findings)])


def code(path: str, section: str | None) -> str:
    """A file, or a section between its marks."""
    text = (ROOT / path).read_text(encoding="utf-8")
    if section:
        text = text.split(f"[start:{section}]\n")[1].split(f"# --8<-- [end:{section}]")[0]
    return text


def update_code(text: str) -> str:
    """A page's text with code blocks as the files in `examples` have them."""
    return CODE.sub(lambda m: f"{m['fence']}{code(m['path'], m['section'])}```", text)


def update_output(text: str) -> str:
    """A page's text with the output of its examples as the analyses print it now."""
    return EXAMPLE.sub(lambda m: f"{m['command']}{output(m['model'], m['probe'])}```", text)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add plotly.js."""
    from mkdocs.structure.files import File
    from plotly.offline import get_plotlyjs

    files.append(File.generated(config, PLOTLY, content=get_plotlyjs()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Mark where the figures of an example go."""
    return EXAMPLE.sub(
        lambda m: f"{m[0]}\n\n<!-- figures of {m['model']} {m['probe']} -->", markdown
    )


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Insert the figures and tables of the examples."""
    from mkdocs.utils import get_relative_url

    from interp_toolkit.report.notebook import html_of

    plotly = get_relative_url(PLOTLY, page.url)
    return MARK.sub(
        lambda m: f"<div>{html_of(analyze(m['model'], m['probe']), plotly)}</div>", html
    )


def main() -> None:
    """Rewrite the examples of pages."""
    for page in map(Path, sys.argv[1:] or sorted(map(str, DOCS.rglob("*.md")))):
        before = page.read_text(encoding="utf-8")
        after = update_output(update_code(before))
        if after != before:
            page.write_text(after, encoding="utf-8")
            print(page)


if __name__ == "__main__":
    main()
