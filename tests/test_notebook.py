"""The example notebook runs in a Jupyter kernel, and shows what it says it does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[1] / "examples" / "notebook.ipynb"


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    folder = tmp_path_factory.mktemp("notebook")
    client = nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    client.execute()
    assert (folder / "heads.html").stat().st_size > 5e5
    return notebook


@pytest.mark.slow
def test_the_notebook_is_kept_without_outputs() -> None:
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    assert not any(cell.get("outputs") for cell in notebook.cells)


@pytest.mark.slow
def test_results_show_verdict_figure_and_table(executed: Any) -> None:
    shown = [output for cell in executed.cells for output in cell.get("outputs", [])]
    assert not [output for output in shown if output.output_type == "error"]
    html = [output.data["text/html"] for output in shown if "text/html" in output.get("data", {})]
    assert "Induction head L1H0" in html[0]
    assert "Plotly.newPlot" in html[0]
    assert "<table>" in html[0]
    assert any("Certificate" in text and "float64[2]" in text for text in html)
    assert any("QKCircuit" in text for text in html)
    figures = [o for o in shown if "application/vnd.plotly.v1+json" in o.get("data", {})]
    assert len(figures) == 1
    assert figures[0].data["application/vnd.plotly.v1+json"]["layout"]["width"] == 700
    plain = [output.get("data", {}).get("text/plain", "") for output in shown]
    assert all(
        "\n" not in text for text in plain if text.startswith(("Heads", "Certificate", "QK"))
    )
