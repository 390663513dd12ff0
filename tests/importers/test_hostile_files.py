"""Other profilers' files that tell secrets, steer terminals or unpack to too much."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import sqlite3

import pytest

from profiler.errors import InputError
from profiler.importers.importing import import_trace
from tests.cli.test_hostile_names import PAYLOADS, _cells, _is_formula, _steering
from tests.importers.kineto.traces import Trace
from tests.importers.nsys import generated as nsys
from tests.importers.onnxruntime.test_profiles import node, run, written

_SECRETS = ("hunter2", "hf_abcDEF123456789", "alice", "node-17.cluster", "train.py")
_COMMAND_LINE = "python train.py --password=hunter2 --hf-token hf_abcDEF123456789"
_TABLES = {  # as Nsight Systems 2025.5 has them: who ran what, where
    "TARGET_INFO_SYSTEM_ENV": ("name", "value"),
    "META_DATA_CAPTURE": ("name", "value"),
    "META_DATA_EXPORT": ("name", "value"),
    "PROCESSES": ("pid", "name"),
    "ANALYSIS_FILE": ("id", "filename"),
    "DIAGNOSTIC_EVENT": ("timestamp", "text"),
}


def _nsys(folder, names=("void kernel()",)):
    rows = [nsys.Range(0, 10_000, names[0])]
    for at, name in enumerate(names):
        begin = 10 * at
        rows += [nsys.Call(begin, begin + 1, at + 1), nsys.Kernel(begin + 2, begin + 4, at + 1)]
        rows += [nsys.Range(begin, begin + 5, name)]
        rows[-2].name = name
    path = nsys.export(folder, rows)
    database = sqlite3.connect(path)
    told = ("HOSTNAME", "node-17.cluster"), ("COMMAND_LINE", _COMMAND_LINE), ("USER", "alice")
    for table, columns in _TABLES.items():
        database.execute(f"CREATE TABLE {table} ({', '.join(columns)})")
        database.executemany(f"INSERT INTO {table} VALUES (?, ?)", told)
    database.commit()
    database.close()
    return path


def _onnxruntime(folder, names=("/vae/MatMul",)):
    told = {"host": "node-17.cluster", "command": _COMMAND_LINE, "user": "alice"}
    nodes = [node(name, 10 + 20 * at, 10, op=name, **told) for at, name in enumerate(names)]
    return written(folder / "made.json", *nodes, run(5, 20 * len(nodes) + 20) | {"args": told})


def _kineto(folder, names=("aten::mm",)):
    told = {"hostname": "node-17.cluster", "command_line": _COMMAND_LINE, "user": "alice"}
    trace = Trace(
        distributedInfo={"backend": "nccl", "rank": 0, "host": "node-17.cluster"},
        traceName="/home/alice/train.py.json",
        host_name="node-17.cluster",
        **{key: value for key, value in told.items() if key != "hostname"},
    )
    for at, name in enumerate(names):
        begin = 1000 * at
        trace.op(name, begin, 900, **told)
        trace.kernel(name, begin + 100, 50, launched=begin + 50, external=at + 1, **told)
    path = folder / "made.json"
    path.write_text(json.dumps(trace.document()), encoding="utf-8")
    return path


def _tensorrt(folder, names=("Conv_0",)):
    told = {"host": "node-17.cluster", "command": _COMMAND_LINE, "user": "alice"}
    times = {"timeMs": 4.0, "averageMs": 1.0, "medianMs": 1.0, "percentage": 1.0}
    rows = [{"count": 4}, *({"name": name, **times, **told} for name in names)]
    path = folder / "made.json"
    path.write_text(json.dumps(rows), encoding="utf-8")
    return path


FILES = {"nsys": _nsys, "onnxruntime": _onnxruntime, "kineto": _kineto, "tensorrt": _tensorrt}


@pytest.mark.parametrize("kind", FILES)
def test_who_ran_what_and_where_is_not_taken_over(tmp_path, kind):
    """Command lines, environments, names of hosts and users that a file holds reach no file of the
    bundle."""
    path = FILES[kind](tmp_path)
    assert all(secret.encode() in path.read_bytes() for secret in _SECRETS)
    bundle = import_trace([path], tmp_path / "traces")
    data = b"".join(file.read_bytes() for file in bundle.iterdir())
    assert [secret for secret in _SECRETS if secret.encode() in data] == []


@pytest.mark.parametrize("kind", FILES)
def test_secrets_in_the_place_of_the_file(tmp_path, monkeypatch, kind):
    """The recorded command line of an import has no home folder and no token."""
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "hf_abcDEF123456789"
    folder.mkdir()
    bundle = import_trace([FILES[kind](folder)], tmp_path / "traces")
    text = (bundle / "manifest.json").read_text(encoding="utf-8")
    assert "hf_abcDEF" not in text
    assert str(tmp_path) not in text


@pytest.mark.parametrize("kind", FILES)
def test_names_steer_nothing(tmp_path, kind, cli):
    """Names of a foreign file move no terminal, and are no formula of a spreadsheet: with `import`,
    the report, its tables, a comparison and the same as Markdown."""
    path = FILES[kind](tmp_path, PAYLOADS)
    others = [path.with_stem(name) for name in ("second", "third")]
    for other in others:
        shutil.copyfile(path, other)
    commands = (
        ("import", path, "--out", tmp_path / "traces"),
        ("analyze", path, "--no-html", "--csv", tmp_path / "tables"),
        ("diff", path, *others, "--markdown", "-"),
        ("diff", path, others[0]),
    )
    for words in commands:
        code, out, err = cli(*words)
        assert (code, _steering(out + err)) == (0, []), (words[0], err)
        if "--markdown" in words:
            assert not re.search(r"(?<!\\)<(?!!-- -->)", out)
    cells = [cell for file in (tmp_path / "tables").glob("*.csv") for cell in _cells(file)]
    assert any("calc" in cell for cell in cells)
    assert [cell for cell in cells if _is_formula(cell)] == []


@pytest.mark.parametrize("kind", FILES)
def test_what_a_packed_file_may_hold(tmp_path, kind):
    """A few kilobytes that unpack to many megabytes are refused before these are in memory or on
    the disk."""
    data = FILES[kind](tmp_path).read_bytes()
    begin = (
        data.rstrip().removesuffix(b"]").rstrip() if kind in ("onnxruntime", "tensorrt") else data
    )
    path = tmp_path / "packed.gz"
    path.write_bytes(gzip.compress(begin + b" " * 16_000_000))
    with pytest.raises(InputError, match="unpacks to more than 256 times its size"):
        import_trace([path], tmp_path / "traces")
    assert not list((tmp_path / "traces").glob("*"))
