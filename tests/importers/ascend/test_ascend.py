"""Ascend's traces and tables against sums over the files themselves: real ones, and generated."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import sqlite3
from collections import Counter
from pathlib import Path

import polars as pl
import pytest

from profiler.analysis.analyze import analyze
from profiler.errors import InputError
from profiler.importers import import_trace
from profiler.importers.formats import ascend_outputs
from profiler.tools.sources import load
from tests.corpus import CORPUS, needs_corpus

_DATA = Path(__file__).parent / "data"
_TRACE, TABLE = _DATA / "trace_view.json.gz", _DATA / "kernel_details.csv.gz"
_WAIT = "EVENT_WAIT"


def _imported(path, folder):
    return load(import_trace(path, folder))


def _work(run):
    return run.commands.filter(pl.col("device").cast(pl.String).str.contains("npu"))


def _union_ns(times):
    total = reach = 0
    for start, length in sorted(times):
        total += max(start + length - max(start, reach), 0)
        reach = max(reach, start + length)
    return total


def _times(frame):
    return frame.select("start_ns", "duration_ns").rows()


def _ns(text):
    whole, _, rest = str(text).partition(".")
    return int(whole) * 1000 + round(float(f"0.{rest or 0}") * 1000)


@pytest.fixture(scope="module")
def rows():
    return json.loads(gzip.decompress(_TRACE.read_bytes()))


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    return _imported(_TRACE, tmp_path_factory.mktemp("traces"))


def test_a_real_trace_has_all_work_of_the_hardware_at_its_time(real, rows):
    """Rows of `Ascend Hardware` are the commands of npu:0, to the nanosecond."""
    hardware = [row for row in rows if row["ph"] == "X" and row["pid"] == 800]
    times = [(_ns(row["ts"]), _ns(row["dur"])) for row in hardware]
    work = _work(real)
    assert len(work) == len(hardware) == 276
    assert set(work["device"].cast(pl.String)) == {"npu:0"}
    assert _union_ns(_times(work)) == _union_ns(times)


def test_work_has_the_operator_that_the_flow_names(real, rows):
    """Kernels that were launched alone carry torch's operator: as many as flows lead from it."""
    starts = [row for row in rows if row.get("cat") == "async_npu" and row["ph"] == "s"]
    operators = [row for row in rows if row.get("cat") == "cpu_op" and "::" in row["name"]]

    def around(start):
        inside = (
            row
            for row in operators
            if row["tid"] == start["tid"]
            and 0 <= _ns(start["ts"]) - _ns(row["ts"]) <= _ns(row["dur"])
        )
        return min(inside, key=lambda row: _ns(row["dur"]))["name"]

    led = Counter(map(around, starts))
    assert len(starts) == len(real.flows) == 274  # a call of CANN each; two copies have none
    found = Counter(_work(real)["op_type"].cast(pl.String))
    for name in ("aten::mul_", "aten::sqrt", "aten::addcdiv_", "aten::addcmul_"):
        assert found[name] == led[name] > 0


def test_kernels_of_one_operator_have_the_types_in_their_names(real, rows):
    """Without a table: what `aclnnMm_TransData_TransData` and `trans_TransData_9` convert is one
    type, and moving of data; the numbers of operators are no part of a type."""
    converted = [
        _ns(row["dur"])
        for row in rows
        if row["ph"] == "X" and row["pid"] == 800 and re.search(r"_TransData(_\d+)?$", row["name"])
    ]
    analysis = analyze(real)
    shapes = analysis.shapes.filter(op_type="TransData")
    assert shapes["total_ns"].to_list() == [sum(converted)]
    moved = analysis.roles.filter(role="data_movement")["total_ns"].sum()
    assert sum(converted) < moved < analysis.roles["total_ns"].sum() * 0.7
    assert {"Conv2D", "MatMulV2", "MaxPoolWithArgmaxV1", "MemSet"} <= {*analysis.shapes["op_type"]}


