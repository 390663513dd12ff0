"""Choosing an importer by content, and the subcommand."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from profiler import importers
from profiler.errors import InputError
from profiler.importers import import_trace, importing
from profiler.importers.foreign_run import ForeignRunBuilder, TimedLayer, end_to_end
from profiler.importers.formats import IMPORTERS
from profiler.importers.importer import Importer
from profiler.tools.sources import load
from profiler.trace import Track

from .kineto.traces import flux
from .rbln.generator import Command, trace_bytes


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_kineto_trace_is_recognised(tmp_path, name):
    """Plain and compressed files go to the same importer, which names the run after the file."""
    bundle = import_trace(flux().write(tmp_path, name), tmp_path / "traces")
    assert bundle == tmp_path / "traces" / "trace"
    manifest = json.loads((bundle / "manifest.json").read_text())
    assert manifest["producer"] == "kineto"
    assert [entry["file"] for entry in manifest["calls"]] == [
        "000_text_encoder.prompt.pb",
        "001_text_encoder_2.prompt.pb",
        "002_transformer.step000.pb",
        "003_transformer.step001.pb",
        "004_vae.decode.pb",
    ]


@pytest.mark.parametrize("text", ["{}", "[1, 2]", '{"answer": 42}', "hello"])
def test_an_unknown_file_gets_the_list_of_formats(tmp_path, text):
    """The sentence names the file, every format by its title, and where to read what to give, and
    little else."""
    path = tmp_path / "odd.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"odd\.json looks like .*torch\.profiler") as raised:
        import_trace(path, tmp_path)
    said = str(raised.value)
    titles = [one.title for one in importing.built_in()]
    assert [title for title in titles if title not in said] == []
    assert "`profile-sd3 import --list`" in said
    assert len(said) - len(str(path)) - len(", ".join(titles)) < 200


def test_a_missing_file_is_an_input_error(tmp_path):
    """No traceback for a wrong path."""
    with pytest.raises(InputError, match="cannot read"):
        import_trace(tmp_path / "absent.json", tmp_path)


def test_a_cut_gzip_is_left_to_its_importer(tmp_path):
    """A file that is recognizable but cut is read by the importer of its kind, which notes it."""
    path = flux().write(tmp_path, "trace.json.gz")
    path.write_bytes(path.read_bytes()[:-20])
    bundle = import_trace(path, tmp_path / "traces")
    assert "broken_off" in (bundle / "manifest.json").read_text("utf-8")


@pytest.mark.parametrize("name", ["../up", "a/b", "", "..", "a b"])
def test_a_run_name_is_a_plain_name(tmp_path, name):
    """Nothing is written outside the folder of bundles."""
    with pytest.raises(InputError, match="cannot name a run"):
        import_trace(flux().write(tmp_path), tmp_path / "traces", name)


def test_a_file_name_becomes_a_plain_run_name(tmp_path):
    """Characters that make trouble in paths become dashes."""
    path = flux().write(tmp_path, "my trace (1).json")
    assert import_trace(path, tmp_path / "traces").name == "my-trace-1"


def test_the_subcommand_prints_the_bundle(cli, tmp_path):
    """`profile-sd3 import FILE --out DIR --name RUN` prints where the bundle is."""
    traces = tmp_path / "traces"
    code, text, error = cli("import", flux().write(tmp_path), "--out", traces, "--name", "mine")
    assert code == 0, error
    assert text == f"{traces / 'mine'}\n"


def test_options_choose_an_importer_where_none_recognises_the_file(tmp_path):
    """A file of RBLN's without a track that tells it is read where its options are given."""
    path = tmp_path / "rbln_20260902_012906319_0.pb"
    path.write_bytes(trace_bytes([[Command(0, "Host", "0_linear_1_0", 0, 1, 1)]]))
    with pytest.raises(InputError, match="which is not read here"):
        import_trace(path, tmp_path / "traces")
    bundle = import_trace(path, tmp_path / "traces", options={"skip": 0})
    assert json.loads((bundle / "manifest.json").read_text())["producer"] == "rbln"


