"""Outputs on a disk that is full, or beyond a limit of file sizes: one sentence, nothing left."""

from __future__ import annotations

import json
import os
import resource
import signal
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from profiler.pipelines import default_model_folder
from tests.command_line import run_command
from tests.importers.kineto.traces import flux
from tests.trace.samples import small_bundle

_RUN = Path(__file__).resolve().parents[2] / "sample_traces" / "tiny_two_devices"


@contextmanager
def _file_size_limit(size: int) -> Iterator[None]:
    """Writing beyond `size` bytes fails, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    bytecode = sys.dont_write_bytecode
    sys.dont_write_bytecode = True  # Python would keep a module's .pyc cut at the limit
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
        sys.dont_write_bytecode = bytecode


def _listed(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize("limit", [300, 4096])
@pytest.mark.parametrize(
    "command",
    [
        ("analyze", _RUN, "--no-html", "--csv", "new/csv"),
        ("analyze", _RUN, "--no-html", "--parquet", "new/parquet"),
        ("analyze", _RUN, "--html", "page.html"),
        ("analyze", _RUN, "--no-html", "--json", "run.json"),
        ("diff", _RUN, _RUN, "--html", "diff.html"),
        ("query", _RUN, "select * from commands", "--csv", "rows.csv"),
        ("query", _RUN, "select * from commands", "--parquet", "rows.parquet"),
        ("share", _RUN, "--out", "run.zip"),
        ("import", "trace.json", "--out", "new"),
    ],
    ids=lambda command: " ".join(map(str, command[::2])).replace(str(_RUN), "RUN"),
)
def test_nothing_is_left(tmp_path, monkeypatch, capsys, command, limit):
    """The sentence says why, and no file or folder of the output stays, parents included."""
    monkeypatch.chdir(tmp_path)
    flux().write(tmp_path).rename(tmp_path / "trace.json")
    if command[0] == "query":
        pytest.importorskip("duckdb")
    before = _listed(tmp_path)
    with _file_size_limit(limit):
        assert run_command(*command) == 2
    said = capsys.readouterr().err
    assert "File too large" in said
    assert "ulimit -f" in said
    assert ".part" not in said
    assert _listed(tmp_path) == before


def test_files_of_before_stay(tmp_path, capsys):
    """A folder of CSV files that is there keeps its files when new ones cannot be written."""
    assert run_command("analyze", _RUN, "--no-html", "--csv", tmp_path) == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with _file_size_limit(1000):
        assert run_command("analyze", _RUN, "--no-html", "--top", 1, "--csv", tmp_path) == 2
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert "cannot write" in capsys.readouterr().err


def test_no_model_replaces_a_pipe(tmp_path, capsys):
    """What is no file is never renamed over: a pipe here, /dev/full for root."""
    pytest.importorskip("onnx_ir")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    model = default_model_folder() / "vae_decoder" / "model.onnx"
    for arguments in (("optimize", model, pipe), ("split", model, pipe, "--parts", 2)):
        assert run_command("graph", *arguments) == 2
        assert "is no file" in capsys.readouterr().err
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_csv_files_hold_no_control_characters(tmp_path):
    """Names with escapes, line breaks and marks of direction are � in CSV, its own line ends
    apart; the JSON of the same run has them escaped."""
    from tests.cli.test_hostile_names import PAYLOADS, _write

    run = _write(tmp_path, "one", 0)
    assert run_command("analyze", run, "--no-html", "--csv", tmp_path / "csv") == 0
    files = sorted((tmp_path / "csv").iterdir())
    pytest.importorskip("duckdb")
    asked = tmp_path / "rows.csv"
    sql = "select *, 'a' || chr(27) || chr(10) as \"b\x1b\" from commands"
    assert run_command("query", run, sql, "--csv", asked) == 0
    shown = {"\n", "\N{NO-BREAK SPACE}"}
    for path in (*files, asked):
        text = path.read_text(encoding="utf-8")
        assert {c for c in text if not c.isprintable()} <= shown, path.name
    assert len(asked.read_text().splitlines()) == 1 + 2 * len(PAYLOADS)
    assert run_command("analyze", run, "--no-html", "--json", tmp_path / "a.json") == 0
    assert any(
        "\x1b" in name
        for name in json.loads((tmp_path / "a.json").read_text())["run"]["submodules"]
    )


def test_a_small_bundle_still_merges(tmp_path, capsys):
    """`merge` on a full disk leaves the files of the run as they are."""
    bundle = small_bundle(tmp_path)
    before = {path.name: path.read_bytes() for path in bundle.iterdir()}
    with _file_size_limit(64):
        assert run_command("merge", bundle) == 2
    assert {path.name: path.read_bytes() for path in bundle.iterdir()} == before
    assert "ulimit -f" in capsys.readouterr().err
