"""One run told in every form: the same tables, and what each row becomes."""

from __future__ import annotations

import importlib.util
import json

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from profiler.errors import InputError
from profiler.importers import import_trace
from profiler.tools.sources import load
from profiler.trace import ClockName

from .generated import (
    KERNEL,
    PID,
    SECRET,
    TID,
    Call,
    Copy,
    Kernel,
    Mark,
    Told,
    as_csv,
    as_document,
    as_json,
    as_pftrace,
    as_rocpd,
    as_systems,
)

_BIG = 5 << 32  # bytes, more than 32 bits hold
FORMS = {
    "json": as_json,
    "csv of ROCm 7": lambda told, folder: as_csv(told, folder / "csv"),
    "csv of ROCm 6": lambda told, folder: as_csv(told, folder / "csv", named=False, quoted=False),
    "rocpd, times in rows": lambda told, folder: as_rocpd(told, folder, times_in_rows=True),
    "rocpd, times by id": lambda told, folder: as_rocpd(told, folder, times_in_rows=False),
    "rocpd, plain names": lambda told, folder: as_rocpd(
        told, folder, times_in_rows=True, suffix=""
    ),
    "rocpd, ids no keys": lambda told, folder: as_rocpd(
        told, folder, times_in_rows=False, keyed=False
    ),
}
if importlib.util.find_spec("perfetto") is not None:
    FORMS |= {
        "pftrace by stream": lambda told, folder: as_pftrace(told, folder, by_queue=False),
        "pftrace by queue": lambda told, folder: as_pftrace(told, folder, by_queue=True),
        "rocprofiler-systems": lambda told, folder: as_systems(told, folder, by_queue=True),
    }
every_form = pytest.mark.parametrize("form", FORMS)


def pipeline():
    """A prompt, three steps on two GPUs in turn, a decoder with a copy before and after it."""
    marks = [
        Mark(1_000, 1_100, "text_encoder"),
        *(Mark(2_000 + 100 * n, 2_060 + 100 * n, "Transformer.forward") for n in range(3)),
        Mark(3_000, 3_090, "vae.decode"),
        Mark(3_001, 3_080, "vae"),
        Mark(3_010, 3_010, "unet"),
    ]
    calls, kernels = [], []
    for number, begin in enumerate((1_010, 2_010, 2_110, 2_210, 3_020), 1):
        calls.append(Call(begin, begin + 5, number))
        name = f"void gemm<{number % 2}, float>(float*, int)"
        kernels.append(Kernel(begin + 10, begin + 30, number, name, gpu=number % 2))
    kernels.append(Kernel(3_045, 3_050, 5, 'ncclDevKernel_Generic("x", 1)', queue=9))
    calls += [
        Call(3_055, 3_058, 6, "hipMemcpyAsync"),
        Call(3_060, 3_064, 7, "hipMemcpyAsync"),
        Call(3_065, 3_075, 8, "hipDeviceSynchronize", tid=TID + 1),
    ]
    copies = [Copy(3_058, 3_063, 6, 4096, 1, gpu=1), Copy(3_064, 3_072, 7, _BIG, 2)]
    return Told(kernels[::-1], calls, copies, marks)


def imported(form, tmp_path, told):
    return load(import_trace(FORMS[form](told, tmp_path), tmp_path / "traces"))


def tables(run):
    """What a run holds, with words for codes."""
    texts = pl.selectors.categorical() | pl.selectors.by_dtype(pl.Enum)
    frames = {"calls": run.calls, "commands": run.commands, "flows": run.flows, "spans": run.spans}
    plain = {name: frame.with_columns(texts.cast(pl.String)) for name, frame in frames.items()}
    plain["spans"] = plain["spans"].filter(pl.col("kind") != "pipeline")  # it has the file's name
    return plain


@pytest.fixture(scope="module")
def bundles(tmp_path_factory):
    """The pipeline as a bundle from each form."""
    made = {}
    for form, write in FORMS.items():
        folder = tmp_path_factory.mktemp("told")
        made[form] = import_trace(write(pipeline(), folder), folder / "traces")
    return made


