"""Exports made row by row: what each column and range becomes."""

from __future__ import annotations

import gzip
import sqlite3
from contextlib import closing

import polars as pl
import pytest

from profiler.analysis.analyze import analyze
from profiler.analysis.document import ReportInput
from profiler.analysis.finding_text import words
from profiler.analysis.health import health_facts
from profiler.analysis.overview import extent, summary_of
from profiler.errors import InputError
from profiler.importers import import_trace
from profiler.importers.nsys import read_nvtx
from profiler.importers.sqlite_file import open_sqlite
from profiler.tools.sources import load
from profiler.trace import DropKind

from .generated import (
    PID,
    TID,
    UTC,
    Call,
    Copy,
    Graph,
    Kernel,
    Memory,
    Metric,
    Range,
    export,
    global_id,
)

OTHER = 777
KERNEL = "void at::native::mul_kernel<float>(float*)"


def imported(tmp_path, rows, options=None, **more):
    path = export(tmp_path, rows, **more)
    return load(import_trace(path, tmp_path / "traces", options=options or {}))


def _told(run, *columns):
    texts = [pl.col(name).cast(pl.String) for name in columns]
    return run.calls.select(*texts, "step", "start_ns", "duration_ns").rows()


def _pipeline():
    """Two prompts, three steps of a transformer that launches a kernel each, a decoder."""
    rows = [
        Range(0, 10, "text_encoder", eventType=60),
        Range(12, 20, None, shared="text_encoder_2"),
        *(Range(100 * step, 100 * step + 60, "Transformer.forward") for step in (1, 2, 3)),
        Range(500, 540, "vae.decode"),
        Range(510, 520, "vae"),
    ]
    for number, begin in enumerate((2, 14, 110, 210, 310, 515), 1):
        rows += [Call(begin, begin + 2, number), Kernel(begin + 5, begin + 25, number)]
    return rows


def test_ranges_that_name_components_are_calls(tmp_path):
    """Components named by NVTX ranges are calls with stages and steps; a range inside another is
    part of it. Times are UTC."""
    run = imported(tmp_path, _pipeline())
    assert _told(run, "submodule", "stage") == [
        ("text_encoder", "encode", -1, UTC, 10),
        ("text_encoder_2", "encode", -1, UTC + 12, 8),
        *(("transformer", "denoise", step, UTC + 100 * (step + 1), 60) for step in range(3)),
        ("vae", "decode", -1, UTC + 500, 40),
    ]
    work = run.commands.filter(pl.col("device") == "cuda:0")
    assert work.sort("start_ns")["call"].to_list() == list(range(6))
    spans = run.spans.select(pl.col("name").cast(pl.String), "start_ns", "duration_ns").rows()
    assert [(name, start - UTC, length) for name, start, length in spans] == [
        ("made", 0, 540),
        ("encode", 0, 100),
        ("denoise", 100, 400),
        ("step 0", 100, 100),
        ("step 1", 200, 100),
        ("step 2", 300, 60),
        ("decode", 500, 40),
    ]


def _domains(*, default: bool):
    """Passes of a denoiser in the domain `app` and, across their edges, a range of the domain `lib`
    that a component's name has; one of the default domain where asked for."""
    rows = [
        Range(0, None, "app", eventType=75, domainId=1),
        Range(0, None, None, "lib", eventType=75, domainId=2),
        Range(5, 130, "vae", domainId=2),
    ]
    for number, begin in enumerate((10, 110, 210), 1):
        rows += [
            Range(begin, begin + 60, "transformer", domainId=1),
            Call(begin + 10, begin + 12, number),
            Kernel(begin + 15, begin + 55, number),
        ]
    return [*rows, Range(100, 280, "unet")] if default else rows


def test_domains_of_ranges_do_not_nest_into_each_other(tmp_path):
    """Calls are the ranges of one domain, that with most of them: what another one says across
    their edges makes no call, and takes none away. The manifest names the domain."""
    run = imported(tmp_path, _domains(default=False))
    assert _told(run, "submodule") == [
        ("transformer", step, UTC + 100 * step + 10, 60) for step in range(3)
    ]
    work = run.commands.filter(pl.col("device") == "cuda:0").sort("start_ns")
    assert work["call"].to_list() == [0, 1, 2]
    assert run.info.recording.nvtx_domains == ("app",)


