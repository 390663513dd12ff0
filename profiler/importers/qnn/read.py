"""Profiles of QNN → a bundle.

    import_trace(Path("qnn_profile.csv"), Path("traces"))
    import_trace([Path("qnn_profile.csv"), Path("qhas.json")], Path("traces"))

An execution is a call: on the host it takes `QNN (execute) time`, on the accelerator (`qnn:0`)
`Accelerator (execute) time`, at the begin of which it waits where the file tells the time without
waiting, too. Of nodes the file tells cycles, spent by threads side by side: their times are shares
of the time without waiting, in the order of the file, and every report says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from profiler.drop_reasons import DropReason
from profiler.errors import InputError
from profiler.events import NO_STEP, ROOT_DEVICE, RUN_STAGE, UNKNOWN, Call, Drop, DropKind, Track
from profiler.importers.components import component
from profiler.importers.head import content_of, head_of
from profiler.importers.placed import PlacedCall, PlacedRun, spans_of
from profiler.importers.qnn import is_summary
from profiler.importers.qnn.names import Names, op_type
from profiler.importers.qnn.rows import Execution, Node, Profile, read_profile
from profiler.importers.qnn.summary import Listed, Summary, Unit, read_summary
from profiler.notes import Note
from profiler.trace.columns import CommandBuilder, Counter
from profiler.trace.manifest_fields import Device

__all__ = ["read_run"]

_DEVICE = "qnn:0"
_EXECUTE = ("QNN (execute) time", "Graph", "RPC (execute) time")  # on the host, the outermost first
_COMPUTED = "Accelerator (execute excluding wait) time"
_ACCELERATOR = ("Accelerator (execute) time", _COMPUTED, "QNN accelerator (execute) time")
_NESTED = ("QNN (execute) time", "RPC (execute) time", "QNN accelerator (execute) time")
_WAIT = "wait"  # for memory and power, before it executes
_HARDWARE = "Qualcomm HTP"
_LARGEST_FILE = 512 << 20
_US = 1000


def read_run(paths: Sequence[Path]) -> PlacedRun:
    """Read a CSV, a summary, or both of one model. Raises InputError where neither has a time."""
    summaries = [path for path in paths if is_summary(head_of(path))]
    profiles = [path for path in paths if path not in summaries]
    if len(summaries) > 1 or len(profiles) > 1:
        named = ", ".join(map(str, paths[:3]))
        raise InputError(f"{named} are of several models: give one CSV, and one summary beside it")
    summary = read_summary(summaries[0]) if summaries else None
    if not profiles:
        assert summary is not None
        return _of_summary(summaries[0], summary)
    text = content_of(profiles[0], _LARGEST_FILE).decode("utf-8", "replace")
    profile = read_profile(text)
    if not profile.executions:
        raise InputError(
            f"{profiles[0]} holds no execution: record with profiling_level=detailed while the "
            "model runs"
        )
    return _of_profile(profiles[0], profile, summary)


def _of_profile(path: Path, profile: Profile, summary: Summary | None) -> PlacedRun:
    listed = summary.operations if summary is not None else {}
    base = _base(profile)
    loading, at = _loading(profile, base)
    placed, counters = [], _Counters()
    names = Names.of([node for one in profile.executions for node in one.nodes])
    graphs = _graphs(profile, _stem(path))
    for number, (one, graph) in enumerate(zip(profile.executions, graphs, strict=True)):
        lasted = _first(one, (*_EXECUTE, *_ACCELERATOR)) * _US
        start = max((one.end_us - base) * _US - lasted, 0) if one.end_us else at
        submodule = _submodule(graph)
        placed.append(_execution(number, submodule, start, lasted, one, names, listed, counters))
        at = at if one.end_us else start + lasted
    if summary is not None:
        counters.of_summary(placed[0].call.start_ns, summary)
    timed = all(node.timed for one in profile.executions for node in one.nodes)
    called = next((one.graph for one in profile.executions if one.graph), _stem(path))
    capabilities = {"averages"} | ({"cycles"} if counters else set())
    if any((one.commands.bytes_read >= 0).any() for one in placed):
        capabilities.add("bytes")
    return PlacedRun(
        producer="qnn",
        name=called,
        path=path,
        placed=tuple(placed),
        capabilities=frozenset(capabilities),
        spans=tuple(spans_of(placed, 0)),
        devices={_DEVICE: Device(hardware="" if timed else _HARDWARE, provider="QNN")},
        files=1 + (summary is not None),
        outside=loading.build(),
        counters=tuple(counters.columns()),
        drops=tuple(_drops(path, profile, placed)),
        versions={"qnn": profile.version} if profile.version else {},
    )


def _graphs(profile: Profile, stem: str) -> list[str]:
    """What each execution ran: its graph's name, else a number by its nodes, since ONNX Runtime
    appends sessions of several models to one file."""
    seen: dict[tuple[tuple[str, int], ...], int] = {}
    found = []
    for one in profile.executions:
        number = seen.setdefault(tuple((n.name, n.op_id) for n in one.nodes), len(seen) + 1)
        found.append(one.graph or (stem if number == 1 else f"{stem}.{number}"))
    return found


def _base(profile: Profile) -> int:
    """When the first of what the file tells began, in its microseconds; 0 without a clock."""
    begins = [
        one.end_us - _first(one, (*_EXECUTE, *_ACCELERATOR))
        for one in profile.executions
        if one.end_us
    ]
    begins += [step.end_us - step.time_us for step in profile.steps if step.end_us]
    return max(min(begins, default=0), 0)


def _first(one: Execution, names: Sequence[str]) -> int:
    """The first of these times that is told, in us."""
    return next((one.times_us[name] for name in names if name in one.times_us), 0)


def _loading(profile: Profile, base: int) -> tuple[CommandBuilder, int]:
    """What was done around the executions, on the host: when it was, else ahead of them, one step
    behind the other; and when the latter had ended."""
    builder, at = CommandBuilder(), 0
    track = Track(ROOT_DEVICE, "QNN loading", "host")
    for step in profile.steps:
        length = step.time_us * _US
        begin = max((step.end_us - base) * _US - length, 0) if step.end_us else at
        builder.add(track, step.name, step.name, begin, length, stage=RUN_STAGE)
        at += 0 if step.end_us else length
    return builder, at


def _execution(
    number: int,
    submodule: str,
    start: int,
    lasted: int,
    one: Execution,
    names: Names,
    listed: dict[str, Listed],
    counters: _Counters,
) -> PlacedCall:
    builder = CommandBuilder()
    host = Track(ROOT_DEVICE, "QNN", "host")
    for name in _NESTED:
        if name in one.times_us:
            length = one.times_us[name] * _US
            builder.add(host, name, name, start + max(lasted - length, 0) // 2, length)
    accelerator = _first(one, _ACCELERATOR) * _US or lasted
    at = start + max(lasted - accelerator, 0) // 2
    counters.of_call(start, one.counts)
    computed = one.times_us.get(_COMPUTED, 0) * _US
    if 0 < computed < accelerator:
        wait = accelerator - computed
        builder.add(Track(_DEVICE, "HTP wait", "sync"), _WAIT, _WAIT, at, wait)
        at, accelerator = at + wait, computed
    track = Track(_DEVICE, "HTP", "compute")
    if not one.nodes:
        builder.add(track, submodule, "Execution", at, accelerator)
    for node, begin, length in _shared(one.nodes, at, accelerator):
        told = listed.get(node.name)
        layer = names.layer(node.name)
        builder.add(
            track,
            layer,
            told.op_type if told else op_type(layer),
            begin,
            length,
            bytes_read=told.bytes_read if told else UNKNOWN,
            bytes_written=told.bytes_written if told else UNKNOWN,
        )
        if not node.timed:
            counters.spent(begin + length, node.amount)
    call = Call(
        index=number,
        submodule=submodule,
        stage=RUN_STAGE,
        branch="",
        step=NO_STEP,
        device=_DEVICE,
        start_ns=start,
        duration_ns=lasted,
        ops_traced=True,
        pipeline=0,
        iteration=number,
    )
    return PlacedCall(call, builder.build())


def _shared(nodes: Sequence[Node], at: int, length: int) -> Iterator[tuple[Node, int, int]]:
    """Each node with a begin and a length: its own where it is timed, else its share of `length`,
    all of which the shares take."""
    total = sum(node.amount for node in nodes if not node.timed)
    spent, begin = 0, at
    for node in nodes:
        if node.timed:
            yield node, begin, node.amount * _US
            begin += node.amount * _US
            continue
        until = (spent + node.amount) * length // total if total else 0
        own = until - (spent * length // total if total else 0)
        yield node, begin, own
        spent, begin = spent + node.amount, begin + own


def _submodule(name: str) -> str:
    return component(name) or name or "model"


def _stem(path: Path) -> str:
    return path.name.removesuffix(".gz").removesuffix(".csv").removesuffix(".json")


class _Counters:
    """Samples of the device by name: what an execution counted, and cycles of nodes added up."""

    def __init__(self) -> None:
        self._samples: dict[tuple[str, str], list[tuple[int, int]]] = {}
        self._cycles = 0

    def __bool__(self) -> bool:
        return bool(self._samples)

    def of_call(self, at: int, counts: dict[str, int]) -> None:
        for name, value in counts.items():
            self._add(name, "count", at, value)

    def of_summary(self, at: int, summary: Summary) -> None:
        for unit in summary.units:
            name = f"{unit.kind} {unit.number} cycles used"
            self._add(name, "count", at, unit.used)
        for name, value in (("read", summary.bytes_read), ("written", summary.bytes_written)):
            self._add(f"DRAM {name}", "bytes", at, value)

    def spent(self, at: int, cycles: int) -> None:
        self._cycles += cycles
        self._add("cycles of nodes", "count", at, self._cycles)

    def _add(self, name: str, unit: str, at: int, value: int) -> None:
        if value >= 0:
            self._samples.setdefault((name, unit), []).append((at, value))

    def columns(self) -> Iterator[Counter]:
        for (name, unit), samples in self._samples.items():
            times, values = np.array(samples, dtype=np.int64).T
            yield Counter(_DEVICE, name, unit, times.copy(), values.copy())


def _drops(path: Path, profile: Profile, placed: Sequence[PlacedCall]) -> Iterator[Drop]:
    shared = sum(not node.timed for one in profile.executions for node in one.nodes)
    if shared:
        note = Note.of(DropReason.SHARES_OF_CYCLES)
        yield Drop(DropKind.ESTIMATED_TIMES, path.name, shared, "commands", note)
    timed = sum(node.timed for one in profile.executions for node in one.nodes)
    if timed:
        note = Note.of(DropReason.LAID_END_TO_END)
        yield Drop(DropKind.ESTIMATED_TIMES, path.name, timed, "commands", note)
    if not profile.executions[0].end_us and len(placed) > 1:
        note = Note.of(DropReason.EXECUTIONS_IN_ORDER)
        yield Drop(DropKind.ESTIMATED_TIMES, path.name, len(placed), "calls", note)
    if profile.unread:
        note = Note.of(DropReason.DAMAGED)
        yield Drop(DropKind.DROPPED_EVENTS, path.name, profile.unread, "events", note)
    if profile.cut:
        note = Note.of(DropReason.ENTRIES_CUT)
        yield Drop(DropKind.TRUNCATED_FILE, path.name, UNKNOWN, "events", note)


def _of_summary(path: Path, summary: Summary) -> PlacedRun:
    """A summary alone: one execution, with the threads of the units as tracks."""
    called = _stem(path)
    submodule, lasted = _submodule(called), summary.time_us * _US
    builder, counters = CommandBuilder(), _Counters()
    for unit in summary.units:
        _add_unit(builder, unit, lasted, summary.cycles)
    if not summary.units:
        builder.add(Track(_DEVICE, "HTP", "compute"), submodule, "Execution", 0, lasted)
    counters.of_summary(0, summary)
    call = Call(0, submodule, RUN_STAGE, "", NO_STEP, _DEVICE, 0, lasted, True, pipeline=0)
    placed = (PlacedCall(call, builder.build()),)
    used = tuple(_used(unit, summary.cycles) for unit in summary.units)
    note = Note.of(DropReason.UNITS_ONLY, nodes=max(summary.nodes, 0), used=used)
    return PlacedRun(
        producer="qnn",
        name=called,
        path=path,
        placed=placed,
        capabilities=frozenset({"averages", "cycles"}),
        spans=tuple(spans_of(placed, 0)),
        devices={_DEVICE: Device(hardware=_HARDWARE, provider="QNN")},
        counters=tuple(counters.columns()),
        drops=(Drop(DropKind.UNTRACED_CALL, submodule, 1, "calls", note),),
    )


def _used(unit: Unit, cycles: int) -> Note:
    """How much of the time a thread worked, the timeline's cycles being all of it."""
    share = max(unit.used, 0) / max(cycles, unit.end, 1)
    return Note.of(DropReason.UNIT_USED, name=f"{unit.kind} {unit.number}", share=share)


def _add_unit(builder: CommandBuilder, unit: Unit, lasted: int, cycles: int) -> None:
    """A thread from its first to its last cycle, the timeline's cycles being all of the time."""
    whole = max(cycles, unit.end, 1)
    begin, end = unit.start * lasted // whole, unit.end * lasted // whole
    track = Track(_DEVICE, f"{unit.kind} {unit.number}", "compute")
    builder.add(track, unit.kind, unit.kind, begin, end - begin)
