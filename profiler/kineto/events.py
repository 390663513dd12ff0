"""Events of torch.profiler's Chrome JSON as columns, read in bounded memory.

The file is decoded in parts: a 1 GB file is never in memory at once. Categories of PyTorch 1.8
and 1.9 get today's names. Ranges nest per thread.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from math import isfinite
from typing import Any, Generic, NamedTuple, TypeVar, overload

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Struct

from profiler.errors import InputError
from profiler.files import decoded, decoder_of
from profiler.kineto.arguments import (
    NO_NUMBER,
    NUMBERS,
    OF_MTIA,
    RAW,
    Args,
    Arguments,
    known_numbers,
)
from profiler.kineto.json_text import WRONG, Text
from profiler.kineto.operators import (
    GRAPH_NODES,
    CollectiveArgs,
    Scalar,
    collective_args,
    device_name,
)
from profiler.trace import _core
from profiler.trace.columns import Int32s, Int64s

# --- The fields of an event of torch.profiler's Chrome JSON that are read.


Bools = np.ndarray[Any, np.dtype[np.bool_]]
_Float64s = npt.NDArray[np.float64]


class Event(msgspec.Struct, gc=False):
    """One entry of `traceEvents`."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: Scalar = None
    tid: Scalar = None
    ts: float | None = None
    dur: float | None = None
    args: Args | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """The n samples of a file's counters: `series`, int32 [n], indexes `names`, the process and the
    name of each counter; `value` is float64 [n]."""

    names: tuple[tuple[Scalar, str], ...] = ()
    series: Int32s = field(default_factory=lambda: np.zeros(0, dtype=np.int32))
    time_ns: Int64s = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    value: _Float64s = field(default_factory=lambda: np.zeros(0, dtype=np.float64))


@dataclass(frozen=True, slots=True, eq=False)
class Events(Sequence[Event]):
    """The n complete events of a file, in its order. An `Event` is created on access, without its
    times and the `NUMBERS` of its arguments, since a file has millions: `name`, `category` and
    `thread`, int32 [n], index `names`, `categories` and `threads`, the (pid, tid) pairs."""

    names: tuple[str, ...]
    categories: tuple[str, ...]
    threads: tuple[tuple[Scalar, Scalar], ...]
    name: Int32s
    category: Int32s
    thread: Int32s
    args: Arguments

    def __len__(self) -> int:
        return len(self.name)

    @overload
    def __getitem__(self, row: int) -> Event: ...
    @overload
    def __getitem__(self, row: slice) -> list[Event]: ...
    def __getitem__(self, row: int | slice) -> Event | list[Event]:
        if isinstance(row, slice):
            return [self[one] for one in range(*row.indices(len(self)))]
        pid, tid = self.threads[self.thread.item(row)]
        category = self.categories[self.category.item(row)]
        return Event("X", category, self.name_of(row), pid, tid, None, None, self.args[row])

    def name_of(self, row: int) -> str:
        """The name of one event."""
        return self.names[self.name.item(row)]

    def names_of(self, rows: Int64s) -> list[str]:
        """The names of some events."""
        return [self.names[code] for code in self.name[rows].tolist()]

    def of_category(self, rows: Int64s, category: str) -> Bools:
        """Which of some events are of a category."""
        code = self.categories.index(category) if category in self.categories else -1
        found: Bools = self.category[rows] == code
        return found

    def named(self, rows: Int64s, test: Callable[[str], object]) -> np.ndarray[Any, Any]:
        """The results of `test` for the names of some events; it is called once per name."""
        codes = self.name[rows]
        known = np.flatnonzero(np.bincount(codes)).tolist()
        answers = np.array([test(self.names[code]) for code in known] or [False])
        table = np.zeros(len(self.names), dtype=answers.dtype)
        table[known] = answers[: len(known)]
        return table[codes]


# --- Events of older recorders and of Meta's MTIA under today's names, as of a GPU.
#
# In PyTorch 1.8 and 1.9, categories were `Operator`, `Runtime`, `Kernel`, `Memcpy` and `Memset`,
# and ranges of torch or the user were operators. Events of MTIA's firmware are copies
# (`dma_request`), events that a stream records or waits for, and otherwise executed work. Source:
# traces of HolisticTraceAnalysis, `tests/data/mtia_*`.


