"""Files that no importer reads: each is named, with what to give instead."""

from __future__ import annotations

import bz2
import gzip
import lzma
import pickle
import sqlite3
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from profiler.analysis.dropped_data import recorded
from profiler.errors import InputError
from profiler.importers.importer import head_of
from profiler.importers.importing import built_in, choose
from profiler.importers.refusals import REFUSALS, likeness
from profiler.tools.sources import resolve
from tests.corpus import CORPUS, needs_corpus

_Write = Callable[[Path], object]


def _sqlite(*tables: str) -> _Write:
    def write(path: Path) -> None:
        with sqlite3.connect(path) as database:
            for table in tables:
                database.execute(f"CREATE TABLE {table} (id INTEGER)")

    return write


def _text(text: str) -> _Write:
    return lambda path: path.write_text(text)


def _bytes(data: bytes) -> _Write:
    return lambda path: path.write_bytes(data)


def _beside_xplane(path: Path) -> None:
    path.with_name("host.xplane.pb").write_bytes(b"")
    path.write_bytes(gzip.compress(b'{"displayTimeUnit":"ns","traceEvents":[{"ph":"M"}]}'))


def _raw_ascend(path: Path) -> None:
    for name in ("PROF_000001_20250916", "FRAMEWORK"):
        (path / name).mkdir(parents=True)


_OPERATOR_DETAILS = "Name,Input Shapes,Host Self Duration(us),Device Self Duration(us)\n"
_STEP_TRACE = "Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free\n"
_COLLECTIVES = (
    '{"step1": {"collective": {"hcom_1@2": {"Communication Time Info": {"Elapse Time(ms)": 2}}}}}'
)
_ROCPROF_V1 = '"Index","KernelName","gpu-id","queue-id","DispatchNs","BeginNs","EndNs"\n'
_ROCPROF_V2 = "Dispatch_ID,GPU_ID,Queue_ID,Queue_Index,PID,TID\n"
_AGENTS = '"Node_Id","Logical_Node_Id","Agent_Type","Cpu_Cores_Count"\n'
_SNAPSHOT = pickle.dumps({"segments": [], "device_traces": []})
_SUMMARY = '{"schema_version":1,"content":"ab","run":{},"metrics":[]}'
_DOCUMENT = '{\n "schema": "urn:profile-sd3:diff:2",\n "kind": "diff"\n}'
_POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a21\nsize 12345\n"
_REFUSED: dict[str, tuple[str, _Write, str]] = {
    "summary": ("a.json", _text(_SUMMARY), "give the run's bundle, or compare"),
    "document": ("a.json", _text(_DOCUMENT), "give the run that it is about"),
    "nsys-rep": ("a.nsys-rep", _bytes(b"\0\1"), "nsys export --type sqlite"),
    "qdrep": ("a.qdrep", _bytes(b"\0\1"), "nsys export --type sqlite"),
    "ncu": ("a.ncu-rep", _bytes(b"NVR\0"), "record with `nsys profile`"),
    "parquet": ("a.parquet", _bytes(b"PAR1"), "give the folder that `analyze --parquet`"),
    "rpd": ("a.rpd", _sqlite("rocpd_api", "rocpd_op", "rocpd_string"), "record with `rocprofv3"),
    "rocprof": ("a.csv", _text(_ROCPROF_V1), "record with `rocprofv3"),
    "rocprofv2": ("a.csv", _text(_ROCPROF_V2), "record with `rocprofv3"),
    "stats": ("a.csv", _text("Name,Calls,TotalDurationNs,AverageNs\n"), "_kernel_trace.csv"),
    "agents": ("a.csv", _text(_AGENTS), "give the traces beside it"),
    "ascend's operators": ("a.csv", _text(_OPERATOR_DETAILS), "give the trace beside it"),
    "ascend's steps": ("a.csv", _text(_STEP_TRACE), "give the trace beside it"),
    "ascend's collectives": ("a.json", _text(_COLLECTIVES), "give the trace beside it"),
    "ascend's raw data": ("host_1_ascend_pt", _raw_ascend, "profiler.analyse(FOLDER)"),
    "tensors": ("a.json", _text('[{"name": "y", "dimensions": "1", "values": [1]}]'), "Profile"),
    "layer names": ("a.json", _text('{"Layers": ["Conv_0", "Relu_1"]}'), "verbosity=detailed"),
    "opentelemetry": ("a.json", _text('{"resourceSpans": []}'), "mode=triton"),
    "qnn": ("qnn-profiling-data_0.log", _bytes(b"Q\0\0"), "qnn-profile-viewer"),
    "openvino": ("a.csv", _text("Command line parameters\n-d;NPU\n"), "average_counters"),
    "xplane's view": ("a.trace.json.gz", _beside_xplane, "give the .xplane.pb"),
    "autograd's": (
        "a.json",
        _text('[{"name": "mm", "ph": "X", "ts": 0, "dur": 4.0, "tid": 1, "pid": "CPU functions"}]'),
        "record with torch.profiler.profile",
    ),
    "rocprof's trace": (
        "results.json",
        _text('{"traceEvents": [{}, {"ph": "X", "args": {"BeginNs": "1", "EndNs": "2"}}]}'),
        "record with `rocprofv3",
    ),
    "times of tensorrt 7": (
        "times.json",
        _text('[{"startInMs": 1, "endInMs": 2, "latencyMs": 3, "endToEndMs": 3}]'),
        "trtexec --exportProfile",
    ),
    "snapshot": ("a.pickle", _bytes(_SNAPSHOT), "profile_memory=True"),
    "pickle": ("a.pkl", _bytes(pickle.dumps([1])), "never opened"),
    "blanks": ("a.json", _text(" \r\n\n"), "record or copy it again"),
    "zeros": ("a.json", _bytes(bytes(5000)), "record or copy it again"),
    "gzip of nothing": ("a.json.gz", _bytes(gzip.compress(b"")), "record or copy it again"),
    "git lfs": ("a.json.gz", _text(_POINTER), "git lfs pull"),
    "web page": ("a.json", _text("\n<!DOCTYPE html><html>404"), "download the file itself"),
    "web page in gzip": ("a.json.gz", _bytes(gzip.compress(b"<html>503")), "download the file"),
    "xml": ("a.sqlite", _text('<?xml version="1.0"?><Error/>'), "download the file itself"),
    "utf-16": ("a.json", _bytes('{"traceEvents": []}'.encode("utf-16")), "save it as UTF-8"),
    "utf-16 without mark": ("a.json", _bytes("[{".encode("utf-16-be")), "save it as UTF-8"),
    "bzip2": ("a.json.bz2", _bytes(bz2.compress(b"{}")), "unpack it, and give"),
    "xz": ("a.json.xz", _bytes(lzma.compress(b"{}")), "unpack it, and give"),
    "zlib": ("a.json.gz", _bytes(zlib.compress(b"{}")), "unpack it, and give"),
    "gzip twice": ("a.json.gz", _bytes(gzip.compress(gzip.compress(b"{}"))), "unpack it once"),
    "zip in gzip": ("a.json.gz", _bytes(gzip.compress(b"PK\x03\x04")), "unpack it once"),
}


