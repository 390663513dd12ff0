"""Files, folders and words whose bytes are no UTF-8: read all the same, or one sentence."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from profiler.pipelines import default_model_folder
from tests.command_line import run_command
from tests.importers.kineto.traces import flux

_RUN = Path(__file__).resolve().parents[2] / "sample_traces" / "tiny_two_devices"
_BAD = os.fsdecode(b"b\xff\xc3(d")


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder with a run, a trace of another profiler and a model, all called so."""
    folder = tmp_path_factory.mktemp("names")
    shutil.copytree(_RUN, folder / _BAD)
    flux().write(folder).rename(folder / f"{_BAD}.json")
    model = default_model_folder() / "text_encoder" / "model.onnx"
    shutil.copy(model, folder / f"{_BAD}.onnx")
    return folder


DONE = [
    ("analyze", _BAD, "--html", f"{_BAD}.html"),
    ("analyze", _BAD, "--no-html", "--csv", f"{_BAD}c", "--parquet", f"{_BAD}p"),
    ("analyze", _BAD, "--no-html", "--json", f"{_BAD}.j"),
    ("analyze", f"{_BAD}.json", "--no-html"),
    ("diff", _BAD, _RUN, "--html", f"{_BAD}.html"),
    ("predict", _BAD, "--json", f"{_BAD}.j"),
    ("query", _BAD, "select 1", "--csv", f"{_BAD}.csv"),
    ("merge", _BAD),
    ("dump", f"{_BAD}/host.pb"),
    ("import", f"{_BAD}.json", "--out", f"{_BAD}i"),
    ("export", "otlp", _BAD, "--out", f"{_BAD}.otlp"),
    ("share", _BAD, "--out", f"{_BAD}.zip"),
    ("doctor", "--json", f"{_BAD}.j"),
    ("fleet", "add", "fleet", _BAD, "--keep-paths"),
    ("graph", "check", f"{_BAD}.onnx", "--json", f"{_BAD}.j"),
]
REFUSED = [
    ("query", _BAD, f"select '{_BAD}'"),
    ("analyze", _BAD, "--submodule", _BAD),
    ("analyze", _BAD, "--import", f"a={_BAD}"),
    ("import", f"{_BAD}.json", "--name", _BAD),
    ("fleet", "add", _BAD, _BAD),
    ("fleet", "add", "fleet", _BAD, "--label", f"k={_BAD}"),
    ("fleet", "query", "fleet", "select 1", "--where", f"model={_BAD}"),
    ("graph", "view", f"{_BAD}-missing.onnx"),
    ("run", "--prompt", _BAD),
    ("record", "--name", _BAD, "--", "true"),
]


@pytest.mark.parametrize("command", DONE, ids=lambda command: " ".join(command[:1]))
def test_it_is_read_and_written(place, tmp_path, monkeypatch, capsys, command):
    """No traceback: what is written is UTF-8, with � for what is none."""
    if command[0] == "query":
        pytest.importorskip("duckdb")
    monkeypatch.chdir(tmp_path)
    for path in place.iterdir():
        (tmp_path / path.name).symlink_to(path)
    assert run_command(*command) == 0, capsys.readouterr().err
    for path in tmp_path.rglob("*.j"):
        json.loads(path.read_bytes())
    for path in (tmp_path / f"{_BAD}i").glob("*/manifest.json"):
        assert "�" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("command", REFUSED, ids=lambda command: " ".join(command[:1]))
def test_it_is_one_sentence(place, monkeypatch, capsys, command):
    """Words that a table, a query or a name of a run would have to hold."""
    monkeypatch.chdir(place)
    assert run_command(*command) == 2
    said = capsys.readouterr().err
    assert said.strip()
    assert "Traceback" not in said