def test_a_real_table_alone_gives_kernels_with_shapes(tmp_path):
    """Times and shapes are those of the rows; which launch each had is not known."""
    text = gzip.decompress(TABLE.read_bytes()).decode()
    cells = list(csv.DictReader(io.StringIO(text)))
    times = {(_ns(row["Start Time(us)"].strip()), _ns(row["Duration(us)"])) for row in cells}
    run = _imported(TABLE, tmp_path)
    work = _work(run)
    assert _union_ns(_times(work)) == _union_ns(times)
    shapes = work.filter(pl.col("layer").cast(pl.String).str.contains("MatMulV2"))["shapes"]
    assert set(shapes.cast(pl.String)) == {"in: bfloat16[81920,4096] bfloat16[8192,512]"}


@needs_corpus
@pytest.mark.parametrize(
    "name", ["d_ascend_trace_view.json", "d2_ascend_pt", "d3_ascend_kernel_details.csv"]
)
def test_the_corpus_is_read_in_each_form(name, tmp_path):
    """20 kernels of 150 µs on npu:0 (`damaged/README.md`)."""
    work = _work(_imported(CORPUS / "damaged" / name, tmp_path))
    assert work["duration_ns"].to_list() == [150_000] * 20


def generated(*, device: int = 0, shift: int = 0, collectives: bool = False) -> list[dict]:
    """Four kernels of 100 µs, 200 µs apart, launched through the task queue; the third on the AI
    CPU; a wait of the stream between them that is no work."""
    hardware, cann, python, hccl = 3000 + device, 2000, 1000, 5000
    events = [
        {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}
        for pid, name in (
            (python, "Python"),
            (cann, "CANN"),
            (hardware, "Ascend Hardware"),
            (hccl, "Communication"),
        )
    ]
    events += [
        {"ph": "M", "name": "process_labels", "pid": hardware, "args": {"labels": f"NPU {device}"}},
        {
            "ph": "M",
            "name": "thread_name",
            "pid": hccl,
            "tid": 1,
            "args": {"name": "Group 0 Communication"},
        },
        {"ph": "M", "name": "thread_name", "pid": hccl, "tid": 2, "args": {"name": "Plane 0"}},
    ]

    def add(name, pid, tid, ts, dur, cat=None, **args):
        event = {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": f"{ts + shift}.000"}
        events.append(event | {"dur": dur, "args": args} | ({"cat": cat} if cat else {}))

    def flow(kind, number, start, end):
        for phase, (pid, tid, ts) in (("s", start), ("f", end)):
            place = {"pid": pid, "tid": tid, "ts": f"{ts + shift}.000"}
            events.append({"ph": phase, "name": kind, "cat": kind, "id": str(number), **place})

    for number in range(4):
        at = 1_758_000_000_000_000 + 200 * number
        add("aten::mm", python, 7, at, 20, "cpu_op", **{"Sequence number": number})
        add("Enqueue", python, 7, at + 5, 4, "enqueue", correlation_id=number)
        add("Dequeue@aclnnMm", python, 8, at + 12, 9, "dequeue", correlation_id=number)
        add("AscendCL@aclnnMm", cann, 8, at + 14, 5, level="acl")
        task = "AI_CPU" if number == 2 else "AI_CORE"
        add("aclnnMm_MatMulV3", hardware, 2, at + 50, 100.0, **{"Task Type": task})
        add(_WAIT, hardware, 2, at + 150, 40.0, **{"Task Type": _WAIT})
        flow("HostToDevice", number, (cann, 8, at + 15), (hardware, 2, at + 50))
        flow("async_npu", number, (python, 7, at), (hardware, 2, at + 50))
        if collectives:
            add(f"hcom_allReduce__1_{number}_1", hccl, 1, at + 60, 80.0)
            add("Memcpy", hccl, 2, at + 60, 70.0)
    return events


def test_queue_leads_from_work_to_its_operator(tmp_path):
    """The launch of a kernel is CANN's call on the queue's thread, its operator the program's;
    waits are no work; the AI CPU's is a track of its own; of a collective the whole is work."""
    (tmp_path / "msprof_1.json").write_text(json.dumps(generated(device=5, collectives=True)))
    run = _imported(tmp_path / "msprof_1.json", tmp_path / "out")
    work = _work(run)
    assert set(work["device"].cast(pl.String)) == {"npu:5"}
    kernels = work.filter(pl.col("layer").cast(pl.String).str.contains("mm"))
    assert kernels["duration_ns"].to_list() == [100_000] * 4
    assert set(kernels["op_type"].cast(pl.String)) == {"aten::mm"}
    tracks = Counter(work["track"].cast(pl.String))
    assert tracks == {"stream 2": 3, "stream 2 AI CPU": 1, "stream 1 collectives": 4}
    launches = run.commands.filter(pl.col("layer").cast(pl.String) == "AscendCL@aclnnMm")
    assert len(launches) == 4
    assert len(run.flows) == 4


def test_a_trace_whose_export_was_cut_is_read_to_there(tmp_path):
    """torch_npu closes the list last: a killed export has no `]`. What is whole is read, and the
    run says that the text breaks off."""
    text = json.dumps(generated())
    cut = text[: text.rindex('"HostToDevice"')]
    (tmp_path / "trace_view.json").write_text(cut)
    run = _imported(tmp_path / "trace_view.json", tmp_path / "out")
    assert len(_work(run)) == 4
    assert [str(note.rule) for note in run.info.health] == ["broken_off"]


def test_msprofs_table_names_the_device_and_cores(tmp_path):
    """op_summary_*.csv under another name, in the columns of msprof's reference: work of the AI
    Core, the AI CPU and HCCL on tracks apart, at its times, with shapes."""
    start = 1_758_000_000_000_000
    text = (
        "Device_id,Model ID,Task ID,Stream ID,Op Name,OP Type,OP State,Task Type,"
        "Task Start Time(us),Task Duration(us),Task Wait Time(us),Block Dim,Input Shapes,"
        "Input Data Types,Input Formats\n"
        f'3,1,1,2,MatMulV2_1,MatMulV2,static,AI_CORE,"{start}.123\t",150.5,0,24,'
        '"""16,16;16,16""",FLOAT16;FLOAT16,ND;ND\n'
        f'3,1,2,2,TopK,TopK,static,AI_CPU,"{start + 300}.123\t",50.0,149.5,24,"""16""",INT64,ND\n'
        f'3,1,3,N/A,hcom_allReduce__1_0_1,hcom_allReduce_,N/A,HCCL,"{start + 400}.123\t",60.0,50,'
        "0,N/A,N/A,N/A\n"
    )
    path = tmp_path / "mindstudio_profiler_output" / "renamed.csv"
    path.parent.mkdir()
    path.write_text(text)
    work = _work(_imported(path.parent, tmp_path / "out"))
    assert set(work["device"].cast(pl.String)) == {"npu:3"}
    assert _times(work) == [
        (start * 1000 + 123, 150_500),
        ((start + 300) * 1000 + 123, 50_000),
        ((start + 400) * 1000 + 123, 60_000),
    ]
    assert work["track"].cast(pl.String).to_list() == [
        "stream 2",
        "stream 2 AI CPU",
        "stream communication collectives",
    ]
    assert work["category"].cast(pl.String).to_list() == ["compute", "compute", "collective"]
    shapes = work["shapes"].cast(pl.String).to_list()
    assert shapes[:2] == ["in: float16[16,16] float16[16,16]", "in: int64[16]"]
    assert work["op_type"].cast(pl.String).to_list() == ["MatMulV2", "TopK", "hcom_allReduce"]


def test_folders_of_ranks_are_one_job(tmp_path):
    """Each folder is a rank by its profiler_info_N.json; their devices have the rank's name."""
    for rank in (0, 1):
        folder = tmp_path / "job" / f"host_{rank}_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
        folder.mkdir(parents=True)
        (folder.parent / f"profiler_info_{rank}.json").write_text("{}")
        rows = generated(device=rank, collectives=True)
        (folder / "trace_view.json").write_text(json.dumps(rows))
    run = _imported(tmp_path / "job", tmp_path / "out")
    assert run.info.job is not None
    assert [one.rank for one in run.info.job.ranks] == [0, 1]
    assert set(_work(run)["device"].cast(pl.String)) == {"rank0/npu:0", "rank1/npu:1"}


def test_files_of_ranks_copied_into_folders_of_any_name_are_one_job(tmp_path):
    """What a folder holds decides, not what it is called."""
    for rank in (0, 1):
        folder = tmp_path / "job" / f"node_{rank}"
        folder.mkdir(parents=True)
        rows = generated(device=rank, collectives=True)
        (folder / "renamed.json").write_text(json.dumps(rows))
    run = _imported(tmp_path / "job", tmp_path / "out")
    assert run.info.job is not None
    assert [one.rank for one in run.info.job.ranks] == [0, 1]
    assert set(_work(run)["device"].cast(pl.String)) == {"rank0/npu:0", "rank1/npu:1"}


def test_a_job_of_many_ranks_is_whole(tmp_path):
    """Of more than 256 folders of ranks none is cut off."""
    text = json.dumps(generated(device=0))
    for rank in range(258):
        (tmp_path / f"node_{rank}").mkdir()
        (tmp_path / f"node_{rank}" / "trace.json").write_text(text)
    assert len(ascend_outputs(tmp_path)) == 258


def test_a_folder_with_summaries_alone_is_one_sentence(tmp_path):
    folder = tmp_path / "host_1_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    folder.mkdir(parents=True)
    (folder / "step_trace_time.csv").write_text("Step,Computing,Free\n1,2,3\n")
    with pytest.raises(InputError, match="no table of kernels and no database"):
        import_trace(folder.parent, tmp_path / "out")


def test_nothing_of_an_npu_is_one_sentence(tmp_path):
    (tmp_path / "trace_view.json").write_text('[{"ph": "M", "name": "Ascend Hardware"}]')
    with pytest.raises(InputError, match="holds no work of an NPU and no operator"):
        import_trace(tmp_path / "trace_view.json", tmp_path / "out")


# --- One program, recorded once as text and once as databases of two ranks.


def _database(rank, folder):
    path = folder / f"ascend_pytorch_profiler_{rank}.db"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.decompress((_DATA / f"{path.name}.gz").read_bytes()))
    return path


