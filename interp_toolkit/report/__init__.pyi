from .console import render as render
from .html import write_report as write_report
from .json import to_json as to_json
from .json import write_json as write_json
