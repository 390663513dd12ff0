"""torch.profiler's Chrome JSON (Kineto), plain or gzip → events with int64 nanoseconds.

Format: pytorch/kineto, libkineto/src/output_json.cpp. Complete events (`"ph": "X"`) carry `ts` and
`dur` in µs with three decimals, `ts` counted from the file's `baseTimeNanoseconds`; files written
before that key existed count from the epoch.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from os import SEEK_END
from pathlib import Path
from typing import BinaryIO

import msgspec
import numpy as np
import numpy.typing as npt

from profiler.errors import InputError
from profiler.kineto.archives import PackedError, opened
from profiler.kineto.collectives import CollectiveArgs, collective_args
from profiler.kineto.events import Event, Scalar
from profiler.kineto.names import queue
from profiler.kineto.older import OLDER, renamed
from profiler.trace.columns import Int32s, Int64s
from profiler.trace.unpack import may_unpack_to, too_small

__all__ = [
    "SIZE_LIMIT",
    "Header",
    "KinetoTrace",
    "read_kineto",
    "read_kineto_file",
]

SIZE_LIMIT = 8 << 30  # bytes of JSON, decompressed; the largest files in use are about 3 GiB
_CHUNK = 4 << 20  # bytes
_EXACT_BELOW_US = float(2**43)  # a float64 holds three decimals below; 101 days
_Float64s = npt.NDArray[np.float64]
_NO_ROWS = np.empty(0, dtype=np.int64)
_MEMORY = "[memory]"
_LATEST_NS = 1 << 62  # the year 2116; twice of it still is an int64
_NOT_A_NUMBER = re.compile(rb":\s*-?(?:inf|nan|infinity)\s*(?=[,}\]])", re.IGNORECASE)
_CONTROL = bytes(b if b >= 0x20 else 0x20 for b in range(256))
_RECOMMENDATION = "give the file that torch.profiler's export_chrome_trace wrote"


class Header(msgspec.Struct, rename={"base_ns": "baseTimeNanoseconds"}):
    """What is read of the file beside its events."""

    traceEvents: list[Event]  # noqa: N815  the key's own name
    deviceProperties: msgspec.Raw = msgspec.Raw(b"")  # noqa: N815
    distributedInfo: msgspec.Raw = msgspec.Raw(b"")  # noqa: N815
    base_ns: Scalar = None
    schemaVersion: Scalar = None  # noqa: N815
    record_shapes: Scalar = None
    with_stack: Scalar = None
    with_modules: Scalar = None
    profile_memory: Scalar = None
    cuda_runtime_version: Scalar = None
    cuda_driver_version: Scalar = None
    cupti_version: Scalar = None
    hip_runtime_version: Scalar = None
    hip_driver_version: Scalar = None
    roctracer_version: Scalar = None


class _Time(msgspec.Struct, gc=False):
    ph: str = ""
    name: str = ""
    ts: Decimal | None = None
    dur: float | None = None

    @property
    def counts(self) -> bool:
        """Whether it is one of the events that are kept."""
        if self.ph != "X":
            return self.name == _MEMORY
        return self.ts is not None and (self.dur or 0.0) >= 0.0


class _Times(msgspec.Struct):
    traceEvents: list[_Time]  # noqa: N815


@dataclass(frozen=True, slots=True, eq=False)
class KinetoTrace:
    """The n complete events of a file, in its order.

    `start_ns` and `duration_ns` are int64 [n] on CLOCK_REALTIME; `thread` is int32 [n] and indexes
    `threads`, the (pid, tid) pairs; `thread_names` has those that the file names. `rows` maps a
    category to the rows of its events, ascending. `memory` are the k allocations and releases at
    `memory_ns`, int64 [k], which are no complete events. `dropped` counts events without a time,
    or that ended before they began. `collectives` is what kernels of NCCL and RCCL tell,
    by row.
    """

    where: str
    header: Header
    events: list[Event]
    start_ns: Int64s
    duration_ns: Int64s
    thread: Int32s
    threads: tuple[tuple[Scalar, Scalar], ...]
    thread_names: dict[tuple[Scalar, Scalar], str]
    rows: dict[str, Int64s]
    memory: list[Event]
    memory_ns: Int64s
    dropped: int = 0
    collectives: Mapping[int, CollectiveArgs] = field(default_factory=dict)

    @property
    def end_ns(self) -> Int64s:
        """Ends, int64 [n]."""
        return self.start_ns + self.duration_ns

    def rows_of(self, *categories: str) -> Int64s:
        """Rows of the events of all these categories, ascending, int64."""
        found = [self.rows[name] for name in categories if name in self.rows]
        return np.sort(np.concatenate(found)) if found else np.empty(0, dtype=np.int64)


def read_kineto(path: Path, limit: int = SIZE_LIMIT) -> KinetoTrace:
    """Read a Kineto trace of at most `limit` bytes of JSON.

    Raises InputError, in one sentence, for everything that is not such a file.
    """
    try:
        with path.open("rb") as file:
            return read_kineto_file(path, file, limit)
    except OSError as error:
        raise InputError(
            f"cannot read {path} ({error.strerror or error}): {_RECOMMENDATION}"
        ) from error


def read_kineto_file(path: Path, file: BinaryIO, limit: int = SIZE_LIMIT) -> KinetoTrace:
    """The same of an open file, which may have no name any more; `path` names it in errors."""
    header, data = _decode(path, _read(path, file, limit))
    told = [event for event in header.traceEvents if event.ph == "X"]
    times = _microseconds(told)
    complete, times = _timed(told, times)
    rows = _rows(complete)
    if OLDER & rows.keys():
        renamed(complete)
        rows = _rows(complete)
    start_ns, duration_ns = _times(path, header, complete, times, data)
    others = [event for event in header.traceEvents if event.ph != "X"]
    memory = [event for event in others if event.ph == "i" and event.name == _MEMORY]
    memory_ns, _ = _times(path, header, memory, _microseconds(memory), data)
    codes: defaultdict[tuple[Scalar, Scalar], int] = defaultdict()
    codes.default_factory = codes.__len__  # the next number for each that is new
    thread = [codes[event.pid, event.tid] for event in complete]
    return KinetoTrace(
        where=str(path),
        header=header,
        events=complete,
        start_ns=start_ns,
        duration_ns=duration_ns,
        thread=np.array(thread, dtype=np.int32),
        threads=tuple(codes),
        thread_names=_thread_names(others),
        rows=rows,
        memory=memory,
        memory_ns=memory_ns,
        dropped=len(told) - len(complete),
        collectives=_collectives(header, complete, rows, data),
    )


def _collectives(
    header: Header, complete: list[Event], rows: Mapping[str, Int64s], data: bytes | bytearray
) -> dict[int, CollectiveArgs]:
    """What kernels tell of collectives, by the row of their event; of a trace without such kernels
    nothing is looked for, which would take as long as unpacking it."""
    kernels = {complete[row].name for row in rows.get("kernel", _NO_ROWS).tolist()}
    if not any(queue("kernel", name)[1] == "collective" for name in kernels):
        return {}
    found = collective_args(data)
    if not found:
        return {}
    places = {id(header.traceEvents[place]): args for place, args in found.items()}
    told = ((row, places.get(id(event))) for row, event in enumerate(complete))
    return {row: args for row, args in told if args is not None}


def _read(path: Path, file: BinaryIO, limit: int) -> bytes | bytearray:
    """The JSON text, unpacked; never more than `limit` in memory."""
    data = bytearray()
    bound = may_unpack_to(file.seek(0, SEEK_END))
    try:
        with opened(file, min(limit, bound)) as (stream, packed):
            while chunk := stream.read(_CHUNK):
                if not data and chunk.lstrip()[:1] not in (b"{", b"["):
                    raise InputError(f"{path} is not JSON: {_RECOMMENDATION}")
                data += chunk
                if len(data) > limit:
                    size = "when decompressed " if packed else ""
                    raise InputError(
                        f"{path} is {size}larger than the limit of {limit:,} bytes: "
                        "record fewer steps, or without memory profiling"
                    )
                if packed and len(data) > bound:
                    raise too_small(str(path))
    except PackedError as error:
        raise InputError(f"{path} {error}") from error
    except EOFError as error:
        raise InputError(f"{path} is cut, its gzip stream has no end: copy it again") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{path} is damaged ({error}): copy it again") from error
    if not data:
        raise InputError(f"{path} is empty: {_RECOMMENDATION}")
    return data


def _decode(path: Path, data: bytes | bytearray) -> tuple[Header, bytes | bytearray]:
    """The file's header and the text that could be decoded.

    A file that is no valid JSON is read once more with what Kineto is known to write wrongly put
    right: `inf` and `nan` (pytorch/kineto#105), raw control characters in frame names
    (pytorch/pytorch#130622), numbers as strings (Ascend/pytorch#133).
    """
    try:
        return msgspec.json.Decoder(Header).decode(data), data
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        repaired = _NOT_A_NUMBER.sub(b":null", data.translate(_CONTROL))
    try:
        return msgspec.json.Decoder(Header, strict=False).decode(repaired), repaired
    except msgspec.ValidationError as error:
        raise InputError(
            f"{path} is not a torch.profiler trace ({error}): {_RECOMMENDATION}"
        ) from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path} is not valid JSON ({error}): export or copy it again") from error


def _microseconds(events: list[Event]) -> tuple[_Float64s, _Float64s]:
    """Begins and durations as they were written, float64 [n] each; nan for what was not."""
    starts = np.array([event.ts for event in events], dtype=np.float64)
    return starts, np.array([event.dur for event in events], dtype=np.float64)


def _timed(
    events: list[Event], times: tuple[_Float64s, _Float64s]
) -> tuple[list[Event], tuple[_Float64s, _Float64s]]:
    """The events that have a time and did not end before they began, and their times."""
    starts, durations = times
    kept = ~np.isnan(starts) & ~(durations < 0)
    if kept.all():
        return events, times
    found = [event for event, keep in zip(events, kept.tolist(), strict=True) if keep]
    return found, (starts[kept], durations[kept])


def _times(
    path: Path,
    header: Header,
    events: list[Event],
    times: tuple[_Float64s, _Float64s],
    data: bytes | bytearray,
) -> tuple[Int64s, Int64s]:
    """Starts and durations in ns, int64 [n] each; nothing is lost to floating point."""
    base_ns = _base_ns(path, header)
    starts, durations = (np.nan_to_num(one, nan=0.0, posinf=np.inf) for one in times)
    limit_us = _LATEST_NS / 1000
    if len(events) and max(np.abs(starts).max(), np.abs(durations).max()) >= limit_us:
        raise InputError(f"{path} has an event whose time is out of range: {_RECOMMENDATION}")
    if len(events) and starts.max() >= _EXACT_BELOW_US:
        exactly = msgspec.json.Decoder(_Times, strict=False).decode(data).traceEvents
        phase = events[0].ph
        named = [time for time in exactly if time.ph == phase and time.counts]
        exact = [round((time.ts or Decimal()) * 1000) for time in named]
        start_ns = np.array(exact, dtype=np.int64) + base_ns
    else:
        start_ns = _nanoseconds(starts) + base_ns
    duration_ns = _nanoseconds(durations)
    if len(events) and (start_ns.min() < 0 or (start_ns + duration_ns).max() >= _LATEST_NS):
        raise InputError(f"{path} has an event whose time is out of range: {_RECOMMENDATION}")
    return start_ns, duration_ns


def _nanoseconds(microseconds: _Float64s) -> Int64s:
    """Exact for three decimals below `_EXACT_BELOW_US`: what follows the point is set apart
    before it is multiplied."""
    whole = np.floor(microseconds)
    return whole.astype(np.int64) * 1000 + np.rint((microseconds - whole) * 1000).astype(np.int64)


def _base_ns(path: Path, header: Header) -> int:
    try:
        base_ns = int(header.base_ns or 0)
    except (ValueError, OverflowError):
        base_ns = -1
    if not 0 <= base_ns < _LATEST_NS:
        raise InputError(
            f"{path}: baseTimeNanoseconds is no time since the epoch: {_RECOMMENDATION}"
        )
    return base_ns


def _thread_names(events: list[Event]) -> dict[tuple[Scalar, Scalar], str]:
    return {
        (event.pid, event.tid): str(event.args.name).strip()
        for event in events
        if event.ph == "M" and event.name == "thread_name" and event.args and event.args.name
    }


def _rows(events: list[Event]) -> dict[str, Int64s]:
    """The rows of each category, in the order in which categories first appear."""
    codes: defaultdict[str, int] = defaultdict()
    codes.default_factory = codes.__len__
    code = np.array([codes[event.cat] for event in events], dtype=np.int32)
    return {name: np.flatnonzero(code == number) for name, number in codes.items()}