def test_the_default_domain_goes_first(tmp_path):
    """Where the default domain names a call, others do not; what a user names of a domain is a
    call of that name, and a text of a domain that is not there is said."""
    run = imported(tmp_path, _domains(default=True))
    assert [row[0] for row in _told(run, "submodule")] == ["unet"]
    assert run.info.recording.nvtx_domains == ()
    path = tmp_path / "made.sqlite"
    named = import_trace(path, tmp_path / "named", options={"submodules": "vae@lib"})
    assert _told(load(named), "submodule") == [("vae@lib", -1, UTC + 5, 125)]
    with pytest.raises(InputError, match="no NVTX range 'vae@app'"):
        import_trace(path, tmp_path, options={"submodules": "vae@app"})


def test_submodules_can_be_named(tmp_path):
    """With `submodules` the ranges of these texts alone are calls; a text of none is said."""
    rows = [*_pipeline(), Range(600, 640, "sampler"), Call(605, 606, 9), Kernel(610, 620, 9)]
    run = imported(tmp_path, rows, {"submodules": "sampler"})
    assert _told(run, "submodule", "stage") == [("sampler", "run", -1, UTC + 600, 40)]
    assert run.commands.filter(pl.col("call") >= 0).height == 2
    with pytest.raises(InputError, match="no NVTX range 'dit'"):
        import_trace(tmp_path / "made.sqlite", tmp_path, options={"submodules": "dit"})


def test_operators_modules_and_shapes(tmp_path):
    """The innermost operator around a launch names the command, with the sizes that torch wrote;
    the module's path stands before it."""
    mlp = "{'Module': 'model.layers.0.mlp', 'Inputs': [[2, 3]]}"
    rows = [
        Range(0, 100, mlp),
        Range(5, 60, "aten::linear, op_id = 4"),
        Range(10, 50, "aten::addmm, seq = 12, op_id = 5, sizes = [[3], [2, 3], [3, 4]]"),
        Call(20, 25, 1),
        Kernel(30, 90, 1, "void cutlass::gemm<float>(float*)"),
        Call(70, 75, 2),
        Kernel(90, 95, 2),
    ]
    run = imported(tmp_path, rows)
    work = run.commands.filter(pl.col("device") == "cuda:0").sort("start_ns")
    columns = ("layer", "op_type", "module", "shapes", "kernel")
    assert work.select(pl.col(*columns).cast(pl.String)).rows() == [
        (
            "model.layers.0.mlp/aten::addmm",
            "aten::addmm",
            "model.layers.0.mlp",
            "in: tensor[3] tensor[2,3] tensor[3,4]",
            "void cutlass::gemm<float>(float*)",
        ),
        (
            "model.layers.0.mlp/at::native::mul_kernel",
            "at::native::mul_kernel",
            "model.layers.0.mlp",
            None,
            KERNEL,
        ),
    ]


def test_processes_share_correlation_ids(tmp_path):
    """Two processes that both count from 1, each seeing its GPU as number 0: launches stay with
    their process, devices have the numbers of the machine."""
    other = {"globalPid": global_id(OTHER)}
    rows = [
        Call(0, 5, 1),
        Kernel(10, 20, 1),
        Call(2, 6, 1, globalTid=global_id(OTHER, 9)),
        Kernel(12, 32, 1, **other),
    ]
    run = imported(tmp_path, rows, devices=[(2, 0, PID), (5, 0, OTHER)])
    calls = run.calls.select(pl.col("submodule", "device").cast(pl.String)).rows()
    assert sorted(device for _, device in calls) == ["cuda:2", "cuda:5"]
    flows = run.flows.select("source", "target").rows()
    pairs = {tuple(run.commands["start_ns"].gather(list(pair)).to_list()) for pair in flows}
    assert pairs == {(UTC, UTC + 10), (UTC + 2, UTC + 12)}


def test_a_process_that_the_file_does_not_tell(tmp_path):
    """Without `globalPid` the id decides where one call alone has it."""
    rows = [Call(0, 5, 1), Kernel(10, 20, 1), Call(6, 7, 2), Call(8, 9, 2), Kernel(20, 30, 2)]
    run = imported(tmp_path, rows, drop=("globalPid",))
    assert run.flows.height == 1
    assert _told(run, "submodule")[0][0] == "run"


