"""Events of a trace, part by part, as columns: of each a few numbers stay, and its arguments where
anything of them is read. Texts that are equal are one."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from decimal import Decimal
from typing import TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from profiler.errors import InputError
from profiler.kineto.collectives import CollectiveArgs, collective_args
from profiler.kineto.events import Args, Event, Events, Scalar
from profiler.kineto.json_parts import Text
from profiler.kineto.older import OLDER, renamed
from profiler.trace.columns import Int32s, Int64s
from profiler.typed_json import decoder_of

__all__ = ["LATEST_NS", "EventColumns"]

LATEST_NS = 1 << 62
"""ns, the year 2116; twice of it still is an int64."""
_EXACT_BELOW_US = float(2**43)  # a float64 holds three decimals below; 101 days
_MEMORY = "[memory]"
_NO_ARGS = Args()
_Float64s = npt.NDArray[np.float64]
_Key = TypeVar("_Key", bound=Hashable)


class _Codes(dict[_Key, int]):
    """Numbers of what comes, in order."""

    def __missing__(self, key: _Key) -> int:
        self[key] = code = len(self)
        return code


class _Time(msgspec.Struct, gc=False):
    ts: Decimal | None = None


class _Times(msgspec.Struct):
    traceEvents: list[_Time]  # noqa: N815  the key's own name


_TIMES = decoder_of(_Times, strict=False)


class EventColumns:
    """What is kept of events; `out_of_range` is the sentence about times that none can have,
    `valid` makes JSON of a text of the file where that is none."""

    def __init__(self, out_of_range: str, valid: Callable[[Text], Text]) -> None:
        self._out_of_range = out_of_range
        self._valid = valid
        self._names: _Codes[str] = _Codes()
        self._categories: _Codes[str] = _Codes()
        self._threads: _Codes[tuple[Scalar, Scalar]] = _Codes()
        self._raw: dict[bytes, msgspec.Raw] = {b"": msgspec.Raw(b"")}
        self._codes: list[tuple[Int32s, Int32s, Int32s]] = []
        self._times: list[tuple[Int64s, Int64s]] = []
        self._memory_times: list[Int64s] = []
        self._args: list[Args | None] = []
        self.memory: list[Event] = []
        self.thread_names: dict[tuple[Scalar, Scalar], str] = {}
        self.collectives: dict[int, CollectiveArgs] = {}
        self.dropped = 0

    def add(self, events: list[Event], text: Text) -> None:
        """Add some events, which were decoded from `text`."""
        places = [place for place, event in enumerate(events) if event.ph == "X"]
        told = events if len(places) == len(events) else [events[place] for place in places]
        starts = np.array([event.ts for event in told], dtype=np.float64)
        durations = np.array([event.dur for event in told], dtype=np.float64)
        kept = ~np.isnan(starts) & ~(durations < 0)
        if not kept.all():
            self.dropped += int((~kept).sum())
            rows = np.flatnonzero(kept).tolist()
            told, places = [told[row] for row in rows], [places[row] for row in rows]
            starts, durations = starts[kept], durations[kept]
        self._times.append((self._exact(starts, places, text), self._whole(durations)))
        if len(told) < len(events):
            self._add_others(events, text)
        self._add_complete(told, places, text)

    def complete(self, base_ns: int) -> tuple[Events, Int64s, Int64s]:
        """The complete events, and their begins and durations in ns."""
        codes, times = self._codes, self._times
        nothing = np.zeros(0, dtype=np.int32)
        name, category, thread = (
            np.concatenate((nothing, *(part[at] for part in codes))) for at in range(3)
        )
        self._codes, self._times = [], []
        start_ns, duration_ns = (
            np.concatenate((np.zeros(0, dtype=np.int64), *(part[at] for part in times)))
            for at in range(2)
        )
        start_ns += base_ns
        self._check(start_ns, start_ns + duration_ns)
        known = tuple(self._names), tuple(self._categories), tuple(self._threads)
        return Events(*known, name, category, thread, self._args), start_ns, duration_ns

    def memory_ns(self, base_ns: int) -> Int64s:
        """The times of `memory`."""
        times = np.concatenate((np.zeros(0, dtype=np.int64), *self._memory_times)) + base_ns
        self._check(times, times)
        return times

    def _add_complete(self, told: list[Event], places: list[int], text: Text) -> None:
        if not OLDER.isdisjoint({event.cat for event in told}):
            renamed(told)
        names, categories, threads = self._names, self._categories, self._threads
        self._codes.append(
            (
                np.array([names[event.name] for event in told], dtype=np.int32),
                np.array([categories[event.cat] for event in told], dtype=np.int32),
                np.array([threads[event.pid, event.tid] for event in told], dtype=np.int32),
            )
        )
        first = len(self._args)
        args = [None if event.args == _NO_ARGS else event.args for event in told]
        self._args += args
        collective = False
        for one in args:
            if one is not None:
                if one.dims or one.types or one.values:
                    self._share(one)
                collective |= one.collective is not None
        if collective:
            found = collective_args(self._valid(text))
            rows = {place: row for row, place in enumerate(places, first)}
            self.collectives |= {rows[at]: one for at, one in found.items() if at in rows}

    def _add_others(self, events: list[Event], text: Text) -> None:
        places = []
        for place, event in enumerate(events):
            if event.ph == "i" and event.name == _MEMORY:
                places.append(place)
            elif event.ph == "M" and event.name == "thread_name":
                name = event.args.name if event.args else None
                if name:
                    self.thread_names[event.pid, event.tid] = str(name).strip()
        if places:
            memory = [events[place] for place in places]
            times = np.array([event.ts for event in memory], dtype=np.float64)
            self._memory_times.append(self._exact(times, places, text))
            self.memory += memory

    def _share(self, args: Args) -> None:
        """Have arguments that are equal in many events once, not as part of the file's text."""
        args.dims = self._shared(args.dims)
        args.types = self._shared(args.types)
        args.values = self._shared(args.values)

    def _shared(self, raw: msgspec.Raw) -> msgspec.Raw:
        text = bytes(raw)
        found = self._raw.get(text)
        if found is None:
            found = self._raw[text] = msgspec.Raw(text)
        return found

    def _exact(self, microseconds: _Float64s, places: list[int], text: Text) -> Int64s:
        """Times in ns; nothing is lost to floating point. `places` are those of their events."""
        whole = self._whole(microseconds)
        if not len(whole) or np.nanmax(microseconds, initial=0) < _EXACT_BELOW_US:
            return whole
        exactly = _TIMES.decode(self._valid(text)).traceEvents
        told = (exactly[place].ts or Decimal() for place in places)
        return np.array([round(time * 1000) for time in told], dtype=np.int64)

    def _whole(self, microseconds: _Float64s) -> Int64s:
        """Times in ns, 0 where there is none; exact for three decimals below `_EXACT_BELOW_US`:
        what follows the point is set apart before it is multiplied."""
        microseconds = np.nan_to_num(microseconds, nan=0.0, posinf=np.inf)
        if len(microseconds) and np.abs(microseconds).max() >= LATEST_NS / 1000:
            raise InputError(self._out_of_range)
        whole = np.floor(microseconds)
        rest = np.rint((microseconds - whole) * 1000).astype(np.int64)
        return whole.astype(np.int64) * 1000 + rest

    def _check(self, start_ns: Int64s, end_ns: Int64s) -> None:
        if len(start_ns) and (start_ns.min() < 0 or end_ns.max() >= LATEST_NS):
            raise InputError(self._out_of_range)
