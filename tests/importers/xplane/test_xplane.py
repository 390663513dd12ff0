"""XSpaces of XLA's profiler: the corpus by its totals, small ones, broken files."""

from __future__ import annotations

import json
from collections import Counter

import polars as pl
import pytest

from profiler.analysis.analyze import analyze
from profiler.errors import InputError
from profiler.importers import import_trace, recognised
from profiler.importers.xplane_planes import read_space
from profiler.tools.sources import load
from profiler.trace import DropKind
from tests.corpus import CORPUS, needs_corpus
from tests.importers.broken import read_or_refused
from tests.importers.xplane.spaces import E, L, plane, space

FOLDER = CORPUS / "xplane"
TPU, GPU = "xprof_tpu_inference_2.xplane.pb", "jax_conv_minimal_08.xplane.pb"
START = 1_700_000_000_000_000_000
TASK = plane("Task Environment", stats={"profile_start_time": START})
US = 1_000_000  # ps


def imported(tmp_path, data):
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(data)
    return load(import_trace([path], tmp_path / "traces"))


def rows(run, *columns):
    texts = {"layer", "op_type", "module", "kernel", "shapes", "category", "track", "device"}
    return run.commands.select(
        pl.col(name).cast(pl.String) if name in texts else pl.col(name) for name in columns
    ).rows()


def union_ms(frame):
    total = until = 0
    for start, length in frame.select("start_ns", "duration_ns").sort("start_ns").iter_rows():
        total += max(start + length - max(start, until), 0)
        until = max(until, start + length)
    return total / 1e6


@needs_corpus
@pytest.mark.parametrize("name", [TPU, GPU])
def test_the_totals_of_the_corpus(tmp_path, name):
    """Commands by device, the union of their times, the costliest three, the begin: those of
    `truth.json`; what waits for copies is waiting and no work."""
    truth = json.loads((CORPUS / "truth.json").read_text())[f"xplane/{name}"]
    run = load(import_trace([FOLDER / name], tmp_path))
    tracks = pl.col("track").cast(pl.String)
    told = run.commands.filter(
        ~pl.col("device").cast(pl.String).str.starts_with("cpu"), tracks != "Async XLA Ops"
    )
    assert len(told) == truth["count"]
    for device, count in truth["commands_per_device"].items():
        number = device.partition(":")[2]
        own = told.filter(pl.col("device").cast(pl.String).str.ends_with(f":{number}"))
        assert len(own) == count
        assert union_ms(own) == pytest.approx(truth["busy_ms"][device], rel=1e-6)
    by = pl.col("kernel" if name == GPU else "layer").cast(pl.String)
    found = told.group_by(by.alias("name")).agg(pl.col("duration_ns").sum() / 1e6, pl.len())
    for op, total, count in truth["top3"]:
        row = found.filter(pl.col("name") == op.removesuffix(".kd")).row(0)
        assert (row[1], row[2]) == (pytest.approx(total, rel=1e-5), count)
    assert run.info.clocks.base_ns == truth["task"]["profile_start_time"]
    begin = (int(told["start_ns"].min()) - run.info.clocks.base_ns) * 1000
    assert begin == pytest.approx(truth["span_ps"][0], abs=1000)
    waiting = told.filter(pl.col("layer").cast(pl.String).str.starts_with("copy-done"))
    assert set(waiting["category"].cast(pl.String)) <= {"sync"}
    if name == TPU:
        assert len(run.calls) == truth["xla_modules"]
        assert len(run.commands) - len(told) == truth["async_ops"]
        devices = analyze(run).devices
        busy = dict(devices.select("device", "busy_ns").iter_rows())
        working = told.filter(pl.col("category").cast(pl.String) != "sync")
        for device, length in busy.items():
            own = working.filter(pl.col("device").cast(pl.String) == device)
            assert length / 1e6 == pytest.approx(union_ms(own), abs=1e-3)


