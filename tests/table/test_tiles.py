"""Tiles: what each call takes of its device's time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
from hypothesis import given, settings

from profiler.tools.sources import load
from profiler.trace import CommandBuilder, encode_call
from tests.async_runs import TICK_NS, Invocation, Launch, Machine, Piece, machines
from tests.examples import examples
from tests.runs import EPOCH, Command, make_call, make_run
from tests.ticks import Counted, counted

SAMPLE = Path(__file__).parents[2] / "sample_traces" / "tiny_two_devices"


def _of_tables(machine: Machine) -> list[Counted]:
    calls = machine.run().tiles.calls
    of = calls.select((pl.col("begin_ns", "end_ns") - EPOCH), *calls.columns[4:])
    return [
        Counted(*(None if value is None else value // TICK_NS for value in row))
        for row in of.rows()
    ]


@settings(max_examples=examples(750), deadline=None)
@given(machines(noted=True))
def test_tiles_are_what_counting_ticks_gives(machine):
    """Tiles of simulated devices, streams, queues, waits and threads are those of a slow count."""
    assert _of_tables(machine) == counted(machine)


def _kernel(call: int, start: int, end: int, launch: int = -1, stream: int = 7) -> Piece:
    return Piece(call, "cuda:0", stream, "compute", start, end, launch)


def _launch(call: int, start: int, end: int, layer: str = "cudaLaunchKernel") -> Launch:
    return Launch(1, call, layer, start, end)


def _table(machine: Machine, *columns: str) -> list[tuple[int | None, ...]]:
    """These columns of its tiles, in ticks."""
    frame = machine.run().tiles.calls.select(pl.col(f"{name}_ns") for name in columns)
    return [tuple(None if v is None else v // TICK_NS for v in row) for row in frame.rows()]


def test_a_synchronous_device_has_tiles_of_the_host_s_ranges():
    """Without launches and overlap, elapsed is the host's range to the nanosecond."""
    run = load(SAMPLE)
    assert run.flows.is_empty()
    elapsed = run.tiles.calls["elapsed_ns"]
    assert elapsed.to_list() == run.calls["duration_ns"].to_list()
    assert run.tiles.calls["launch_bound_ns"].sum() == 0


def test_a_call_that_returns_early_has_the_time_of_its_kernels():
    """The host takes 2 ticks of the first call, the device 8; the second waits for it."""
    machine = Machine(
        calls=[Invocation(1, "cuda:0", 0, 2), Invocation(1, "cuda:0", 2, 4)],
        launches=[_launch(0, 0, 1), _launch(1, 2, 3)],
        pieces=[_kernel(0, 1, 8, 0), _kernel(1, 8, 10, 1)],
    )
    assert _table(machine, "elapsed", "busy", "idle_inside", "queue_lead") == [
        (8, 7, 1, 1),
        (2, 2, 0, 6),
    ]


def test_a_blocking_copy_is_the_time_of_those_whose_kernels_ran():
    """The second call begins with a copy that waits for the first's kernel: its tile begins when
    that has ended, though the host was in it all the time."""
    machine = Machine(
        calls=[Invocation(1, "cuda:0", 0, 2), Invocation(1, "cuda:0", 2, 12)],
        launches=[_launch(0, 0, 1), _launch(1, 2, 11, "cudaMemcpy")],
        pieces=[_kernel(0, 1, 9, 0), Piece(1, "cuda:0", 7, "dma", 9, 11, 1)],
    )
    assert _table(machine, "elapsed", "busy") == [(9, 8), (3, 2)]


def test_time_in_which_launched_work_waits_is_not_the_call_s():
    """A kernel that waits for 20 ticks on an empty device was behind work that nobody recorded."""
    machine = Machine(
        calls=[Invocation(1, "cuda:0", 0, 3)],
        launches=[_launch(0, 0, 1), _launch(0, 1, 2)],
        pieces=[_kernel(0, 1, 2, 0), _kernel(0, 22, 24, 1)],
    )
    columns = ("elapsed", "idle_inside", "launch_bound", "unrecorded")
    assert _table(machine, *columns) == [(4, 1, 1, 20)]
    whole = machine.run().tiles.whole
    assert whole is not None
    assert (whole.elapsed_ns, whole.unrecorded_ns) == (4 * TICK_NS, 20 * TICK_NS)


def test_work_from_before_the_recording_is_no_time_of_the_run():
    """Kernels ahead of all launched ones of their stream: the tile and the run begin behind."""
    machine = Machine(
        calls=[Invocation(1, "cuda:0", 2, 9)],
        launches=[_launch(0, 4, 5)],
        pieces=[_kernel(-1, 0, 3), _kernel(-1, 3, 6), _kernel(0, 6, 9, 0)],
    )
    tiles = machine.run().tiles
    assert _table(machine, "begin", "elapsed")[0][1] == 3
    assert tiles.devices.select("carried_over", "carried_over_ns").row(0) == (2, 6 * TICK_NS)
    assert tiles.whole is not None
    assert tiles.whole.elapsed_ns == 3 * TICK_NS


