"""What an analysis says of a toy, made by the analysis itself while the pages are built.

A line of a page

    <!-- shown: toy:NAME PROBE -->

becomes the verdict, the first figure and the main table of `it.analyze("toy:NAME", "PROBE")`.
plotly.js is a file of the site, so that the pages need no network.
"""

from __future__ import annotations

import re

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url
from plotly.offline import get_plotlyjs

import interp_toolkit as it
from interp_toolkit.report.notebook import html_of

PLOTLY = "assets/javascripts/plotly.min.js"
MARK = re.compile(r"^<!-- shown: (?P<model>toy:\S+) (?P<probe>\S+) -->$", re.M)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add plotly.js."""
    files.append(File.generated(config, PLOTLY, content=get_plotlyjs()))
    return files


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put what analyses say in the place of their marks."""
    plotly = get_relative_url(PLOTLY, page.url)
    return MARK.sub(lambda mark: shown(mark, plotly), html)


def shown(mark: re.Match[str], plotly: str) -> str:
    """What the analysis of a mark says, below the line that runs it."""
    line = f"interp analyze {mark['model']} --probe {mark['probe']}"
    said = html_of(it.analyze(mark["model"], mark["probe"]), plotly)
    return f"<p>Of <code>{line}</code> it says:</p>\n<div>{said}</div>"
