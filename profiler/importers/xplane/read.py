"""What XLA's profiler recorded → a bundle.

    import_trace(Path("host.xplane.pb"), Path("traces"))

On TPUs each module that ran is a call, with the operations in it. On GPUs no line tells when one
ran: a call there is what a device ran of one module, until its first operation comes again.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from profiler.drop_reasons import DropReason
from profiler.errors import InputError
from profiler.events import (
    NO_ITERATION,
    NO_STEP,
    ROOT_DEVICE,
    RUN_STAGE,
    UNKNOWN,
    Call,
    Drop,
    DropKind,
    Track,
)
from profiler.importers.components import component, stages
from profiler.importers.importer import only_path
from profiler.importers.placed import PlacedCall, PlacedRun
from profiler.importers.spans import spans
from profiler.importers.xplane import IMPORTER
from profiler.importers.xplane.host import activities, is_programs
from profiler.importers.xplane.operations import Operation, on_gpu, on_tpu
from profiler.importers.xplane.space import Event, Line, Plane, Space, read_space
from profiler.notes import Note
from profiler.trace.columns import CommandBuilder
from profiler.trace.manifest_clocks import ClockName, Clocks
from profiler.trace.manifest_fields import CallsFrom, Device, Recording, quantity

__all__ = ["read_run"]

_DEVICE = re.compile(r"/device:(TPU|GPU):(\d{1,4})")
_KINDS = {"AMD": "rocm", "Nvidia": "cuda"}
_STREAM = re.compile(r"Stream #\d+")
_FINGERPRINT = re.compile(r"\(\d+\)$")
_HOST = "/host:CPU"
_MODULES, _OPS, _ASYNC = "XLA Modules", "XLA Ops", "Async XLA Ops"
_ONLY = "run"


@dataclass(slots=True)
class _Work:
    """A command before it has a call: `module` is the one that it is of, "" for none."""

    track: Track
    operation: Operation
    start_ns: int
    end_ns: int
    correlation: int
    module: str


@dataclass(slots=True)
class _Range:
    """A call to be: what of it ran lies in `works`."""

    submodule: str
    device: str
    start_ns: int
    end_ns: int
    works: list[_Work] = field(default_factory=list)
    traced: bool = True


@dataclass(slots=True)
class _Found:
    """What the planes hold; `launches` are the host's calls by their correlation id, `program` the
    lines of the program's own threads."""

    ranges: list[_Range] = field(default_factory=list)
    outside: list[_Work] = field(default_factory=list)
    launches: dict[int, tuple[Track, str, int, int]] = field(default_factory=dict)
    devices: dict[str, Device] = field(default_factory=dict)
    program: list[Line] = field(default_factory=list)
    untimed: int = 0
    guessed: bool = False


def read_run(paths: Sequence[Path]) -> PlacedRun:
    """Read one file. Raises InputError where it cannot be read or no device did anything."""
    path = only_path(paths, IMPORTER.accepts)
    space = read_space(path)
    found = _Found()
    for plane in space.planes:
        device = _DEVICE.fullmatch(plane.name)
        if device is not None:
            _of_device(plane, device[1] == "TPU", int(device[2]), space.start_ns, found)
        elif plane.name == _HOST:
            _of_host(plane, space.start_ns, found)
    if not any(one.works for one in found.ranges) and not found.outside:
        raise InputError(
            f"{path} holds no operation of a TPU or GPU: record while the accelerator works "
            "(jax.profiler.trace), and give that .xplane.pb"
        )
    return _run(path, space, found)


def _of_device(plane: Plane, tpu: bool, number: int, start_ns: int, found: _Found) -> None:
    kind = "tpu" if tpu else _KINDS.get(str(plane.stats.get("device_vendor", "")), "gpu")
    device = f"{kind}:{number}"
    found.devices[device] = _hardware(plane.stats)
    lines = list(plane.lines())
    found.untimed += sum(line.untimed for line in lines)
    if tpu:
        _of_tpu(device, {line.name: line for line in lines}, start_ns, found)
        return
    works = [
        _work(device, line, event, on_gpu(event, line.name), start_ns)
        for line in lines
        if _STREAM.match(line.name)
        for event in line.events
    ]
    works.sort(key=lambda work: work.start_ns)
    ranges, outside = _by_module(device, works)
    found.ranges += ranges
    found.outside += outside
    found.guessed |= bool(ranges)


def _hardware(stats: Mapping[str, object]) -> Device:
    cores = stats.get("core_count")
    return Device(
        hardware=str(stats.get("device_type_string") or stats.get("device_vendor") or "")[:200],
        memory_bytes=quantity(stats.get("memory_size")),
        compute_units=quantity(cores),
    )