def _kinds(run):
    work = _work(run).with_columns(pl.col("category", "kernel").cast(pl.String))
    return {kind: some["kernel"].to_list() for (kind,), some in work.group_by("category")}


def test_a_real_database_has_the_work_of_its_tables(tmp_path):
    """Kernels are those of COMPUTE_TASK_INFO, collectives wholes, copies what TASK has beside; each
    has the call of CANN that its table joins to. Device and times are the tables', by SQL."""
    path = _database(1, tmp_path)
    run = _imported(path, tmp_path / "out")
    found = _kinds(run)
    with sqlite3.connect(path) as tables:
        kernels = tables.execute(
            "SELECT t.startNs, t.endNs - t.startNs FROM TASK t JOIN COMPUTE_TASK_INFO "
            "USING (globalTaskId) ORDER BY 1"
        ).fetchall()
        copies = tables.execute(
            "SELECT count(*) FROM TASK t JOIN STRING_IDS s ON s.id = t.taskType "
            "WHERE s.value = 'MEMCPY_ASYNC'"
        ).fetchone()
        collectives = tables.execute("SELECT startNs, endNs - startNs FROM COMMUNICATION_OP")
        launched = tables.execute(
            "SELECT count(*) FROM TASK JOIN CANN_API USING (connectionId) WHERE globalTaskId IN "
            "(SELECT globalTaskId FROM COMPUTE_TASK_INFO)"
        ).fetchone()
        work = _work(run)
        compute = work.filter(pl.col("category") == "compute")
        assert sorted(_times(compute)) == kernels
        whole = work.filter(pl.col("category") == "collective")
        assert sorted(_times(whole)) == sorted(collectives)
        assert (len(found["copy"]), len(kernels)) == (*copies, *launched) == (24, 187)
    assert set(work["device"].cast(pl.String)) == {"npu:1"}
    targets = run.commands[run.flows["target"].to_list()]
    assert len(targets) == 187 + 24 + 4
    assert compute["shapes"].cast(pl.String).str.contains("float32").any()
    assert compute["op_type"].cast(pl.String).str.starts_with("aten::").any()


