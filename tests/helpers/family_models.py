"""Models of `testing.families` for tests, skipped where the installed libraries lack them."""

import pytest

from interp_toolkit.errors import InputError
from interp_toolkit.testing.families import loaded


def loaded_or_skipped(family):
    """A tiny model of a family, and what `load` makes of its folder."""
    try:
        return loaded(family)
    except (InputError, AttributeError) as error:
        pytest.skip(f"{family} does not load here: {error}")