@every_form
def test_every_form_tells_the_same(form, bundles):
    """Calls, commands, flows and spans are those that JSON has; CSV alone lacks bytes of copies."""
    expected, found = tables(load(bundles["json"])), tables(load(bundles[form]))
    if form.startswith("csv"):
        names = ("bytes_read", "bytes_written")
        assert found["commands"].select(names).null_count().row(0) == (len(found["commands"]),) * 2
        unknown = [pl.lit(None, pl.Int64).alias(name) for name in names]
        expected["commands"] = expected["commands"].with_columns(unknown)
    for name, frame in expected.items():
        assert_frame_equal(found[name], frame)


@every_form
def test_what_each_row_becomes(form, bundles):
    """Components marked with roctx are calls with stages and steps; kernels, copies and collectives
    stand on their devices' tracks; a wait is one."""
    run = load(bundles[form])
    calls = run.calls.select(pl.col("submodule", "stage", "device").cast(pl.String), "step")
    assert calls.rows() == [
        ("text_encoder", "encode", "rocm:1", -1),
        ("transformer", "denoise", "rocm:0", 0),
        ("transformer", "denoise", "rocm:1", 1),
        ("transformer", "denoise", "rocm:0", 2),
        ("vae", "decode", "rocm:0", -1),
    ]
    assert run.calls["start_ns"].to_list() == [1_000, 2_000, 2_100, 2_200, 3_000]
    work = run.commands.filter(pl.col("device") != "cpu:0").sort("start_ns")
    texts = pl.col("device", "track", "category", "op_type").cast(pl.String)
    assert work.tail(4).select(texts).rows() == [
        ("rocm:1", "queue 2", "compute", "gemm"),
        ("rocm:0", "queue 9 collectives", "collective", "ncclDevKernel_Generic"),
        ("rocm:1", "memcpy", "dma", "Memcpy HtoD"),
        ("rocm:0", "memcpy", "dma", "Memcpy DtoH"),
    ]
    if not form.startswith("csv"):
        assert work.tail(2)["bytes_read"].to_list() == [4096, _BIG]
    host = run.commands.filter(pl.col("category") == "sync")
    assert host.select(pl.col("layer", "track").cast(pl.String)).rows() == [
        ("hipDeviceSynchronize", f"thread {TID + 1} sync")
    ]
    assert len(run.flows) == len(work)
    assert run.drops == ()
    assert (run.info.clocks.clock, run.info.clocks.base_ns) == (ClockName.BOOTTIME, 0)
    named = form.startswith(("json", "csv", "rocpd"))  # Perfetto's traces do not name GPUs
    assert run.info.devices["rocm:1"].hardware == ("MI1" if named else "")


@pytest.mark.parametrize("form", ["json", "csv of ROCm 6", "rocpd, times by id"])
def test_ranges_that_are_named_are_calls(form, tmp_path):
    """`submodules` names them; a text of no range is said."""
    told = Told([Kernel(20, 30, 1)], [Call(10, 12, 1)], marks=[Mark(5, 50, "sampler")])
    path = FORMS[form](told, tmp_path)
    run = load(import_trace(path, tmp_path / "traces", options={"submodules": "sampler"}))
    assert run.calls["submodule"].cast(pl.String).to_list() == ["sampler"]
    with pytest.raises(InputError, match="no roctx range 'dit'"):
        import_trace(path, tmp_path / "traces", options={"submodules": "dit"})


@pytest.mark.parametrize("form", ["json", "csv of ROCm 6", "rocpd, times by id"])
def test_launches_without_any_work_are_times_of_the_host(form, tmp_path):
    """A recording without --kernel-trace: the calls are there, with the times of their ranges."""
    marks = [Mark(1_000, 1_500, "text_encoder"), Mark(2_000, 2_900, "vae.decode")]
    calls = [Call(begin, begin + 5, begin) for begin in (1_010, 2_010, 2_110)]
    run = imported(form, tmp_path, Told([], calls, marks=marks))
    (note,) = run.info.health
    assert (note.rule, note.count, note.worst in ("MI0, MI1", "")) == ("host_only", 3, True)
    assert run.calls.select(pl.col("submodule", "device").cast(str), "duration_ns").rows() == [
        ("text_encoder", "cpu:0", 500),
        ("vae", "cpu:0", 900),
    ]


