"""Results to a terminal, to JSON and to one HTML page; knows results, not analyses."""

from interp_toolkit.report.console import render as render
from interp_toolkit.report.html import write_report as write_report
from interp_toolkit.report.json import to_json as to_json
from interp_toolkit.report.json import write_json as write_json
