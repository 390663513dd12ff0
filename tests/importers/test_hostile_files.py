"""Other profilers' files that tell secrets, steer terminals or unpack to too much."""

from __future__ import annotations

import csv
import gzip
import json
import os
import re
import shutil
import sqlite3

import pytest

from profiler.errors import InputError
from profiler.files import MAX_UNPACKED
from profiler.importers import import_trace
from profiler.trace.compression import may_unpack_to
from tests.cli.test_hostile_names import PAYLOADS, _cells, _is_formula, _steering
from tests.importers.kineto.jobs import Job
from tests.importers.kineto.traces import Trace
from tests.importers.nsys import generated as nsys
from tests.importers.onnxruntime.test_profiles import node, run, written
from tests.importers.rocprofv3 import generated as rocprof
from tests.importers.xplane.spaces import E, L, plane, space

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


def _recorded(names):
    """Kernels of these names with their launches, for every form of rocprofv3."""
    kernels = [rocprof.Kernel(20 + 10 * n, 25 + 10 * n, n + 1, name=x) for n, x in enumerate(names)]
    calls = [rocprof.Call(10 + 10 * n, 12 + 10 * n, n + 1) for n in range(len(names))]
    return rocprof.Told(kernels, calls, marks=[rocprof.Mark(0, 20, x) for x in names])


def _rocprofv3(folder, names=("void kernel()",)):
    path = rocprof.as_json(_recorded(names), folder)
    document = json.loads(path.read_text())
    told = {"hostname": "node-17.cluster", "command": _COMMAND_LINE.split(), "user": "alice"}
    document["rocprofiler-sdk-tool"][0]["metadata"] |= {"node": told, "command": _COMMAND_LINE}
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def _rocprofv3_csv(folder, names=("void kernel()",)):
    path = folder / "made_kernel_trace.csv"
    header = ("Kind", "Agent_Id", "Kernel_Name", "Correlation_Id", "Start_Timestamp")
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow((*header, "End_Timestamp", "Host", "User", "Command"))
        for at, name in enumerate(names):
            begin = 20 + 10 * at
            told = ("node-17.cluster", "alice", _COMMAND_LINE)
            rows.writerow(("KERNEL_DISPATCH", "Agent 1", name, at + 1, begin, begin + 5, *told))
    return path


def _rocpd(folder, names=("void kernel()",)):
    path = rocprof.as_rocpd(_recorded(names), folder, times_in_rows=True)
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE rocpd_metadata_of_a_run (tag, value)")
    told = ("HOSTNAME", "node-17.cluster"), ("COMMAND_LINE", _COMMAND_LINE), ("USER", "alice")
    database.executemany("INSERT INTO rocpd_metadata_of_a_run VALUES (?, ?)", told)
    database.commit()
    database.close()
    return path


def _xplane(folder, names=("fusion",)):
    ops = [E(name, 10_000 * n, 5_000, display=name) for n, name in enumerate(names, 1)]
    kinds = [E(ops[0].name, 5_000, 1, {"source_stack": " ".join(_SECRETS)})]
    lines = [L("XLA Modules", [E("jit_f(1)", 0, 10**7)]), L("XLA Ops", [*kinds, *ops])]
    path = folder / "made.xplane.pb"
    told = plane("Task Environment", stats={"command": _COMMAND_LINE, "user": "alice"})
    path.write_bytes(space(plane("/device:TPU:0", lines), told, hostname="node-17.cluster"))
    return path


def _openvino(folder, names=("conv",)):
    header = "layerName;execStatus;layerType;execType;realTime (ms);cpuTime (ms)"
    rows = [f"{name.replace(chr(10), ' ')};EXECUTED;Add;jit;1.0;1.0" for name in names]
    path = folder / "made.csv"
    report = f"Command line parameters\n-m;/home/alice/a.xml\nrun;{_COMMAND_LINE}\nhost;node-17\n"
    (folder / "benchmark_report.csv").write_text(report, encoding="utf-8")
    path.write_text("\n".join((header, *rows, " ".join(_SECRETS))), encoding="utf-8")
    return path


