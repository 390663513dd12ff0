"""Converts a Perfetto trace of GPU work to the Chrome JSON of torch.profiler.

torch from 2.14 on writes one as `x.pftrace` with its `cupti_monitor` backend: host events are
slices of tracks, GPU work is GpuRenderStageEvents whose `extra_data` has the correlation, counters
are GpuCounterEvents. Any other trace with render stages is read so, too: its other slices are
ranges. Source: torch, `torch/profiler/_cupti/monitor_trace.py`, and google/perfetto's protos.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import msgspec

from profiler.kineto import message_fields

_BATCH = 1 << 20  # bytes of packets that are decoded together
_CLEARED = 1  # TracePacket.SequenceFlags
_BOOTTIME, _REALTIME = 6, 1
_BEGIN, _END = 1, 2  # TrackEvent.Type
_WORK = {  # by the names of torch's stages
    "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset",
    "Annotation": "gpu_user_annotation",
    "EventRecord": "graph_event_node",
    "HostNode": "graph_host_node",
}
_OVERHEAD = "Overhead"  # the thread of CUPTI's own work, whose slices have no category
_HOST = ("cpu_op", "user_annotation", "python_function", "overhead")
_HOST_PREFIXES = ("cuda_", "hip_", "xpu_", "privateuse1_")
_NUMBERED = re.compile(r"\[0*(\d{1,9})\]")  # a queue of torch's: `[7] stream 7`
_NO_PROCESS = 1 << 30  # the process of tracks without one
_DEEPEST = 32  # nested lists of an annotation
_CUT = b'{"ph":"E"}'  # an end without a time, which counts as dropped


@dataclass(slots=True)
class _Sequence:
    """The interned values of a packet sequence, by number."""

    categories: dict[int, str] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    keys: dict[int, str] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)
    specifications: dict[int, str] = field(default_factory=dict)
    counters: dict[int, dict[int, str]] = field(default_factory=dict)
    inline: dict[int, str] = field(default_factory=dict)  # counters described in packets
    track: int = 0
    clock: int = _BOOTTIME

    def intern(self, data: Any) -> None:
        for known, entries in (
            (self.categories, data.event_categories),
            (self.names, data.event_names),
            (self.keys, data.debug_annotation_names),
            (self.specifications, data.gpu_specifications),
        ):
            known.update((one.iid, one.name) for one in entries)
        for one in data.debug_annotation_string_values:
            self.texts[one.iid] = one.str.decode("utf-8", "replace")
        for one in data.gpu_counter_descriptors:
            self.counters[one.iid] = {s.counter_id: s.name for s in one.counter_descriptor.specs}

    def value(self, annotation: Any, depth: int = 0) -> Any:
        """The value of an annotation, as plain JSON values."""
        kind = annotation.WhichOneof("value")
        if kind == "string_value_iid":
            return self.texts.get(annotation.string_value_iid, "")
        if kind is not None:
            return getattr(annotation, kind)
        if depth > _DEEPEST:
            return None
        if annotation.dict_entries:
            return {self.key(one): self.value(one, depth + 1) for one in annotation.dict_entries}
        if annotation.array_values or depth:  # an inner list may be empty
            return [self.value(one, depth + 1) for one in annotation.array_values]
        return None

    def key(self, annotation: Any) -> str:
        return annotation.name or self.keys.get(annotation.name_iid, "")


class _Border(NamedTuple):
    """The begin or the end of a slice; `text` is the event's JSON."""

    kind: int
    track: tuple[int, int]
    time: int
    text: bytes


@cache
def trace_class() -> Any:
    """The protobuf class of a whole trace."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    data = files("profiler.kineto").joinpath("gpu.binpb").read_bytes()
    for file in descriptor_pb2.FileDescriptorSet.FromString(data).file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("profile_sd3.gpu.Trace"))


def json_of(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the text of a JSON document with the events of a trace. An incomplete end becomes an
    event without a time."""
    made = _Events()
    for packet in _packets(chunks):
        try:
            whole = packet is not None
            if whole:
                made.add(packet)
        except UnicodeDecodeError:  # texts are decoded on access
            whole = False
        if not whole:
            made.found.append(_CUT)
    yield b'{"schemaVersion":1,"baseTimeNanoseconds":%d,"traceEvents":[' % made.base
    yield from made.all()
    yield b"]}"


def _packets(chunks: Iterable[bytes]) -> Iterator[Any]:
    """Yield the packets in turn, None for a damaged one, and for an incomplete end."""
    text = bytearray()
    for chunk in chunks:
        text += chunk
        if len(text) >= _BATCH:
            used = _whole(text)
            yield from _decoded(bytes(text[:used]))
            del text[:used]
    used = _whole(text)
    yield from _decoded(bytes(text[:used]))
    if used != len(text):
        yield None