def test_another_call_s_kernel_in_a_tile_is_not_busy_time_of_its_call():
    """A kernel of no call that began before a pushed tile still runs within it: the call's busy
    time is its own kernel's."""
    machine = Machine(
        calls=[Invocation(1, "cuda:0", 0, 10), Invocation(2, "cuda:0", 5, 16)],
        launches=[_launch(0, 0, 1), _launch(-1, 6, 7), _launch(1, 8, 9)],
        pieces=[_kernel(0, 1, 10, 0), _kernel(-1, 8, 14, 1, 8), _kernel(1, 11, 13, 2, 9)],
    )
    assert _table(machine, "busy", "hidden") == [(9, 0), (2, 0)]
    assert _of_tables(machine) == counted(machine)


def test_a_launch_of_work_that_took_no_time_leaves_the_host_s_range():
    """No device worked, so nothing moves the call from the host's axis."""
    call = make_call(0, "t", 0, 100)
    commands = [
        Command(0, "cpu:0", "Host", "host", "launch", 0, 10),
        Command(0, "cuda:0", "stream 7", "compute", "kernel", 60, 0),
    ]
    run = make_run([call], commands)
    flows = pl.DataFrame({"source": [0], "target": [1]}, schema=run.flows.schema)
    found = replace(run, flows=flows).tiles.calls
    assert found.select("elapsed_ns", "busy_ns", "unrecorded_ns").rows() == [(100, 0, 0)]


def test_a_call_without_work_has_the_time_that_its_device_noted():
    """The host asks for three calls in 3 ticks, whose kernels nobody recorded; the device noted 8,
    5 and 4 ticks. Each is that long, and none is idle or busy as far as anyone knows."""
    calls = [
        Invocation(1, "cuda:0", 0, 1, noted=(0, 8)),
        Invocation(1, "cuda:0", 1, 2, noted=(8, 13)),
        Invocation(1, "cuda:0", 2, 3, noted=(15, 19)),
    ]
    assert _table(Machine(calls=calls), "elapsed", "busy", "idle_inside", "queue_lead") == [
        (8, 0, 0, None),
        (5, 0, 0, None),
        (4, 0, 0, None),
    ]


def test_noted_calls_between_traced_ones_are_no_unrecorded_time():
    """Of three calls the second was not traced: its device was on it for 20 ticks while the third
    one's kernel had been launched. Without that note these would count for nothing."""
    calls = [
        Invocation(1, "cuda:0", 0, 1),
        Invocation(1, "cuda:0", 1, 2, noted=(5, 25)),
        Invocation(1, "cuda:0", 2, 3),
    ]
    machine = Machine(
        calls=calls,
        launches=[_launch(0, 0, 1), _launch(2, 2, 3)],
        pieces=[_kernel(0, 1, 5, 0), _kernel(2, 25, 30, 1)],
    )
    assert _table(machine, "elapsed", "unrecorded") == [(5, 0), (20, 0), (5, 0)]
    assert machine.run().tiles.devices["unrecorded_ns"].to_list() == [0]
    calls[1].noted = None
    assert machine.run().tiles.devices["unrecorded_ns"].to_list() == [20 * TICK_NS]


def test_what_one_rank_noted_is_not_recorded_of_another():
    """Rank 1's device was on its call while rank 0's recording lacks 20 ticks: these stay lost."""
    calls = [
        Invocation(1, "rank0/cuda:0", 0, 1),
        Invocation(2, "rank1/cuda:0", 0, 1, noted=(0, 30)),
    ]
    machine = Machine(
        calls=calls,
        launches=[_launch(0, 0, 1), _launch(0, 1, 2)],
        pieces=[
            Piece(0, "rank0/cuda:0", 7, "compute", 1, 5, 0),
            Piece(0, "rank0/cuda:0", 7, "compute", 25, 30, 1),
        ],
    )
    devices = machine.run().tiles.devices
    assert devices["unrecorded_ns"].to_list() == [20 * TICK_NS]


def test_times_that_no_clock_has_are_none(tmp_path):
    """A file may hold any number: sums of these stay in 64 bits, or they count as not noted."""
    for number, start in enumerate((EPOCH, 1 << 61, 1 << 62)):
        call = replace(make_call(0, "vae", 0, 9), device_lag_ns=5, device_duration_ns=1 << 59)
        (tmp_path / f"{number}").mkdir()
        file = tmp_path / f"{number}" / "call.pb"
        file.write_bytes(encode_call(replace(call, start_ns=start), CommandBuilder().build(), ()))
        (found,) = load(file).calls["device_duration_ns"].to_list()
        assert found == (1 << 59 if start < 1 << 62 else None)
