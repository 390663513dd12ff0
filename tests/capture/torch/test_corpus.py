"""Device work of real Kineto traces (an MI300X, an A100) placed by the code that capture uses.

No GPU is needed: such files are what capture itself reads when a session has ended. Ranges of ours
are put into the traces as capture would have recorded them, around the calls that the importer
finds and around the module frames of the trace.
"""

from __future__ import annotations

import dataclasses
from collections import Counter

import numpy as np
import polars as pl
import pytest

from profiler.capture.torch.events import CALL, MODULE, find_commands, session_events
from profiler.importers import import_trace
from profiler.kineto.arguments import Args, Arguments
from profiler.kineto.trace_file import read_kineto
from profiler.tools.sources import load
from profiler.trace import ROOT_DEVICE, BundleWriter, Call, CommandBuilder, RunInfo
from tests.corpus import CORPUS, SD35, needs_corpus

ALEXNET = CORPUS / "hta" / "benchmark_result_2869224_1695835535_trace.json.gz"
TRITON = CORPUS / "hta" / "triton_example.json.gz"
SYNC = CORPUS / "hta" / "event_sync_trace.json.gz"

pytestmark = needs_corpus


def with_ranges(trace, ranges):
    """The trace with ranges of ours: (name, start, end) on the thread of its operators, outer
    before inner. Their ids are below those of all operators, as if they had begun first."""
    thread = int(trace.thread[trace.rows_of("cpu_op")[0]])
    ids = [number - len(ranges) for number in range(len(ranges))]
    events, names = trace.events, [name for name, _, _ in ranges]
    codes = len(events.names) + np.arange(len(ranges), dtype=np.int32)
    operators = np.full(len(ranges), events.categories.index("cpu_op"), dtype=np.int32)
    threads = np.full(len(ranges), thread, dtype=np.int32)
    own = Arguments.of(Args(external_id=number) for number in ids)
    together = dataclasses.replace(
        events,
        names=(*events.names, *names),
        name=np.append(events.name, codes),
        category=np.append(events.category, operators),
        thread=np.append(events.thread, threads),
        args=Arguments.joined([events.args, own]),
    )
    first = len(trace.events)
    starts = np.array([start for _, start, _ in ranges], dtype=np.int64)
    ends = np.array([end for _, _, end in ranges], dtype=np.int64)
    return dataclasses.replace(
        trace,
        events=together,
        start_ns=np.append(trace.start_ns, starts),
        duration_ns=np.append(trace.duration_ns, ends - starts),
        thread=together.thread,
        rows=trace.rows
        | {"cpu_op": np.append(trace.rows["cpu_op"], first + np.arange(len(ranges)))},
    )


def around_everything(trace):
    """One call around the whole trace."""
    return with_ranges(
        trace, [(f"{CALL}0", int(trace.start_ns.min()) - 1, int(trace.end_ns.max()))]
    )


def table(columns):
    """(layer, op type, track, category, start, duration) of commands."""
    tracks = [columns.tracks[i] for i in columns.track]
    return list(
        zip(
            [columns.strings[i] for i in columns.layer],
            [columns.strings[i] for i in columns.op_type],
            [f"{track.device} {track.name}" for track in tracks],
            [track.category for track in tracks],
            columns.start_ns.tolist(),
            columns.duration_ns.tolist(),
            strict=True,
        )
    )


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """The same trace as the importer reads it."""
    return load(import_trace(SD35, tmp_path_factory.mktemp("traces")))


HOST = 1_000_000  # the number of the range around everything, above those of all calls


@pytest.fixture(scope="module")
def placed(imported):
    """The commands of each call of Stable Diffusion 3.5, by the call's index, and of host work."""
    trace = read_kineto(SD35)
    calls = [(f"{CALL}{HOST}", int(trace.start_ns.min()) - 1, int(trace.end_ns.max()))]
    calls += [
        (f"{CALL}{call}", start, start + length)
        for call, start, length in imported.calls.select("call", "start_ns", "duration_ns").rows()
    ]
    frames = trace.rows_of("python_function").tolist()
    modules = [
        (f"{MODULE}{trace.events[row].name.removeprefix('nn.Module: ')}", start, start + length)
        for row in frames
        if trace.events[row].name.startswith("nn.Module: ")
        for start, length in [(int(trace.start_ns[row]), int(trace.duration_ns[row]))]
    ]
    events = session_events(with_ranges(trace, [*calls, *modules]))
    roots = dict(enumerate(imported.calls["submodule"].cast(str).to_list()))
    return find_commands(events, {**roots, HOST: ""})


