"""Documents that commands write: where they may go, and what stdout's encoding lacks."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from profiler.cli.terminal import check_documents, write_json, write_text
from profiler.errors import OutputError
from profiler.pipelines import default_model_folder

SAMPLE = Path(__file__).resolve().parents[2] / "sample_traces" / "tiny_two_devices"
MODEL = default_model_folder() / "text_encoder" / "model.onnx"
NAMES = {"layer": "블록.0 → \N{MUSICAL SYMBOL G CLEF}"}


@pytest.fixture
def places(tmp_path, monkeypatch):
    """An empty folder to stand in, with an input, a folder, and a Parquet run's manifest's name."""
    monkeypatch.chdir(tmp_path)
    Path("model.onnx").write_bytes(b"model")
    Path("link.onnx").symlink_to("model.onnx")
    Path("folder").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("documents", "words"),
    [
        ({"--json": "x", "--markdown": "x"}, "--json and --markdown both name x"),
        ({"--json": "-", "--markdown": "-"}, "--json and --markdown both name -"),
        ({"--json": "out.onnx"}, "OUT and --json both name out.onnx"),
        ({"--json": "run.pb"}, "run.pb is part of a trace"),
        ({"--json": "folder"}, "--json folder is a folder: give the name of a file"),
        ({"--json": "gone/x"}, "--json gone/x: gone is no folder: make it"),
        ({"--json": "model.onnx"}, "--json model.onnx is an input, which is never written over"),
        ({"--json": "link.onnx"}, "--json link.onnx is an input, which is never written over"),
    ],
)
def test_what_would_be_lost_is_refused(places, documents, words):
    """Two documents in one place, and places that are taken or not there, are named."""
    asked = {option: Path(path) for option, path in documents.items()}
    with pytest.raises(OutputError, match=words):
        check_documents(asked, inputs=[Path("model.onnx")], outputs={"OUT": Path("out.onnx")})


def test_what_can_be_written_is_not_refused(places):
    """Stdout, a new file, a file of before and /dev/null pass, and what was not asked for."""
    Path("old.json").write_text("{}")
    for path in (Path("-"), Path("new.json"), Path("old.json"), Path(os.devnull), None):
        check_documents({"--json": path, "--markdown": None}, inputs=[Path("model.onnx")])


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp949", "utf-8"])
def test_json_is_the_same_in_every_encoding(monkeypatch, encoding):
    """Characters that stdout lacks are escaped, also those beyond 16 bits; others stay."""
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))
    write_json(Path("-"), json.dumps(NAMES, ensure_ascii=False))
    sys.stdout.flush()
    assert json.loads(raw.getvalue().decode(encoding)) == NAMES
    assert ("블록".encode("cp949") in raw.getvalue()) == (encoding == "cp949")


def test_a_pipe_and_a_device_stay_what_they_are(tmp_path):
    """A document goes into a named pipe and into /dev/null, which are not replaced by a file."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_text(pipe, "said\n")
        assert os.read(reader, 100) == b"said\n"
    finally:
        os.close(reader)
    assert pipe.is_fifo()
    write_text(Path(os.devnull), "nothing")
    assert Path(os.devnull).is_char_device()


@pytest.mark.parametrize(
    "arguments",
    [
        ("analyze", SAMPLE, "--no-html"),
        ("diff", SAMPLE, SAMPLE),
        ("predict", SAMPLE),
        ("graph", "check", MODEL),
        ("graph", "split", MODEL, "out.onnx", "--parts", "2"),
        ("graph", "optimize", MODEL, "out.onnx"),
        ("graph", "compare", MODEL, MODEL),
        ("graph", "annotate", MODEL, SAMPLE, "-o", "out.onnx"),
        ("graph", "export", "tiny", "out"),
        ("query", SAMPLE, "SELECT 1"),
    ],
    ids=lambda words: " ".join(map(str, words[:2])) if words[0] == "graph" else words[0],
)
def test_a_document_without_a_place_costs_no_work(cli, tmp_path, monkeypatch, arguments):
    """Every command refuses --json in a folder that is not there before it writes anything."""
    monkeypatch.chdir(tmp_path)
    code, out, err = cli(*arguments, "--json", "gone/x.json")
    assert (code, out) == (2, "")
    assert err.startswith("profile-sd3: --json gone/x.json: gone is no folder")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", ["--json", "--markdown"])
def test_documents_of_a_run_with_other_letters_in_ascii(tmp_path, option):
    """Where stdout is ASCII, `diff` writes both documents whole instead of failing on a name."""
    bundle = Path(shutil.copytree(SAMPLE, tmp_path / "run"))
    manifest = json.loads((bundle / "manifest.json").read_text("utf-8"))
    manifest["run_id"] = "실행"
    (bundle / "manifest.json").write_text(json.dumps(manifest), "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "profiler", "diff", bundle, SAMPLE, option, "-"],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    text = done.stdout.decode("ascii")
    if option == "--json":
        assert "실행" in [run["run_id"] for run in json.loads(text)["runs"]]
    else:
        assert text.startswith("**end to end")


def test_reports_are_on_the_disk_before_they_have_their_names(tmp_path, monkeypatch, cli):
    """A page, JSON and Markdown survive a machine that goes down after the command has ended."""
    forced: set[int] = set()
    monkeypatch.setattr(os, "fsync", lambda handle: forced.add(os.fstat(handle).st_ino))
    page, document, markdown = (tmp_path / name for name in ("a.html", "a.json", "a.md"))
    cli("analyze", SAMPLE, "--html", page, "--json", document)
    cli("diff", SAMPLE, shutil.copytree(SAMPLE, tmp_path / "other"), "--markdown", markdown)
    assert {path.stat().st_ino for path in (page, document, markdown)} <= forced
