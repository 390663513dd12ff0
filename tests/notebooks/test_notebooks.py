"""Every notebook runs from top to bottom on what the repository ships."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebook_runs(path, request, monkeypatch):
    """Each cell runs without an error; the outputs that are committed are those of such a run."""
    nbformat = pytest.importorskip("nbformat", reason="needs the notebook extra")
    nbclient = pytest.importorskip("nbclient", reason="needs the notebook extra")
    pytest.importorskip("ipykernel", reason="needs the notebook extra")
    root = str(FOLDER.parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]))
    notebook = nbformat.read(path, as_version=4)
    committed = [len(cell.get("outputs", ())) for cell in notebook.cells]
    client = nbclient.NotebookClient(
        notebook, timeout=300, resources={"metadata": {"path": str(FOLDER)}}
    )
    client.execute()
    if request.config.getoption("--refresh-notebooks"):
        for cell in notebook.cells:
            cell.get("metadata", {}).pop("execution", None)
        nbformat.write(notebook, path)
    else:
        assert [len(cell.get("outputs", ())) for cell in notebook.cells] == committed