def test_text_and_database_of_one_program_have_the_same_kernels(tmp_path):
    """They were recorded apart, so times and the numbers of groups differ; the kernels are the
    same."""

    def kernels(run):
        return {
            kind: Counter(re.sub(r"__\d+_", "_", name) for name in names)
            for kind, names in _kinds(run).items()
        }

    text = kernels(_imported(_DATA / "trace_view_rank0.json.gz", tmp_path / "text"))
    assert text == kernels(_imported(_database(0, tmp_path), tmp_path / "out"))
    assert {kind: sum(names.values()) for kind, names in text.items()} == {
        "compute": 187,
        "copy": 24,
        "collective": 4,
    }


def test_parts_of_collectives_are_no_work_beside_the_whole(tmp_path):
    """The hardware's notifications, waits and transfers of a collective stand on its planes once
    more: the device computes in the rest alone."""
    path = _DATA / "trace_view_rank0.json.gz"
    rows = json.loads(gzip.decompress(path.read_bytes()))
    (hardware,) = [
        row["pid"] for row in rows if row.get("args", {}).get("name") == "Ascend Hardware"
    ]
    cores = ("AI_CORE", "MIX_AIV", "DSA_SQE")
    times = [
        (_ns(row["ts"]), _ns(row["dur"]))
        for row in rows
        if row["ph"] == "X" and row["pid"] == hardware and row["args"]["Task Type"] in cores
    ]
    work = _work(_imported(path, tmp_path))
    compute = work.filter(pl.col("category") == "compute")
    assert len(compute) == len(times) == 187
    assert _union_ns(_times(compute)) == pytest.approx(_union_ns(times), abs=len(times))