@pytest.mark.parametrize("kind", _REFUSED)
def test_what_cannot_be_read_is_named_with_what_to_give(kind, tmp_path, monkeypatch):
    """The sentence is the same wherever a path is given; a pickle is never opened."""
    monkeypatch.setattr(pickle, "load", None)
    monkeypatch.setattr(pickle, "loads", None)
    name, write, advice = _REFUSED[kind]
    path = tmp_path / name
    write(path)
    sentences = set()
    for read in (lambda: choose([path], {}), lambda: resolve([[path]])):
        with pytest.raises(InputError) as refused:
            read()
        sentences.add(str(refused.value))
    (sentence,) = sentences
    assert sentence.startswith(f"{path} is ")
    assert advice in sentence.replace("Verbosity", "verbosity")


def test_every_refusal_has_a_file_here(tmp_path):
    """And each file here meets one refusal alone."""
    met = []
    for name, write, _ in _REFUSED.values():
        folder = tmp_path / str(len(met))
        folder.mkdir()
        write(folder / name)
        head = head_of(folder / name)
        met.append(next(one.what for one in REFUSALS if one.matches(folder / name, head)))
    assert set(met) == {refusal.what for refusal in REFUSALS}


@needs_corpus
def test_nothing_that_is_imported_is_refused():
    """No refusal matches a file of the corpus that an importer reads, and of the others only
    the one that formats.md names."""
    refused = {
        path.name
        for path in sorted(CORPUS.rglob("*"))
        if path.is_file()
        and not path.is_relative_to(CORPUS / "damaged")
        and any(one.matches(path, head_of(path)) for one in REFUSALS)
    }
    assert refused == {"winml_resnet_intel_npu__benchmark_report.csv"}