def test_an_importer_that_fails_to_look_is_passed_over(tmp_path, monkeypatch):
    """What it cannot cope with may be another's file."""
    broken = Importer("broken", "nothing", lambda path, head: bool(head[10**9]), read=print)
    there = importing.built_in()
    monkeypatch.setattr(importing, "built_in", lambda: (broken, *there))
    assert importing.choose([flux().write(tmp_path)], {}).name == "kineto"


def test_importers_are_found_by_their_folders():
    """Each folder of the package with an `IMPORTER` is one, and each of `formats.IMPORTERS`, with
    words for what it accepts and codes."""
    found = Path(importers.__file__).parent.glob("*/__init__.py")
    folders = {path.parent.name for path in found if "IMPORTER = " in path.read_text("utf-8")}
    files = {importer.name for importer in IMPORTERS}
    assert sorted(importer.name for importer in importing.built_in()) == sorted([*folders, *files])
    for importer in importing.built_in():
        assert importer.accepts
        assert importer.title
        assert importer.capabilities & {"timeline", "averages", "stages"}


def test_times_as_text_make_no_other_format_of_a_torch_trace(tmp_path):
    """Ascend writes times as text, and so do tools that change torch's files. Paths may be texts,
    too."""
    path = flux().write(tmp_path)
    trace = json.loads(path.read_text()) | {"schemaVersion": 1}
    for event in trace["traceEvents"]:
        if "ts" in event:
            event["ts"] = f"{event['ts'] + 1_758_000_000_000_000}"
    path.write_text(json.dumps(trace))
    bundle = import_trace(str(path), str(tmp_path / "traces"))
    manifest = json.loads((bundle / "manifest.json").read_text())
    assert manifest["producer"] == "kineto"
    assert len(manifest["calls"]) == 5


KILLED = """
import os, signal, sys
import profiler.trace.bundle as bundle
from profiler.importers import import_trace
moment, count = sys.argv[1], int(sys.argv[2])
owner = bundle.BundleWriter if hasattr(bundle.BundleWriter, moment) else bundle
whole = getattr(owner, moment)
def cut(*arguments, **options):
    global count
    count -= 1
    if count == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return whole(*arguments, **options)
setattr(owner, moment, cut)
import_trace("trace.json", "traces")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize(
    ("moment", "count"), [("write_call", 3), ("merge_files", 1), ("write_manifest", 1)]
)
def test_a_killed_import_leaves_no_run(tmp_path, moment, count):
    """Killed before its third call, before it merges, before its manifest: no folder of a run is
    there, and the same import works afterwards."""
    flux().write(tmp_path)
    words = [sys.executable, "-c", KILLED, moment, str(count)]
    assert subprocess.run(words, cwd=tmp_path, check=False).returncode == -signal.SIGKILL
    assert [path for path in (tmp_path / "traces").iterdir() if path.name[0] != "."] == []
    bundle = import_trace(tmp_path / "trace.json", tmp_path / "traces")
    assert bundle == tmp_path / "traces" / "trace"
    assert (bundle / "merged.pb").is_file()


def test_the_manifest_has_the_devices_of_calls():
    """An importer that knows no more of a device than its name declares nothing."""
    run = ForeignRunBuilder("toy", "toy", Path("a.toy"))
    run.timeline([end_to_end("vae", Track("npu:0", "queue 0", "compute"), [TimedLayer("conv", 5)])])
    assert [*run.info([one.call for one in run.calls]).devices] == ["cpu:0", "npu:0"]


def test_only_what_is_kept_is_forced_to_the_disk(tmp_path, monkeypatch):
    """A run that is read at once and removed is not: thousands of calls waited for the disk."""
    forced = []
    monkeypatch.setattr(os, "fsync", forced.append)
    path = tmp_path / "a.json"
    events = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 2}
    ]
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    load(path).close()
    assert not forced
    load(path, out=tmp_path / "kept")
    assert forced
