"""An open study's JSON is as the schema describes it."""

import json
from pathlib import Path

SCHEMA = json.loads((Path(__file__).parents[3] / "docs/results.schema.json").read_text())


def test_a_finding_has_the_keys_of_the_schema() -> None:
    from interp_studies.claims import JudgedClaim
    from interp_toolkit.results import jsonable

    found = jsonable(JudgedClaim("it is so", 0.5, 0.1, 1.0, "3 seeds", above=0.2))
    described = SCHEMA["$defs"]["claim"]
    assert set(found) == set(described["required"]) == set(described["properties"])
    assert found["below"] is None
