"""Read Chrome JSON of profilers other than torch's as rows, and build a Kineto trace from chosen
rows.

    rows, notes = read_rows(path)
    trace = kineto_trace(path, kept, {800: "npu:0"}, names_of_threads, health=notes)

An importer gives each row one of Kineto's categories (`kernel`, `gpu_memcpy`,
`privateuse1_runtime`, `cpu_op`, …) and links work to its launch by `correlation`. Calls, steps,
modules and checks then come from the importer of torch.profiler.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec
import numpy as np

from profiler.errors import InputError
from profiler.files import decoder_of
from profiler.importers.importer import content_of
from profiler.kineto import BYTE_ORDER_MARK
from profiler.kineto.arguments import Args, Arguments
from profiler.kineto.events import LATEST_NS, Events
from profiler.kineto.json_text import WRONG, DamagedText, refuse_several_lists
from profiler.kineto.operators import Scalar
from profiler.kineto.trace_file import Header, KinetoTrace, readable
from profiler.trace.columns import Int32s
from profiler.trace.manifest_fields import HealthNote

_PART = 4 << 20  # bytes of a damaged text that are parsed together
_NO_TIME = -1
_Key = TypeVar("_Key", bound=Hashable)


class RowArgs(Args, gc=False, rename={"connection": "connection_id", "task": "Task Type"}):
    """The fields that are read from a row's `args`, besides Kineto's."""

    connection: Scalar = None
    task: Scalar = None
    id: Scalar = None
    labels: Scalar = None


class Ids(msgspec.Struct, gc=False, rename={"shared": "global"}):
    """An event's id among those of its process, or one that all processes share."""

    local: Scalar = None
    shared: Scalar = None


class Row(msgspec.Struct, gc=False):
    """One event of the file; `ts` and `dur` are µs, as numbers or texts."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: Scalar = None
    tid: Scalar = None
    ts: msgspec.Raw = msgspec.Raw(b"")
    dur: msgspec.Raw = msgspec.Raw(b"")
    id: Scalar = None
    args: RowArgs | None = None
    id2: Ids | None = None
    scope: Scalar = None

    @property
    def start_ns(self) -> int:
        """The start in ns of the file; -1 if missing."""
        return _ns(self.ts)

    @property
    def duration_ns(self) -> int:
        """The length in ns, 0 if missing (it never ended), -1 if invalid."""
        return _ns(self.dur) if bytes(self.dur) else 0

    @property
    def named(self) -> str:
        """The name in a row of metadata (`process_name`, `thread_name`)."""
        found = self.args.name if self.args is not None else None
        return "" if found is None else str(found).strip()


class _Phased(Protocol):
    """An event of any kind."""

    @property
    def ph(self) -> str: ...


_Event = TypeVar("_Event", bound=_Phased)


class _Listed(Protocol[_Event]):
    traceEvents: list[_Event]  # noqa: N815  the key's own name


class _File(msgspec.Struct):
    traceEvents: list[Row]  # noqa: N815  the key's own name


def _ns(raw: msgspec.Raw) -> int:
    """Convert a time in µs to ns exactly: `"1704161511420306.491"` has more digits than a
    float64."""
    text = bytes(raw).strip(b'" \t').decode("ascii", "replace")
    try:
        found = Decimal(text) * 1000
        return round(found) if 0 <= found < LATEST_NS else _NO_TIME
    except (InvalidOperation, ValueError):
        return _NO_TIME


def read_rows(path: Path) -> tuple[list[Row], tuple[HealthNote, ...]]:
    """The events of a file, and notes on text that could not be read. Raises InputError if no event
    can be read."""
    return read_events(path, Row, _File)


def read_events(
    path: Path, event: type[_Event], file: type[_Listed[_Event]]
) -> tuple[list[_Event], tuple[HealthNote, ...]]:
    """The events of a file as `event`, and notes on text that could not be read. The file, plain or
    gzip, is a list of events or an object `file` that contains the list. Raises InputError if none
    can be read."""
    text = content_of(path).removeprefix(BYTE_ORDER_MARK)
    try:
        if text.lstrip()[:1] == b"[":
            return decoder_of(list[event]).decode(text), ()  # type: ignore[valid-type]
        refuse_several_lists(text)
        return decoder_of(file).decode(text).traceEvents, ()
    except WRONG:
        pass
    reader = DamagedText(readable, event)
    chunks = (text[at : at + _PART] for at in range(0, len(text), _PART))
    rows = [row for part, _ in reader.parts(chunks) for row in part]
    if not rows:
        raise InputError(f"{path} is not valid JSON: export or copy it again")
    return rows, tuple(reader.notes())


def kineto_trace(
    path: Path,
    rows: Sequence[Row],
    devices: Mapping[Scalar, str],
    threads: Mapping[tuple[Scalar, Scalar], str],
    *,
    health: Iterable[HealthNote] = (),
    header: Header | None = None,
) -> KinetoTrace:
    """Build a trace of the complete events among `rows`, which already have Kineto's categories.
    `devices` has the device names of processes, `threads` the names of threads."""
    times = np.array([(row.start_ns, row.duration_ns) for row in rows], dtype=np.int64)
    start, duration = times.reshape(-1, 2).T
    ended = np.array([bool(bytes(row.dur)) for row in rows], dtype=np.bool_)
    timed = (start != _NO_TIME) & (duration != _NO_TIME) & ended
    name, names = _codes(rows, lambda row: row.name)
    category, categories = _codes(rows, lambda row: row.cat)
    thread, of_threads = _codes(rows, lambda row: (row.pid, row.tid))
    events = Events(
        tuple(names),
        tuple(categories),
        tuple(of_threads),
        name,
        category,
        thread,
        Arguments.of(row.args for row in rows),
    )
    return KinetoTrace(
        where=str(path),
        header=header or Header([]),
        events=events,
        start_ns=np.maximum(start, 0),
        duration_ns=np.maximum(duration, 0),
        thread=thread,
        threads=events.threads,
        thread_names=dict(threads),
        device_names=dict(devices),
        rows={
            one: np.flatnonzero((category == code) & timed).astype(np.int64)
            for code, one in enumerate(categories)
        },
        memory=[],
        memory_ns=np.zeros(0, dtype=np.int64),
        untimed=np.flatnonzero(start == _NO_TIME),
        unfinished=np.flatnonzero(~ended),
        negative=np.flatnonzero(duration == _NO_TIME),
        health=tuple(health),
    )


def _codes(rows: Iterable[Row], of: Callable[[Row], _Key]) -> tuple[Int32s, list[_Key]]:
    """The code of each row's key, int32, and the keys."""
    known: dict[_Key, int] = {}
    codes = [known.setdefault(of(row), len(known)) for row in rows]
    return np.array(codes, dtype=np.int32), [*known]