def test_copies_sets_and_graphs(tmp_path):
    """Copies have their bytes and direction; a graph is one command, unless its kernels were
    recorded one by one."""
    rows = [
        Call(0, 1, 1, "cudaMemcpyAsync_v3020"),
        Copy(2, 10, 1, 4096, 1),
        Call(3, 4, 2, "cudaMemcpyAsync_v3020"),
        Copy(10, 12, 2, 64, 8),
        Call(5, 6, 3, "cudaGraphLaunch_v10000"),
        Graph(20, 30, 3),
        Call(7, 8, 4, "cudaGraphLaunch_v10000"),
        Graph(40, 50, 4),
        Kernel(41, 49, 4, graphNodeId=5),
        Call(60, 70, 5, "cudaDeviceSynchronize_v3020"),
    ]
    run = imported(tmp_path, rows)
    work = run.commands.filter(pl.col("device") == "cuda:0").sort("start_ns")
    assert work.select(
        pl.col("op_type", "category", "track").cast(pl.String), "bytes_read", "bytes_written"
    ).rows() == [
        ("Memcpy HtoD", "dma", "stream 7 memcpy", 4096, 4096),
        ("Memcpy DtoD", "copy", "stream 7 copy", 64, 64),
        ("CUDA graph 3", "compute", "stream 7", None, None),
        ("at::native::mul_kernel", "compute", "stream 7", None, None),
    ]
    waits = run.commands.filter(pl.col("category") == "sync")
    assert waits["layer"].cast(pl.String).to_list() == ["cudaDeviceSynchronize"]


def test_passes_of_the_loop_are_iterations(tmp_path):
    """Ranges with a number are passes: calls in them have it as `iteration`, where nothing
    denoises."""
    rows = []
    for number in (0, 1):
        begin = 100 * number
        rows += [
            Range(begin, begin + 90, f"ProfilerStep#{number + 4}"),
            Range(begin + 10, begin + 50, "language_model"),
            Call(begin + 20, begin + 22, number + 1),
            Kernel(begin + 25, begin + 45, number + 1),
        ]
    run = imported(tmp_path, rows)
    assert run.calls["iteration"].to_list() == [4, 5]


def test_a_launch_number_that_comes_again_is_of_the_launch_ahead_of_the_work(tmp_path):
    """Three numbers in one submodule, and again in the next: each has its three kernels, launched
    10 us before they begin."""
    rows = [Range(0, 100_000, "unet"), Range(200_000, 300_000, "vae")]
    for begin in (10_000, 210_000):
        for number in range(1, 4):
            start = begin + 20_000 * number
            rows += [Call(start, start + 2, number), Kernel(start + 10_000, start + 15_000, number)]
    run = imported(tmp_path, rows)
    work = run.commands.filter(pl.col("device") == "cuda:0").sort("start_ns")
    assert work["call"].to_list() == [0, 0, 0, 1, 1, 1]
    starts = run.commands["start_ns"].to_numpy()
    waited = starts[run.flows["target"].to_numpy()] - starts[run.flows["source"].to_numpy()]
    assert waited.tolist() == [10_000] * 6
    assert [note.rule for note in run.info.health] == ["reused_launch_numbers"]


def test_another_thread_works_for_the_open_call(tmp_path):
    """What a thread without calls of its own launches belongs to the call open in its process."""
    other = global_id(tid=TID + 1)
    rows = [
        Range(0, 100, "unet"),
        Call(10, 12, 1, globalTid=other),
        Kernel(20, 30, 1),
        Call(150, 152, 2, globalTid=other),
        Kernel(160, 170, 2),
    ]
    work = imported(tmp_path, rows).commands.filter(pl.col("device") == "cuda:0").sort("start_ns")
    assert work["call"].to_list() == [0, -1]


def test_what_has_no_time_is_a_drop(tmp_path):
    """A kernel without end, or with a word for it, is counted, not laid somewhere: these and one
    that ends before it begins are set aside by the check, and a range that was never closed lasts
    to the recording's end."""
    rows = [
        Call(0, 5, 1),
        Kernel(10, 20, 1),
        Kernel(30, None, 2),
        Kernel(40, 35, 3),
        Kernel(50, "soon", 4),
        Range(0, None, "unet"),
    ]
    run = imported(tmp_path, rows)
    assert [(drop.kind, drop.count, drop.unit) for drop in run.drops] == [
        (DropKind.UNCLOSED_SLICE, 1, "events"),
    ]
    assert [(note.rule, note.count) for note in run.info.health] == [
        ("unfinished", 2),
        ("negative_length", 1),
    ]
    assert run.commands.filter(pl.col("device") == "cuda:0").height == 1
    assert run.calls["submodule"].to_list() == ["unet"]


def test_kernels_without_a_start_leave_busy_unknown(tmp_path):
    """Two of ten kernels have none: they are set aside, and of the device no share is printed."""
    rows = [Range(0, 9_000, "unet")]
    for number in range(10):
        begin = 900 * number + 10
        rows += [Call(begin - 8, begin - 4, number + 1), Kernel(begin, begin + 800, number + 1)]
    rows[2].start = rows[6].start = None
    run = imported(tmp_path, rows)
    (note,) = run.info.health
    assert (note.rule, note.device, note.count, note.total) == ("no_time", "cuda:0", 2, 10)
    (row,) = analyze(run).devices.filter(device="cuda:0").to_dicts()
    assert row["idle_share"] is None


