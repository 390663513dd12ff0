"""Read Kineto trace files: plain JSON, gzip, or a member of a zip or tar.

Members are read as streams, and nothing is unpacked to disk. Times are int64 nanoseconds: `ts`
and `dur` in the file are µs with three decimals, and `ts` counts from `baseTimeNanoseconds` or,
in older files, from the epoch. Format: pytorch/kineto, libkineto/src/output_json.cpp.
"""

from __future__ import annotations

import gzip
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from os import SEEK_END
from pathlib import Path
from typing import BinaryIO, TypeVar, cast

import msgspec
import numpy as np

from profiler.errors import InputError
from profiler.files import decoder_of
from profiler.files import opened as opened_file
from profiler.kineto import (
    BYTE_ORDER_MARK,
    Packed,
    PackedError,
    is_perfetto,
    is_trace,
    opened,
    packed_as,
)
from profiler.kineto.arguments import whole
from profiler.kineto.events import LATEST_NS, Event, EventColumns, Events, Ranges, Samples, Scanned
from profiler.kineto.json_text import WRONG, DamagedText, Text, in_parts, refuse_several_lists
from profiler.kineto.operators import GRAPH_NODES, CollectiveArgs, Scalar
from profiler.trace.columns import Int32s, Int64s
from profiler.trace.compression import may_unpack_to, too_small
from profiler.trace.manifest_fields import HealthNote, HealthRule

# --- Members of zip and tar archives: the trace among them, as a stream.


_HEAD = 1 << 20  # bytes of a member, by which a trace is recognized
_MEMBERS = 1000  # members that are looked at
_NAMES = (".json", ".json.gz", ".pftrace")
_LISTED = 3  # names in a message
_Member = TypeVar("_Member", zipfile.ZipInfo, tarfile.TarInfo)


@contextmanager
def trace_within(stream: BinaryIO, packed: Packed, limit: int) -> Iterator[BinaryIO]:
    """Open the JSON of the one trace in an archive; only the first `limit` bytes of the archive are
    searched.

    Raises PackedError if there is none, or several, or the archive cannot be read.
    """
    try:
        yield _plain(_zip_member(stream) if packed == "zip" else _tar_member(stream, limit))
    except (zipfile.BadZipFile, tarfile.TarError, NotImplementedError, RuntimeError) as error:
        raise PackedError(f"is an archive that cannot be read ({error}): unpack it") from error


def _plain(member: BinaryIO) -> BinaryIO:
    """The stream of a member, unpacked if it is gzip."""
    packed = packed_as(member.read(2)) == "gzip"
    member.seek(0)
    return cast("BinaryIO", gzip.GzipFile(fileobj=member)) if packed else member


def _zip_member(file: BinaryIO) -> BinaryIO:
    archive = zipfile.ZipFile(file)
    entries = [entry for entry in archive.infolist()[:_MEMBERS] if entry.filename.endswith(_NAMES)]
    traces = [entry for entry in entries if _is_trace(cast("BinaryIO", archive.open(entry)))]
    return cast("BinaryIO", archive.open(_only(traces, [entry.filename for entry in traces])))


def _tar_member(stream: BinaryIO, limit: int) -> BinaryIO:
    archive = tarfile.TarFile(fileobj=stream)
    traces = []
    for number, member in enumerate(archive):
        if number >= _MEMBERS or member.offset_data > limit:
            break
        if member.isfile() and member.name.endswith(_NAMES):
            content = archive.extractfile(member)
            if content is not None and _is_trace(cast("BinaryIO", content)):
                traces.append(member)
    content = archive.extractfile(_only(traces, [member.name for member in traces]))
    if content is None:
        raise PackedError("is an archive whose trace cannot be read: unpack it")
    return cast("BinaryIO", content)


def _is_trace(content: BinaryIO) -> bool:
    try:
        head = _plain(content).read(_HEAD)
    except (EOFError, gzip.BadGzipFile, zlib.error):
        return False
    return is_trace(head)


def _only(traces: list[_Member], names: list[str]) -> _Member:
    if not traces:
        raise PackedError("is an archive without a torch.profiler trace: give one that holds it")
    if len(traces) > 1:
        listed = ", ".join(names[:_LISTED])
        error = PackedError(
            f"holds {len(traces)} traces ({listed}): unpack it, and give its folder or one"
        )
        error.several = True
        raise error
    return traces[0]


