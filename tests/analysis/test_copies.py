"""Copies by direction, and how busy devices were over time, on runs that are known."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product

import polars as pl
import pytest
from hypothesis import given, settings

from profiler.run import intervals
from profiler.trace import Drop, DropKind
from tests.analysis.asked import asked
from tests.async_runs import TICK_NS, machines
from tests.examples import examples
from tests.runs import EPOCH, Command, make_call, make_run, why


def _copy(track, op_type, start, end):
    category = "dma" if "memcpy" in track else "copy"
    return Command(0, "cuda:0", track, category, "aten::to", start, end - start, op_type)


def _kernel(start, end):
    return Command(0, "cuda:0", "stream 7", "compute", "mm", start, end - start)


@pytest.mark.parametrize(
    ("layer", "op_type", "kernel", "kind"),
    [
        ("nccl:all_reduce", "nccl:all_reduce", "ncclKernel_SendRecv_RING_SIMPLE", "all_reduce"),
        ("x", "c10d::alltoall_base_", "ncclDevKernel_SendRecv", "all_to_all"),
        ("x", "aten::copy_", "ncclDevKernel_AllGather_RING_LL", "all_gather"),
        ("jit(f)/all-reduce", "reduce_sum", "", "all_reduce"),
        ("fusion", "all_gather", "", "all_gather"),
        ("x", "y", "ncclDevKernel_Generic", "other"),
    ],
)
def test_the_kind_of_a_collective(layer, op_type, kernel, kind):
    """That of the operator that asked for it, else of its kernel, its HLO instruction, its name."""
    track = "stream 9 collectives"
    command = Command(0, "cuda:0", track, "collective", layer, 0, 9, op_type, kernel=kernel)
    run = make_run([make_call(0, "t", 0, 10, device="cuda:0")], [command])
    assert asked(run).collectives["kind"].to_list() == [kind]


def test_copies_by_direction():
    """To the device 40 bytes in 20 ns, of which 15 are beneath kernels; to the host 10 bytes in 10
    ns, hidden by nothing; on the device 4 ns of an unknown size; a memset and a collective are no
    copies."""
    commands = [
        _kernel(0, 30),
        _copy("stream 8 memcpy", "Memcpy HtoD", 20, 30),
        _copy("stream 8 memcpy", "Memcpy HtoD", 35, 45),
        _kernel(40, 50),
        _copy("stream 8 memcpy", "Memcpy DtoH", 50, 60),
        _copy("stream 8 copy", "Memcpy DtoD", 62, 66),
        _copy("stream 8 copy", "Memset", 66, 67),
        _copy("stream 9 collectives", "ncclDevKernel_AllReduce", 70, 90),
    ]
    run = make_run([make_call(0, "t", 0, 100, device="cuda:0")], commands)
    size = pl.Series([None, 30, 10, None, 10, None, 100, None], dtype=pl.Int64)
    run = replace(run, commands=run.commands.with_columns(bytes_read=size, bytes_written=size))
    columns = (
        "direction",
        "copies",
        "bytes",
        "total_ns",
        "wall_ns",
        "gigabytes_per_s",
        "hidden_ns",
    )
    assert asked(run).copies.select(columns).rows() == [
        ("host_to_device", 2, 40, 20, 20, 2.0, 15),
        ("device_to_host", 1, 10, 10, 10, 1.0, 0),
        ("device_to_device", 1, None, 4, 4, None, 0),
    ]


_NAMES = (
    None,
    "Memcpy HtoD",
    "copy_DtoH",
    "HostToHost",
    "Memset",
    "ncclDevKernel",
    "copy",
    "ToHost",
)


def _direction(command):
    """The rule in words of its own: the first pattern in any of the names of a copy."""
    names = " ".join(filter(None, (command.op_type, command.kernel, command.track))).lower()
    if any(word in names for word in ("memset", "fill", "nccl", "rccl", "collective")):
        return None
    for direction, words in (
        ("host_to_device", ("htod", "hosttodevice", "fromhost")),
        ("device_to_host", ("dtoh", "devicetohost", "tohost")),
        ("host_to_host", ("htoh", "hosttohost")),
    ):
        if any(word in names for word in words):
            return direction
    return "host_and_device" if command.category == "dma" else "device_to_device"


@pytest.mark.parametrize("batch", [3, 1 << 18])
def test_directions_are_told_by_any_name(monkeypatch, batch):
    """Operator, kernel and track name the direction of a copy, each or together, in runs that are
    worked through in batches; what computes or takes no time is no copy."""
    monkeypatch.setattr(intervals, "_BATCH", batch)
    choices = product(
        _NAMES, _NAMES, ("stream 7", "HtoD queue"), ("dma", "copy", "compute"), (0, 5)
    )
    commands = [
        Command(0, "cuda:0", track, kind, "layer", 10 * place, length, op_type, kernel=kernel)
        for place, (op_type, kernel, track, kind, length) in enumerate(choices)
    ]
    run = make_run([make_call(0, "t", 0, 10 * len(commands), device="cuda:0")], commands)
    copied = [each for each in commands if each.category != "compute" and each.duration]
    expected = Counter(filter(None, map(_direction, copied)))
    table = asked(run).copies
    assert dict(table.select("direction", "copies").iter_rows()) == expected
    assert table["total_ns"].to_list() == [5 * copies for copies in table["copies"]]


@settings(max_examples=examples(40), deadline=None)
@given(machines())
def test_hidden_copies_are_what_counting_ticks_gives(machine):
    """Wall and hidden time of each direction of simulated devices with several streams."""
    for row in asked(machine.run()).copies.to_dicts():
        kind = {"host_and_device": "dma", "device_to_device": "copy"}[row["direction"]]
        here = [piece for piece in machine.pieces if piece.device == row["device"]]
        copied = {t for p in here if p.kind == kind for t in range(p.start, p.end)}
        computed = {
            t for p in here if p.kind in ("compute", "other") for t in range(p.start, p.end)
        }
        assert row["wall_ns"] == len(copied) * TICK_NS
        assert row["hidden_ns"] == len(copied & computed) * TICK_NS
        assert row["hidden_share"] == len(copied & computed) / len(copied)


@settings(max_examples=examples(40), deadline=None)
@given(machines())
def test_busy_share_over_time(machine):
    """Each interval's busy share is that of the union of the device's work in it; together they
    are the run from begin to end."""
    analysis = asked(machine.run())
    for (device,), rows in analysis.busy_timeline.group_by("device"):
        assert len(rows) == 200
        assert rows["begin_ns"][1:].equals(rows["end_ns"][:-1].rename("begin_ns"))
        ticks = {
            tick for p in machine.pieces if p.device == device for tick in range(p.start, p.end)
        }
        for begin, end, share in rows.select("begin_ns", "end_ns", "busy_share").rows():
            first, last = begin - EPOCH, end - EPOCH
            busy = sum(
                min(last, (tick + 1) * TICK_NS) - max(first, tick * TICK_NS)
                for tick in range(first // TICK_NS, -(-last // TICK_NS))
                if tick in ticks
            )
            assert share == pytest.approx(busy / (end - begin), abs=1e-12)


def test_unrecorded_time_shows_in_the_course():
    """Of the file of a call of 400 ns the last quarter is missing: not busy, and not recorded."""
    call = make_call(0, "t", 0, 400, device="cuda:0")
    drop = Drop(DropKind.TRUNCATED_FILE, call.file_name, 9, "bytes", why("cut"))
    rows = asked(make_run([call], [_kernel(0, 300)], drops=(drop,))).busy_timeline
    assert rows["busy_share"].to_list() == [1.0] * 150 + [0.0] * 50
    assert rows["unrecorded_share"].to_list() == [0.0] * 150 + [1.0] * 50
