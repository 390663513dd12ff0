"""A Dask cluster by address: `dask scheduler` and `dask worker`, processes of their own, started
in other folders, as a user starts them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from polars.testing import assert_frame_equal

from profiler.fleet import Dataset
from tests.command_line import run_command
from tests.fleet.bundles import write_bundles
from tests.importers.kineto.traces import flux

pytest.importorskip("distributed", reason="needs the fleet extra: distributed")

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def cluster(folder, *workers, **environment):
    """The address of a scheduler with a worker process for each of `workers`, which are its
    options."""
    folder.mkdir()
    told = folder / "scheduler.json"
    with ExitStack() as stack:

        def dask(*arguments):
            path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
            process = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", "dask", *arguments],
                    cwd=folder,
                    env={**os.environ, "PYTHONPATH": path, **environment},
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
            stack.callback(process.terminate)
            return process

        quiet = ("--no-dashboard", "--host", "127.0.0.1")
        scheduler = dask("scheduler", *quiet, "--port", "0", "--scheduler-file", str(told))
        for line in scheduler.stderr:  # until it listens, and its file is there
            if "Scheduler at" in line:
                break
        while not (told.exists() and told.read_text()):  # it is made, then written
            assert scheduler.poll() is None
        address = json.loads(told.read_text())["address"]
        for options in workers:
            worker = dask("worker", address, *quiet, "--local-directory", str(folder), *options)
            for line in worker.stderr:  # until the scheduler knows it
                if "Registered to" in line:
                    break
        yield address


def _whole(place):
    """All that a data set holds, by key."""
    data = Dataset(place)
    metrics = data.metrics(data.names(), quality=True).sort("run", "name")
    return data.runs().drop("added_ns").sort("run"), metrics


def _assert_same(one, other):
    for expected, found in zip(_whole(one), _whole(other), strict=True):
        assert_frame_equal(found, expected, check_exact=True)


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    """A folder with bundles of which one is bad."""
    place = tmp_path_factory.mktemp("bundles") / "traces"
    bundles = write_bundles(place, 8)
    (bundles[3] / "manifest.json").write_text("{")
    return place


@pytest.fixture(scope="module")
def torch_traces(tmp_path_factory):
    """Files to import, of one name in two folders, and a text."""
    place = tmp_path_factory.mktemp("files")
    for name in ("one", "two"):
        (place / name).mkdir()
        flux(guided=name == "two").write(place / name)
    (place / "text.txt").write_text("hello")
    return place


def _runs(folder):
    """The bundles of a folder, without what a killed import has left; and what is in them."""
    import profiler

    bundles = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    runs = [profiler.load(bundle) for bundle in bundles]
    return bundles, sorted(
        (run.calls.height, run.commands.height, run.calls["duration_ns"].sum()) for run in runs
    )


def test_a_cluster_by_address(traces, torch_traces, tmp_path, monkeypatch, capsys):
    """`fleet add`, `import` and `analyze` on a real scheduler, whose one worker has two threads and
    another working directory: the data set, bundles, pages and summaries of one process; what is
    bad is said."""
    assert run_command("fleet", "add", tmp_path / "alone", traces) == 2
    monkeypatch.chdir(torch_traces)
    with cluster(tmp_path / "dask", ("--nthreads", "2")) as address:
        there = ("--scheduler", address)
        capsys.readouterr()  # what was said of the other one
        assert run_command("fleet", "add", tmp_path / "there", traces, *there) == 2
        said = capsys.readouterr()
        assert "added 7 runs" in said.out, said.err
        assert "1 run of 8 could not be added" in said.err
        paths = sorted(torch_traces.glob("*/*")), "text.txt"
        out = os.path.relpath(tmp_path / "imported")
        relative = [os.path.relpath(path) for path in paths[0]]
        assert run_command("import", *relative, paths[1], "--all", "--out", out, *there) == 2
        assert "1 of 3 could not be read" in capsys.readouterr().err
        assert run_command("analyze", tmp_path / "imported", "--all", *there) == 0
    _assert_same(tmp_path / "alone", tmp_path / "there")
    bundles = sorted((tmp_path / "imported").iterdir())
    assert len(bundles) == 2
    assert all((bundle / "report.html").is_file() for bundle in bundles)
    assert all((bundle / "summary.json").is_file() for bundle in bundles)


@pytest.mark.nightly
def test_a_worker_of_a_cluster_is_killed(traces, tmp_path, monkeypatch):
    """Of two worker processes one is killed while it has a bundle: the other does what it had, and
    the data set is that of one process."""
    mark = tmp_path / "mark"
    assert run_command("fleet", "add", tmp_path / "alone", traces) == 2
    monkeypatch.setattr("profiler.fleet.add.outcome_of", _named("killing_once"))
    one = ("--nthreads", "1", "--no-nanny")
    killed = {"KILLED_AT": "run005", "KILLED_MARK": str(mark)}
    with cluster(tmp_path / "dask", one, one, **killed) as address:
        arguments = (tmp_path / "there", traces, "--scheduler", address)
        assert run_command("fleet", "add", *arguments) == 2
    assert mark.exists()
    _assert_same(tmp_path / "alone", tmp_path / "there")


@pytest.mark.nightly
def test_analyze_and_import_with_a_worker_that_is_killed(
    traces, torch_traces, tmp_path, monkeypatch, capsys
):
    """`import` and `analyze` of several paths with `--workers 2`, of which one is killed: the
    bundles, summaries and pages are there as with one process."""
    paths = [*sorted(torch_traces.glob("*/*")), torch_traces / "text.txt"]
    for name, more in (("alone", ()), ("two", ("--workers", "2"))):
        with monkeypatch.context() as patch:
            if more:
                patch.setenv("KILLED_MARK", str(tmp_path / "import"))
                patch.setenv("KILLED_AT", paths[0].name)
                patch.setattr("profiler.fleet.add.imported", _named("importing_once"))
                patch.setattr("profiler.fleet.add.analyzed", _named("analyzing_once"))
            out = tmp_path / name
            assert run_command("import", *paths, "--all", "--out", out, *more) == 2
            if more:
                patch.setenv("KILLED_MARK", str(tmp_path / "analyze"))
                patch.setenv("KILLED_AT", _runs(out)[0][0].name)
            assert run_command("analyze", *_runs(out)[0], *more) == 0
        assert run_command("fleet", "add", tmp_path / f"of_{name}", out) == 0
    assert (tmp_path / "import").exists()
    assert (tmp_path / "analyze").exists()
    assert _runs(tmp_path / "alone")[1] == _runs(tmp_path / "two")[1]
    one, other = (_whole(tmp_path / f"of_{name}") for name in ("alone", "two"))
    assert (
        one[0]
        .drop("run_id", "place", "time_ns")
        .equals(other[0].drop("run_id", "place", "time_ns"))
    )
    assert one[1].select("run", "name", "value").equals(other[1].select("run", "name", "value"))


def _named(name):
    import tests.fleet.killed_worker as module

    return getattr(module, name)


def test_a_scheduler_without_workers(tmp_path, monkeypatch, capsys):
    """It would keep the work for ever: said in one sentence."""
    monkeypatch.setattr("profiler.fleet.workers._PATIENCE_S", 1)
    write_bundles(tmp_path / "traces", 1)
    with cluster(tmp_path / "dask") as address:
        arguments = (tmp_path / "data", tmp_path / "traces", "--scheduler", address)
        assert run_command("fleet", "add", *arguments) == 2
        assert "has no workers: start some with `dask worker" in capsys.readouterr().err
