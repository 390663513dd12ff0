"""Every notebook runs from top to bottom on what the repository ships, and is its story's."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
STORIES = sorted((FOLDER / "stories").glob("*.md"))
_MOST = 500_000  # bytes of a notebook
_MACHINE = re.compile(r"/(work|tmp|home|root|usr)/|\.py:\d+")  # a place on somebody's machine


@pytest.fixture(scope="module")
def made():
    """`notebooks/make_notebooks.py` as a module."""
    pytest.importorskip("nbformat", reason="needs the notebook extra")
    pytest.importorskip("nbclient", reason="needs the notebook extra")
    pytest.importorskip("ipykernel", reason="needs the notebook extra")
    spec = importlib.util.spec_from_file_location("made", FOLDER / "make_notebooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _committed(made, story):
    return made.nbformat.read(FOLDER / f"{story.stem}.ipynb", as_version=4)


def _kinds(notebook, picture="image/png"):
    """What each cell puts out: names of streams and types of what is shown, but for pictures."""
    return [
        [output.get("name") or sorted(set(output["data"]) - {picture}) for output in cell.outputs]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def test_each_story_has_its_notebook():
    """No notebook is left of a story that went, and none is missing."""
    notebooks = {path.stem for path in FOLDER.glob("*.ipynb")}
    assert notebooks == {path.stem for path in STORIES}


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_a_notebook_is_its_story(made, story):
    """The cells that are committed are those of the story as it stands today."""
    expected = made.notebook_of(story.read_text("utf-8"))
    found = _committed(made, story)
    assert [cell.source for cell in found.cells] == [cell.source for cell in expected.cells]


def test_the_tour_needs_public_names_alone():
    """What it shows is had from `import profiler`, so that a reader's own code can rely on it."""
    imports = re.findall(
        r"^(?:from|import) (profiler[\w.]*)",
        (FOLDER / "stories" / "tour.md").read_text("utf-8"),
        re.MULTILINE,
    )
    assert imports == ["profiler"]


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_outputs_are_small_and_of_no_machine(made, story):
    """A notebook is below half a megabyte, each figure has a picture beside it, and no output
    names a file of the machine that it ran on."""
    notebook = _committed(made, story)
    assert (FOLDER / f"{story.stem}.ipynb").stat().st_size < _MOST
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    figures = [output for output in outputs if made.PLOTLY in output.get("data", {})]
    assert figures
    assert all("image/png" in output.data for output in figures)
    for output in outputs:
        output.get("data", {}).pop("image/png", None)
        assert not _MACHINE.search(json.dumps(output))


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_a_notebook_runs(made, story):
    """Each cell runs without an error and puts out what it did when it was committed: tables,
    figures and lines, with numbers of this machine."""
    text = story.read_text("utf-8")
    needs = made.NEEDS.search(text)
    for package in needs[1].split() if needs else ():
        pytest.importorskip(package, reason=f"the notebook needs {package}: torch extra")
    notebook = made.notebook_of(text)
    made.execute(notebook)
    assert _kinds(notebook) == _kinds(_committed(made, story))
