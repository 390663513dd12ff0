"""Tables of pipelines on asynchronous devices, held against a machine whose ticks are counted.

The machine is that of `tests/async_runs.py`; its calls are the encoders, steps and decoder of a
pipeline call, in order of their begins. What the tables must say is counted here tick by tick from
what the machine did, by the words of the columns; nothing of it comes from the tables.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings

from profiler.analysis import Analysis
from tests.analysis.asked import asked
from tests.async_runs import TICK_NS, Invocation, Launch, Machine, Piece, Place, machines
from tests.examples import examples
from tests.runs import EPOCH
from tests.ticks import Counted, blocked, carried_over, counted, tile_device, unrecorded

_COMPUTING, _TRANSFERS = ("compute", "other"), ("dma", "copy")
_slow = settings(
    max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def _places(machine: Machine) -> list[Place]:
    """The first quarter of the calls encode, the last one decodes, two of the others are a step."""
    total = len(machine.calls)
    encoders, decoders = total // 4, int(total > 2)
    found = [Place("encode", f"text_encoder_{at % 2 + 1}") for at in range(encoders)]
    found += [
        Place("denoise", "transformer", at // 2, ("cond", "uncond")[at % 2])
        for at in range(total - encoders - decoders)
    ]
    return [*found, *[Place("decode", "vae")] * decoders]


def _ticks(pieces: Iterable[Piece], *kinds: str) -> set[int]:
    """When any of some pieces ran, of these kinds (of all, without any)."""
    chosen = (piece for piece in pieces if not kinds or piece.kind in kinds)
    return {tick for piece in chosen for tick in range(piece.start, piece.end)}


@dataclass
class _Truth:
    """What the machine did as a pipeline call, in ticks: its tiles, the time that counts, when it
    was in calls, and when the host worked beside them."""

    machine: Machine
    places: list[Place]
    until: int
    last: int
    tiles: list[Counted]
    lost: set[int]
    counts: set[int]
    in_calls: set[int]
    host: set[int]

    @classmethod
    def of(cls, machine: Machine) -> _Truth:
        """Counted from what happened."""
        hosts = [*machine.launches, *machine.waits]
        until = max([0, *(one.end for one in hosts), *(one.begin + 1 for one in machine.calls)])
        until = max([until, *(one.returned for one in machine.calls)])
        last = max([until, *(piece.end for piece in machine.pieces)])
        over = carried_over(machine)
        own = _ticks(piece for piece in machine.pieces if piece not in over)
        devices = {piece.device for piece in machine.pieces}
        lost = set().union(*(unrecorded(machine, device) for device in devices))
        lost = (lost | (_ticks(over) - own)) & set(range(last))
        tiles = counted(machine)
        counts = set(range(last)) - lost
        in_calls = {tick for one in tiles for tick in range(one.begin, one.end)} & counts
        worked = {tick for one in machine.calls for tick in range(one.begin, one.returned)}
        worked |= {t for one in hosts if one.call < 0 for t in range(one.start, one.end)}
        host = (worked & counts) - blocked(machine) - in_calls
        return cls(machine, _places(machine), until, last, tiles, lost, counts, in_calls, host)

    def analysis(self) -> Analysis:
        """The analysis of what a recorder would have made of it."""
        return asked(self.machine.run(self.places, self.until))

    def parts(self, begin: int, end: int) -> tuple[int, int, int, int]:
        """Elapsed, in calls, host work and idle of a stretch, in ns."""
        of = set(range(begin, end))
        elapsed, calls, host = (len(of & one) for one in (self.counts, self.in_calls, self.host))
        return _ns(elapsed, calls, host, elapsed - calls - host)

    def of_submodule(self, name: str) -> list[int]:
        """The calls of a submodule."""
        return [at for at, place in enumerate(self.places) if place.submodule == name]


def _ns(*ticks: int) -> tuple[int, ...]:
    return tuple(tick * TICK_NS for tick in ticks)


_PARTS = ("elapsed_ns", "calls_ns", "host_ns", "idle_ns")


@given(machines(threads=1, devices=1))
@_slow
def test_stages_and_steps_are_what_counting_ticks_gives(machine):
    """Stages share the pipeline call among them by the ends of their tiles, and add up to end to
    end; a step lasts from its first tile to its last, and what lies before it is beside it."""
    truth = _Truth.of(machine)
    analysis = truth.analysis()
    assert analysis.accounting.end_to_end_ns == len(truth.counts) * TICK_NS
    assert analysis.accounting.unaccounted_ns == 0
    took = [(p.stage, tile) for p, tile in zip(truth.places, truth.tiles, strict=True)]
    took = [(stage, tile) for stage, tile in took if tile.end > tile.begin]
    begin, expected = 0, {}
    if not took:
        return  # stages are as their spans are, which are none of the machine's
    names = list(dict.fromkeys(stage for stage, _ in took))
    for stage in names:
        end = max(tile.end for name, tile in took if name == stage)
        end = truth.last if stage == names[-1] else end
        expected[stage] = truth.parts(begin, end)
        begin = end
    table = analysis.stages
    assert {row[0]: row[1:] for row in table.select("stage", *_PARTS).rows() if row[1]} == {
        stage: parts for stage, parts in expected.items() if parts[0]
    }
    assert table["elapsed_ns"].sum() == analysis.accounting.end_to_end_ns
    assert table["share"].sum() == pytest.approx(1)
    _check_steps(analysis, truth)


def _check_steps(analysis: Analysis, truth: _Truth) -> None:
    before = None
    steps = {row["step"]: row for row in analysis.steps.to_dicts()}
    for step in sorted({place.step for place in truth.places} - {-1}):
        own = [t for p, t in zip(truth.places, truth.tiles, strict=True) if p.step == step]
        own = [tile for tile in own if tile.end > tile.begin]
        if not own:
            return  # lasts as its span does, which is none of the machine's
        begin, end = min(tile.begin for tile in own), max(tile.end for tile in own)
        row = steps[step]
        assert tuple(row[name] for name in _PARTS) == truth.parts(begin, end)
        passed = truth.counts & set(range(begin if before is None else before, begin))
        assert row["between_ns"] == (None if before is None else len(passed) * TICK_NS)
        calls = [at for at, place in enumerate(truth.places) if place.step == step]
        busy = _ticks(piece for piece in truth.machine.pieces if piece.call in calls)
        hidden = busy - set(range(begin, end))
        assert (row["busy_ns"], row["hidden_ns"]) == _ns(len(busy), len(hidden))
        span = range(min([begin, *busy]), max([end - 1, *busy]) + 1)
        assert row["span_ns"] == len(span) * TICK_NS
        before = max(end, before or 0)


@given(machines())
@_slow
def test_submodules_are_sums_of_tiles(machine):
    """Sums over the calls of each submodule, the median of their leads, the union of the device
    work of calls on each device, and their share of end to end: the union of their tiles in what
    counts."""
    truth = _Truth.of(machine)
    analysis = truth.analysis()
    total = len(truth.counts)
    assert analysis.accounting.end_to_end_ns == total * TICK_NS
    for row in analysis.submodules.to_dicts():
        calls = truth.of_submodule(row["submodule"])
        tiles = [truth.tiles[at] for at in calls]
        found = [row[f"{name}_ns"] for name in _SUMMED]
        assert found == [
            sum(getattr(t, name.removesuffix("_inside")) for t in tiles) * TICK_NS
            for name in _SUMMED
        ]
        leads = [tile.lead for tile in tiles if tile.lead is not None]
        assert row["queue_lead_ns"] == (statistics.median(leads) * TICK_NS if leads else None)
        by_device: dict[str, list[int]] = {}
        for at in calls:
            by_device.setdefault(tile_device(machine, at), []).append(at)
        busy = [
            _ticks(piece for piece in machine.pieces if piece.call in own)
            for own in by_device.values()
        ]
        assert row["busy_ns"] == sum(map(len, busy)) * TICK_NS
        taken = {tick for tile in tiles for tick in range(tile.begin, tile.end)} & truth.counts
        assert row["share"] == pytest.approx(len(taken) / total)


_SUMMED = ("elapsed", "idle_inside", "launch_bound", "hidden", "unrecorded")


@given(machines())
@_slow
def test_devices_are_what_counting_ticks_gives(machine):
    """Unions of each category, span, idle, unrecorded and carried-over time, and what collectives
    and copies took of it beside computing, with how idle the device was from end to end."""
    truth = _Truth.of(machine)
    analysis = truth.analysis()
    assert analysis.contradictions["sentence"].to_list() == []
    devices = {row["device"]: row for row in analysis.devices.to_dicts()}
    idle = {row["device"]: row for row in analysis.idle.to_dicts()}
    for name in {piece.device for piece in machine.pieces}:
        here = [piece for piece in machine.pieces if piece.device == name]
        row, busy = devices[name], _ticks(here)
        for kind in ("compute", "dma", "copy", "collective", "other"):
            assert row[f"{kind}_ns"] == len(_counting(truth, _ticks(here, kind))) * TICK_NS
        tiles = [
            (tile.begin, tile.end)
            for at, tile in enumerate(truth.tiles)
            if tile_device(machine, at) == name
        ]
        begin = min([min(busy), *(begin for begin, _ in tiles)])
        end = max([max(busy) + 1, *(end for _, end in tiles)])
        lost = unrecorded(machine, name) & set(range(begin, end))
        carried = _ticks(piece for piece in carried_over(machine) if piece.device == name)
        inside = _counting(truth, busy)
        found = ("busy_ns", "before_after_ns", "span_ns", "unrecorded_ns", "carried_over_ns")
        assert tuple(row[name] for name in found) == _ns(
            len(inside), len(busy - inside), end - begin, len(lost), len(carried)
        )
        assert row["idle_ns"] == (end - begin - len(busy) - len(lost)) * TICK_NS
        if idle_ticks := truth.counts:
            share = len(idle_ticks - busy) / len(truth.counts)
            assert row["idle_share"] == pytest.approx(share)
            assert row["utilization"] == pytest.approx(len(inside) / len(truth.counts))
        _check_idle(idle[name], here, len(lost), end - begin)


def _counting(truth: _Truth, ticks: set[int]) -> set[int]:
    """Those that count of the end-to-end time; all if none does."""
    return ticks & truth.counts if truth.counts else ticks


def _check_idle(row: dict, here: list[Piece], lost: int, span: int) -> None:
    computing, moving = _ticks(here, *_COMPUTING), _ticks(here, *_TRANSFERS)
    together = _ticks(here, "collective")
    found = ("computing_ns", "collective_ns", "exposed_ns", "data_ns", "transfer_ns")
    assert [row[name] for name in found] == [
        *_ns(
            len(computing),
            len(together),
            len(together - computing),
            len(moving - computing - together),
            len(moving),
        )
    ]
    assert row["overlapped_ns"] == len(moving & (computing | together)) * TICK_NS
    idle = span - lost - len(computing | moving | together)
    assert row["idle_ns"] == idle * TICK_NS


@given(machines())
@_slow
def test_operators_kernels_and_roles_hold_all_that_devices_did(machine):
    """Executions and summed time of the device's operators, of kernels and of roles, by submodule,
    copies and collectives as what they are."""
    truth = _Truth.of(machine)
    analysis = truth.analysis()
    names = {place.submodule for place in truth.places}
    for name in names:
        calls = truth.of_submodule(name)
        own = [piece for piece in machine.pieces if piece.call in calls]
        table = analysis.operators.filter(pl.col("submodule") == name, ~pl.col("host"))
        assert table["commands"].sum() == len(own)
        assert table["total_ns"].sum() == sum(p.end - p.start for p in own) * TICK_NS
        roles = dict(
            analysis.roles.filter(pl.col("submodule") == name)
            .group_by(pl.col("role").cast(pl.String))
            .agg(pl.col("total_ns").sum())
            .rows()
        )
        for role, kinds in (("collective", ("collective",)), ("data_movement", _TRANSFERS)):
            moved = sum(p.end - p.start for p in own if p.kind in kinds)
            assert roles.get(role, 0) == moved * TICK_NS
    launches = [one for one in machine.launches if one.call >= 0]
    waits = sum(wait.end - wait.start for wait in machine.waits)
    hosts = analysis.operators.filter(pl.col("host"), pl.col("submodule").is_in(sorted(names)))
    took = sum(one.end - one.start for one in launches) + waits
    assert hosts["total_ns"].sum() == took * TICK_NS


def test_the_machine_is_on_the_epoch():
    """One call from tick 2 to 4 with a kernel from 3 to 9, of a pipeline call of 5 ticks: it counts
    until the kernel ends."""
    machine = Machine(
        calls=[Invocation(0, "cuda:0", 2, 4)],
        launches=[Launch(0, 0, "cudaLaunchKernel", 2, 3)],
        pieces=[Piece(0, "cuda:0", 0, "compute", 3, 9, 0)],
    )
    truth = _Truth.of(machine)
    row = truth.analysis().pipelines.row(0, named=True)
    assert (row["start_ns"] - EPOCH, row["elapsed_ns"]) == (0, 9 * TICK_NS)
    assert (row["calls_ns"], row["host_ns"], row["idle_ns"]) == _ns(7, 0, 2)
