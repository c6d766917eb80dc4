"""What tests of data files share."""

import pytest
from tables import write


@pytest.fixture(params=[".jsonl", ".parquet"])
def table(request, tmp_path):
    return lambda records: write(tmp_path / f"data{request.param}", records)