def test_databases_of_ranks_are_one_job(tmp_path):
    """A folder each, in order of their names if no profiler_info_N.json says their ranks."""
    for rank in (0, 1):
        _database(rank, tmp_path / "job" / f"rank{rank}_ascend_pt" / "ASCEND_PROFILER_OUTPUT")
    run = _imported(tmp_path / "job", tmp_path / "out")
    assert run.info.job is not None
    assert [one.rank for one in run.info.job.ranks] == [0, 1]
    assert set(_work(run)["device"].cast(pl.String)) == {"rank0/npu:0", "rank1/npu:1"}


def test_databases_of_ranks_in_one_folder_are_one_job(tmp_path):
    """The number in a name is the rank; no database is left out."""
    for rank in (0, 1):
        _database(rank, tmp_path / "job")
    run = _imported(tmp_path / "job", tmp_path / "out")
    assert [one.rank for one in run.info.job.ranks] == [0, 1]
    alone = (_imported(path, tmp_path / path.stem) for path in (tmp_path / "job").iterdir())
    assert len(_work(run)) == sum(len(_work(one)) for one in alone)


@pytest.mark.parametrize("names", [("a.json", "b.json"), ("op_1.csv", "op_2.csv")])
def test_several_files_of_one_kind_are_refused(tmp_path, names):
    """They may be ranks, slices of an export, or exported twice: none is left out silently."""
    for name in names:
        text = gzip.decompress(TABLE.read_bytes()).decode()
        text = json.dumps(generated(device=0)) if name.endswith("json") else text
        (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=f"2 files of one kind .{', '.join(names)}.: give one"):
        import_trace(tmp_path, tmp_path / "out")
    assert len(_work(_imported(tmp_path / names[0], tmp_path / "out"))) > 1


def test_a_damaged_database_is_one_sentence(tmp_path):
    path = _database(0, tmp_path)
    path.write_bytes(path.read_bytes()[:50_000])
    with pytest.raises(InputError, match="is damaged or was cut"):
        import_trace(path, tmp_path / "out")
