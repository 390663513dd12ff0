"""Real exports of Nsight Systems against the totals of an independent script (`truth.json`)."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import polars as pl
import pytest

from profiler.analysis.analyze import analyze
from profiler.importers import import_trace
from profiler.tools.sources import load
from profiler.trace.manifest_fields import HealthRule
from tests.corpus import CORPUS, needs_corpus

pytestmark = needs_corpus

_FILES = (
    "mfu_2gpu_before",
    "mock",
    "flameox_nsight-2025.5.2",
    "healthy_1pct",
    "healthy_judged_1pct",
)


@pytest.fixture(scope="module", params=_FILES)
def pair(request, tmp_path_factory):
    """A run and what must be found in it."""
    path = CORPUS / "nsys" / f"{request.param}.sqlite"
    truth = json.loads((CORPUS / "truth.json").read_text())[f"nsys/{path.name}"]
    return load(import_trace(path, tmp_path_factory.mktemp("traces"))), truth, path


def _work(run):
    return run.commands.filter(pl.col("device").cast(pl.String).str.starts_with("cuda"))


def _kernels(run):
    """Kernels alone: what has neither bytes nor the name of a graph."""
    kernel = pl.col("kernel").cast(pl.String)
    return _work(run).filter(
        pl.col("bytes_written").is_null() & ~kernel.str.starts_with("CUDA graph")
    )


def _union_ms(frame):
    """The length of the union of a frame's commands, counted one after the other."""
    total = reach = 0
    for start, length in frame.sort("start_ns").select("start_ns", "duration_ns").rows():
        end = start + length
        total += max(end - max(start, reach), 0)
        reach = max(reach, end)
    return total / 1e6


def test_every_command_is_there(pair):
    """Kernels, copies, sets, graphs and runtime calls are counted, and the copied bytes."""
    run, truth, _ = pair
    counts = truth["counts"]
    assert len(_kernels(run)) == counts["kernel"]
    assert len(_work(run)) == sum(counts.values())
    assert len(run.commands) - len(_work(run)) == truth["runtime_calls"]
    assert _work(run)["bytes_read"].sum() == truth["memcpy_bytes"]
    assert run.drops == ()


def test_devices_are_busy_as_long_as_they_were(pair):
    """The union of each device's work, and of its kernels, is the truth's to the nanosecond; the
    table of devices agrees where nothing had been launched before the recording."""
    run, truth, _ = pair
    for key, frame in (("busy_ms", _work(run)), ("busy_kernels_only_ms", _kernels(run))):
        found = {
            str(device): round(_union_ms(some), 6)
            for (device,), some in frame.group_by(pl.col("device").cast(pl.String))
        }
        assert found == truth[key]
    devices = analyze(run).devices.filter(pl.col("device") != "cpu:0")
    assert set(devices["device"].cast(pl.String)) == truth["busy_ms"].keys()


def test_the_costliest_kernels_have_their_full_names(pair):
    """The three kernels with most time, by their demangled names: time and executions."""
    run, truth, _ = pair
    found = (
        _kernels(run)
        .group_by(pl.col("kernel").cast(pl.String))
        .agg(pl.col("duration_ns").sum() / 1e6, pl.len())
    )
    times = {name: (round(length, 6), count) for name, length, count in found.rows()}
    assert {name: times[name] for name, *_ in truth["top3"]} == {
        name: (length, count) for name, length, count in truth["top3"]
    }
    assert round(sum(length for length, _ in times.values()), 6) == truth["kernel_sum_ms"]


def test_launches_are_matched_by_process_and_id(pair):
    """As many kernels have a launch as the truth has pairs of (process, correlation id)."""
    run, truth, _ = pair
    kernels = _kernels(run).with_row_index("row")
    launched = set(run.flows["target"].to_list())
    rows = run.commands.with_row_index("place").join(
        kernels.select("call", "device", "start_ns", "track"),
        on=["call", "device", "start_ns", "track"],
    )
    assert len(launched & set(rows["place"].to_list())) == truth["kernels_with_launch"]


def test_times_are_utc_where_the_file_tells(pair):
    """First and last work, less the session's begin, are the truth's."""
    run, truth, path = pair
    work = _work(run)
    base = run.info.clocks.base_ns
    first, last = truth["span_ns"]
    assert work["start_ns"].min() - base == first
    assert (work["start_ns"] + work["duration_ns"]).max() - base == last
    with sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True) as database:
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
        if "TARGET_INFO_SESSION_START_TIME" in tables:
            asked = "SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME"
            assert database.execute(asked).fetchone() == (base,)


def test_operators_come_from_the_ranges_of_torch(tmp_path):
    """Of the 2-GPU run, whose program ran under `emit_nvtx`: attention and products are operators,
    and each process is one call on its device, apart though they share correlation ids."""
    run = load(import_trace(CORPUS / "nsys" / "mfu_2gpu_before.sqlite", tmp_path))
    calls = run.calls.select(pl.col("submodule", "device").cast(pl.String), "stage").rows()
    assert [call[:2] for call in calls] == [("process_1", "cuda:1"), ("process_0", "cuda:0")]
    time = dict(
        _work(run).group_by(pl.col("layer").cast(pl.String)).agg(pl.col("duration_ns").sum()).rows()
    )
    assert {"flash_attn::_flash_attn_forward", "aten::addmm", "c10d::alltoall_base_"} <= time.keys()
    named = sum(length for layer, length in time.items() if layer.startswith(("aten::", "flash_")))
    assert named > 0.9 * sum(time.values())


def test_nothing_of_the_machine_is_copied(tmp_path):
    """No process or thread name of the file, and nothing of its environment, is in the bundle."""
    path = CORPUS / "nsys" / "mock.sqlite"
    bundle = import_trace(path, tmp_path)
    written = b"".join(file.read_bytes() for file in sorted(bundle.iterdir()))
    with sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True) as database:
        names = [name for (name,) in database.execute("SELECT name FROM PROCESSES")]
        names += [name for (name,) in database.execute("SELECT value FROM TARGET_INFO_SYSTEM_ENV")]
        asked = "SELECT value FROM StringIds JOIN ThreadNames ON id = nameId"
        names += [name for (name,) in database.execute(asked)]
    long_enough = {str(name) for name in names if name and len(str(name)) > 12}
    assert len(long_enough) > 20
    assert [name for name in long_enough if name.encode() in written] == []


@pytest.mark.parametrize("table", ["KERNEL", "MEMCPY", "MEMSET"])
@pytest.mark.parametrize("moved", [0, 5])
def test_work_of_a_context_that_names_another_device(moved, table, tmp_path):
    """Of two ranks; each fifth row of a table names a third device. The counts are SQLite's."""
    path = tmp_path / "ranks.sqlite"
    path.write_bytes((CORPUS / "nsys" / "mfu_2gpu_before.sqlite").read_bytes())
    rows = f"CUPTI_ACTIVITY_KIND_{table}"
    with closing(sqlite3.connect(path)) as database, database:
        if moved:
            database.execute(f"UPDATE {rows} SET deviceId = 2 WHERE rowid % {moved} = 0")
        counted = f"SELECT contextId - 1, count(*) FROM {rows} WHERE deviceId = 2 GROUP BY 1"
        true = {f"cuda:{first}, cuda:2": count for first, count in database.execute(counted)}
    notes = load(import_trace(path, tmp_path / "traces")).info.health
    found = {note.device: note.count for note in notes if note.rule is HealthRule.ELSEWHERE}
    assert found == true
    assert len(true) == (2 if moved else 0)