def _qnn(folder, names=("/a/Conv",)):
    path = folder / "made.csv"
    columns = ("Msg Timestamp", "Message", "Time", "Unit of Measurement", "Timing Source")
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow((*columns, "Event Level", "Event Identifier", *_SECRETS))
        for name in names:
            node = f"{name}:OpId_1 (cycles)"
            rows.writerow((0, "NODE", 9, "CYCLES", "BACKEND", "SUB-EVENT", node))
        rows.writerow((0, "B", 9, "US", "BACKEND", "ROOT", "Accelerator (execute) time"))
        rows.writerow((0, "E", 90, "US", "BACKEND", "ROOT", "QNN (execute) time", *_SECRETS))
    return path


def _triton(folder, names=("unet",)):
    rows = []
    parts = ("QUEUE_START", "COMPUTE_START", "COMPUTE_END", "REQUEST_END")
    for number, name in enumerate(names, 1):
        at = 1000 * number
        told = {"id": number, "model_name": name, "request_id": "alice", "host": " ".join(_SECRETS)}
        stamps = [{"name": "REQUEST_START", "ns": at}]
        stamps += [{"name": part, "ns": at + 100 * n} for n, part in enumerate(parts, 1)]
        rows += [told, {"id": number, "timestamps": stamps}]
        tensor = {"name": "prompt", "data": _COMMAND_LINE, "shape": "1", "dtype": "BYTES"}
        rows.append({"id": number, "activity": "TENSOR_QUEUE_INPUT", "tensor": tensor})
    path = folder / "made.json"
    path.write_text(json.dumps(rows), encoding="utf-8")
    return path


def _sglang(folder, names=("DenoisingStage",)):
    steps = [{"name": name, "duration_ms": 5.0} for name in names]
    told = {"prompt": _COMMAND_LINE, "host": " ".join(_SECRETS)}
    report = {"total_duration_ms": 900.0, "steps": steps, "denoise_steps_ms": [], "meta": told}
    path = folder / "made.json"
    path.write_text(json.dumps(report), encoding="utf-8")
    return path


def _vllm_omni(folder, names=("diffusion",)):
    plain = [name.replace("\n", " ").replace("|", " ") for name in names]
    columns = [f"{n}:{name}" for n, name in enumerate(plain)]
    rows = [f"{' '.join(_SECRETS)} {_COMMAND_LINE}", "[StageRequestStats [request_id=alice]]"]
    rows += [f"| Field | {' | '.join(columns)} |"]
    rows += [f"| stage_gen_time_ms | {' | '.join(['30.000'] * len(columns))} |"]
    path = folder / "made.log"
    path.write_text("\n".join(rows), encoding="utf-8")
    return path


def _diffusers_csv(folder, names=("UNet2DConditionModel",)):
    path = folder / "made.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(("scenario", "model_cls", "time_plain_s", "host", "command"))
        for name in names:
            rows.writerow((name, name, 0.5, " ".join(_SECRETS), _COMMAND_LINE))
    return path


def _aihub(folder, names=("unet",)):
    told = {"job_id": " ".join(_SECRETS), "command": _COMMAND_LINE, "job_status": "Passed"}
    measured = {**told, "inference_time_milliseconds": 5.0, "primary_compute_unit": "NPU"}
    components = {name: {"performance_metrics": {"Phone": {"qnn": measured}}} for name in names}
    lines = ["precisions:", "  w8a16:", "    components:"]
    for name, one in components.items():
        lines.append(f"      {json.dumps(name)}:")
        lines += ["        performance_metrics:", "          Phone:", "            qnn:"]
        values = one["performance_metrics"]["Phone"]["qnn"]
        lines += [f"              {key}: {json.dumps(value)}" for key, value in values.items()]
    path = folder / "made.yaml"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


