from .estimators.boolean import BooleanProbe as BooleanProbe
from .estimators.boolean import XORProbe as XORProbe
from .estimators.logistic import LogisticProbe as LogisticProbe
from .estimators.logistic import fit_logistic_targets as fit_logistic_targets
from .estimators.separability import Certificate as Certificate
from .estimators.separability import check_separability as check_separability
from .uand.readout import UANDReadoff as UANDReadoff
from .uand.readout import UANDReadout as UANDReadout
