"""Read the view of a profile that XLA's profiler writes for its viewer (`*.trace.json.gz`).

    read_view(path).planes  # as of the .xplane.pb, which has more

Processes are planes (`/device:GPU:0`, `/host:CPU`), threads are lines (`Stream #13(Compute)`, `XLA
Ops`). Times are µs from the profile's start. The viewer's file has at most a million events, the
longest ones. Source: openxla/xprof, plugin/xprof/convert/trace_viewer (trace_events_to_json).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from profiler.errors import InputError
from profiler.importers.chrome_rows import read_events
from profiler.importers.xplane.read import LATEST_PS, Event, Line, Plane, Space, Stat
from profiler.kineto.operators import Scalar

_DIGITS = 18  # of a number that is written as a text
_PS = 1_000_000  # a µs
_TEXT = "long_name"  # of an operation on a TPU its HLO


class _Row(msgspec.Struct, gc=False):
    ph: str = ""
    name: str = ""
    pid: Scalar = None
    tid: Scalar = None
    ts: float | None = None
    dur: float | None = None
    args: dict[str, Any] | None = None


class _File(msgspec.Struct):
    traceEvents: list[_Row]  # noqa: N815  the key's own name


@dataclass(slots=True)
class _ViewPlane(Plane):
    """A plane whose lines are rows of the view."""

    rows: dict[Scalar, list[_Row]] = field(default_factory=dict)
    names: dict[Scalar, str] = field(default_factory=dict)

    def lines(self) -> Iterator[Line]:
        """The threads in the order of the file."""
        for thread, rows in self.rows.items():
            events = [_event(row) for row in rows]
            timed = tuple(event for event in events if event is not None)
            yield Line(self.names.get(thread, str(thread)), timed, len(events) - len(timed))


def read_view(path: Path) -> Space:
    """Read a file, plain or gzip. Raises InputError if it has no event of a device or host."""
    planes: dict[Scalar, _ViewPlane] = {}
    rows, damage = read_events(path, _Row, _File)
    for row in rows:
        plane = planes.setdefault(row.pid, _ViewPlane("", {}, None))
        name = str(row.args.get("name", "")) if row.args else ""
        if row.ph == "X":
            plane.rows.setdefault(row.tid, []).append(row)
        elif row.name == "process_name":
            plane.name = name
        elif row.name == "thread_name":
            plane.names[row.tid] = name
    if not any(plane.rows for plane in planes.values()):
        raise InputError(f"{path} holds no event: give the .xplane.pb beside it")
    return Space(tuple(planes.values()), 0, 0, bool(damage))


def _event(row: _Row) -> Event | None:
    start, length = _picoseconds(row.ts), _picoseconds(row.dur or 0.0)
    if start is None or length is None:
        return None
    stats = {name: _stat(value) for name, value in (row.args or {}).items()}
    return Event(row.name, str(stats.get(_TEXT, row.name)), start, length, stats)


def _picoseconds(us: float | None) -> int | None:
    found = -1.0 if us is None else us * _PS
    return round(found) if 0 <= found < LATEST_PS else None


def _stat(value: object) -> Stat:
    """A value; the view writes numbers as texts."""
    if isinstance(value, int | float):
        return value
    text = str(value)
    return int(text) if text.isdecimal() and len(text) <= _DIGITS else text