def test_launches_without_any_work_are_times_of_the_host(tmp_path):
    """The calls and their times are those of the host, and the first line says so."""
    rows = [Range(0, 1_000, "text_encoder"), Range(1_000, 9_000, "unet")]
    rows += [Call(900 * number, 900 * number + 10, number + 1) for number in range(10)]
    analysis = analyze(imported(tmp_path, rows))
    assert set(analysis.calls["device"].cast(pl.String)) == {"cpu:0"}
    assert dict(analysis.submodules.select("submodule", "elapsed_ns").iter_rows()) == {
        "text_encoder": 1_000,
        "unet": 8_000,
    }
    given = ReportInput(analysis, *extent(analysis.inputs.run))
    headline = str(summary_of(given).headline).replace("\N{NO-BREAK SPACE}", " ")
    assert headline.startswith("10 launches on a GPU, no kernel recorded, times of the host: 9.00")


@pytest.mark.parametrize("context", [1, 3])
def test_work_that_names_no_device_is_of_its_context(context, tmp_path):
    """A context is of one device; without other work of it the device is a guess, and noted."""
    rows = [*_on_two_devices()]
    kernel = next(one for one in rows if isinstance(one, Kernel) and one.deviceId == 1)
    kernel.deviceId, kernel.contextId = -1, context + 1
    run = imported(tmp_path, rows)
    counts = dict(run.commands["device"].cast(pl.String).value_counts().iter_rows())
    found = [(str(note.rule), note.device, note.count) for note in run.info.health]
    if context == 1:
        assert (counts["cuda:0"], counts["cuda:1"], found) == (50, 50, [])
    else:
        assert found == [("elsewhere", "cuda:0, no device", 1)]
    assert counts["cuda:0"] + counts["cuda:1"] == 100


def test_work_without_any_time_that_can_be_is_refused(tmp_path):
    with pytest.raises(InputError, match="no copy with a time that can be"):
        imported(tmp_path, [Call(0, 5, 1), Kernel(40, 35, 1)])


FAR = 1 << 61


@pytest.mark.parametrize("far", [FAR, (1 << 63) - 1, -FAR, -(1 << 63)])
@pytest.mark.parametrize("utc", [UTC, None])
def test_times_that_are_none(tmp_path, far, utc):
    """What begins or ends in another century is counted and left out, whatever the epoch."""
    ends = max(far, 40)
    rows = [
        *(Call(0, 5, 1), Kernel(10, 20, 1), Range(0, 30, "unet")),
        *(Kernel(far, ends, 2), Call(far, ends, 3), Range(far, ends, "vae"), Metric(far, 1)),
    ]
    run = imported(tmp_path, rows, utc=utc)
    counted = {(drop.kind, drop.unit): drop.count for drop in run.drops}
    assert counted == {
        (DropKind.DROPPED_EVENTS, "events"): 1,
        (DropKind.UNCLOSED_SLICE, "events"): 1,
    }
    assert [(note.rule, note.count, note.total) for note in run.info.health] == [("no_time", 1, 2)]
    assert run.commands.filter(pl.col("device") == "cuda:0").height == 1


@pytest.mark.parametrize("utc", [FAR, (1 << 63) - 1, -1])
def test_a_session_that_began_in_another_century(tmp_path, utc):
    """Its times are the file's own, of no known clock."""
    run = imported(tmp_path, [Call(0, 5, 1), Kernel(10, 20, 1)], utc=utc)
    assert run.commands["start_ns"].sort().to_list() == [0, 10]
    assert run.info.clocks.clock is None


def test_sizes_nested_without_end(tmp_path):
    """Brackets that open for ever are no dims."""
    text = "aten::mm, sizes = " + "[" * 60_000 + "]" * 5_000
    run = imported(tmp_path, [Call(0, 5, 1), Kernel(10, 20, 1), Range(0, 30, text)])
    assert run.commands["shapes"].drop_nulls().is_empty()


def test_without_the_sessions_begin_times_are_moved(tmp_path):
    """A session that began after its first event, and tells no UTC: the first event is at 0."""
    run = imported(tmp_path, [Call(-50, -40, 1), Kernel(-30, -10, 1)], utc=None)
    assert run.commands["start_ns"].sort().to_list() == [0, 20]
    assert (run.info.clocks.base_ns, run.info.clocks.clock) == (50, None)