@needs_corpus
def test_every_event_of_the_host_is_read():
    """As many as independent scripts count."""
    truths = json.loads((CORPUS / "truth.json").read_text())
    for name in (TPU, GPU):
        (host,) = [p for p in read_space(FOLDER / name).planes if p.name == "/host:CPU"]
        events = sum(len(line.events) + line.untimed for line in host.lines())
        assert events == truths[f"xplane/{name}"]["host_events"]


HLO = "%fusion.2 = f32[8,128]{1,0} fusion(bf16[8,64]{1,0:T(8,128)} %p0, f32[64,128]{1,0} %p1)"
OPS = [
    E(
        HLO,
        1 * US,
        4 * US,
        display="fusion.2",
        of_kind={
            "hlo_category": "convolution fusion",
            "tf_op": "jit(step)/jit(main)/transpose(jvp(Model))/layers_0/attn/dot_general:",
            "flops": 2 * 8 * 64 * 128,
            "bytes_accessed": 40_960,
        },
    ),
    E("%copy-done = f32[4] copy-done(%c)", 5 * US, 3 * US, display="copy-done",
      of_kind={"hlo_category": "copy-done", "bytes_accessed": 16}),
    E("%all-reduce = f32[4] all-reduce(f32[4] %x)", 8 * US, 1 * US, display="all-reduce",
      of_kind={"hlo_category": "all-reduce"}),
    E("%while = f32[4] while(f32[4] %x)", 0, 10 * US, display="while",
      of_kind={"hlo_category": "while"}),
]  # fmt: skip
MODULES = [E("jit_vae(123)", 0, 10 * US), E("jit_step(9)", 20 * US, 5 * US)]


def tpu(ops=OPS, modules=MODULES, **lines):
    return plane(
        "/device:TPU:1",
        [
            L("XLA Modules", modules),
            L("XLA Ops", ops),
            *(L(name.replace("_", " "), events) for name, events in lines.items()),
        ],
        stats={"device_type_string": "TPU v6 Lite"},
    )


def test_a_module_is_a_call_and_an_operation_a_command(tmp_path):
    """Names, module path, tensors, work and bytes of an operation; the loop around it counts not
    twice; a function that is called after a component has its name."""
    run = imported(tmp_path, space(tpu(), TASK))
    calls = run.calls.select(pl.col("submodule").cast(pl.String), "start_ns", "duration_ns").rows()
    assert calls == [("vae", START, 10_000), ("jit_step", START + 20_000, 5_000)]
    columns = ("layer", "op_type", "module", "category", "start_ns", "duration_ns")
    assert rows(run, *columns) == [
        ("fusion.2", "dot_general", "Model.layers_0.attn", "compute", START + 1000, 4000),
        ("copy-done", "copy-done", None, "sync", START + 5000, 3000),
        ("all-reduce", "all-reduce", None, "collective", START + 8000, 1000),
    ]
    shapes = "bfloat16[8,64] float[64,128] -> float[8,128]"
    work = (shapes, 131_072, 40_960 - 4096, 4096)
    assert rows(run, "shapes", "flops", "bytes_read", "bytes_written")[0] == work
    assert run.info.devices["tpu:1"].hardware == "TPU v6 Lite"
    assert set(run.info.capabilities) == {"timeline", "shapes", "bytes"}
    assert not run.drops


def test_the_newest_profile_of_a_folder_of_logs_is_read(tmp_path):
    """What jax.profiler.trace was given: the view beside an XSpace is left alone; several hosts are
    a sentence."""
    profiles = tmp_path / "logs" / "plugins" / "profile"
    older = tpu(modules=MODULES[:1])
    for date, events in (("2026_01_01_10_00_00", older), ("2026_01_02_10_00_00", tpu())):
        folder = profiles / date
        folder.mkdir(parents=True)
        (folder / "host.xplane.pb").write_bytes(space(events, TASK))
        (folder / "host.trace.json.gz").write_bytes(b"")
    run = load(import_trace(tmp_path / "logs", tmp_path / "out"))
    assert run.calls["submodule"].cast(pl.String).to_list() == ["vae", "jit_step"]
    (profiles / "2026_01_02_10_00_00" / "other.xplane.pb").write_bytes(space(tpu(), TASK))
    with pytest.raises(InputError, match="has a profile of 2 hosts: give one of their files"):
        import_trace(tmp_path / "logs", tmp_path / "out")


