from .console import render as render
from .html import write_json as write_json
from .html import write_report as write_report