@pytest.fixture(scope="module")
def sd35(placed):
    """The commands of each call, by the call's index."""
    return {call: found for call, found in placed.items() if call != HOST}


def on_device(found):
    return [row for row in table(found.build()) if row[2].startswith("cuda:2 ")]


def test_every_kernel_has_the_call_that_the_importer_finds(imported, sd35):
    """Two ways to attribute, one by our ranges and links, one by Python frames and times: the same
    7,983 kernels and copies in the same calls, with the same operators, tracks and categories."""
    work = imported.commands.filter(pl.col("device").cast(str) == "rocm:2")
    assert len(work) == 8066
    columns = ("op_type", "track", "category", "start_ns", "duration_ns")
    compared = 0
    for call, found in sd35.items():
        expected = work.filter(pl.col("call") == call).select(
            pl.col(columns[:3]).cast(str), *columns[3:]
        )
        ours = [(row[1], row[2].removeprefix("cuda:2 "), *row[3:]) for row in on_device(found)]
        assert Counter(ours) == Counter(expected.rows())
        compared += len(ours)
    assert compared == len(work.filter(pl.col("call") >= 0)) == 7983
    assert sum(found.dropped for found in sd35.values()) == 0


def test_the_rest_of_the_devices_work_is_host_work(imported, placed):
    """What was launched between calls: 83 kernels and copies, under their operators' names."""
    rows = on_device(placed[HOST])
    free = imported.commands.filter((pl.col("call") < 0) & (pl.col("device").cast(str) == "rocm:2"))
    assert len(rows) == 83
    assert sorted(row[4] for row in rows) == free["start_ns"].sort().to_list()
    assert all(row[0] == row[1] for row in rows)


def test_nearly_all_device_time_belongs_to_modules(sd35):
    """What a call launches outside its modules' frames is little: at least 99 % is attributed."""
    total = sum(found.total_ns for found in sd35.values())
    attributed = sum(found.attributed_ns for found in sd35.values())
    assert total == sum(row[5] for found in sd35.values() for row in on_device(found))
    assert attributed / total >= 0.99


def test_kernels_checked_by_hand(sd35):
    """Looked up in the JSON by correlation and External id: a residual addition in a text encoder,
    and the first Triton kernel, which keeps its name in the transformer that was compiled."""
    base = 1_782_967_788_000_000_000
    addition = (
        "CLIPEncoderLayer_6",
        "aten::add",
        "cuda:2 stream 0",
        "compute",
        base + 2_915_995_418_021_145,
        5_527,
    )
    assert addition in on_device(sd35[0])
    name = (
        "triton_per_fused__unsafe_view_add_clone_convolution_native_layer_norm_slice_"
        "transpose_view_5"
    )
    fused = [row for found in sd35.values() for row in on_device(found) if row[1] == name]
    first = min(fused, key=lambda row: row[4])
    assert first == (
        "SD3Transformer2DModel_0",
        name,
        "cuda:2 stream 0",
        "compute",
        base + 2_915_995_553_702_898,
        3_525,
    )


def test_kernels_lead_back_to_their_launches(sd35):
    """Each has the runtime call that launched it, earlier on the thread's track of launches."""
    columns = sd35[0].build()
    rows = table(columns)
    assert len(columns.flows) == len(on_device(sd35[0]))
    for source, target in columns.flows.tolist():
        launch, work = rows[source], rows[target]
        assert launch[2:4] == ("cpu:0 CPU thread 1 launches", "host")
        assert launch[0].startswith("hip")
        assert launch[4] <= work[4]


@pytest.fixture
def captured(imported, sd35, tmp_path):
    """Writes the calls as capture does, after a change to their commands, and loads the run."""

    def load_changed(change):
        with BundleWriter.create(tmp_path, "run") as bundle:
            for row in imported.calls.rows(named=True):
                place = (row["submodule"], row["stage"], row["branch"] or "", row["step"])
                times = (row["start_ns"], row["duration_ns"])
                columns = sd35[row["call"]].build()
                change(columns)
                bundle.write_call(Call(row["call"], *place, "cuda:2", *times, True), columns)
            bundle.write_host((), CommandBuilder().build(), ROOT_DEVICE)
            return load(bundle.finish(RunInfo(producer="capture")))

    return load_changed


_ON_GPU = pl.col("device").cast(str) == "cuda:2"


def _busy_ns(run):
    return run.commands.filter(_ON_GPU)["duration_ns"].sum()