def test_what_is_in_flight_is_never_busy(tmp_path):
    """An asynchronous copy lies on a track of its own, over what the device does."""
    flight = [E("%copy-start = f32[4]", 0, 9 * US, {"hlo_op": "copy-done"}, "async-copy")]
    run = imported(tmp_path, space(tpu(Async_XLA_Ops=flight), TASK))
    busy = analyze(run).devices.filter(pl.col("device") == "tpu:1")["busy_ns"].item()
    assert busy == 5000
    assert ("async-copy (copy-done)", "Async XLA Ops", "sync") in rows(
        run, "layer", "track", "category"
    )


@pytest.mark.parametrize("at", [0, 7_000, START, START + 7_000])
def test_lines_count_from_the_begin_or_from_1970(tmp_path, at):
    """Each line has a timestamp of its own, relative where it is smaller than the profile's
    begin."""
    line = L("Stream #7(Kernel)", [E("kernel.kd", 2000, 3000, {"hlo_module": "jit_f"})], at)
    run = imported(tmp_path, space(plane("/device:GPU:0", [line]), TASK))
    assert rows(run, "start_ns", "duration_ns") == [(START + at % START + 2, 3)]


def test_gpus(tmp_path):
    """By vendor: kernels without `.kd` under the operation that launched them, copies with their
    bytes, the host's launch, one call until the first operation comes again."""

    def kernel(at, op, number):
        told = {"correlation_id": number, "hlo_op": f"ref:{op}", "hlo_module": "ref:jit_unet"}
        return E(f"{op}_impl.kd", at * US, 2 * US, told)

    kernels = [kernel(10, "dot.1", 1), kernel(13, "dot.1", 2), kernel(16, "add.2", 3)]
    kernels += [kernel(30, "dot.1", 4), kernel(33, "add.2", 5)]
    copy = E("MemcpyH2D", 5 * US, US, {"memcpy_details": "kind:H2D size:4096 dest:0 async:1"})
    device = plane(
        "/device:GPU:2",
        [L("Stream #13(Kernel)", kernels), L("Stream #14(MemcpyH2D)", [copy]), L("Steps", [])],
        stats={"device_vendor": "AMD", "core_count": 304, "memory_size": 1 << 34},
    )
    launch = E("hipModuleLaunchKernel", 8 * US, US, {"correlation_id": 1, "device_id": 47645})
    host = plane("/host:CPU", [L("python/1", [launch, E("$frame", 0, US)])])
    run = imported(tmp_path, space(host, device, TASK))
    calls = run.calls.select(pl.col("submodule").cast(pl.String), "device", "step").rows()
    assert calls == [("unet", "rocm:2", 0), ("unet", "rocm:2", 1)]
    assert run.info.recording.calls_from == "module_period"
    found = rows(run, "layer", "op_type", "kernel", "track", "category")
    assert ("dot.1", "dot", "dot.1_impl", "stream 13", "compute") in found
    assert ("hipModuleLaunchKernel", "hipModuleLaunchKernel", None, "python/1", "host") in found
    moved = run.commands.filter(pl.col("category").cast(pl.String) == "dma")
    assert moved.select(pl.col("track").cast(pl.String), "bytes_read").rows() == [
        ("stream 14 memcpy", 4096)
    ]
    assert len(run.flows) == 1
    assert run.info.devices["rocm:2"].compute_units == 304


def test_kernels_of_one_operator_are_one_op_type(tmp_path):
    """XLA numbers the kernels of its fusions: the costliest op types have a row for all of them."""
    run_by = {"dot_fusion": "dot_fusion.1", "dot_fusion_6": "dot_fusion.7", "add": "add.2"}
    kernels = [
        E(f"{kernel}.kd", at * US, US, {"hlo_op": f"ref:{op}", "hlo_module": "ref:jit_unet"})
        for at, (kernel, op) in enumerate(run_by.items())
    ]
    device = plane("/device:GPU:0", [L("Stream #13(Kernel)", kernels)])
    shapes = analyze(imported(tmp_path, space(device, TASK))).shapes
    found = shapes.select("label", "executions", "total_ns").rows()
    assert found == [("dot_fusion", 2, 2000), ("add", 1, 1000)]


