"""Every notebook runs from top to bottom, and is stored with what its cells print and draw."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def outputs(notebook):
    """What each code cell shows, without the numbers."""
    return [
        [sorted(output.get("data", {output.output_type: None})) for output in cell.outputs]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_what_is_stored(path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for flags in ("XLA_FLAGS", "JAX_DISABLE_MOST_OPTIMIZATIONS"):  # as users have it: its runs are long enough to gain
        monkeypatch.delenv(flags)
    stored = nbformat.read(path, 4)
    fresh = nbformat.read(path, 4)
    before = sorted(path.parent.rglob("*"))
    options = {"timeout": 300, "kernel_name": "python3", "coalesce_streams": True}
    NotebookClient(fresh, **options, resources={"metadata": {"path": str(path.parent)}}).execute()
    assert outputs(fresh) == outputs(stored)
    assert sorted(path.parent.rglob("*")) == before, "a notebook leaves nothing behind"


def test_notebooks_are_stored_as_they_ran():
    assert [path.stem[:2] for path in NOTEBOOKS] == ["01", "02", "03", "04", "05"]
    for path in NOTEBOOKS:
        cells = [cell for cell in nbformat.read(path, 4).cells if cell.cell_type == "code"]
        assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1)), path.name
        shown = [output for cell in cells for output in cell.outputs]
        assert not [o for o in shown if o.output_type == "error" or o.get("name") == "stderr"], path.name
        assert any("image/png" in output.get("data", {}) for output in shown), f"{path.name} has no picture"
        assert path.stat().st_size < 500_000, path.name