# --- torch.profiler's Chrome JSON (Kineto), plain or gzip → events with int64 nanoseconds.


SIZE_LIMIT = 8 << 30  # bytes of JSON, decompressed; the largest files in use are about 3 GiB
_CHUNK = 4 << 20  # bytes
_NOT_A_NUMBER = re.compile(rb":\s*-?(?:inf|nan|infinity|n/?a)\s*(?=[,}\]])", re.IGNORECASE)
_CONTROL = bytes(b if b >= 0x20 else 0x20 for b in range(256))
_LISTED_EVENTS = b'{"traceEvents":'
_VIZTRACER = dict.fromkeys(("FEE", "fee"), "python_function")  # its category of functions
_STREAM = re.compile(rb'\s*\{\s*"displayTimeUnit"\s*:\s*"us"\s*,\s*"traceEvents"\s*:\s*\[')
_NEXT_STREAM = re.compile(rb"\]\s*\}" + _STREAM.pattern)
_BORDER = 256  # bytes in which such a text may continue
_RECOMMENDATION = "give the file that torch.profiler's export_chrome_trace wrote"


class _Events(msgspec.Struct):
    traceEvents: list[Event]  # noqa: N815  the key's own name


_Listed = TypeVar("_Listed", bound=_Events)


class _Part(_Events, forbid_unknown_fields=True):
    """Some of the events."""


class Header(_Events, rename={"base_ns": "baseTimeNanoseconds"}):
    """The parts of the file that are read beside its events."""

    deviceProperties: msgspec.Raw = msgspec.Raw(b"")  # noqa: N815
    computeProperties: msgspec.Raw = msgspec.Raw(b"")  # noqa: N815  the same before torch 1.9
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

    @property
    def devices(self) -> bytes:
        """The devices of the machine, JSON, not decoded."""
        return bytes(self.deviceProperties) or bytes(self.computeProperties)


@dataclass(frozen=True, slots=True)
class _Reader:
    """Decoders for a file's texts, after `valid` has made them valid JSON."""

    valid: Callable[[Text], Text]
    strict: bool
    header: msgspec.json.Decoder[Header]
    part: msgspec.json.Decoder[_Part]


_STRICT = _Reader(lambda text: text, True, decoder_of(Header), decoder_of(_Part))
_LENIENT = _Reader(
    lambda text: _NOT_A_NUMBER.sub(b":null", text.translate(_CONTROL)),
    False,
    decoder_of(Header, strict=False),
    decoder_of(_Part, strict=False),
)


@dataclass(frozen=True, slots=True, eq=False)
class KinetoTrace:
    """The n complete events of a file, in its order.

    `start_ns` and `duration_ns` are int64 [n] on CLOCK_REALTIME; `thread` indexes `threads`;
    `thread_names` are the names of threads, `device_names` the processes named like a device
    (`rbln:0`). `rows` maps a category to the rows of its events, ascending. `memory` are the k
    allocations and releases at `memory_ns`, int64 [k], which are not complete events, and `samples`
    the values of counters. `dropped` counts events that cannot be read. `untimed` are the rows of
    events without a start, `unfinished` of those without an end, `negative` of those that end
    before their start: none is in `rows`. `collectives` are those of NCCL and RCCL kernels, by row.
    `health` has the counts of a check of the events against each other, if it was done;
    `recorded_ns` has, by row, the original lengths of events that it shortened, `unserved` the rows
    of launches that must have work and have none.
    """

    where: str
    header: Header
    events: Events
    start_ns: Int64s
    duration_ns: Int64s
    thread: Int32s
    threads: tuple[tuple[Scalar, Scalar], ...]
    thread_names: dict[tuple[Scalar, Scalar], str]
    device_names: dict[Scalar, str]
    rows: dict[str, Int64s]
    memory: list[Event]
    memory_ns: Int64s
    samples: Samples = field(default_factory=Samples)
    dropped: int = 0
    untimed: Int64s = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    unfinished: Int64s = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    negative: Int64s = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    collectives: Mapping[int, CollectiveArgs] = field(default_factory=dict)
    health: tuple[HealthNote, ...] = ()
    recorded_ns: Mapping[int, int] = field(default_factory=dict)
    unserved: Int64s = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    @property
    def end_ns(self) -> Int64s:
        """The ends of the events, int64 [n]."""
        return self.start_ns + self.duration_ns

    def moved(self, onto: Callable[[Int64s], Int64s]) -> KinetoTrace:
        """The trace on another clock: `onto` converts times."""
        return replace(
            self,
            start_ns=onto(self.start_ns),
            memory_ns=onto(self.memory_ns),
            samples=replace(self.samples, time_ns=onto(self.samples.time_ns)),
        )

    @property
    def host_only(self) -> bool:
        """Whether work was launched on a device and none of it was recorded."""
        return any(note.rule is HealthRule.HOST_ONLY for note in self.health)

    def rows_of(self, *categories: str) -> Int64s:
        """Rows of the events of all these categories, ascending, int64."""
        found = [self.rows[name] for name in categories if name in self.rows]
        return np.sort(np.concatenate(found)) if found else np.empty(0, dtype=np.int64)

    def rows_named(self, test: Callable[[str], bool], *categories: str) -> Int64s:
        """Those of them whose name passes the test."""
        rows = self.rows_of(*categories)
        found: Int64s = rows[self.events.named(rows, test)]
        return found

    def ranges(self, rows: Int64s) -> Ranges:
        """The events of these rows, sorted and nested."""
        return Ranges.of(rows, self.thread[rows], self.start_ns[rows], self.end_ns[rows])