def _decoded(text: bytes) -> Iterator[Any]:
    """Yield the packets of a text; decoded one by one if the text is damaged."""
    from google.protobuf.message import DecodeError

    try:
        yield from trace_class().FromString(text).packet
    except DecodeError:
        begin = 0
        for _, _, end in message_fields(text):
            try:
                yield from trace_class().FromString(text[begin:end]).packet
            except DecodeError:
                yield None
            begin = end


def _whole(text: bytearray) -> int:
    """The number of bytes up to the end of the last complete field of a message."""
    return max((end for _, _, end in message_fields(text)), default=0)


class _Events:
    """Collects the events of a trace as text, packet by packet."""

    def __init__(self) -> None:
        self.base = 0
        self.found: list[bytes] = []
        self._borders: list[_Border] = []
        self._sequences: dict[int, _Sequence] = {}
        self._tracks: dict[int, tuple[int, int]] = {}  # process and thread
        self._overhead: set[tuple[int, int]] = set()  # threads
        self._clocks: dict[int, int] = {}  # offset from a clock's time to CLOCK_REALTIME

    def add(self, packet: Any) -> None:
        number = packet.trusted_packet_sequence_id
        if packet.sequence_flags & _CLEARED or number not in self._sequences:
            self._sequences[number] = _Sequence()
        of = self._sequences[number]
        if packet.HasField("interned_data"):
            of.intern(packet.interned_data)
        if packet.HasField("trace_packet_defaults"):
            defaults = packet.trace_packet_defaults
            of.track = defaults.track_event_defaults.track_uuid
            of.clock = defaults.timestamp_clock_id or _BOOTTIME
        if packet.HasField("clock_snapshot"):
            times = {one.clock_id: one.timestamp for one in packet.clock_snapshot.clocks}
            for clock, time in times.items() if _REALTIME in times else ():
                self._clocks.setdefault(clock, times[_REALTIME] - time)
        if packet.HasField("track_descriptor"):
            self._describe(packet.track_descriptor)
        time = packet.timestamp + self._clocks.get(packet.timestamp_clock_id or of.clock, 0)
        self.base = self.base or time
        if packet.HasField("track_event"):
            self._host(packet.track_event, of, time)
        if packet.HasField("gpu_render_stage_event"):
            self._work(packet.gpu_render_stage_event, of, time)
        if packet.HasField("gpu_counter_event"):
            self._counters(packet.gpu_counter_event, of, time)

    def _describe(self, given: Any) -> None:
        """Store the thread of a track: its own, else its parent's, else what an earlier description
        says, for slices may be open."""
        if given.HasField("thread"):
            thread = given.thread.pid, given.thread.tid
            name = given.thread.thread_name or given.name
        else:
            parent = self._tracks.get(given.parent_uuid)
            own = given.process.pid if given.HasField("process") else _NO_PROCESS
            before = self._tracks.get(given.uuid)
            if before is not None and own not in (_NO_PROCESS, before[0]):
                before = None
            thread = parent or before or (own, len(self._tracks))
            name = "" if parent else given.name
        self._tracks[given.uuid] = thread
        if name == _OVERHEAD:
            self._overhead.add(thread)
        if name and not name.isdecimal():
            self._event("M", "thread_name", thread, None, {"name": name})

    def _event(
        self, phase: str, name: str, thread: tuple[Any, Any], time: int | None, args: Any
    ) -> None:
        event = {"ph": phase, "name": name, "pid": thread[0], "tid": thread[1], "args": args}
        text = msgspec.json.encode(event)
        self.found.append(text if time is None else _timed(text, self._since(time)))

    def _since(self, time: int) -> bytes:
        """A time in µs relative to the base."""
        return _microseconds(time - self.base)

    def _host(self, event: Any, of: _Sequence, time: int) -> None:
        if event.type not in (_BEGIN, _END):
            return
        uuid = event.track_uuid or of.track
        thread = self._tracks.get(uuid) or self._tracks.setdefault(uuid, (_NO_PROCESS, uuid))
        text = b""
        if event.type == _BEGIN:
            given = [
                *event.categories,
                *(of.categories.get(iid, "") for iid in event.category_iids),
            ]
            unnamed = "overhead" if thread in self._overhead else ""
            category = next(filter(None, given), unnamed)
            known = category in _HOST or category.startswith(_HOST_PREFIXES)
            begun: dict[str, Any] = {
                "ph": "X",
                "cat": category if known else "user_annotation",
                "name": event.name or of.names.get(event.name_iid, ""),
                "pid": thread[0],
                "tid": thread[1],
            }
            if event.debug_annotations:
                begun["args"] = {of.key(one): of.value(one) for one in event.debug_annotations}
            text = msgspec.json.encode(begun)
        self._borders.append(_Border(event.type, thread, time, text))

    def _work(self, event: Any, of: _Sequence, time: int) -> None:
        stage = of.specifications.get(event.stage_iid, "")
        queue = of.specifications.get(event.hw_queue_iid, "")
        extra = {one.name: _number(one.value) for one in event.extra_data}
        numbered = _NUMBERED.match(queue)
        stream = numbered[1] if numbered else extra.get("stream id", queue or event.hw_queue_id)
        name = event.name or of.names.get(event.name_iid) or stage or f"stage {event.stage_id}"
        args = {**extra, "device": event.gpu_id, "stream": _number(stream)}
        if event.HasField("launch"):
            sizes = event.launch.grid_size, event.launch.workgroup_size
            grid, block = ([one.x, one.y, one.z] for one in sizes)
            args |= {"grid": grid, "block": block}
        made = {
            "ph": "X",
            "cat": _WORK.get(stage, "kernel"),
            "name": name,
            "pid": event.gpu_id,
            "tid": args["stream"],
            "args": args,
        }
        text = _timed(msgspec.json.encode(made), self._since(time), event.duration)
        self.found.append(text)

    def _counters(self, event: Any, of: _Sequence, time: int) -> None:
        if event.HasField("counter_descriptor"):
            of.inline.update((s.counter_id, s.name) for s in event.counter_descriptor.specs)
        names = of.counters.get(event.counter_descriptor_iid, of.inline)
        process = f"GPU {event.gpu_id} Counters", 0
        for one in event.counters:
            real = one.HasField("double_value")
            value = one.double_value if real else one.int_value
            name = names.get(one.counter_id) or f"counter {one.counter_id}"
            self._event("C", name, process, time, {"": value})

    def all(self) -> Iterator[bytes]:
        """Yield the text of every event, with commas between them."""
        rest: dict[tuple[int, int], list[_Border]] = {}
        for run in _runs(self._borders):
            pairs = _in_order(run)
            for begin, end in pairs:
                self.found.append(self._slice(begin, end.time))
            for one in run if not pairs else ():
                rest.setdefault(one.track, []).append(one)
        for borders in rest.values():
            opened: list[_Border] = []
            for one in sorted(borders, key=lambda border: border.time):
                if one.kind == _BEGIN:
                    opened.append(one)
                elif opened:
                    self.found.append(self._slice(opened.pop(), one.time))
                else:
                    self.found.append(_CUT)
            self.found += (_timed(one.text, self._since(one.time)) for one in opened)
        for number, text in enumerate(self.found):
            yield b"," + text if number else text

    def _slice(self, begin: _Border, end: int) -> bytes:
        return _timed(begin.text, self._since(begin.time), end - begin.time)