@every_form
def test_nothing_of_the_machine_is_copied(form, bundles):
    """Host, command and environment of the recording are not in the bundle."""
    written = b"".join(file.read_bytes() for file in sorted(bundles[form].iterdir()))
    assert SECRET.encode() not in written


@pytest.mark.parametrize("form", ["json", "rocpd, times in rows", "rocpd, times by id"])
def test_counters_of_dispatches(form, tmp_path):
    """A value of each counter at its dispatch's begin, with its fraction, on its device."""
    told = Told(
        [
            Kernel(10, 20, 1, counters={"FETCH_SIZE": 10.625, "Wavefronts": 4}),
            Kernel(30, 40, 2, gpu=1, counters={"FETCH_SIZE": 0.5}),
        ]
    )
    run = imported(form, tmp_path, told)
    assert run.counters.select(pl.col("device", "name").cast(pl.String), "time_ns", "value").sort(
        "time_ns", "name"
    ).rows() == [
        ("rocm:0", "FETCH_SIZE", 10, 10.625),
        ("rocm:0", "Wavefronts", 10, 4.0),
        ("rocm:1", "FETCH_SIZE", 30, 0.5),
    ]
    assert len(run.commands) == 2
    assert "metrics" in run.info.capabilities


def test_one_graph_launch_owns_many_dispatches(tmp_path):
    """All dispatches with a launch's correlation id follow from it."""
    kernels = [Kernel(20 + n, 21 + n, 7) for n in range(24)]
    run = imported("json", tmp_path, Told(kernels, [Call(5, 9, 7, "hipGraphLaunch")]))
    assert len(run.flows) == 24
    assert run.flows["source"].n_unique() == 1


def test_streams_of_rocprofiler_systems_name_no_gpu(tmp_path):
    """By default kernels and copies share a stream's track: they are told apart by their names, and
    are of the only GPU."""
    pytest.importorskip("perfetto")
    told = Told(
        [Kernel(20, 30, 1), Kernel(50, 60, 3, queue=3)],
        [Call(10, 12, 1)],
        [Copy(32, 40, 2, 64, 1), Copy(61, 65, 4, 64, 2)],
    )
    path = as_systems(told, tmp_path, by_queue=False)
    run = load(import_trace(path, tmp_path / "traces"))
    work = run.commands.filter(pl.col("device") != "cpu:0").sort("start_ns")
    assert work.select(pl.col("device", "track", "category").cast(pl.String)).rows() == [
        ("rocm:0", "queue 2", "compute"),
        ("rocm:0", "memcpy", "dma"),
        ("rocm:0", "queue 3", "compute"),
        ("rocm:0", "memcpy", "dma"),
    ]
    assert len(run.flows) == 1


def test_a_perfetto_trace_is_known_before_its_first_kernel(tmp_path):
    """API calls come first in a file: of a long run the first MiB has no kernel."""
    pytest.importorskip("perfetto")
    calls = [Call(10 * n, 10 * n + 5, n) for n in range(1, 20_000)]
    told = Told([Kernel(500_000, 500_100, 7)], calls)
    path = as_pftrace(told, tmp_path, by_queue=True)
    assert b"kernel_dispatch" not in path.read_bytes()[: 1 << 20]
    run = load(import_trace(path, tmp_path / "traces"))
    assert len(run.commands) == 20_000
    assert set(run.commands["device"].cast(pl.String)) == {"cpu:0", "rocm:0"}


def test_processes_of_one_file(tmp_path):
    """Two processes that count from 1 are two calls, each with its own launches."""
    first = Told([Kernel(20, 30, 1)], [Call(10, 12, 1)])
    other = Told([Kernel(21, 31, 1, gpu=1)], [Call(11, 13, 1)], pid=PID + 1)
    path = tmp_path / "both.json"
    path.write_text(json.dumps(as_document(first, other)))
    run = load(import_trace(path, tmp_path / "traces"))
    assert run.calls["submodule"].cast(pl.String).to_list() == ["process_0", "process_1"]
    pairs = run.flows.select("source", "target").rows()
    starts = run.commands["start_ns"]
    assert {(starts[a], starts[b]) for a, b in pairs} == {(10, 20), (11, 21)}