@needs_corpus
@pytest.mark.parametrize(
    ("name", "producer"),
    [
        ("e_old_autograd.json", "torch.autograd.profiler"),
    ],
)
def test_unread_formats_of_the_corpus_are_named(name, producer):
    """Each is refused by the name of what wrote it; nobody is sent to another profiler's file."""
    path = CORPUS / "damaged" / name
    with pytest.raises(InputError) as refused:
        resolve([[path]])
    assert str(refused.value).startswith(f"{path} is ")
    assert producer in str(refused.value)


def _xplane() -> bytes:
    name = b"/host:CPU"
    plane = b"\x08\x01\x12" + struct.pack("B", len(name)) + name
    return b"\x0a" + struct.pack("B", len(plane)) + plane


@pytest.mark.parametrize(
    ("content", "looks"),
    [
        (b"", "an empty file"),
        (b"hello\n", "a text"),
        (b"\x7fELF\0", "a program or library"),
        (b"ab\0cd", "a binary file"),
        (
            b'{"answer": 42, "question": {"x": 1}}',
            "a JSON object (keys: answer, question, x)",
        ),
        (b'[{"b": 1}, {"b": 2}]', "a JSON array (keys: b)"),
        (b'[{"ph": "X", "ts": 1}]', "a Chrome trace of another program (an array of events)"),
        (b"a;b;c;d;e\n1;2;3;4;5\n", "a table (columns: a, b, c, d, …)"),
        (b'x,"y\x1b[31m",z\n', "a table (columns: x, y\N{REPLACEMENT CHARACTER}[31m, z)"),
        (b"Msg Timestamp,Message,Time\n", "a profile of Qualcomm's QNN"),
        (_xplane(), "an XPlane of XLA's profiler"),
    ],
)
def test_a_file_that_nobody_reads_is_described(tmp_path, content, looks):
    """By its structure and the names in it, which steer no terminal."""
    assert likeness(tmp_path / "x", content) == looks


def test_a_database_and_a_folder_are_described(tmp_path):
    """By tables, and by the suffixes of what lies in it."""
    _sqlite("users", "orders")(tmp_path / "a.db")
    (tmp_path / "b.db").write_bytes(b"")
    (tmp_path / "sub").mkdir()
    head = head_of(tmp_path / "a.db")
    assert likeness(tmp_path / "a.db", head) == "an SQLite database (tables: orders, users)"
    assert likeness(tmp_path, b"") == "a folder (2 .db, 1 folders)"
    assert likeness(tmp_path / "sub", b"") == "an empty folder"


def test_several_formats_are_not_one_run(tmp_path):
    """Each may be imported alone; the sentence says why not together."""
    profile = tmp_path / "ort.json"
    profile.write_text('[{"cat": "Session", "name": "session_initialization", "ts": 1, "dur": 1}]')
    database = tmp_path / "nsys.sqlite"
    _sqlite("StringIds", "NVTX_EVENTS")(database)
    with pytest.raises(InputError, match="are of different formats"):
        choose([profile, database], {})


def test_the_list_has_every_importer(cli):
    """`import --list` says of each what it tells and what it cannot tell, and the versions seen."""
    code, text, error = cli("import", "--list")
    assert code == 0, error
    for importer in built_in():
        assert f"{importer.name}: " in text
        assert importer.seen
        assert not importer.capabilities & set(recorded(importer.capabilities))  # all have words
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize("text", ['\n{"version": 1}', "\n\n [1, 2]\n"])
def test_json_after_a_blank_line_is_no_perfetto_trace(tmp_path, text):
    """A line feed is also the first byte of a Perfetto trace: JSON that no importer reads is
    refused as JSON."""
    path = tmp_path / "events.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"looks like a JSON (object|array)"):
        resolve([[path]])


def test_a_packet_that_looks_like_json_stays_a_trace(tmp_path):
    """The first packet of this trace is 123 bytes long, which is the code of a brace."""
    path = tmp_path / "trace.pb"
    path.write_bytes(b"\n{" + b"\x50\x01" * 61 + b"\x50")
    (found,) = resolve([[path]])
    assert [source.path for source in found.sources] == [path]