_CATEGORIES = {
    "Operator": "cpu_op",
    "Runtime": "cuda_runtime",
    "Kernel": "kernel",
    "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset",
}
_NAMED = re.compile(r"ProfilerStep#|Optimizer\.|enumerate\(|DistributedDataParallel\.|## ")
_MTIA = "mtia_ccp_events"
_RENAMED = frozenset((*_CATEGORIES, _MTIA))
_DIRECTIONS = {
    "HOST_TO_DEVICE": "Memcpy HtoD",
    "DEVICE_TO_HOST": "Memcpy DtoH",
    "DEVICE_TO_DEVICE": "Memcpy DtoD",
}
_STREAM_EVENTS = ("event_record", "event_wait")


def _rename(events: Sequence[Event]) -> None:
    """Set the categories of events in `_RENAMED`, in place."""
    for event in events:
        if event.cat == _MTIA:
            event.cat = "kernel"
            if event.name in _STREAM_EVENTS:
                event.cat = GRAPH_NODES[0]
            elif event.name == "dma_request" and event.args is not None:
                event.cat = _COPIES
                event.name = _DIRECTIONS.get(str(event.args.direction), event.name)
                event.args.bytes = event.args.size if isinstance(event.args.size, int) else None
        elif today := _CATEGORIES.get(event.cat):
            named = today == "cpu_op" and _NAMED.match(event.name)
            event.cat = "user_annotation" if named else today


# --- Events of a trace as columns, added part by part: a few numbers per event, and the arguments
# that are read. Equal texts are stored once.


LATEST_NS = 1 << 62
"""ns, the year 2116; twice as much still fits an int64."""
_EXACT_BELOW_US = float(2**43)  # a float64 has three decimals below; 101 days
_MEMORY = "[memory]"
_COPIES = "gpu_memcpy"
_Key = TypeVar("_Key", bound=Hashable)


class _Codes(dict[_Key, int]):
    """Numbers keys in the order of their first lookup."""

    def __missing__(self, key: _Key) -> int:
        self[key] = code = len(self)
        return code


class _Time(msgspec.Struct, gc=False):
    ts: Decimal | None = None


class _Times(msgspec.Struct):
    traceEvents: list[_Time]  # noqa: N815  the key's own name


_TIMES = decoder_of(_Times, strict=False)


class _ListedEvents(msgspec.Struct):
    traceEvents: list[Event]  # noqa: N815  the key's own name


class _Sampled(msgspec.Struct, gc=False):
    args: msgspec.Raw = msgspec.Raw(b"{}")


class _SampledEvents(msgspec.Struct):
    traceEvents: list[_Sampled]  # noqa: N815  the key's own name


_SAMPLED = decoder_of(_SampledEvents)
_UNNAMED = ("", "value")  # names that recorders give to the only value of a counter


def _numbers(args: msgspec.Raw) -> list[tuple[str, float]]:
    """The numbers among arguments, with their keys."""
    try:
        raw_values = decoded(args, dict[str, msgspec.Raw])
    except msgspec.MsgspecError:
        return []
    found = []
    for key, raw in raw_values.items():
        try:
            value = decoded(raw, float, strict=False)
        except msgspec.MsgspecError:
            continue
        if isfinite(value):
            found.append((key, value))
    return found


_KEYS = {one.name: one.encode_name for one in msgspec.structs.fields(Args)}
_NOT_SCALAR = frozenset((*NUMBERS, *RAW, *OF_MTIA))
_DECODED_CATEGORIES = frozenset(one.encode() for one in _RENAMED)