def test_processes_of_one_folder(tmp_path):
    """The same as files of CSV, told apart by what their names begin with."""
    folder = as_csv(Told([Kernel(20, 30, 1)], [Call(10, 12, 1)]), tmp_path / "csv")
    as_csv(Told([Kernel(21, 31, 1, gpu=1)], [Call(11, 13, 1)], pid=PID + 1), folder)
    run = load(import_trace(folder, tmp_path / "traces"))
    assert run.calls["device"].cast(pl.String).to_list() == ["rocm:0", "rocm:1"]
    assert len(run.flows) == 2


def test_recordings_of_one_file(tmp_path):
    """A rocpd file that two recordings were merged into has both."""
    path = as_rocpd(Told([Kernel(20, 30, 1)]), tmp_path, times_in_rows=True)
    second = Told([Kernel(40, 50, 1)], pid=PID + 1)
    as_rocpd(second, tmp_path, times_in_rows=True, suffix="_other")
    run = load(import_trace(path, tmp_path / "traces"))
    assert run.commands["start_ns"].to_list() == [20, 40]
    assert len(run.calls) == 2


def test_of_several_forms_the_richest_is_read(tmp_path):
    """A folder with JSON beside CSV of the same run: JSON alone, and the rest is named."""
    told = Told([Kernel(20, 30, 1)], [Call(10, 12, 1)])
    folder = as_csv(told, tmp_path / "out")
    as_json(told, folder)
    run = load(import_trace(folder, tmp_path / "traces"))
    assert len(run.commands) == 2
    assert {drop.where for drop in run.drops} == {
        f"{PID}_{kind}.csv" for kind in ("agent_info", "hip_api_trace", "kernel_trace")
    }


def test_agents_by_every_name(tmp_path):
    """Without a list of agents a number is that of the device; `GPU 3` counts GPUs alone."""
    path = tmp_path / "x_kernel_trace.csv"
    rows = [f'"{name}","k","{n}","{n + 1}"' for n, name in enumerate(("Agent 1", "4", "GPU-3"))]
    path.write_text(
        "\n".join(['"Agent_Id","Kernel_Name","Start_Timestamp","End_Timestamp"', *rows])
    )
    run = load(import_trace(path, tmp_path / "traces"))
    assert run.commands["device"].cast(pl.String).to_list() == ["rocm:1", "rocm:4", "rocm:3"]


def test_kernel_names_stay_whole(tmp_path):
    """Commas, quotes and newlines in a quoted name, and a carriage return behind the row."""
    name = 'f<1, "a">(\nint)'
    path = tmp_path / "x_kernel_trace.csv"
    quoted = name.replace('"', '""')
    header = "Agent_Id,Kernel_Name,Start_Timestamp,End_Timestamp"
    path.write_bytes(f'{header}\r\n1,"{quoted}",5,8\r\n1,{KERNEL.split("<")[0]},9,12\r\n'.encode())
    run = load(import_trace(path, tmp_path / "traces"))
    assert run.commands["kernel"].cast(pl.String).to_list() == [name, "void at::native::mul_kernel"]
    assert run.commands["duration_ns"].to_list() == [3, 3]


@every_form
def test_a_length_that_cannot_be_becomes_that_of_its_kernel_and_grid(form, tmp_path):
    """Of forty kernels of one name each third has a larger grid and takes 1 ms, the others 10 µs;
    one of the former is recorded 50 ms too long, and for 20 ms nothing follows it."""
    calls, kernels, at = [], [], 1_000_000
    for number in range(40):
        large = number % 3 == 0
        length = 1_000_000 if large else 10_000
        calls.append(Call(at, at + 5_000, number + 1))
        kernels.append(
            Kernel(at + 8_000, at + 8_000 + length, number + 1, grid=4096 if large else 64)
        )
        at += 20_000_000 if number == 21 else length + 10_000
    kernels[21].end += 50_000_000
    run = imported(form, tmp_path, Told(kernels, calls))
    (row,) = run.commands.filter(pl.col("recorded_ns").is_not_null()).to_dicts()
    assert (row["duration_ns"], row["recorded_ns"]) == (1_000_000, 51_000_000)
