"""Benchmarks start from a checkout in which nothing is installed, and measure what they say."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"
NEEDS = {
    "gpu_record": ("torch", "diffusers"),
    "html_choice": ("playwright",),
    "html_load": ("playwright",),
    "html_peers": ("playwright",),
    "torch_capture": ("torch", "diffusers"),
}
SCRIPTS = sorted(
    path.stem for path in BENCHMARKS.glob("*.py") if '"__main__"' in path.read_text("utf-8")
)


_HELP = """
import os, runpy, sys
import numpy  # most of what most of them import

for path in sys.argv[1:]:
    print(f"== {path}", flush=True)
    if os.fork():
        print("code", os.wait()[1], flush=True)
    else:
        sys.argv, sys.path[0] = [path, "--help"], os.path.dirname(path)
        runpy.run_path(path, run_name="__main__")
        sys.exit()
"""
"""Gives each script a process that has not imported what another has, but numpy."""


def run(script: str, *arguments: str, folder: Path) -> str:
    """What a benchmark prints, run from elsewhere without any help from the environment."""
    return _from_elsewhere([str(BENCHMARKS / f"{script}.py"), *arguments], folder)


def _from_elsewhere(arguments: list[str], folder: Path) -> str:
    without = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "RBLN_")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(without)}
    command = [sys.executable, *arguments]
    done = subprocess.run(
        command, check=False, cwd=folder, env=clean, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_nothing_is_measured_without_byte_code():
    """Each process would compile the project anew."""
    command = [sys.executable, "-B", str(BENCHMARKS / "checkout.py")]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("Python keeps no byte code: unset PYTHONDONTWRITEBYTECODE")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes are forked here")
def test_all_start_from_anywhere(tmp_path):
    """Each benchmark finds the project and its neighbours by itself."""
    paths = [str(BENCHMARKS / f"{script}.py") for script in SCRIPTS if script not in NEEDS]
    printed = _from_elsewhere(["-c", _HELP, *paths], tmp_path)
    each = dict(part.split("\n", 1) for part in printed.split("== ")[1:])
    assert [*each] == paths
    for path, said in each.items():
        assert said.startswith("usage: "), path
        assert said.endswith("code 0\n"), path


@pytest.mark.parametrize("script", NEEDS)
def test_starts_from_anywhere(script, tmp_path):
    """So do those that need more than the tests do."""
    for name in NEEDS[script]:
        pytest.importorskip(name)
    assert run(script, "--help", folder=tmp_path).startswith("usage: ")


@pytest.mark.nightly
def test_side_by_side_on_onnx_runtime(tmp_path):
    """One round of two steps: a row for each way to run; our bundle holds every call and span, and
    as many commands as ONNX Runtime's files hold nodes."""
    arguments = ("--rounds", "1", "--steps", "2", "--parts", "onnxruntime")
    lines = run("side_by_side", *arguments, folder=tmp_path).splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if "|" in line]
    rows = {row[0]: row for row in cells[2:]}
    expected = ["plain", "calls", "operators", "ONNX Runtime's profiler"]
    if importlib.util.find_spec("viztracer"):
        expected.append("VizTracer")
    assert list(rows) == expected
    events = {name: int(row[7].replace(",", "")) for name, row in rows.items() if row[7]}
    encoders, steps = 6, 2
    calls, spans = encoders + steps + 1, 1 + 3 + steps
    host_work = (
        encoders + 2 * steps + 3
    )  # tokenizers; guidance, scheduler; latents, schedule, image
    assert events["calls"] == calls + spans + host_work
    nodes = events["ONNX Runtime's profiler"] - 2 * calls  # its runs have two events of their own
    assert events["operators"] == events["calls"] + nodes


def test_reads_onnx_runtimes_events_after_the_warmup(tmp_path, monkeypatch):
    """The events of runs before are left out, up to and with their `model_run`."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from side_by_side_onnxruntime import lines_after

    run, node = b'{"cat":"Session","name":"model_run"},\n', b'{"cat":"Node","name":"add"},\n'
    path = tmp_path / "profile.json"
    path.write_bytes(b"[\n" + 2 * (node + run) + b'{"cat":"Node","name":"last"}\n]\n')
    assert list(lines_after(path, 1)) == [node, run, b'{"cat":"Node","name":"last"}\n']


def test_ratios_are_of_runs_of_one_round(monkeypatch):
    """The n-th run of a way is compared with the n-th of the other, whatever the order was."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import paired

    seconds = {"plain": iter([1.0, 10.0]), "traced": iter([2.0, 30.0])}

    def mode(name):
        def measure():
            return paired.Measured(paired.Moment(next(seconds[name]), 1.0), paired.Moment(0.0, 0.0))

        return paired.Mode(name, measure)

    found = paired.in_turn([mode("plain"), mode("traced")], rounds=2)
    assert paired.ratios(found, "traced", "plain") == [2.0, 3.0]
    assert paired.interval([2.0, 2.0, 2.0]) == (2.0, 2.0)