@pytest.mark.parametrize("module", ["", "ref:jit_train"])
def test_gpus_that_work_one_after_another(tmp_path, module):
    """GPU 2 works from 0, GPU 1 from 300 ms, GPU 0 from 600 ms, each in three kernels of 5 ms 100
    ms apart, of a module only on GPU 0: the run is from the first event of all to the last, each is
    busy for 15 ms of it, and all shares are of that."""
    planes = []
    for number in range(3):
        of = {"hlo_module": module} if module and not number else {}
        first = (2 - number) * 300_000
        times = [first + at * 100_000 for at in range(3)]
        events = [E("k", at * US, 5_000 * US, {"hlo_op": "ref:k", **of}) for at in times]
        lines = [L("Stream #13(Kernel)", events)]
        planes.append(plane(f"/device:GPU:{number}", lines, stats={"device_vendor": "Nvidia"}))
    analysis = analyze(imported(tmp_path, space(*planes, TASK)))
    assert analysis.accounting.end_to_end_ns == 805_000_000
    assert analysis.accounting.residual_share == 0
    rows = analysis.devices.filter(pl.col("device") != "cpu:0")
    assert rows["busy_ns"].to_list() == [15_000_000] * 3
    assert rows["idle_share"].to_list() == [pytest.approx(790 / 805)] * 3
    assert all(part.share <= 1 for part in analysis.accounting.submodules)
    assert analysis.submodules["share"].max() <= 1


def test_what_the_program_did_in_long_gaps_is_kept(tmp_path):
    """Of threads with Python frames or compiled functions: for a gap of 300 µs the innermost that
    covers half of it; nothing for one of 50 µs, nor of the runtime's own threads."""

    def kernel(at):
        return E("dot.kd", at * US, 10 * US, {"hlo_op": "ref:dot", "hlo_module": "ref:jit_f"})

    device = plane("/device:GPU:0", [L("Stream #1(Kernel)", [kernel(0), kernel(310), kernel(370)])])
    program = L(
        "python",
        [
            E("$train.py:3 loop", 0, 500 * US),
            E("$/home/alice/api.py:9 block_until_ready", 20 * US, 200 * US),
            E("$api.py:7 poll", 20 * US, 60 * US),
            E("$api.py:5 step", 321 * US, 48 * US),
        ],
    )
    runtime = L("tf_pjrt_thread_pool/1", [E("ThreadpoolListener::Record", 0, 400 * US)])
    run = imported(tmp_path, space(device, plane("/host:CPU", [program, runtime]), TASK))
    kept = [
        (one.name, one.kind.value, one.start_ns - START, one.duration_ns)
        for one in run.info.host_activities
    ]
    assert kept == [("api.py:9 block_until_ready", "function", 20_000, 200_000)]
    (gap,) = analyze(run).gaps.filter(pl.col("length_ns") == 300_000).rows(named=True)
    assert (gap["host_activity"], gap["host_activity_share"]) == (kept[0][0], pytest.approx(2 / 3))


def test_what_the_launching_thread_did_in_long_gaps_is_kept(tmp_path):
    """The program is in `Execute` for all of a gap of 300 µs; the thread that launches its end is
    in `Build buffer allocations` for 250 of it, on the line on which the launched operation runs.
    Another thread is in something else, and launches for another device."""

    def gpu(number):
        of = {"hlo_op": "ref:dot", "hlo_module": "ref:jit_f"}
        kernels = [
            E("dot.kd", at * US, 10 * US, {**of, "correlation_id": 10 * number + at})
            for at in (10, 320)
        ]
        return plane(f"/device:GPU:{number}", [L("Stream #1(Kernel)", kernels)])

    def thread(number, name):
        times = (1 + number, 311 + number)
        launches = [
            E("launch", at * US, US, {"hlo_op": "ref:dot", "correlation_id": 10 * number + ended})
            for at, ended in zip(times, (10, 320), strict=True)
        ]
        yield L(f"Host Threads/{number}", launches)
        operations = [E("dot", at * US, 2 * US) for at in times]
        yield L(f"py_xla_execute/{number}", [*operations, E(name, 40 * US, 250 * US)])

    program = [E("PjitFunction(f)", 0, 500 * US), E("Execute", 5 * US, 400 * US)]
    threads = [*thread(0, "Build buffer allocations"), *thread(5, "Load")]
    host = plane("/host:CPU", [L("python", program), *threads])
    run = imported(tmp_path, space(gpu(0), gpu(5), host, TASK))
    found = analyze(run).gaps.filter(pl.col("length_ns") >= 300_000).sort("device")
    assert found["host_activity"].to_list() == ["Build buffer allocations", "Load"]


