"""What another profiler wrote, given to every command that takes a run."""

from __future__ import annotations

import json
import os
import tempfile

import pytest

from profiler.errors import InputError
from profiler.tools.sources import analyze, load
from tests.command_line import refused
from tests.importers import toy
from tests.importers.kineto.traces import flux
from tests.importers.rbln.generator import write_sd3
from tests.runs import write_tiny_bundle

SD3 = ["--import", "pipeline=sd3", "--import", "steps=2"]


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder to write in, which is the current one; imports go into `temporary` in it."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    yield tmp_path
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.fixture
def rbln(place):
    write_sd3(place / "shards", steps=2)
    return place / "shards"


def test_analyze_writes_its_page_into_the_current_folder(cli, place):
    """The report is printed, the page is NAME.report.html, and nothing lies beside the trace."""
    path = flux().write(place, "flux.json.gz")
    code, out, err = cli("analyze", path)
    assert code == 0, err
    assert "text_encoder" in out
    assert out.endswith("wrote flux.report.html\n")
    assert cli("analyze", path, "--step", "1")[0] == 0
    assert {entry.name for entry in place.iterdir()} == {"flux.json.gz", "here", "temporary"}
    names = {"flux.report.html", "flux.report.selection.html"}
    assert {entry.name for entry in (place / "here").iterdir()} == names


def test_a_page_of_somebody_else_is_not_written_over(cli, place):
    """A file of that name that is no page of ours stays."""
    path = flux().write(place)
    (place / "here" / "trace.report.html").write_text("mine")
    refused(cli("analyze", path), "no page of ours", "--html")
    assert (place / "here" / "trace.report.html").read_text() == "mine"


def test_analyze_keeps_the_import_where_it_is_told(cli, place):
    """With --out the bundle stays, and the page lies in it."""
    path = flux().write(place)
    code, out, err = cli("analyze", path, "--out", place / "kept")
    assert code == 0, err
    assert out.endswith(f"wrote {place / 'kept' / 'trace' / 'report.html'}\n")
    assert (place / "kept" / "trace" / "manifest.json").is_file()
    bundle = write_tiny_bundle(place)
    refused(cli("analyze", bundle, "--out", place / "kept"), "--out keeps what is imported")


@pytest.mark.parametrize("command", ["diff", "predict", "query", "view"])
def test_every_command_keeps_the_import_where_it_is_told(cli, place, monkeypatch, command):
    """With --out the bundle stays, whatever is asked of it; without anything to import it is
    refused."""
    path, bundle = flux().write(place), write_tiny_bundle(place / "bundles")
    monkeypatch.setattr("profiler.tools.perfetto_ui.find_ui", lambda: None)
    more = {"diff": [bundle], "query": ["SELECT 1"], "predict": ["--steps", "4"]}.get(command, [])
    if command == "query":
        pytest.importorskip("duckdb", reason="needs the query extra")
    code, _, err = cli(command, path, *more, "--out", place / "kept")
    assert code == (2 if command == "view" else 0), err
    assert (place / "kept" / "trace" / "manifest.json").is_file()
    refused(cli(command, bundle, *more, "--out", place / "kept"), "--out keeps what is imported")


def test_the_same_foreign_trace_is_no_baseline(cli, place):
    """Kept or not, it is the one that was given."""
    path = flux().write(place)
    given = (path, "--against", path)
    refused(cli("analyze", *given, "--out", place / "kept"), "--against names only")


def test_load_keeps_the_import_where_it_is_told(place):
    """In Python as well; what is no import has nothing to keep."""
    path, bundle = flux().write(place), write_tiny_bundle(place / "bundles")
    run = load(path, out=place / "kept")
    run.close()
    assert run.run_id == "trace"
    assert (place / "kept" / "trace" / "manifest.json").is_file()
    assert analyze(place / "kept").run.run_id == "trace"
    with pytest.raises(InputError, match="out keeps what is imported"):
        load(bundle, out=place / "kept")