def device_kind(trace: KinetoTrace) -> str:
    """The kind of the trace's devices, by the recorded runtime: `rocm`, `xpu`, `mtia`, `cuda`, or
    `npu` for a PrivateUse1 backend."""
    header = trace.header
    if header.hip_runtime_version is not None or header.roctracer_version is not None:
        return "rocm"
    calls = np.unique(trace.events.name[trace.rows_of("cuda_runtime")[:1000]])
    names = {trace.events.names[code][:3] for code in calls.tolist()}
    if "hip" in names:
        return "rocm"
    if "mtia_runtime" in trace.rows:
        return "mtia"
    if "cuda_runtime" not in trace.rows and any(n.startswith("privateuse1_") for n in trace.rows):
        return "npu"
    return "xpu" if {"xpu_runtime", "xpu_driver"} & trace.rows.keys() else "cuda"


def device_name(kind: str, trace: KinetoTrace, event: Event) -> str:
    """The device that an event names: `cuda:1`, or `rbln:1` if the file calls its process so."""
    if event.pid in trace.device_names:
        return trace.device_names[event.pid]
    device = whole(event.args.device if event.args else None, -1)
    return f"{kind}:{device if device >= 0 else max(whole(event.pid, 0), 0)}"


def thread_name(trace: KinetoTrace, row: int) -> str:
    """The name of the thread of an event, `thread <tid>` if the trace gives none."""
    key = trace.threads[int(trace.thread[row])]
    return trace.thread_names.get(key) or f"thread {key[1]}"


def read_kineto(path: Path, limit: int | None = None) -> KinetoTrace:
    """Read a Kineto trace of at most `limit` bytes of JSON.

    Raises InputError, in one sentence, for any other file.
    """
    try:
        with opened_file(path) as file:
            return read_kineto_file(path, file, limit)
    except OSError as error:
        raise InputError(
            f"cannot read {path} ({error.strerror or error}): {_RECOMMENDATION}"
        ) from error


def read_kineto_file(path: Path, file: BinaryIO, limit: int | None = None) -> KinetoTrace:
    """Read a Kineto trace from an open file, which may be unlinked; `path` names it in errors.

    Invalid JSON is read once more with known errors of Kineto repaired: `inf`, `nan` and `N/A`
    (pytorch/kineto#105, #133), raw control characters in frame names (pytorch/pytorch#130622),
    numbers as strings (Ascend/pytorch#133). If it is still invalid, it is read event by event:
    `health` says what was skipped, and where.
    """
    try:
        return _parsed(path, file, limit, _STRICT)
    except WRONG:
        pass
    try:
        return _parsed(path, file, limit, _LENIENT)
    except WRONG as error:
        wrong: Exception = error
    try:
        trace = _damaged(path, file, limit)
    except msgspec.ValidationError as error:  # of the header
        trace, wrong = None, error
    if trace is not None:
        return trace
    if isinstance(wrong, msgspec.ValidationError):
        raise InputError(
            f"{path} is not a torch.profiler trace ({wrong}): {_RECOMMENDATION}"
        ) from wrong
    raise InputError(f"{path} is not valid JSON ({wrong}): export or copy it again") from wrong