def test_metrics_are_counters(tmp_path):
    """What was sampled of a GPU is a counter of that GPU under its metric's name."""
    rows = [Call(0, 5, 1), Kernel(10, 20, 1), Metric(12, 40), Metric(8, 30)]
    run = imported(tmp_path, rows)
    assert run.counters.select(
        pl.col("device", "name").cast(pl.String), "time_ns", "value"
    ).rows() == [
        ("cuda:1", "SMs Active [%]", UTC + 8, 30),
        ("cuda:1", "SMs Active [%]", UTC + 12, 40),
    ]


def test_gzip_and_cut_files(tmp_path):
    """A packed export is read; one that was cut, packed or not, is refused in a sentence."""
    path = export(tmp_path, [Call(0, 5, 1), Kernel(10, 20, 1)])
    packed = tmp_path / "packed.sqlite.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert load(import_trace(packed, tmp_path / "traces")).run_id == "packed"
    for name, data in (
        ("a.sqlite.gz", packed.read_bytes()[:-20]),
        ("b.sqlite", path.read_bytes()[:5000]),
    ):
        cut = tmp_path / name
        cut.write_bytes(data)
        with pytest.raises(InputError, match="damaged or was cut"):
            import_trace(cut, tmp_path / "traces")


def test_what_is_no_export_of_work(tmp_path):
    """A report and an export without work of a GPU are refused with what to do; nothing is left."""
    report = tmp_path / "run.nsys-rep"
    report.write_bytes(b"anything")
    with pytest.raises(InputError, match="nsys export --type sqlite"):
        import_trace(report, tmp_path / "traces")
    with pytest.raises(InputError, match="holds no kernel"):
        import_trace(export(tmp_path, [Call(0, 5, 1, "cudaMalloc")]), tmp_path / "traces")
    assert not list((tmp_path / "traces").glob("*"))


def test_ranges_of_text(tmp_path):
    """Which texts are operators, modules, passes and components."""
    texts = [
        "aten::mm",
        "void f()",
        "step 3",
        "Denoising step 7",
        "stepping 3",
        "vae",
        "vaes",
        "VAE.encode",
    ]
    path = export(tmp_path, [Range(0, 1, text) for text in texts])
    with open_sqlite(path, "") as database:
        nvtx = read_nvtx(database)
    assert [text for text, is_one in zip(nvtx.texts, nvtx.operators, strict=True) if is_one] == [
        "aten::mm"
    ]
    assert dict(zip(nvtx.texts, nvtx.passes.tolist(), strict=True))["Denoising step 7"] == 7
    assert nvtx.passes.tolist().count(-1) == len(texts) - 2
    assert [name for name in nvtx.submodules if name] == ["vae", "vae"]


def test_memory_that_cuda_gave(tmp_path):
    """Allocations of all processes on a GPU add up, releases count back; what is pinned on the
    host, of an unknown kind or without a time is left out."""
    other = global_id(OTHER)
    rows = [
        *(Kernel(100, 200, 1), Call(90, 95, 1)),
        *(Memory(10, 1000), Memory(20, 500, deviceId=1, globalPid=other), Memory(30, 40)),
        *(Memory(25, 7, memKind=1), Memory(26, 7, memoryOperationType=9), Memory(None, 7)),
        *(Memory(40, 1000, 1), Memory(15, 300, deviceId=1)),
    ]
    run = imported(tmp_path, rows, devices=[(0, 1, OTHER), (0, 0, PID), (3, 1, PID)])
    told = run.counters.select(pl.col("device", "name", "unit").cast(pl.String), "time_ns", "value")
    name = "CUDA allocated since the pipeline began"
    assert sorted(told.rows()) == [
        ("cuda:0", name, "bytes", UTC + 10, 1000),
        ("cuda:0", name, "bytes", UTC + 20, 1500),
        ("cuda:0", name, "bytes", UTC + 30, 1540),
        ("cuda:0", name, "bytes", UTC + 40, 540),
        ("cuda:3", name, "bytes", UTC + 15, 300),
    ]
    assert run.info.capabilities == ("launches", "memory", "timeline")
    devices = analyze(run).memory_devices
    assert dict(devices.select(pl.col("device").cast(pl.String), "peak_bytes").rows()) == {
        "cuda:0": 1540,
        "cuda:3": 300,
    }


def _early():
    """Four kernels of 40 ns that were launched before the recording, by the numbers 1 to 4, then
    two that were launched in it: at 200 and 300, each of 50 ns."""
    rows = [Kernel(40 * at, 40 * at + 40, 1 + at) for at in range(4)]
    for number, begin in ((10, 200), (11, 300)):
        rows += [Call(begin - 20, begin - 10, number), Kernel(begin, begin + 50, number)]
    return rows