def test_a_device_that_did_nothing_is_no_error(tmp_path):
    """A plane without lines is an idle device."""
    run = imported(tmp_path, space(plane("/device:TPU:0"), tpu(), TASK))
    assert {"tpu:0", "tpu:1"} <= set(run.info.devices)


def test_hosts_and_sources_are_not_taken_over(tmp_path):
    """Names of machines and stacks of sources stay in the file."""
    ops = [E("%a = f32[] add()", 0, US, display="a", of_kind={"source_stack": "alice/train.py"})]
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(space(tpu(ops), TASK, hostname="node-17.cluster"))
    bundle = import_trace([path], tmp_path / "traces")
    data = b"".join(file.read_bytes() for file in bundle.iterdir())
    assert b"alice" not in data
    assert b"node-17" not in data


def test_a_cut_file_is_read_as_far_as_it_is_whole(tmp_path):
    """At whatever byte it ends: the planes before are read, and a drop says so; or one sentence."""
    data = space(tpu(), plane("/host:CPU"), TASK)
    told = Counter()
    for length in range(3, len(data), 53):
        folder = tmp_path / str(length)
        folder.mkdir()
        run = read_or_refused(imported, folder, data[:length])
        told["refused" if run is None else "read"] += 1
        if run is None:
            continue
        assert len(run.calls) == 2
        assert [drop.kind for drop in run.drops][:1] in ([DropKind.TRUNCATED_FILE], [])
    assert min(told.values()) > 1


@pytest.mark.parametrize("step", [41, pytest.param(1, marks=pytest.mark.nightly)])
def test_changed_bytes_end_in_a_sentence_or_a_drop(tmp_path, step):
    """Each byte that is another: a run, or InputError; never another error."""
    data = bytearray(space(tpu(), TASK))
    for at in range(0, len(data), step):
        folder = tmp_path / str(at)
        folder.mkdir()
        changed = bytearray(data)
        changed[at] ^= 0xFF
        read_or_refused(imported, folder, bytes(changed))


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (space(plane("/host:CPU", [L("a", [E("x", 0, 1)])])), "no operation of a TPU or GPU"),
        (space(plane("/device:TPU:0")), "no operation of a TPU or GPU"),
        (b"\x0a\x40\x08\x01\x12\x0e/device:TPU:0", "cut within its first plane"),
    ],
)
def test_what_holds_no_device_work_is_refused(tmp_path, data, sentence):
    """One sentence that says what to record."""
    with pytest.raises(InputError, match=sentence):
        imported(tmp_path, data)


def test_events_without_a_begin_are_counted(tmp_path):
    """Aggregates have a number of occurrences in place of a begin."""
    ops = [E("%a = f32[] add()", 0, US, display="a"), E("b", 0, US, occurrences=7)]
    run = imported(tmp_path, space(tpu(ops), TASK))
    (drop,) = run.drops
    assert (drop.kind, drop.count) == (DropKind.DROPPED_EVENTS, 1)


def test_it_is_told_by_content(tmp_path):
    """Perfetto's traces begin with the same byte."""
    path = tmp_path / "a.pb"
    path.write_bytes(space(tpu(), TASK))
    assert recognised([path]).name == "xplane"
    path.write_bytes(b"\x0a\x05\x40\x01\x52\x01\x00")
    assert recognised([path]) is None
