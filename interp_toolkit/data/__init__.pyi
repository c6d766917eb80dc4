from .arrays import data_from_arrays as data_from_arrays
from .features import FeatureData as FeatureData
from .files import read_data as read_data
from .lists.draws import ListSource as ListSource
from .lists.layout import parse_layout as parse_layout
from .schema import Schema as Schema
from .truth import parse_tokens as parse_tokens
from .truth import truth_table as truth_table
