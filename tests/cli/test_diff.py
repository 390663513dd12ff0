"""`profile-sd3 diff`: sides, outputs, the gate's exit code, and bad input."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from profiler.cli.main import app, main
from profiler.table.load import load
from profiler.table.parquet import write_parquet
from tests.analysis.comparison.small import BASE, SLOWER, write_steps
from tests.runs import write_tiny_bundle

SAMPLES = Path(__file__).resolve().parents[2] / "sample_traces"


def _run(*arguments):
    return CliRunner().invoke(app, ["diff", *map(str, arguments)], catch_exceptions=False)


def _refused(monkeypatch, capsys, *arguments):
    """The one sentence of a command that cannot do what it was asked."""
    monkeypatch.setattr(sys, "argv", ["profile-sd3", "diff", *map(str, arguments)])
    with pytest.raises(SystemExit) as stopped:
        main()
    error = capsys.readouterr().err
    assert stopped.value.code == 2, error
    assert len(error.splitlines()) == 1
    return error


@pytest.fixture
def base(tmp_path):
    return write_steps(tmp_path / "base", "20270115-080000-base", BASE)


@pytest.fixture
def slower(tmp_path):
    return write_steps(tmp_path / "new", "20270115-090000-new", SLOWER)


def test_two_runs(base, slower):
    """The report says what became slower; without a gate the exit code is 0."""
    done = _run(base, slower)
    assert done.exit_code == 0
    assert "denoise.step" in done.stdout
    assert "slower" in done.stdout


@pytest.mark.parametrize(("limit", "code"), [("5%", 1), ("50%", 0)])
def test_the_gate_is_the_exit_code(base, slower, limit, code):
    """20 % slower fails a gate of 5 % and passes one of 50 %; getting faster passes."""
    gate = ("--fail-over", limit, "--metric", "denoise.step")
    done = _run(base, slower, *gate)
    assert done.exit_code == code
    assert ("FAILED" in done.stdout) == bool(code)
    assert _run(slower, base, *gate).exit_code == 0


def test_several_baselines(tmp_path, slower):
    """Bundles, and folders of them, make a baseline."""
    folder = tmp_path / "folder"
    for number in range(3):
        write_steps(folder, f"20270115-08000{number}-base", [v + number for v in BASE])
    more = [write_steps(tmp_path / "more", f"20270115-10000{n}-base", BASE) for n in range(2)]
    done = _run(folder, *more, "--against", slower, "--json", "-", "--fail-over", "5%")
    document = json.loads(done.stdout)
    assert [run["side"] for run in document["runs"]] == ["base"] * 5 + ["new"]
    (gate,) = document["gates"]
    assert gate["metric"] == "end_to_end"
    whole = next(row for row in document["metrics"] if row["metric"] == "end_to_end")
    assert (whole["resampled"], whole["base_count"], whole["new_count"]) == ("runs", 5, 1)


def test_outputs(tmp_path, base, slower):
    """JSON and Markdown as files beside the report."""
    files = tmp_path / "diff.json", tmp_path / "diff.md"
    done = _run(base, slower, "--json", files[0], "--markdown", files[1])
    assert "denoise.step" in done.stdout
    assert json.loads(files[0].read_text())["version"] == 1
    assert files[1].read_text().count("| denoise.step |") == 1
    assert _run(base, slower, "--markdown", "-").stdout == files[1].read_text()


def test_other_kinds_of_runs(tmp_path, base):
    """A Parquet run and a single .pb are runs as a bundle is."""
    parquet = tmp_path / "parquet"
    write_parquet(load(base), parquet)
    assert "within noise" in _run(base, parquet).stdout
    assert _run(base, base / "merged.pb").exit_code == 0


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("tiny_two_devices", "sd35_mi300x_cut"),
        ("sd35_mi300x_cut", "tiny_two_devices"),
        ("tiny_two_devices", "tiny_two_devices"),
    ],
)
def test_across_runtimes(left, right):
    """ONNX Runtime on a CPU against an imported trace of a GPU: down to roles."""
    done = _run(SAMPLES / left, SAMPLES / right, "--json", "-")
    assert done.exit_code == 0
    metrics = {row["metric"]: row for row in json.loads(done.stdout)["metrics"]}
    for name in ("end_to_end", "denoise.step", "submodule.transformer.role.attention"):
        assert metrics[name]["base_ns"] > 0
        assert metrics[name]["new_ns"] > 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--fail-over", "5"], "is no limit: give per cent"),
        (["--metric", "denoise.step"], "give --fail-over 5% with it"),
        (["--fail-over", "5%"], "end_to_end was measured once on each side"),
        (["--fail-over", "5%", "--metric", "denoise.stp"], "such as denoise.step"),
        (["--json", "x.pb"], "is part of a trace"),
        (["--json", "x", "--markdown", "x"], "both name x"),
    ],
)
def test_bad_options(monkeypatch, capsys, base, slower, options, words):
    """One sentence, exit code 2."""
    assert words in _refused(monkeypatch, capsys, base, slower, *options)


def test_one_run_or_three(monkeypatch, capsys, base, slower):
    """Two runs need no option; which of more are new must be said."""
    for runs in ([base], [base, slower, slower]):
        assert "--against" in _refused(monkeypatch, capsys, *runs)


def test_runs_that_cannot_be_compared(monkeypatch, capsys, tmp_path, base):
    """Nothing there, no trace, no bundle in a folder."""
    (tmp_path / "notes.pb").write_text("hello")
    (tmp_path / "empty").mkdir()
    for path in ("missing", "notes.pb", "empty"):
        assert path in _refused(monkeypatch, capsys, base, tmp_path / path)


def test_a_damaged_run_is_refused(monkeypatch, capsys, tmp_path, base):
    """Times that lack a part compare with nothing."""
    damaged = write_tiny_bundle(tmp_path / "damaged")
    file = damaged / "001_transformer.step000.pb"
    file.write_bytes(file.read_bytes()[:-20])
    error = _refused(monkeypatch, capsys, base, damaged)
    assert "is not whole" in error
    assert file.name in error
