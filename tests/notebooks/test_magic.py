"""`%%profile` in a kernel: what it records, shows and binds, and what it says of a bad line."""

from __future__ import annotations

import pytest

nbformat = pytest.importorskip("nbformat", reason="needs the notebook extra")
nbclient = pytest.importorskip("nbclient", reason="needs the notebook extra")
pytest.importorskip("ipykernel", reason="needs the notebook extra")
pytest.importorskip("onnxruntime", reason="needs the run extra")

_PIPE = """
from profiler.pipelines.sd3 import StableDiffusion3Pipeline
from profiler.pipelines.tiny import default_model_folder
pipe = StableDiffusion3Pipeline.from_folder(default_model_folder())
"""
_CALL = "image = pipe('a cat', num_inference_steps=2)"
_REFUSED = {
    "%%profile 1x\n1": "UsageError: '1x' is no name of a variable",
    "%%profile --ops sometimes\n1": "UsageError: ops='sometimes' is not known: use all, none, fir",
    "%%profile --no-such\n1": "UsageError: unrecognized arguments: --no-such",
    "%%profile --name 'a\n1": "UsageError: %%profile --name 'a: No closing quotation",
    "%%profile --config [\n1": "UsageError: cannot read [ (RBLN_PROFILER_CONFIG): No such file",
    "%%profile --config '{\"vae\": 1}'\n1": "UsageError: RBLN_PROFILER_CONFIG: no setting is ca",
    "%%profile\nawait pipe": "UsageError: %%profile records no cell that awaits: put `with prof",
    "%%profile\nx = (": "UsageError: the cell ended with SyntaxError",
    "profiler.start()\nget_ipython().run_cell_magic('profile', '', '1')": "UsageError: this kern",
}


def _executed(folder, *cells, allow_errors=False):
    """The cells, run in one kernel in `folder`, each with its outputs."""
    sources = (_PIPE, "import profiler", "%load_ext profiler", *cells)
    notebook = nbformat.v4.new_notebook(cells=[*map(nbformat.v4.new_code_cell, sources)])
    client = nbclient.NotebookClient(
        notebook, timeout=120, allow_errors=allow_errors, resources={"metadata": {"path": folder}}
    )
    client.execute()
    return notebook.cells[3:]


def _printed(cell, stream="stdout"):
    return "".join(one["text"] for one in cell.outputs if one.get("name") == stream)


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    """Cells with the magic that end well, and one that fails."""
    return _executed(
        str(tmp_path_factory.mktemp("notebook")),
        '%%profile run --config \'{"ops": "none", "out": "no"}\' --out runs --name mine\n'
        f"{_CALL}\nlen('four')",
        "from pathlib import Path\n"
        "len(run.calls), run.calls['ops_traced'].sum(), len([*Path('runs/mine').glob('0*.pb')])",
        f"%%profile bad\n{_CALL}\nraise ValueError('no')",
        "bad.drops[0].detail.values['failure'], type(image).__name__, profiler.done()",
        "%%profile\nlen('four')",
        "%reload_ext profiler",
        *_REFUSED,
        allow_errors=True,
    )


def test_a_cell_is_recorded_and_shown(cells):
    """The cell's own value comes as without the magic, then the run's folder and its summary."""
    value, place, shown = cells[0].outputs
    assert value["data"]["text/plain"] == "4"
    assert place["text"] == "runs/mine\n"
    assert shown["data"]["text/html"].count("<table>") == 1
    assert "transformer" in shown["data"]["text/html"]


def test_the_run_has_a_name_in_the_notebook(cells):
    """As many calls as the bundle has files of them; no operators, as the line asked for."""
    assert cells[1].outputs[0]["data"]["text/plain"] == "(9, 0, 9)"


def test_a_cell_that_fails_has_a_run(cells):
    """Its error is shown as without the magic, the run says what ended it, what the cell had
    bound is there, and nothing is recorded any more."""
    assert [one["ename"] for one in cells[2].outputs if one.output_type == "error"] == [
        "ValueError"
    ]
    assert "UsageError: the cell ended with ValueError: no" in _printed(cells[2], "stderr")
    assert cells[3].outputs[0]["data"]["text/plain"] == "('ValueError: no', 'PipelineOutput', None)"


def test_a_cell_without_models_says_so(cells):
    """There is no run, and no folder of it."""
    expected = "nothing was recorded: the cell ran no pipeline, module or session\n"
    assert _printed(cells[4]) == expected


@pytest.mark.parametrize("number", range(len(_REFUSED)), ids=list(_REFUSED))
def test_a_bad_line_is_one_sentence(cells, number):
    """What is wrong with the line or the cell is said without a traceback of the magic."""
    cell = cells[6 + number]
    assert _REFUSED[cell.source] in _printed(cell, "stderr")
    assert "notebook.py" not in str(cell.outputs)


def test_a_failed_cell_stops_the_notebook(tmp_path):
    """Cells behind one that failed do not run, with the magic as without it."""
    with pytest.raises(nbclient.exceptions.CellExecutionError):
        _executed(str(tmp_path), "%%profile\n1 / 0", "open('later', 'w')")
    assert not (tmp_path / "later").exists()
