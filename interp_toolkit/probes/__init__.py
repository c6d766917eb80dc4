"""What is linearly readable: estimators on arrays. The analyses of models are in `analysis`."""

from interp_toolkit.probes.boolean import TABLES as TABLES
from interp_toolkit.probes.boolean import ANDProbe as ANDProbe
from interp_toolkit.probes.boolean import BooleanProbe as BooleanProbe
from interp_toolkit.probes.boolean import ORProbe as ORProbe
from interp_toolkit.probes.boolean import XORProbe as XORProbe
from interp_toolkit.probes.boolean import parity_table as parity_table
from interp_toolkit.probes.boolean import truth_values as truth_values
from interp_toolkit.probes.estimator import LogisticProbe as LogisticProbe
from interp_toolkit.probes.heldout import cross_validate_targets as cross_validate_targets
from interp_toolkit.probes.logistic import fit_logistic_targets as fit_logistic_targets
from interp_toolkit.probes.separability import Separability as Separability
from interp_toolkit.probes.separability import check_separability as check_separability
from interp_toolkit.probes.splits import shuffled_labels as shuffled_labels
from interp_toolkit.probes.uand.errors import PairErrors as PairErrors
from interp_toolkit.probes.uand.readoff import UANDReadoff as UANDReadoff
from interp_toolkit.probes.witness import Certificate as Certificate
from interp_toolkit.probes.witness import Hyperplane as Hyperplane