class _Recoded(Generic[_Key]):
    """Translates the core's codes of texts to the codes of their values in `known`."""

    def __init__(self, known: _Codes[_Key], value: Callable[[bytes], _Key]) -> None:
        self._known = known
        self._value = value
        self._texts: list[bytes] = []
        self._number: Int32s = np.zeros(0, dtype=np.int32)

    def codes(self, codes: Int32s, texts: Callable[[int], list[bytes]]) -> Int32s:
        """Translate some codes; `texts(n)` returns the core's texts from code n on."""
        more = texts(len(self._texts))
        self._texts += more
        self._number = np.append(self._number, np.full(len(more), -1, dtype=np.int32))
        there = np.bincount(codes, minlength=len(self._texts)) > 0
        for code in np.flatnonzero(there & (self._number < 0)).tolist():
            self._number[code] = self._known[self._value(self._texts[code])]
        return self._number[codes]


def _joined(parts: list[npt.NDArray[Any]], kind: type[np.generic]) -> npt.NDArray[Any]:
    """Concatenate the parts of a column."""
    return np.concatenate((np.zeros(0, dtype=kind), *parts))


def _listed(texts: list[bytes]) -> bytes:
    """A document with the given texts of events."""
    return b'{"traceEvents":[%b]}' % b",".join(texts)


class Scanned(NamedTuple):
    """The complete events of a document, as columns of `EventColumns`; `rest` is the document
    without its events, `others` are its events of other kinds that are read, `marked` the texts of
    events of collectives, at `marked_rows`."""

    codes: tuple[Int32s, Int32s, Int32s]
    start_ns: Int64s
    duration_ns: Int64s
    arguments: Arguments
    rest: bytes
    others: list[Event]
    others_text: bytes
    marked: list[bytes]
    marked_rows: list[int]