FILES = {
    "nsys": _nsys,
    "onnxruntime": _onnxruntime,
    "kineto": _kineto,
    "tensorrt": _tensorrt,
    "rocprofv3": _rocprofv3,
    "rocprofv3_csv": _rocprofv3_csv,
    "rocpd": _rocpd,
    "xplane": _xplane,
    "openvino": _openvino,
    "qnn": _qnn,
    "triton": _triton,
    "sglang": _sglang,
    "vllm_omni": _vllm_omni,
    "diffusers_csv": _diffusers_csv,
    "aihub": _aihub,
}
_COMPARED = {"nsys", "onnxruntime", "tensorrt", "vllm_omni"}
"""Kernels, nodes, layers that have means alone, stages: what a comparison has names of."""


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
    the report and its tables; where names differ in kind, a comparison and the same as Markdown."""
    path = FILES[kind](tmp_path, PAYLOADS)
    others = [path.with_stem(name) for name in ("second", "third")]
    for other in others:
        shutil.copyfile(path, other)
    commands = [
        ("import", path, "--out", tmp_path / "traces"),
        ("analyze", path, "--no-html", "--csv", tmp_path / "tables"),
    ]
    if kind in _COMPARED:
        commands += [("diff", path, *others, "--markdown", "-"), ("diff", path, others[0])]
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


def test_a_job_tells_no_secret_and_steers_nothing(tmp_path, cli):
    """The same for a folder of ranks, whose names of operators and processes are hostile and whose
    second rank is cut: nothing of who ran it reaches the bundle, and the report says which rank is
    cut."""
    folder = tmp_path / "job"
    folder.mkdir()
    for path in Job(offsets_ns=(0, 300_000), rounds=4, straggler=1).write(folder):
        document = json.loads(path.read_text(encoding="utf-8"))
        document |= {"host_name": "node-17.cluster", "user": "alice", "command": _COMMAND_LINE}
        for number, event in enumerate(document["traceEvents"]):
            event["name"] += PAYLOADS[number % len(PAYLOADS)]
            event.setdefault("args", {})["command"] = _COMMAND_LINE
        path.write_text(json.dumps(document), encoding="utf-8")
    bundle = import_trace([folder], tmp_path / "traces")
    data = b"".join(file.read_bytes() for file in bundle.iterdir())
    assert [secret for secret in _SECRETS if secret.encode() in data] == []
    code, out, err = cli("analyze", folder, "--no-html")
    assert (code, _steering(out + err)) == (0, []), err
    cut = path.read_text(encoding="utf-8")[:-300]
    path.write_text(cut, encoding="utf-8")
    whole = sum(json.dumps(event) in cut for event in document["traceEvents"])
    code, out, err = cli("analyze", folder, "--no-html")
    assert (code, _steering(out + err)) == (0, []), err
    assert re.search(rf"Text +rank1: read {whole} events; the file breaks off at byte", out)


def test_how_much_a_file_may_hold(monkeypatch):
    """256 times its size and 4 MiB, 8 GiB at most, 1 GiB if it is read at once; the variable sets
    another limit, but the ratio stays."""
    mib, gib = 1 << 20, 1 << 30
    assert may_unpack_to(mib) == 260 * mib
    assert may_unpack_to(gib) == 8 * gib
    assert may_unpack_to(gib, in_memory=True) == gib
    monkeypatch.setenv(MAX_UNPACKED, "16GiB")
    assert may_unpack_to(gib) == may_unpack_to(gib, in_memory=True) == 16 * gib
    assert may_unpack_to(mib) == 260 * mib


def test_an_option_sets_how_much(tmp_path, cli):
    """A file beyond the limit is one sentence that names the option; so is what is no size."""
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents":[' + b" " * (3 << 20) + b"]}"))
    code, _, err = cli("analyze", path, "--no-html", "--max-unpacked", "1MiB")
    assert (code, "`--max-unpacked SIZE` has to allow it" in err) == (2, True)
    code, _, err = cli("analyze", path, "--no-html", "--max-unpacked", "much")
    assert (code, "is no size: write 16GiB" in err) == (2, True)
    assert MAX_UNPACKED not in os.environ