def test_predictions_are_held_against_requests_that_do_the_same_work(monkeypatch):
    """A server with workers makes the pipeline's image, also where encoders run at once; a loop
    measures as many requests as it is asked for."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import numpy as np
    import prediction
    import prediction_requests

    from profiler.pipelines import StableDiffusion3Pipeline, default_model_folder

    def image(pipeline):
        return pipeline("a cat", "a dog", 1, height=32, width=32, seed=0, output_type="np").images

    alone = image(StableDiffusion3Pipeline.from_folder(default_model_folder(), prediction.BASE))
    for order in prediction.ORDERS:
        server = prediction_requests.Server(prediction.MOVED, order, 2)
        np.testing.assert_allclose(image(server.pipelines[1]), alone, atol=1e-6)
        loop = server.loop(prediction_requests.Request(1, 32), 2, 4)
        assert len(loop.latencies) == 4
        assert loop.throughput > 0
        server.close()


def stretches(seconds, shares):
    """What a process found that ran without us for `seconds` a call and with us, for twice as long
    each, between; `shares` were stated."""
    traced = [
        {
            "seconds": [2.0],
            "closing": 0.0,
            "overhead": {
                "share": share,
                "traced_ns": 2e9,
                "untraced_low_ns": 0.9e9,
                "untraced_high_ns": 1.1e9,
            },
        }
        for share in shares
    ]
    return {"plain": [[one] for one in seconds], "traced": traced}


def test_stated_costs_are_held_against_the_calls_around_them(monkeypatch, capsys):
    """Two runs of 2 s, one between calls of 1.0 and 1.0 s, one between 1.0 and 1.4: true shares are
    50 and 40 %. 60 % was stated for both: 10 and 20 points too much, a mean of 15 with a standard
    error of 5. The interval of 0.9 to 1.1 s holds the first. The stretch between 1.0 and 1.4 s lies
    20 points from their mean."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import argparse

    import capture_truth

    monkeypatch.setattr(capture_truth, "ran", lambda *_: stretches([1.0, 1.0, 1.4], [0.6, 0.6]))
    monkeypatch.setattr(capture_truth, "LEVELS", {"operators": "all"})
    capture_truth.compare_within("torch", argparse.Namespace(rounds=1))
    row = capsys.readouterr().out.strip("|\n ").split(" | ")
    assert row[3:7] == [
        "45.0 (40.0 to 50.0) %",
        "60.0 (60.0 to 60.0) %",
        "15.0 (10.0 to 20.0)",
        "1 of 2",
    ]
    assert row[-2:] == ["15.0 ± 5.0", "20.0 (20.0 to 20.0)"]


def test_structure_tells_what_an_import_is_for(tmp_path, monkeypatch):
    """A cycle closed by an import for types, or in a function, is none while modules are imported;
    docstrings and comments are no code."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import structure

    texts = {
        "__init__": "",
        "a": "from profiler import b\n\ndef f():\n    from profiler.c import x\n",
        "b": "if TYPE_CHECKING:\n    import profiler.a\nelse:\n    import profiler.d\n",
        "c": "import profiler.a\nx = 1\n",
        "d": '"""Text."""\n# more\nx = 1\n',
    }
    (tmp_path / "profiler").mkdir()
    trees = {}
    for name, text in texts.items():
        path = tmp_path / "profiler" / f"{name}.py"
        path.write_text(text, encoding="utf-8")
        trees[structure.module_name(path, tmp_path)] = structure.File.read(path).nodes[0]
    a, b, c = (f"profiler.{name}" for name in "abc")
    assert structure.cycles(structure.graph(trees)) == [[a, b, c]]
    assert structure.cycles(structure.graph(trees, typing=False)) == [[a, c]]
    assert structure.cycles(structure.graph(trees, typing=False, late=False)) == []
    assert structure.graph(trees, typing=False)[b] == {"profiler.d"}
    assert structure.File.read(tmp_path / "profiler" / "d.py").code == 1


def test_runs_that_no_file_holds_can_be_made(monkeypatch):
    """Made runs have the columns that runs have, whatever those are by now."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from made_runs import gpu_run, npu_run

    assert (len(npu_run(100).calls), len(gpu_run(100).calls)) == (28, 35)