def _of_tpu(device: str, lines: Mapping[str, Line], start_ns: int, found: _Found) -> None:
    """Operations in the modules in which they began; what only holds others of its line is none."""
    traced = bool(_events(lines, _OPS))
    ranges = [
        _Range(_submodule(event.name), device, *_times(event, start_ns), traced=traced)
        for event in _events(lines, _MODULES)
    ]
    ranges.sort(key=lambda one: one.start_ns)
    works = [
        _work(device, lines[_OPS], event, operation, start_ns)
        for event in _events(lines, _OPS)
        if not (operation := on_tpu(event)).contains
    ]
    works += [
        _work(device, lines[_ASYNC], event, _in_flight(event), start_ns)
        for event in _events(lines, _ASYNC)
    ]
    begins = [one.start_ns for one in ranges]
    for work in works:
        at = bisect_right(begins, work.start_ns) - 1
        inside = at >= 0 and work.start_ns < max(ranges[at].end_ns, ranges[at].start_ns + 1)
        (ranges[at].works if inside else found.outside).append(work)
    found.ranges += ranges


def _events(lines: Mapping[str, Line], name: str) -> tuple[Event, ...]:
    return lines[name].events if name in lines else ()


def _in_flight(event: Event) -> Operation:
    """What was started and not waited for yet: beside what the device does, never busy itself."""
    name = str(event.stats.get("hlo_category", "")) or event.name
    return replace(
        on_tpu(event),
        layer=f"{event.name} ({event.stats.get('hlo_op', name)})",
        op_type=event.name,
        category="sync",
        suffix="",
        shapes="",
        flops=UNKNOWN,
        contains=False,
    )


def _by_module(device: str, works: Sequence[_Work]) -> tuple[list[_Range], list[_Work]]:
    """What follows each other of one module, cut where its first operation comes again after
    another; and what is of no module."""
    ranges: list[_Range] = []
    outside: list[_Work] = []
    before = ("", "")
    for work in works:
        if not work.module:
            outside.append(work)
            continue
        now = (work.module, work.operation.layer)
        first = ranges[-1].works[0] if ranges else None
        again = first is not None and now == (first.module, first.operation.layer) != before
        if first is None or again or first.module != work.module:
            name = _submodule(work.module)
            ranges.append(_Range(name, device, work.start_ns, work.end_ns))
        ranges[-1].works.append(work)
        ranges[-1].end_ns = max(ranges[-1].end_ns, work.end_ns)
        before = now
    return ranges, outside


def _of_host(plane: Plane, start_ns: int, found: _Found) -> None:
    """The host's calls that launched something, the first of each correlation id; and what the
    program's threads did."""
    launches = plane.tells("correlation_id")
    for line in plane.lines():
        if is_programs(line):
            found.program.append(line)
        for event in line.events if launches else ():
            number = event.stats.get("correlation_id")
            if isinstance(number, int) and number > 0 and number not in found.launches:
                track = Track(ROOT_DEVICE, line.name or "host", "host")
                found.launches[number] = (track, event.name, *_times(event, start_ns))


def _work(device: str, line: Line, event: Event, operation: Operation, start_ns: int) -> _Work:
    track = Track(device, f"{_plain(line.name)}{operation.suffix}", operation.category)
    number = event.stats.get("correlation_id")
    return _Work(
        track,
        operation,
        *_times(event, start_ns),
        number if isinstance(number, int) else 0,
        str(event.stats.get("hlo_module", "")),
    )


def _plain(line: str) -> str:
    """`Stream #17(Kernel)` → `stream 17`, as other producers call it."""
    found = _STREAM.match(line)
    return found[0].lower().replace("#", "") if found else line


def _times(event: Event, start_ns: int) -> tuple[int, int]:
    end = event.start_ps + event.duration_ps
    return start_ns + event.start_ps // 1000, start_ns + end // 1000


def _submodule(module: str) -> str:
    """`jit_forward(243)` → `jit_forward`; a component's name where the function has it."""
    name = _FINGERPRINT.sub("", module)
    plain = name.removeprefix("jit_").removeprefix("pjit_")
    return component(plain) or name or _ONLY


