"""Real files of rocprofv3 against the totals of an independent script (`truth.json`)."""

from __future__ import annotations

import csv
import gzip
import json

import polars as pl
import pytest

from profiler.importers import import_trace
from profiler.tools.sources import load
from tests.corpus import CORPUS, needs_corpus

pytestmark = needs_corpus

_FOLDER = CORPUS / "rocprofv3"
_DECODE = _FOLDER / "ruv_decode"
_PARTS = {
    "908_results.json.gz": "rocm:0",
    "ruv_decode/decode_kernel_trace.csv.gz": "rocm:1",
    "ruv_decode/decode_fetch_counter_collection.csv.gz": "rocm:1",
    "ruv_decode/decode_stall_counter_collection.csv.gz": "rocm:1",
}


@pytest.fixture(scope="module", params=_PARTS)
def found(request, tmp_path_factory):
    """A run of one file, what must be found in it, and the device that did all of it."""
    truth = json.loads((CORPUS / "truth.json").read_text())[f"rocprofv3/{request.param}"]
    run = load(import_trace(_FOLDER / request.param, tmp_path_factory.mktemp("traces")))
    return run, truth, _PARTS[request.param]


def _work(run):
    return run.commands.filter(pl.col("device").cast(pl.String).str.starts_with("rocm"))


def _union_ms(frame):
    total = reach = 0
    for start, length in frame.sort("start_ns").select("start_ns", "duration_ns").rows():
        end = start + length
        total += max(end - max(start, reach), 0)
        reach = max(reach, end)
    return round(total / 1e6, 6)


def test_every_dispatch_is_there_once(found):
    """Dispatches, their sum, busy time and window are the truth's to the nanosecond, on the one
    GPU that worked."""
    run, truth, device = found
    work = _work(run)
    assert len(work) == truth["count"]
    assert set(work["device"].cast(pl.String)) == {device}
    assert round(work["duration_ns"].sum() / 1e6, 6) == truth["kernel_sum_ms"]
    assert [_union_ms(work)] == list(truth["busy_ms"].values())
    ends = work["start_ns"] + work["duration_ns"]
    assert [work["start_ns"].min(), ends.max()] == truth["span_ns"]
    assert run.drops == ()


def test_the_costliest_kernels_have_their_full_names(found):
    """The three kernels with most time: name, time, executions; and how many names there are."""
    run, truth, _ = found
    kernel = pl.col("kernel").cast(pl.String)
    times = {
        name: (round(length / 1e6, 6), count)
        for name, length, count in _work(run)
        .group_by(kernel)
        .agg(pl.col("duration_ns").sum(), pl.len())
        .rows()
    }
    assert len(times) == truth["distinct_kernels"]
    assert {name: times[name] for name, *_ in truth["top3"]} == {
        name: (length, count) for name, length, count in truth["top3"]
    }


def test_counters_have_their_sums(found):
    """Each counter's values sum to the truth's, fractions included; traces have none."""
    run, truth, device = found
    sums = run.counters.group_by(pl.col("name").cast(pl.String)).agg(pl.col("value").sum())
    assert {name: round(value, 6) for name, value in sums.rows()} == truth.get("counter_sums", {})
    assert set(run.counters["device"].cast(pl.String)) <= {device}


def test_queues_are_tracks(tmp_path):
    """Of 567 streams on 5 queues the queues are tracks; RCCL's kernels stand on their own."""
    path = _FOLDER / "908_results.json.gz"
    document = json.loads(gzip.decompress(path.read_bytes()))
    records = document["rocprofiler-sdk-tool"][0]["buffer_records"]["kernel_dispatch"]
    queues = {record["dispatch_info"]["queue_id"]["handle"] for record in records}
    tracks = _work(load(import_trace(path, tmp_path)))["track"].cast(pl.String).unique()
    assert {name.removesuffix(" collectives") for name in tracks} == {
        f"queue {number}" for number in queues
    }
    assert len(queues) == 5


def test_files_of_a_run_belong_together(tmp_path):
    """A folder with a kernel trace, a trace of HIP and two runs of counters: the traces are one
    run, joined by correlation id, and the counters are said to be others'."""
    run = load(import_trace(_DECODE, tmp_path))
    truth = json.loads((CORPUS / "truth.json").read_text())
    api = truth["rocprofv3/ruv_decode/decode_hip_api_trace.csv.gz"]
    host = run.commands.filter(pl.col("device") == "cpu:0")
    assert len(host) == api["count"]
    assert {"cpu:0": _union_ms(host)} == api["busy_ms"]
    assert host["start_ns"].min() == api["span_ns"][0]
    assert [drop.where for drop in run.drops] == [
        "decode_fetch_counter_collection.csv.gz",
        "decode_stall_counter_collection.csv.gz",
    ]
    assert run.counters.is_empty()
    with gzip.open(_DECODE / "decode_hip_api_trace.csv.gz", "rt") as file:
        called = {row["Correlation_Id"] for row in csv.DictReader(file)}
    with gzip.open(_DECODE / "decode_kernel_trace.csv.gz", "rt") as file:
        matched = [row for row in csv.DictReader(file) if row["Correlation_Id"] in called]
    assert len(run.flows) == len(matched) == 27


def test_nothing_of_the_machine_is_copied(tmp_path):
    """Neither the command nor the configuration of the recording is in the bundle."""
    bundle = import_trace(_FOLDER / "908_results.json.gz", tmp_path)
    written = b"".join(file.read_bytes() for file in sorted(bundle.iterdir()))
    for secret in (b"scrubbed-host", b"/workspace/aorta", b"train.py", b"5.15.0-160"):
        assert secret not in written


def test_dispatches_whose_numbers_lack_are_lost():
    """A process counts its dispatches one by one: of 4,734 numbers the file has 144."""
    path = _DECODE / "decode_kernel_trace.csv.gz"
    with gzip.open(path, "rt") as file:
        numbers = {int(row["Dispatch_Id"]) for row in csv.DictReader(file)}
    total = max(numbers) - min(numbers) + 1
    (found,) = [note for note in load(path).info.health if note.rule == "lost_work"]
    assert (found.device, found.count, found.total) == ("rocm:1", total - len(numbers), total)
    whole = load(_FOLDER / "908_results.json.gz").info.health
    assert [note.rule for note in whole] == ["device_only"]