def test_analyze_a_folder_with_options(cli, place, rbln):
    """The options label the calls; the page is named by the folder."""
    code, out, err = cli("analyze", rbln, *SD3, "--json", "a.json")
    assert code == 0, err
    assert {
        row["submodule"] for row in json.loads((place / "here" / "a.json").read_text())["calls"]
    }
    assert out.endswith("wrote shards.report.html\n")
    assert "transformer" in out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--import", "pipeline"], ["is no KEY=VALUE"]),
        (["--import", "=sd3"], ["is no KEY=VALUE"]),
        ([*SD3, "--import", "steps=3"], ["--import steps is given twice"]),
        (["--import", "level=3"], ["rbln has no option level", "pipeline, steps, skip, run"]),
        (["--import", "steps=x"], ["steps='x' is no number"]),
    ],
)
@pytest.mark.parametrize("command", ["analyze", "predict", "view", "diff", "query"])
def test_wrong_options_are_one_sentence(cli, rbln, command, options, words):
    """In every command, before anything is imported."""
    more = {"diff": [rbln], "query": ["SELECT 1"]}.get(command, [])
    refused(cli(command, rbln, *more, *options), *words)


def test_diff_takes_foreign_runs(cli, place, rbln):
    """Two of them, and one against a bundle; each gets the options that it has."""
    kineto = flux().write(place)
    code, _, err = cli("diff", rbln, kineto, *SD3, "--json", "diff.json")
    assert code == 0, err
    document = json.loads((place / "here" / "diff.json").read_text())
    assert "trace" in {run["run_id"] for run in document["runs"]}
    assert cli("analyze", kineto, "--against", write_tiny_bundle(place), "--no-html")[0] == 0


def test_predict_takes_foreign_runs(cli, rbln):
    """--steps is the prediction's, --import steps= the importer's."""
    code, out, err = cli("predict", rbln, *SD3, "--steps", "4")
    assert code == 0, err
    assert "4" in out


def test_predict_names_the_other_runs(cli, tmp_path):
    """Of a folder the newest is taken, and a line says so."""
    old = write_tiny_bundle(tmp_path, "old")
    os.utime(old / "manifest.json", ns=(0, 0))
    write_tiny_bundle(tmp_path, "new")
    code, _, err = cli("predict", tmp_path, "--steps", "4")
    assert (code, err) == (0, f"the newest of 2 runs in {tmp_path}; others: old\n")


def test_query_takes_foreign_runs(cli, place):
    """Beside a bundle, by name."""
    pytest.importorskip("duckdb", reason="needs the query extra")
    bundle = write_tiny_bundle(place)
    sql = "SELECT DISTINCT run FROM calls ORDER BY run"
    code, out, err = cli("query", bundle, flux().write(place), sql, "--json", "-")
    assert code == 0, err
    assert [row["run"] for row in json.loads(out)["rows"]] == [bundle.name, "trace"]


def test_query_all_takes_folders_of_folders(cli, place):
    """Every bundle below, also of the folders in it."""
    pytest.importorskip("duckdb", reason="needs the query extra")
    write_tiny_bundle(place / "runs" / "gpu", "a")
    write_tiny_bundle(place / "runs" / "npu", "b")
    sql = "SELECT DISTINCT run FROM calls ORDER BY run"
    code, out, err = cli("query", place / "runs", "--all", sql, "--json", "-")
    assert code == 0, err
    assert [row["run"] for row in json.loads(out)["rows"]] == ["a", "b"]


def test_analyze_takes_what_a_plugin_reads(tmp_path):
    """An importer that another package brings works for `analyze` as for `import`."""
    installed = toy.install(tmp_path)
    path = toy.write_trace(tmp_path / "a.toy")
    done = toy.run(installed, "analyze", path, "--import", "slower=2", "--full", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "blocks.0" in done.stdout
    assert (tmp_path / "a.report.html").is_file()
    without = toy.run(tmp_path, "analyze", path, cwd=tmp_path)
    assert without.returncode == 2
    assert "a.toy looks like" in without.stderr