def _run(path: Path, space: Space, found: _Found) -> PlacedRun:
    ranges = sorted(found.ranges, key=lambda one: (one.start_ns, one.device))
    outside = found.outside
    if not ranges:
        devices = {work.track.device for work in outside}
        ranges = [_whole(device, outside) for device in sorted(devices)]
        outside = []
    labels = stages([one.submodule for one in ranges], [NO_ITERATION] * len(ranges))
    placed = tuple(
        _placed(number, one, label, found)
        for number, (one, label) in enumerate(zip(ranges, labels, strict=True))
    )
    host = CommandBuilder()
    for work in outside:
        _add(host, work, found)
    calls = [one.call for one in placed]
    name = path.name.removesuffix(".pb").removesuffix(".xplane")
    last = max((work.end_ns for work in outside), default=0)
    return PlacedRun(
        producer="xplane",
        name=name,
        path=path,
        placed=placed,
        capabilities=frozenset(_capabilities(ranges, outside, found)),
        spans=tuple(spans(name, calls, last)),
        devices=found.devices,
        outside=host.build(),
        drops=tuple(_drops(path, space, found)),
        clocks=Clocks(clock=ClockName.REALTIME if space.start_ns else None, base_ns=space.start_ns),
        recording=Recording(calls_from=_source(found)),
        host_activities=activities(found.program, space.start_ns, [*_worked(ranges, outside)]),
    )


def _worked(
    ranges: Sequence[_Range], outside: Sequence[_Work]
) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Begins and ends of what each device did, but waiting."""
    works = [*outside, *(work for one in ranges for work in one.works)]
    by_device: dict[str, list[tuple[int, int]]] = {}
    for work in works:
        if work.operation.category != "sync":
            by_device.setdefault(work.track.device, []).append((work.start_ns, work.end_ns))
    for times in by_device.values():
        start, end = np.array(times, dtype=np.int64).T
        yield start, end


def _source(found: _Found) -> CallsFrom | None:
    if not found.ranges:
        return CallsFrom.NOTHING
    return CallsFrom.MODULE_PERIOD if found.guessed else None


def _whole(device: str, works: Sequence[_Work]) -> _Range:
    """A call of all that a device did: nothing names what it worked for."""
    own = [work for work in works if work.track.device == device]
    begin, end = min(work.start_ns for work in own), max(work.end_ns for work in own)
    return _Range(_ONLY, device, begin, end, own)


def _placed(number: int, one: _Range, label: tuple[str, int, int], found: _Found) -> PlacedCall:
    stage, step, iteration = label
    builder = CommandBuilder()
    begins = [
        found.launches[w.correlation][2] for w in one.works if w.correlation in found.launches
    ]
    for work in one.works:
        _add(builder, work, found)
    start = min((*begins, one.start_ns))
    call = Call(
        index=number,
        submodule=one.submodule,
        stage=stage or RUN_STAGE,
        branch="",
        step=step if step >= 0 else NO_STEP,
        device=one.device,
        start_ns=start,
        duration_ns=max(one.end_ns, start) - start,
        ops_traced=one.traced,
        iteration=iteration,
    )
    return PlacedCall(call, builder.build())


def _add(builder: CommandBuilder, work: _Work, found: _Found) -> None:
    """The command, and what of the host launched it."""
    one = work.operation
    row = builder.add(
        work.track,
        one.layer,
        one.op_type,
        work.start_ns,
        work.end_ns - work.start_ns,
        shapes=one.shapes,
        kernel=one.kernel,
        module=one.module,
        bytes_read=one.bytes_read,
        bytes_written=one.bytes_written,
        flops=one.flops,
    )
    launch = found.launches.get(work.correlation) if work.correlation else None
    if launch is not None:
        track, name, start, end = launch
        builder.link(builder.add(track, name, name, start, end - start), row)


def _capabilities(
    ranges: Sequence[_Range], outside: Sequence[_Work], found: _Found
) -> Iterator[str]:
    works = [work for one in ranges for work in one.works] + list(outside)
    yield "timeline"
    if any(work.correlation in found.launches for work in works):
        yield "launches"
    if any(work.operation.shapes for work in works):
        yield "shapes"
    if any(work.operation.bytes_read >= 0 for work in works):
        yield "bytes"


def _drops(path: Path, space: Space, found: _Found) -> Iterator[Drop]:
    if space.cut:
        note = Note.of(DropReason.ENTRIES_CUT)
        yield Drop(DropKind.TRUNCATED_FILE, path.name, UNKNOWN, "events", note)
    if space.damaged:
        note = Note.of(DropReason.DAMAGED)
        yield Drop(DropKind.DROPPED_EVENTS, path.name, space.damaged, "planes", note)
    if found.untimed:
        note = Note.of(DropReason.NO_TIME)
        yield Drop(DropKind.DROPPED_EVENTS, path.name, found.untimed, "events", note)