def _parsed(path: Path, file: BinaryIO, limit: int | None, reader: _Reader) -> KinetoTrace:
    columns = EventColumns(_out_of_range(path), reader.valid, reader.strict)

    def read(text: Text, decoder: msgspec.json.Decoder[_Listed]) -> tuple[_Listed, Scanned | None]:
        text = reader.valid(text)
        found = columns.scan(text)
        if found is None:
            refuse_several_lists(text)
        return decoder.decode(text if found is None else found.rest), found

    def whole(text: Text) -> tuple[_Events, Scanned | None]:
        return read(text, reader.header)

    def some(text: Text) -> tuple[_Events, Scanned | None]:
        return read(text, reader.part)

    header: _Events | None = None
    for (header, scanned), text in in_parts(_chunks(path, file, limit), whole, some):
        if scanned is None:
            columns.add(header.traceEvents, text)
        else:
            columns.add_scanned(scanned)
        header.traceEvents = []
    assert isinstance(header, Header)
    return _trace(path, header, columns)


def _damaged(path: Path, file: BinaryIO, limit: int | None) -> KinetoTrace | None:
    """Read the trace as far as its text is valid; None if there is no event."""
    reader = DamagedText(readable, Event)
    columns = EventColumns(_out_of_range(path), bytes)
    for events, text in reader.parts(_file_chunks(path, file, limit)):
        columns.add(events, text)
    if not reader.read:
        return None
    keys = [one.encode_name for one in msgspec.structs.fields(Header) if one.name != "traceEvents"]
    header = _LENIENT.header.decode(reader.header_with(keys))
    trace = _trace(path, header, columns)
    return replace(trace, health=tuple(reader.notes()))


def readable(text: Text) -> bytes:
    """A text as UTF-8, with known errors of Kineto repaired."""
    return bytes(_LENIENT.valid(bytes(text).decode("utf-8", "replace").encode()))


def _out_of_range(path: Path) -> str:
    return f"{path} has an event whose time is out of range: {_RECOMMENDATION}"


def _trace(path: Path, header: Header, columns: EventColumns) -> KinetoTrace:
    base_ns = _base_ns(path, header)
    events, start_ns, duration_ns = columns.complete(base_ns)
    if "python_function" not in events.categories:
        categories = tuple(_VIZTRACER.get(name, name) for name in events.categories)
        events = replace(events, categories=categories)
    events = _with_named_devices(events, columns.device_names)
    order = np.argsort(events.category, kind="stable")
    counts = np.bincount(events.category, minlength=len(events.categories))
    rows = np.split(order, np.cumsum(counts)[:-1]) if len(counts) else []
    untimed, unfinished, negative = (
        np.array(some, dtype=np.int64)
        for some in (columns.untimed, columns.unfinished, columns.negative)
    )
    if len(untimed) or len(unfinished) or len(negative):
        timed = np.ones(len(events), dtype=np.bool_)
        timed[untimed] = timed[unfinished] = timed[negative] = False
        rows = [one[timed[one]] for one in rows]
    return KinetoTrace(
        where=str(path),
        header=header,
        events=events,
        start_ns=start_ns,
        duration_ns=duration_ns,
        thread=events.thread,
        threads=events.threads,
        thread_names=columns.thread_names,
        device_names=columns.device_names,
        rows=dict(zip(events.categories, rows, strict=True)),
        memory=columns.memory,
        memory_ns=columns.memory_ns(base_ns),
        samples=columns.samples(base_ns),
        dropped=columns.dropped,
        untimed=untimed,
        unfinished=unfinished,
        negative=negative,
        collectives=columns.collectives,
    )


_KNOWN_ON_DEVICES = {"kernel", "gpu_memcpy", "gpu_memset", *GRAPH_NODES} | {
    *("gpu_user_annotation", "user_annotation", "python_function", "overhead", "Trace", ""),
    *("cuda_sync", "cuda_event"),
}