class EventColumns:
    """Collects events as columns. `out_of_range` is the error for impossible times, `valid` repairs
    text of the file that is not JSON, and `strict` decoding accepts no other types of values."""

    def __init__(
        self, out_of_range: str, valid: Callable[[Text], Text], strict: bool = True
    ) -> None:
        self._out_of_range = out_of_range
        self._valid = valid
        self._strict = strict
        self._names: _Codes[str] = _Codes()
        self._categories: _Codes[str] = _Codes()
        self._threads: _Codes[tuple[Scalar, Scalar]] = _Codes()
        self._table = _core.KinetoEvents(
            numbers=[_KEYS[name] for name in NUMBERS],
            scalars=[key for name, key in _KEYS.items() if name not in _NOT_SCALAR],
            values=[_KEYS[name] for name in RAW],
            marked=_KEYS["collective"],
        )
        self._of_names = _Recoded(self._names, bytes.decode)
        self._of_categories = _Recoded(self._categories, bytes.decode)
        self._of_threads = _Recoded(self._threads, self._thread)
        self._kinds: list[Args] = []
        self._raw: dict[bytes, msgspec.Raw] = {b"": msgspec.Raw(b"")}
        self._codes: list[tuple[Int32s, Int32s, Int32s]] = []
        self._times: list[tuple[Int64s, Int64s]] = []
        self._memory_times: list[Int64s] = []
        self._series: _Codes[tuple[Scalar, str]] = _Codes()
        self._samples: list[tuple[Int32s, Int64s, _Float64s]] = []
        self._args: list[Arguments] = []
        self._count = 0
        self.memory: list[Event] = []
        self.thread_names: dict[tuple[Scalar, Scalar], str] = {}
        self.device_names: dict[Scalar, str] = {}  # by process, as `rbln:0`
        self.collectives: dict[int, CollectiveArgs] = {}
        self.dropped = 0
        self.untimed: list[int] = []
        self.unfinished: list[int] = []
        self.negative: list[int] = []
        self._begun: dict[tuple[Scalar, Scalar], list[Event]] = {}  # `"ph": "B"`, innermost last
        self._ended: list[Event] = []

    def scan(self, text: Text) -> Scanned | None:
        """Scan the events of a document without adding them; None if they must be decoded one by
        one."""
        table = self._table
        if not table.scan(text) or not _DECODED_CATEGORIES.isdisjoint(table.categories(0)):
            return None
        if table.dropped:  # it leaves out events without a start
            return None
        others_text = _listed([bytes(text[begin:end]) for begin, end in table.others])
        name, category, thread, start, duration, row, kind, numbers = table.columns()
        try:
            self._decode_kinds()
            threads = self._of_threads.codes(thread, table.threads)
            others = decoded(others_text, _ListedEvents, strict=self._strict).traceEvents
        except WRONG:
            return None
        categories = self._of_categories.codes(category, table.categories)
        names = self._of_names.codes(name, table.names)
        arguments = Arguments(row, kind, known_numbers(numbers), self._kinds)
        if _COPIES in self._categories:
            self._name_copies(names, arguments)
        begin, end = table.span
        rest = bytes(text[:begin]) + b"[]" + bytes(text[end:])
        return Scanned(
            codes=(names, categories, threads),
            start_ns=start,
            duration_ns=duration,
            arguments=arguments,
            rest=rest,
            others=others,
            others_text=others_text,
            marked=[bytes(text[begin:end]) for begin, end in table.marked],
            marked_rows=table.marked_rows,
        )

    def _decode_kinds(self) -> None:
        for text in self._table.kinds(len(self._kinds)):
            kind = decoded(b"{%b}" % text, Args, strict=self._strict)
            for name in RAW:
                setattr(kind, name, self._shared(getattr(kind, name)))
            self._kinds.append(kind)

    def _thread(self, text: bytes) -> tuple[Scalar, Scalar]:
        return decoded(b"[%b]" % text, tuple[Scalar, Scalar], strict=self._strict)

    def _name_copies(self, names: Int32s, arguments: Arguments) -> None:
        """Add the direction to names of copies that lack it, in place."""
        code = self._names.get("Memcpy")
        copies = np.flatnonzero(names == code) if code is not None else ()
        for row in np.array(copies, dtype=np.int64).tolist():
            args = arguments[row]
            if args is not None and args.copied:
                names[row] = self._names[f"Memcpy {args.copied}"]

    def add_scanned(self, found: Scanned) -> None:
        """Add the events of a scanned document."""
        if found.marked:
            collectives = collective_args(_listed(found.marked)).items()
            rows = found.marked_rows
            self.collectives |= {self._count + rows[place]: one for place, one in collectives}
        self._codes.append(found.codes)
        self._times.append((found.start_ns, self._without_unended(found.duration_ns)))
        self._args.append(found.arguments)
        self._count += len(found.start_ns)
        if found.others:
            self._add_others(found.others, found.others_text)

    def _without_unended(self, lengths: Int64s) -> Int64s:
        """The lengths of the next events in ns, 0 for events without an end (`NO_NUMBER`) or that
        ended before their start; the rows of both are stored."""
        if (lengths < 0).any():
            ended = lengths != NO_NUMBER
            self.unfinished += (self._count + np.flatnonzero(~ended)).tolist()
            self.negative += (self._count + np.flatnonzero(ended & (lengths < 0))).tolist()
        return np.maximum(lengths, 0)

    def add(self, events: list[Event], text: Text) -> None:
        """Add events that were decoded from `text`."""
        places = [place for place, event in enumerate(events) if event.ph == "X"]
        complete = [events[place] for place in places]
        starts = np.array([event.ts for event in complete], dtype=np.float64)
        self.untimed += (self._count + np.flatnonzero(np.isnan(starts))).tolist()
        self._times.append((self._exact(starts, places, text), self._lengths(complete)))
        if len(complete) < len(events):
            self._add_others(events, text)
        self._add_complete(complete, places, text)

    def _lengths(self, events: list[Event]) -> Int64s:
        """The lengths of the next events, as in `_without_unended`."""
        durations = np.array([event.dur for event in events], dtype=np.float64)
        lengths = np.where(np.isnan(durations), NO_NUMBER, self._whole(durations))
        return self._without_unended(lengths)

    def _add_ended(self) -> None:
        """Add the events that were recorded as a begin and an end, or as a begin without an end."""
        ended = [*self._ended, *(event for begun in self._begun.values() for event in begun)]
        if ended:
            starts = np.array([event.ts for event in ended], dtype=np.float64)
            self._times.append((self._whole(starts), self._lengths(ended)))
            self._add_complete(ended, [], b"{}")

    def complete(self, base_ns: int) -> tuple[Events, Int64s, Int64s]:
        """The complete events, and their starts and durations in ns. Empties the parts."""
        self._add_ended()
        args = Arguments.joined(self._args)
        parts = [(*times, *codes) for times, codes in zip(self._times, self._codes, strict=True)]
        columns = [[*column] for column in zip(*parts, strict=True)] or [[] for _ in range(5)]
        del self._args, self._times, self._codes, parts  # not in memory twice
        thread, category, name = (_joined(columns.pop(), np.int32) for _ in range(3))
        duration_ns, start_ns = (_joined(columns.pop(), np.int64) for _ in range(2))
        start_ns += base_ns
        self._check(start_ns, start_ns + duration_ns)
        known = tuple(self._names), tuple(self._categories), tuple(self._threads)
        return Events(*known, name, category, thread, args), start_ns, duration_ns

    def memory_ns(self, base_ns: int) -> Int64s:
        """The times of `memory`."""
        times = _joined(self._memory_times, np.int64) + base_ns
        self._check(times, times)
        return times

    def samples(self, base_ns: int) -> Samples:
        """The samples of counters."""
        series = _joined([part[0] for part in self._samples], np.int32)
        times = _joined([part[1] for part in self._samples], np.int64) + base_ns
        values = _joined([part[2] for part in self._samples], np.float64)
        kept = (times >= 0) & (times < LATEST_NS)
        return Samples(tuple(self._series), series[kept], times[kept], values[kept])

    def _add_complete(self, events: list[Event], places: list[int], text: Text) -> None:
        there = {event.cat for event in events}
        if not _RENAMED.isdisjoint(there):
            _rename(events)
        for event in events if _COPIES in there else ():
            if event.name == "Memcpy" and event.args is not None and event.args.copied:
                event.name = f"Memcpy {event.args.copied}"
        names, categories, threads = self._names, self._categories, self._threads
        self._codes.append(
            (
                np.array([names[event.name] for event in events], dtype=np.int32),
                np.array([categories[event.cat] for event in events], dtype=np.int32),
                np.array([threads[event.pid, event.tid] for event in events], dtype=np.int32),
            )
        )
        first = self._count
        self._count += len(events)
        collective = False
        for one in (event.args for event in events):
            if one is not None:
                # equal values are stored once, without a reference to the text
                if one.dims or one.types or one.values or one.grid:
                    for name in RAW:
                        setattr(one, name, self._shared(getattr(one, name)))
                collective |= one.collective is not None
        self._args.append(Arguments.of(event.args for event in events))
        if collective:
            found = collective_args(self._valid(text))
            rows = {place: row for row, place in enumerate(places, first)}
            self.collectives |= {rows[at]: one for at, one in found.items() if at in rows}

    def _add_others(self, events: list[Event], text: Text) -> None:
        places, sampled = [], []
        for place, event in enumerate(events):
            if event.ph == "C" and event.ts is not None:
                sampled.append(place)
            elif event.ph == "i" and event.name == _MEMORY:
                places.append(place)
            elif event.ph in ("B", "E"):
                self._add_border(event)
            elif event.ph == "M" and event.args and event.args.name:
                name = str(event.args.name)
                if event.name == "thread_name":
                    self.thread_names[event.pid, event.tid] = name.strip()
                elif event.name == "process_name" and (device := device_name(name)):
                    self.device_names[event.pid] = device
        if places:
            memory = [events[place] for place in places]
            times = np.array([event.ts for event in memory], dtype=np.float64)
            self._memory_times.append(self._exact(times, places, text))
            self.memory += memory
        if sampled:
            self._add_samples(events, sampled, text)

    def _add_samples(self, events: list[Event], places: list[int], text: Text) -> None:
        """Add the values of counter events; `places` are the counters' positions among the
        events."""
        found = _SAMPLED.decode(self._valid(text)).traceEvents
        times = np.array([events[place].ts for place in places], dtype=np.float64)
        codes: list[int] = []
        rows: list[int] = []
        values: list[float] = []
        for row, place in enumerate(places):
            event = events[place]
            for key, value in _numbers(found[place].args):
                named = key in _UNNAMED or key == event.name
                name = event.name if named else f"{event.name} {key}".strip()
                codes.append(self._series[event.pid, name])
                rows.append(row)
                values.append(value)
        exact = self._exact(times, places, text)[np.array(rows, dtype=np.int64)]
        series = np.array(codes, dtype=np.int32)
        self._samples.append((series, exact, np.array(values, dtype=np.float64)))

    def _add_border(self, event: Event) -> None:
        """Handle a begin of an event, or an end of the innermost one open on its thread."""
        begun = self._begun.setdefault((event.pid, event.tid), [])
        if event.ts is None or (event.ph == "E" and not begun):
            self.dropped += 1
        elif event.ph == "B":
            event.dur = None
            begun.append(event)
        else:
            ended = begun.pop()
            assert ended.ts is not None
            ended.dur = event.ts - ended.ts
            self._ended.append(ended)

    def _shared(self, raw: msgspec.Raw) -> msgspec.Raw:
        text = bytes(raw)
        found = self._raw.get(text)
        if found is None:
            found = self._raw[text] = msgspec.Raw(text)
        return found

    def _exact(self, microseconds: _Float64s, places: list[int], text: Text) -> Int64s:
        """Times in ns without floating-point loss; `places` are the positions of their events."""
        whole = self._whole(microseconds)
        if not len(whole) or np.nanmax(microseconds, initial=0) < _EXACT_BELOW_US:
            return whole
        exactly = _TIMES.decode(self._valid(text)).traceEvents
        exact = (exactly[place].ts or Decimal() for place in places)
        return np.array([round(time * 1000) for time in exact], dtype=np.int64)

    def _whole(self, microseconds: _Float64s) -> Int64s:
        """Times in ns, 0 for NaN. Exact for three decimals below `_EXACT_BELOW_US`, since the
        fraction is converted separately."""
        microseconds = np.nan_to_num(microseconds, nan=0.0, posinf=np.inf)
        if len(microseconds) and np.abs(microseconds).max() >= LATEST_NS / 1000:
            raise InputError(self._out_of_range)
        whole = np.floor(microseconds)
        rest = np.rint((microseconds - whole) * 1000).astype(np.int64)
        return whole.astype(np.int64) * 1000 + rest

    def _check(self, start_ns: Int64s, end_ns: Int64s) -> None:
        if len(start_ns) and (start_ns.min() < 0 or end_ns.max() >= LATEST_NS):
            raise InputError(self._out_of_range)