def test_a_captured_run_is_checked_when_it_is_loaded(captured):
    """Kernels of 4 to 900 us. In each call one is said to take 1.6 s more: it gets the length of
    its peers, or ends where the next one starts. A clock 1 ms ahead is put back to 25 us."""

    def longer(columns):
        row = int(np.flatnonzero(columns.kernel > 0)[len(columns) // 4])
        columns.duration_ns[row] += 1_600_000_000

    def ahead(columns):
        columns.start_ns[columns.kernel > 0] -= 1_000_000

    twin = captured(lambda columns: None)
    assert twin.info.health == ()
    damaged = captured(longer)
    assert {note.rule for note in damaged.info.health} == {"overrun"}
    assert len(damaged.info.shortened) == len(twin.calls)
    assert _busy_ns(damaged) == pytest.approx(_busy_ns(twin), rel=0.01)
    shifted = captured(ahead)
    assert [(note.rule, note.action) for note in shifted.info.health] == [("clock", "shifted")]
    starts = [run.commands.filter(_ON_GPU)["start_ns"].sort() for run in (shifted, twin)]
    off = starts[0] - starts[1]
    assert off.n_unique() == 1
    assert abs(off[0]) < 25_000


def test_copies_and_waits_of_a_cuda_run():
    """AlexNet on an A100: 16 copies of weights to the device on a dma track of their own, with
    their bytes, 79 kernels on two streams, waits for a stream as sync, and two launches whose work
    the file lacks.

    This file of 2023 gives launches no link to operators, but their own correlation twice.
    """
    trace = read_kineto(ALEXNET)
    for row in trace.rows_of("cuda_runtime", "kernel", "gpu_memcpy", "gpu_memset").tolist():
        trace.events[row].args.external_id = None
    (found,) = find_commands(session_events(around_everything(trace)), {0: "AlexNet"}).values()
    columns = found.build()
    rows = table(columns)
    tracks = Counter((row[2], row[3]) for row in rows)
    assert {track: count for track, count in tracks.items() if track[0].startswith("cuda")} == {
        ("cuda:0 stream 7", "compute"): 73,
        ("cuda:0 stream 20", "compute"): 6,
        ("cuda:0 stream 7 memcpy", "dma"): 16,
        ("cuda:0 stream 7 copy", "copy"): 2,
        ("cuda:0 stream 20 copy", "copy"): 1,
    }
    waits = {row[0]: row[3] for row in rows if row[3] == "sync"}
    assert waits["cudaStreamSynchronize"] == "sync"
    copies = [i for i, row in enumerate(rows) if row[3] == "dma"]
    assert rows[copies[0]][1:] == (
        "Memcpy HtoD",
        "cuda:0 stream 7 memcpy",
        "dma",
        1_695_835_572_943_613_000,
        12_000,
    )
    assert columns.bytes_read[copies[0]] == columns.bytes_written[copies[0]] == 92_928
    launches = {target: source for source, target in columns.flows.tolist()}
    assert rows[launches[copies[0]]][0] == "cudaMemcpyAsync"
    assert found.dropped == 0  # two sets of no bytes have no work


def test_a_triton_kernel_of_a_compiled_region():
    """Launched through the driver by code of torch.compile: it keeps its own name, with the inputs
    of the operator of that name, and leads back to `cuLaunchKernel`."""
    trace = around_everything(read_kineto(TRITON))
    events = session_events(trace, threads={1670242: 1})
    columns = find_commands(events, {0: "Model"})[0].build()
    rows = [row[:4] for row in table(columns)]
    assert rows == [
        ("cuLaunchKernel", "", "cpu:0 CPU thread 1 launches", "host"),
        ("Model", "triton_poi_fused_add_cos_sin_0", "cuda:0 stream 7", "compute"),
        ("cudaDeviceSynchronize", "", "cpu:0 CPU thread 1 sync", "sync"),
    ]
    assert columns.flows.tolist() == [[0, 1]]
    assert columns.strings[columns.shapes[1]] == "float[10,10] float[10,10] float[10,10] over 100"


def test_events_between_streams_are_no_work():
    """Records of events and waits of one stream for another run nothing; the device is waited for
    once."""
    trace = around_everything(read_kineto(SYNC))
    rows = table(find_commands(session_events(trace), {0: "Model"})[0].build())
    assert Counter((row[1] or row[0], row[3]) for row in rows if row[3] != "host") == {
        ("aten::mm", "compute"): 3,
        ("Memset", "copy"): 3,
        ("cudaDeviceSynchronize", "sync"): 1,
    }
