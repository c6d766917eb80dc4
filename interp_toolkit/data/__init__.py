"""What an analysis runs on: rows of tokens, boolean features of each, a position in each."""

from __future__ import annotations

from interp_toolkit.data.features import FeatureData as FeatureData
from interp_toolkit.data.files import read_data as read_data
from interp_toolkit.data.truth import parse_tokens as parse_tokens
from interp_toolkit.data.truth import truth_table as truth_table