# --- Nested ranges of each thread, and the ranges around a time.


class Ranges(Struct, frozen=True, eq=False):
    """n ranges `[start_ns, end_ns)` in order of thread, start, and outer before inner.

    `row` identifies what each range represents, int64 [n]; `parent` is the index of the innermost
    range around each, -1 for none; it is empty if they were only sorted.
    """

    row: Int64s
    thread: Int32s
    start_ns: Int64s
    end_ns: Int64s
    parent: Int64s

    @classmethod
    def of(cls, row: Int64s, thread: Int32s, start_ns: Int64s, end_ns: Int64s) -> Ranges:
        """Sort and nest ranges given in any order; equal ones nest in the order given."""
        order = np.lexsort((-end_ns, start_ns, thread))
        start_ns = start_ns[order]  # one at a time: each frees the array it replaces
        end_ns = end_ns[order]
        thread, row = thread[order], row[order]
        del order
        return cls(row, thread, start_ns, end_ns, _core.parents(thread, start_ns, end_ns))

    @classmethod
    def outermost_of(cls, row: Int64s, thread: Int32s, start_ns: Int64s, end_ns: Int64s) -> Ranges:
        """The given ranges that are in no other, as `of(…).outermost()` returns them: those that
        start after all earlier ones on their thread have ended."""
        order = np.lexsort((-end_ns, start_ns, thread))
        kept = [np.zeros(0, dtype=np.int64)]
        heads = np.flatnonzero(np.diff(thread[order], prepend=-1, append=-1))
        for first, last in zip(heads[:-1].tolist(), heads[1:].tolist(), strict=True):
            here = order[first:last]
            reached = np.maximum.accumulate(end_ns[here])
            alone = np.append(True, reached[:-1] <= start_ns[here[1:]])
            kept.append(here[alone])
        rows = np.concatenate(kept)
        return cls.of(row[rows], thread[rows], start_ns[rows], end_ns[rows])

    def __len__(self) -> int:
        return len(self.start_ns)

    def innermost(self, thread: Int32s, time_ns: Int64s) -> Int64s:
        """The index of the innermost range around each time on its thread, -1 for none: the last
        one that has started and not ended."""
        first, last = self._begun(thread, time_ns)
        return _last_open(self.end_ns, first, last, time_ns)

    def _begun(self, thread: Int32s, time_ns: Int64s) -> tuple[Int64s, Int64s]:
        """For each time, the indices of the first range on its thread and of the last one started
        by then; the latter is smaller if none has."""
        order = np.argsort(thread, kind="stable")
        codes, sizes = np.unique(thread, return_counts=True)
        tails = np.cumsum(sizes)
        begins = np.searchsorted(self.thread, codes)
        ends = np.searchsorted(self.thread, codes, side="right")
        first, last = np.empty((2, len(thread)), dtype=np.int64)
        bounds = (one.tolist() for one in (tails - sizes, tails, begins, ends))
        for head, tail, begin, end in zip(*bounds, strict=True):
            here = order[head:tail]
            begun = np.searchsorted(self.start_ns[begin:end], time_ns[here], side="right")
            first[here], last[here] = begin, begun + (begin - 1)
        return first, last

    def outermost_marked(self, marked: Bools) -> Int64s:
        """For each range the outermost marked one among itself and its ancestors, -1 for none."""
        found: list[int] = []
        pairs = zip(self.parent.tolist(), marked.tolist(), strict=True)
        for index, (parent, mark) in enumerate(pairs):
            above = found[parent] if parent >= 0 else -1
            found.append(index if above < 0 and mark else above)
        return np.array(found, dtype=np.int64)

    def select(self, kept: Bools) -> Ranges:
        """The ranges in the mask `kept`, nested again."""
        return Ranges.of(self.row[kept], self.thread[kept], self.start_ns[kept], self.end_ns[kept])

    def outermost(self) -> Ranges:
        """The ranges that are in no other."""
        return self.select(self.parent < 0)