def _runs(borders: list[_Border]) -> Iterator[list[_Border]]:
    """Yield runs of begins and the ends after them."""
    run: list[_Border] = []
    for kind, some in groupby(borders, key=lambda border: border.kind):
        if kind == _BEGIN and run:
            yield run
            run = []
        run += some
    if run:
        yield run


def _in_order(run: list[_Border]) -> list[tuple[_Border, _Border]]:
    """The slices of a run that is not in order of time: torch writes the begins of a group, then
    the ends of the same slices. Empty for other runs."""
    half = len(run) // 2
    begins, ends = run[:half], run[half:]
    pairs = list(zip(begins, ends, strict=False))
    grouped = (
        len(begins) == len(ends)
        and any(after.time < one.time for one, after in pairwise(run))
        and all(one.kind == _BEGIN and end.kind == _END for one, end in pairs)
        and all(one.track == end.track and one.time <= end.time for one, end in pairs)
    )
    return pairs if grouped else []


def _number(text: Any) -> Any:
    """A whole number if the text is one, else the text."""
    return int(text) if str(text).isdecimal() and len(str(text)) < 19 else text


def _microseconds(time_ns: int) -> bytes:
    whole, rest = divmod(abs(time_ns), 1000)
    return b"%s%d.%03d" % (b"-" if time_ns < 0 else b"", whole, rest)


def _timed(text: bytes, since: bytes, length: int | None = None) -> bytes:
    """The text of an event with its time added."""
    lasting = b"" if length is None else b',"dur":' + _microseconds(length)
    return text[:-1] + b',"ts":' + since + lasting + b"}"