def test_work_launched_before_the_recording_is_in_no_time(tmp_path):
    """160 of 260 ns of kernels were launched before: they are in no call and in no time, and all
    figures of the device have the same base, from the first launch at 180 to the last end at
    350."""
    path = export(tmp_path, _early())
    analysis = analyze(load(import_trace(path, tmp_path / "traces")))
    with closing(sqlite3.connect(path)) as database:
        launched = "SELECT sum(k.end - k.start) FROM CUPTI_ACTIVITY_KIND_KERNEL k"
        launched += " JOIN CUPTI_ACTIVITY_KIND_RUNTIME USING (correlationId)"
        ((own,),) = database.execute(launched)
    (row,) = analysis.devices.filter(pl.col("device") == "cuda:0").to_dicts()
    (idle,) = analysis.idle.to_dicts()
    (part,) = analysis.submodules.to_dicts()
    assert row["busy_ns"] == row["compute_ns"] == part["busy_ns"] == own == 100
    assert analysis.accounting.end_to_end_ns == 170
    assert row["idle_share"] == idle["idle_share"] == 70 / 170
    assert (row["carried_over_ns"], analysis.accounting.unrecorded_ns) == (160, 0)


def test_transfers_from_before_the_recording_are_no_gain(tmp_path):
    """Of 600 ns of copies 400 were launched before the recording: the finding counts the 200 that
    lie in the end-to-end time, which are 40 % of it."""
    rows = [Copy(100 * at, 100 * at + 100, 1 + at, 64, 1, 1, 2) for at in range(4)]
    rows += [Call(390, 395, 10), Copy(400, 600, 10, 64, 1, 1, 2)]
    rows += [Call(590, 595, 11), Kernel(600, 900, 11)]
    analysis = analyze(imported(tmp_path, rows))
    (found,) = [one for one in analysis.findings if one.rule == "transfers_exposed"]
    assert analysis.accounting.end_to_end_ns == 500
    assert (found.evidence["data_wait_ns"], found.evidence["transfer_ns"]) == (200, 600)
    assert found.evidence["data_wait_share"] == 0.4
    assert found.cost_ns <= 500 - 300
    assert analysis.contradictions.is_empty()


def test_memory_that_copies_are_between_is_in_their_names(tmp_path):
    """A copy from pinned memory is called as Kineto calls it; nobody is told to pin that memory."""
    rows = [Call(0, 5, 1), Kernel(10, 1000, 1)]
    rows += [Call(990, 995, 2), Copy(1000, 2000, 2, 64, 1, srcKind=1, dstKind=2)]
    rows += [Call(1990, 1995, 3), Kernel(2000, 3000, 3)]
    run = imported(tmp_path, rows)
    copies = run.commands.filter(pl.col("category") == "dma")
    names = copies.select(pl.col("op_type", "kernel").cast(pl.String)).rows()
    assert names == [("Memcpy HtoD", "Memcpy HtoD (Pinned -> Device)")]
    (found,) = [one for one in analyze(run).findings if one.rule == "transfers_exposed"]
    assert found.evidence["copied"] == "pinned"
    assert "Pin host" not in words(found).recommendation


@pytest.mark.parametrize("stream", [7, 22])
def test_copies_of_unified_memory_are_launched_by_nobody(tmp_path, stream):
    """A driver moves pages while kernels run, on whichever stream the file says, and while the host
    reads them: kernels keep their length, and what the device waited for is their launch."""
    rows: list[object] = [Range(0, 80_000_000, "step")]
    for number, at in enumerate(range(0, 80_000_000, 4_000_000), 1):
        rows += [Call(at, at + 8_000, number), Kernel(at + 10_000, at + 910_000, number)]
        for kind, ahead in ((11, 50_000), (11, 300_000), (12, 1_500_000), (12, 2_000_000)):
            begin = at + ahead
            rows.append(Copy(begin, begin + 60_000, 0, 2 << 20, kind, 4, 4, streamId=stream))
    analysis = analyze(imported(tmp_path, rows))
    assert not analysis.inputs.run.info.health
    (idle,) = analysis.idle.to_dicts()
    busy = 20 * (900_000 + 2 * 60_000)
    between = 19 * 4_000_000 - 19 * (900_000 + 2 * 60_000)
    assert analysis.devices.filter(device="cuda:0")["busy_ns"].item() == busy
    assert idle["unknown_cause_ns"] == 0
    assert idle["launch_ns"] >= between
    assert not any(one.evidence.get("cause") == "unrecorded" for one in analysis.findings)


