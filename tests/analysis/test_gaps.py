"""The longest gaps of devices: counted tick by tick, and on the trace of SD3.5."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings

from profiler.analysis.activity import waits_of
from profiler.analysis.result import ReportInput
from profiler.report.build import build_report
from profiler.report.files import markdown
from profiler.tools.sources import load
from tests.analysis.asked import asked
from tests.async_runs import TICK_NS, Invocation, Launch, Machine, Piece, Wait, machines
from tests.corpus import SD35, needs_corpus
from tests.examples import examples
from tests.runs import EPOCH
from tests.ticks import carried_over, counted, tile_device, unrecorded

SAMPLE = Path(__file__).parents[2] / "sample_traces" / "tiny_two_devices"
_KERNELS = ("compute", "other")


def _gaps(machine: Machine, device: str) -> list[tuple[int, int, int]]:
    """Begin, end and length in the run of each gap of a device, in ticks."""
    tiles = [
        (tile.begin, tile.end)
        for number, tile in enumerate(counted(machine))
        if tile_device(machine, number) == device
    ]
    spans = [(piece.start, piece.end) for piece in machine.pieces if piece.device == device]
    first = min(begin for begin, _ in spans + tiles)
    last = max(end for _, end in spans + tiles)
    whole = [(tile.begin, tile.end) for tile in counted(machine) if tile.end > tile.begin]
    before = carried_over(machine)
    whole += [(piece.start, piece.end) for piece in machine.pieces if piece not in before]
    in_run = range(min(begin for begin, _ in whole), max(end for _, end in whole)) if whole else ()
    names = {piece.device for piece in machine.pieces} - {device}
    elsewhere = set().union(*(unrecorded(machine, name) for name in names))
    elsewhere -= unrecorded(machine, device)  # in no device's end-to-end time
    found: list[list[int]] = []
    for tick in range(first, last):
        running = [piece for piece in machine.pieces if piece.start <= tick < piece.end]
        if any(piece.device == device for piece in running):
            continue
        if not found or found[-1][1] < tick:
            found.append([tick, tick, 0])
        found[-1][1] = tick + 1
        carried = running and all(piece in before for piece in running)
        found[-1][2] += tick in in_run and not carried and tick not in elsewhere
    return [(start, end, length) for start, end, length in found if length]


def _position(machine: Machine, device: str, start: int, end: int) -> tuple[str, set[int | None]]:
    """Where a gap lies, and the calls that it may be told to be of."""
    uses = [
        number
        for number in range(len(machine.calls))
        if tile_device(machine, number) == device
        or any(p.call == number and p.device == device for p in machine.pieces)
    ]
    tiles = counted(machine)
    inside = {n: min(tiles[n].end, end) - max(tiles[n].begin, start) for n in uses}
    most = max(inside.values(), default=0)
    if 2 * most < end - start:
        behind = {n: tiles[n].begin for n in uses if tiles[n].begin >= start}
        soonest = {n for n in behind if behind[n] == min(behind.values())}
        return "between_calls", soonest or {None}
    call = min(n for n in uses if inside[n] == most)
    kernels = [
        piece
        for piece in machine.pieces
        if piece.call == call and piece.device == device and piece.kind in _KERNELS
    ]
    if kernels and min(piece.start for piece in kernels) >= end:
        return "before_first_kernel", {call}
    if kernels and max(piece.end for piece in kernels) <= start:
        return "after_last_kernel", {call}
    return "inside", {call}


def _doings(machine: Machine, device: str, start: int, end: int) -> set[tuple[str, int] | None]:
    """What the host may have done, and for how many ticks: by thread, of those that launched what
    ended the gap; of all threads, where nobody launched that."""
    enders = [p for p in machine.pieces if p.device == device and p.start == end]
    threads = {machine.launches[p.launch].thread if p.launch >= 0 else None for p in enders}
    hosts = [(one.layer, one) for one in machine.launches]
    hosts += [("cudaStreamSynchronize", one) for one in machine.waits]
    found: set[tuple[str, int] | None] = set()
    for thread in threads or {None}:
        covers = [
            (min(one.end, end) - max(one.start, start), max(one.start, start), name)
            for name, one in hosts
            if thread in (None, one.thread)
        ]
        covers = [one for one in covers if one[0] * 10 >= end - start and one[0] > 0]
        half = [one for one in covers if one[0] * 2 >= end - start]
        most = max((one[0] for one in covers), default=0)
        kept = half or [one for one in covers if one[0] == most]
        latest = max((one[1] for one in kept), default=0)
        found |= {(name, covered) for covered, begun, name in kept if begun == latest}
        found |= set() if kept else {None}
    return found


@settings(max_examples=examples(80), deadline=None)
@given(machines())
def test_gaps_are_what_counting_ticks_gives(machine):
    """Begin, length, place and what the host did of the longest gaps of simulated devices."""
    table = asked(machine.run()).gaps
    assert table["length_ns"].is_sorted(descending=True)
    assert table["host_activity_share"].drop_nulls().is_between(0, 1).all()
    for device in {piece.device for piece in machine.pieces}:
        rows = table.filter(pl.col("device") == device).to_dicts()
        expected = _gaps(machine, device)
        longest = sorted((length for *_, length in expected), reverse=True)[:20]
        assert [row["length_ns"] // TICK_NS for row in rows] == longest
        known = {start: (end, length) for start, end, length in expected}
        for row in rows:
            start = (row["begin_ns"] - EPOCH) // TICK_NS
            end, length = known[start]
            assert row["length_ns"] == length * TICK_NS
            position, calls = _position(machine, device, start, end)
            assert (row["position"], row["call"] in calls) == (position, True)
            doing = None
            if row["host_activity"] is not None:
                doing = row["host_activity"], round(row["host_activity_share"] * (end - start))
            assert doing in _doings(machine, device, start, end)


@settings(max_examples=examples(40), deadline=None)
@given(machines())
def test_gaps_add_up_to_idle_and_unrecorded_time(machine):
    """Where a device has no more than twenty gaps, they are what the idle table calls idle in the
    run and unrecorded; by cause too, where one cause takes each gap. What one puts down to what was
    not recorded is work that was not, or a launch."""
    analysis = asked(machine.run())
    for row in analysis.idle.to_dicts():
        gaps = analysis.gaps.filter(pl.col("device") == row["device"])
        if len(gaps) < 20:
            idle = row["idle_ns"] - row["before_after_ns"] + row["unrecorded_ns"]
            assert gaps["length_ns"].sum() == idle
        unrecorded = gaps.filter(pl.col("cause") == "unrecorded")["length_ns"].sum()
        assert (unrecorded > 0) <= (row["unrecorded_ns"] + row["unknown_cause_ns"] > 0)


def test_a_wait_of_another_thread_is_not_what_the_host_did():
    """Thread 1 launches too late, in an eighth of the gap; thread 2 waits in most of it."""
    machine = _two_threads()
    row = asked(machine.run()).gaps.row(0, named=True)
    assert (row["length_ns"], row["host_activity"]) == (8 * TICK_NS, "cudaLaunchKernel")
    machine.waits[0].thread = 1
    row = asked(machine.run()).gaps.row(0, named=True)
    assert (row["host_activity_kind"], row["host_activity_share"]) == ("wait", 6 / 8)


def _two_threads() -> Machine:
    """A kernel until 4, another from 12 on; a wait from 5 to 11."""
    return Machine(
        calls=[Invocation(1, "cuda:0", 0, 14)],
        launches=[Launch(1, 0, "cudaLaunchKernel", 0, 1), Launch(1, 0, "cudaLaunchKernel", 11, 12)],
        pieces=[
            Piece(0, "cuda:0", 7, "compute", 1, 4, 0),
            Piece(0, "cuda:0", 7, "compute", 12, 14, 1),
        ],
        waits=[Wait(2, 0, 5, 11)],
    )


@pytest.fixture(scope="module")
def sd35():
    run = load(SD35)
    yield run
    run.close()


@needs_corpus
def test_the_longest_gaps_of_sd35(sd35):
    """Four of 14.4 to 16.8 ms at the begins of the steps, before the first kernel of the compiled
    call, in which its generated code checked 1,231 tensors; the next is of 1.3 ms."""
    rows = asked(sd35).gaps.to_dicts()
    longest, begin = rows[:4], sd35.calls["start_ns"].min()
    assert sorted(row["step"] for row in longest) == [0, 1, 2, 3]
    assert [round(row["length_ns"] / 1e6, 1) for row in longest] == [16.8, 14.5, 14.5, 14.4]
    assert rows[4]["length_ns"] < 1.4e6
    for row in longest:
        assert (row["submodule"], row["cause"]) == ("transformer", "launch")
        assert row["position"] == "before_first_kernel"
        assert row["host_activity"].startswith("tmp/torchinductor_root/")
        assert row["host_activity"].endswith(".py: call")
        assert (row["host_activity_kind"], row["repeated"]) == ("function", "assert_size_stride")
        assert row["repeated_times"] == 1231
        assert 0.87 < row["host_activity_share"] < 1
        assert row["begin_ns"] > begin


def test_nothing_of_a_cpu_waits_for_a_host():
    """What lies between its operators is called so, in the longest gaps and in charts: the same
    idle time as in the table of devices."""
    analysis = asked(load(SAMPLE))
    waits = waits_of(analysis.inputs).group_by("device", "cause").agg(pl.col("wait_ns").sum())
    between = waits.filter(cause="between_operators").sort("device")
    assert between["wait_ns"].to_list() == analysis.idle.sort("device")["launch_ns"].to_list()
    assert "launch" not in {*waits["cause"], *analysis.gaps["cause"]}
    report = markdown(build_report(ReportInput(analysis, 0, 1)))
    assert "between operators" in report
    assert "launch-bound" not in report