def _last_open(end_ns: Int64s, first: Int64s, last: Int64s, time_ns: Int64s) -> Int64s:
    """The last range from `first` to `last` that ends after each time, -1 for none.

    Searches backwards through blocks of doubling size, by the latest end in each, and then down in
    the first one with a match: one pass per bit of the number of ranges. Overwrites `last`.
    """
    found = last
    over = last >= first
    over[over] = end_ns[last[over]] <= time_ns[over]
    asked = np.flatnonzero(over)
    block = last[asked]  # no range after this block, up to the last one, ends after the time
    latest = [end_ns]  # latest end in blocks of 1, 2, 4, … ranges
    reached: list[tuple[Int64s, Int64s]] = []
    while len(asked):
        before = block - 1
        inside = (block & 1 == 1) & (latest[-1][before] > time_ns[asked])
        reached.append((asked[inside], before[inside]))
        left = ~inside & ((block & ~1) << (len(latest) - 1) > first[asked])
        found[asked[~inside & ~left]] = -1
        asked, block = asked[left], block[left] >> 1
        pairs = latest[-1][: len(latest[-1]) // 2 * 2]
        latest.append(np.maximum(pairs[::2], pairs[1::2]))
    asked, block = np.empty((2, 0), dtype=np.int64)
    for ends, (more, blocks) in zip(reversed(latest[:-1]), reversed(reached), strict=True):
        later = 2 * block + 1
        block = np.append(later - (ends[later] <= time_ns[asked]), blocks)
        asked = np.append(asked, more)
    found[asked] = block
    return np.where(found >= first, found, -1)