@pytest.mark.parametrize("launched", [True, False])
def test_time_between_two_recordings_is_not_idle(tmp_path, launched):
    """Ten kernels, and ten an hour later, in a range around all of them: what is between was not
    recorded, whether launches are known or not."""
    hour, rows = 3_600 * 10**9, []
    for number in range(20):
        at = 1_000_000 * number + (hour if number >= 10 else 0)
        rows.append(Kernel(at + 10_000, at + 910_000, number + 1 if launched else 0))
        rows += [Call(at, at + 8_000, number + 1)] if launched else []
    analysis = analyze(imported(tmp_path, rows))
    recorded = 2 * (9_000_000 + 900_000) + (20_000 if launched else 0)
    assert analysis.accounting.end_to_end_ns == pytest.approx(recorded, abs=200_000)
    (row,) = analysis.devices.filter(device="cuda:0").to_dicts()
    assert row["busy_ns"] == 20 * 900_000
    assert row["utilization"] == pytest.approx(18 / 19.8, rel=0.02)


def _on_two_devices():
    """50 kernels on each of two devices, of a context each, launched by turns."""
    for number in range(100):
        begin, device = 10_000 * number, number % 2
        yield Call(begin, begin + 2_000, number + 1)
        kernel = Kernel(begin + 6_000, begin + 13_000, number + 1, contextId=1 + device)
        kernel.deviceId = device
        yield kernel


@pytest.mark.parametrize("moved", [0, 1, 10])
def test_a_context_is_of_one_device(moved, tmp_path):
    """Some kernels of the first device name the second, but their context is that of the others;
    without the process a context is not known."""
    rows = list(_on_two_devices())
    first = [one for one in rows if isinstance(one, Kernel) and one.contextId == 1]
    for kernel in first[3 : 3 + moved]:
        kernel.deviceId = 1
    run = imported(tmp_path, rows)
    found = [(str(note.rule), note.device, note.count, note.total) for note in run.info.health]
    assert found == [("elsewhere", "cuda:0, cuda:1", moved, 100)] * bool(moved)
    devices = analyze(run).devices.filter(pl.col("device") != "cpu:0")
    assert devices["idle_share"].null_count() == (2 if moved > 1 else 0)


def test_a_context_is_not_known_without_its_process(tmp_path):
    """Two processes number their first context alike: without the process nothing is noted."""
    rows = list(_on_two_devices())
    for one in rows:
        if isinstance(one, Kernel):
            one.contextId, one.globalPid = 1, None
    assert "elsewhere" not in [note.rule for note in imported(tmp_path, rows).info.health]


@pytest.mark.parametrize("known", [True, False])
def test_a_length_that_cannot_be_becomes_that_of_its_kernel_and_grid(known, tmp_path):
    """Of forty kernels of one name each third has a larger grid and takes 1 ms, the others 10 µs;
    one of the former is recorded 50 ms too long, and for 20 ms nothing follows it. Without grids it
    becomes as long as most."""
    rows, at = [], 1_000_000
    for number in range(40):
        length = 10_000 if number % 3 else 1_000_000
        rows.append(Call(at, at + 5_000, number + 1))
        kernel = Kernel(at + 8_000, at + 8_000 + length, number + 1)
        kernel.gridX = length // 100 if known else None
        rows.append(kernel)
        if number == 21:
            kernel.end += 50_000_000
        at += 20_000_000 if number == 21 else length + 10_000
    run = imported(tmp_path, rows)
    (row,) = run.commands.filter(pl.col("recorded_ns").is_not_null()).to_dicts()
    assert (row["duration_ns"], row["recorded_ns"]) == (1_000_000 if known else 10_000, 51_000_000)
    kernels = run.commands.filter(pl.col("device") == "cuda:0")["kernel"].cast(pl.String)
    assert kernels.unique().to_list() == [KERNEL]


def test_two_lines_about_a_recording_are_about_two_things(tmp_path):
    """Both GPUs of a recording begin and end in the middle of work: the first screen says each
    once, and how many notes are left."""
    rows = []
    for device, pid in enumerate((PID, OTHER)):
        of = {"deviceId": device, "globalPid": global_id(pid)}
        thread = global_id(pid, TID)
        rows += [Kernel(200 * at, 200 * at + 200, 1 + at, **of) for at in (0, 1)]
        rows += [Call(500, 510, 10, globalTid=thread), Kernel(520, 900, 10, **of)]
        rows += [Call(910 + at, 911 + at, 20 + at, globalTid=thread) for at in range(3)]
    notes = imported(tmp_path, rows).info.health
    assert sorted(note.rule.value for note in notes) == ["before", "before", "cut", "cut"]
    cut, before, see = health_facts(notes)
    assert (cut.label, before.label, see.label) == ("Cut", "Before", "See")
    assert before.value.startswith("2 commands, 400\xa0ns on cuda:0, were launched before")
    assert before.value.endswith("(and 2 more: table health)")