def _with_named_devices(events: Events, names: Mapping[Scalar, str]) -> Events:
    """The events, with everything recorded in a device's process as work of that device, whatever
    category a PrivateUse1 backend or a plug-in of Kineto gave it; except what MTIA's driver had
    queued there. A process with operators is not a device."""
    operators = [code for code, name in enumerate(events.categories) if name == "cpu_op"]
    hosts = np.unique(events.thread[np.isin(events.category, operators)]).tolist()
    host_pids = {events.threads[code][0] for code in hosts}
    devices = names.keys() - host_pids
    threads = [code for code, (pid, _) in enumerate(events.threads) if pid in devices]
    there = np.isin(events.thread, threads)
    queued = {name for name in events.categories if name == "mtia_runtime"}
    work = set(events.categories) - queued - _KNOWN_ON_DEVICES
    for known, renamed in ((work, "kernel"), (queued, "mtia_queue")):
        own = [code for code, name in enumerate(events.categories) if name in known]
        moved = np.isin(events.category, own) & there
        if moved.any():
            every = tuple(dict.fromkeys((*events.categories, renamed)))
            category = np.where(moved, every.index(renamed), events.category).astype(np.int32)
            events = replace(events, category=category, categories=every)
    return events


def _chunks(path: Path, file: BinaryIO, limit: int | None) -> Iterator[bytes]:
    """The text of a JSON object; a bare list of events, as torch before 1.8 wrote it, is made
    one."""
    chunks = _file_chunks(path, file, limit)
    first = next(chunks).removeprefix(BYTE_ORDER_MARK)
    if is_perfetto(first):
        from profiler.kineto.perfetto_file import json_of  # few traces are such

        yield from json_of(chain((first,), chunks))
        return
    listed = first.lstrip()[:1] == b"["
    chunks = chain((_LISTED_EVENTS + first if listed else first,), chunks)
    yield from _one_object(chunks) if _STREAM.match(first) else chunks
    if listed:
        yield b"}"


def _one_object(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the text of a file of Triton's Proton with its objects, one per stream, as one."""
    text = b""
    for chunk in chunks:
        text = _NEXT_STREAM.sub(b",", text + chunk)
        yield text[:-_BORDER]
        text = text[-_BORDER:]
    yield text


def _file_chunks(path: Path, file: BinaryIO, limit: int | None) -> Iterator[bytes]:
    """The unpacked JSON text, limited to `limit` bytes: by default 8 GiB, or the limit of packed
    files if that is more."""
    bound = may_unpack_to(file.seek(0, SEEK_END))
    limit = max(SIZE_LIMIT, bound) if limit is None else limit
    size = 0
    try:
        with opened(file, min(limit, bound)) as (stream, packed):
            for chunk in _pieces(stream):
                begin = chunk.removeprefix(BYTE_ORDER_MARK).lstrip()[:1]
                if not size and begin not in (b"{", b"[") and not is_perfetto(chunk):
                    raise InputError(f"{path} is not JSON: {_RECOMMENDATION}")
                size += len(chunk)
                if size > limit:
                    unpacked = "when decompressed " if packed else ""
                    raise InputError(
                        f"{path} is {unpacked}larger than the limit of {limit:,} bytes: "
                        "record fewer steps, or without memory profiling"
                    )
                if packed and size > bound:
                    raise too_small(str(path))
                yield chunk
    except PackedError as error:
        raise InputError(f"{path} {error}") from error
    except EOFError as error:
        raise InputError(f"{path} is cut at its beginning: copy it again") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{path} is damaged ({error}): copy it again") from error
    if not size:
        raise InputError(f"{path} is empty: {_RECOMMENDATION}")


def _pieces(stream: BinaryIO) -> Iterator[bytes]:
    """Yield a stream's bytes in pieces of `_CHUNK`. A gzip stream that was cut yields what is left
    of it: its text breaks off, as that of a plain file does."""
    at = 0
    try:
        while piece := stream.read(_CHUNK):
            yield piece
            at += len(piece)
    except EOFError:  # `read` discarded what it had of the last piece
        stream.seek(at)
        with suppress(EOFError):
            while piece := stream.read1(_CHUNK):  # type: ignore[attr-defined]
                yield piece


def _base_ns(path: Path, header: Header) -> int:
    try:
        base_ns = int(header.base_ns or 0)
    except (ValueError, OverflowError):
        base_ns = -1
    if not 0 <= base_ns < LATEST_NS:
        raise InputError(
            f"{path}: baseTimeNanoseconds is no time since the epoch: {_RECOMMENDATION}"
        )
    return base_ns