def test_layers_of_an_engine_are_operators(tmp_path):
    """TensorRT's ranges name the engine's layers: a kernel is the innermost one's, with the op type
    of its main node, and not of `ExecutionContext::execute` around all of them. A kernel without a
    layer is called by its own name."""
    conv = "/layer1.0/conv1/Conv + /layer1.0/relu/Relu"
    copied = "Reformatting CopyNode for Input Tensor 0 to /layer1.0/conv1/Conv"
    named = {"domainId": 2}
    rows = [
        Range(0, None, "TensorRT", eventType=75, **named),
        Range(0, 90, "ExecutionContext::execute", **named),
        Range(10, 19, copied, **named),
        Range(20, 29, conv, **named),
        *(Call(at, at + 2, at) for at in (11, 21, 31)),
        *(Kernel(100 + at, 105 + at, at) for at in (11, 21, 31)),
    ]
    commands = imported(tmp_path, rows).commands.filter(category="compute")
    names = commands.sort("start_ns").select(pl.col("layer", "op_type").cast(pl.String)).rows()
    alone = "at::native::mul_kernel"
    assert names == [(copied, "Reformat"), (conv, "Conv"), (alone, alone)]


def test_nobody_is_told_to_capture_graphs_that_were_captured(tmp_path):
    """A program captures two launches and replays them: what it waits for is the capture, and the
    finding is that, not that graphs would help."""
    rows: list[object] = [
        Call(0, 10_000, 1),
        Kernel(11_000, 12_000, 1),
        Call(20_000, 21_000, 2, "cudaStreamBeginCapture_v10000"),
        Call(30_000, 31_000, 3),
        Call(40_000, 41_000, 4, "cudaMemcpyAsync_v3020"),
        Call(50_000, 51_000, 5, "cudaStreamEndCapture_v10000"),
        Call(60_000, 90_000, 6, "cudaGraphInstantiate_v12000"),
        *(Call(at, at + 1_000, at, "cudaGraphLaunch_v10000") for at in (91_000, 93_000)),
        *(Graph(at + 2_000, at + 3_000, at, 1) for at in (91_000, 93_000)),
    ]
    run = imported(tmp_path, rows)
    graphs = run.info.recording.graphs
    assert (graphs.captured, graphs.replays) == (2, 2)
    assert [one.rule for one in analyze(run).findings] == ["graph_capture"]


def test_a_capture_without_an_end_takes_no_launches_of_others(tmp_path):
    """One thread begins a capture whose end is not recorded and then launches a kernel that runs;
    another captures one launch, ends its capture, and launches 50 kernels: one was captured."""
    first, second = ({"globalTid": global_id(tid=tid)} for tid in (TID, TID + 1))
    rows: list[object] = [
        Call(1_000, 2_000, 1, "cudaStreamBeginCapture_v10000", **first),
        Call(3_000, 4_000, 2, **first),
        Kernel(5_000, 6_000, 2),
        Call(7_000, 8_000, 3, "cudaStreamBeginCapture_v10000", **second),
        Call(9_000, 10_000, 4, **second),
        Call(11_000, 12_000, 5, "cudaStreamEndCapture_v10000", **second),
        Call(13_000, 14_000, 6, "cudaGraphLaunch_v10000", **second),
        Graph(15_000, 16_000, 6, 1),
    ]
    rows += [Call(20_000 + 10 * at, 20_005 + 10 * at, 10 + at, **second) for at in range(50)]
    graphs = imported(tmp_path, rows).info.recording.graphs
    assert (graphs.captured, graphs.replays) == (1, 1)


def test_fewer_launches_are_no_answer_to_one_long_wait(tmp_path):
    """A host launches 40 kernels at once, then does something else for 20 ms: the mean wait of a
    kernel is that of a launch, but most of the wait is one gap."""
    begins = [*(20_000 * at for at in range(40)), 20_800_000]
    rows: list[object] = []
    for number, at in enumerate(begins, 1):
        rows += [Call(at, at + 5_000, number), Kernel(at + 10_000, at + 15_000, number)]
    (found,) = [one for one in analyze(imported(tmp_path, rows)).findings if one.cost_ns]
    assert found.rule == "host_bound"
    assert found.evidence["host_wait_ns"] / found.evidence["commands"] < 1_000_000
    assert "what the host does in the gaps" in words(found).recommendation
