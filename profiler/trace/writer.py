"""Write columns as a complete Perfetto trace file.

A file has one packet sequence: clock snapshot and defaults, descriptors, names and texts, then
counters and slices in blocks of time. Files share only the uuids of devices and counters, which
derive from names, so concatenated files in any order are one trace. Decisions are made here,
and the loops are C++ (`core/encode*`).
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
from msgspec import Struct

from profiler.errors import InputError
from profiler.files import file_mode, not_writable
from profiler.trace import _core, schema
from profiler.trace.columns import CommandColumns, Counter
from profiler.trace.compression import WORDS, Compression, compressed
from profiler.trace.events import (
    CALLS_TRACK,
    HOST_TRACK,
    NO_ITERATION,
    NO_PIPELINE,
    PIPELINE_TRACK,
    PROFILER_TRACK,
    UNKNOWN,
    Call,
    Span,
    Track,
)

# --- Calls and spans as slices of their tracks, with the fields of our extension.


class SpanSlice(Struct, frozen=True):
    """A call or a span; `fields` are those of its extension. Slices of one `correlation` have one
    colour in the Perfetto UI, if names that differ in their digits would share theirs."""

    track: Track
    name: str
    start_ns: int
    duration_ns: int
    extension: Any
    fields: dict[str, Any]
    correlation: str = ""

    def event(self) -> bytes:
        """The serialized TrackEvent that starts the slice."""
        event = schema.TrackEvent()
        if self.correlation:
            event.correlation_id_str = encodable(self.correlation)
        message = event.Extensions[self.extension]
        for name, value in self.fields.items():
            if name == "inputs":
                for entry in value:
                    message.inputs.add(**entry)
            else:
                setattr(message, name, encodable(value) if isinstance(value, str) else value)
        data: bytes = event.SerializeToString()
        return data


def call_slice(call: Call) -> SpanSlice:
    """A call on the track of its device's calls."""
    inputs = [
        {"name": encodable(name), "shape": encodable(shape)}
        for name, shape in call.input_shapes.items()
    ]
    fields = {
        "index": call.index,
        "submodule": call.submodule,
        "stage": call.stage,
        "branch": call.branch,
        "step": call.step,
        "device": call.device,
        "ops_traced": call.ops_traced,
        "inputs": inputs,
        **_pipeline(call.pipeline),
    }
    if call.iteration != NO_ITERATION:
        fields["iteration"] = call.iteration
    if call.device_duration_ns != UNKNOWN:
        fields["device_lag_ns"] = call.device_lag_ns
        fields["device_duration_ns"] = call.device_duration_ns
    track = Track(call.device, CALLS_TRACK, "other")
    return SpanSlice(
        track,
        call.submodule,
        call.start_ns,
        call.duration_ns,
        schema.CALL,
        fields,
        correlation=call.submodule,
    )


def span_slice(span: Span, device: str) -> SpanSlice:
    """A pipeline, stage or step on the pipeline track of the root `device`; our own work on a track
    beside it, for it need not nest with them."""
    fields: dict[str, Any] = {"kind": span.kind, "stage": span.stage, "step": span.step}
    fields |= _pipeline(span.pipeline)
    own = span.kind == "profiler"
    track = Track(device, PROFILER_TRACK if own else PIPELINE_TRACK, "other")
    return SpanSlice(track, span.name, span.start_ns, span.duration_ns, schema.SPAN, fields)


def _pipeline(number: int) -> dict[str, int]:
    """The field of a pipeline call's number; what lies in none has none."""
    return {} if number == NO_PIPELINE else {"pipeline": number}


def encodable(text: str) -> str:
    """`text` without lone surrogates, which JSON may hold and UTF-8 may not."""
    return text.encode("utf-8", "replace").decode()


# --- A file of a bundle that grows through the run under a temporary name until it is complete.


_FLAGS = os.O_WRONLY | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


def begin_file(path: Path, chunks: Iterable[bytes], begun: int) -> int:
    """Append to what will be `path`, of which `begun` bytes are written, under its temporary name;
    returns how many are now. What an OutputError leaves behind them is overwritten."""
    try:
        with _opened(_part_of(path), begun) as file:
            return begun + sum(map(file.write, chunks))
    except OSError as error:
        raise not_writable(path, error) from error


def finish_file(path: Path, chunks: Iterable[bytes], begun: int, *, sync: bool = False) -> int:
    """Write the rest of what `begin_file` has started, and give it its name; returns its size in
    bytes. `sync` forces it to the disk before. Raises OutputError, and leaves nothing then."""
    part = _part_of(path)
    try:
        with _opened(part, begun) as file:
            size = begun + sum(map(file.write, chunks))
            file.flush()
            if sync:
                os.fsync(file.fileno())
        part.replace(path)
    except BaseException as error:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise not_writable(path, error) from error
        raise
    return size


def _part_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.part")


def _opened(part: Path, begun: int) -> BinaryIO:
    """A file to write behind its first `begun` bytes, which alone are kept."""
    file = os.fdopen(os.open(part, _FLAGS, file_mode()), "wb")
    try:
        file.truncate(begun)
        file.seek(begun)
    except BaseException:
        file.close()
        raise
    return file


# --- Columns → a complete Perfetto trace.


HOST_SEQUENCE: Final = 1  # calls use their index + 2
_FIRST_PIECE: Final = 1 << 27  # pieces of host.pb, above all calls
_FIRST_TEXT: Final = 1 << 21  # numbers take four bytes from here on, five from 1 << 28
_TEXT_RANGES: Final = ((1 << 28) - _FIRST_TEXT >> 14) - 16
_COUNTER_RANK: Final = 1_000_000  # below every queue
_FIRST_TRACKS = (PIPELINE_TRACK, CALLS_TRACK, HOST_TRACK)
_CATEGORY_ORDER = ("compute", "dma", "copy", "collective", "sync", "host", "other")
_NUMBER = re.compile(r"\d+")


def track_uuid(*path: str) -> int:
    """The uuid of a device or counter from its names: equal in every file, above all lanes."""
    digest = hashlib.blake2b("\x00".join(path).encode("utf-8", "replace"), digest_size=6).digest()
    return int.from_bytes(digest, "little") | 1 << 62


def text_table(*, run: bool = False) -> _core.TextTable:
    """Numbers of texts; files that share a table never give two texts one number.

    The table of a run counts from a number of its own, drawn at random: that compresses best, and
    other runs hardly ever use the same. Otherwise numbers are hashes, so that files written apart
    agree; of some thousand texts in files written apart, two may then share a number, and Perfetto
    shows one for the other in their merged trace.
    """
    return _core.TextTable(
        WORDS, _FIRST_TEXT + (secrets.randbelow(_TEXT_RANGES) << 14) if run else 0
    )


def encode_call(
    call: Call,
    commands: CommandColumns,
    counters: Sequence[Counter] = (),
    sequence: int = 0,
    *,
    texts: _core.TextTable | None = None,
    compress: Compression = "none",
) -> bytes:
    """The trace of one call: its span on the device's call track, its commands, its counters."""
    return b"".join(call_chunks(call, commands, counters, sequence, texts=texts, compress=compress))


def encode_host(
    spans: Iterable[Span],
    commands: CommandColumns,
    device: str,
    *,
    texts: _core.TextTable | None = None,
    compress: Compression = "none",
) -> bytes:
    """`host.pb`: pipeline, stage and step spans of the root `device`, and its host work."""
    return b"".join(host_chunks(spans, commands, device, texts=texts, compress=compress))


def call_chunks(
    call: Call,
    commands: CommandColumns,
    counters: Sequence[Counter] = (),
    sequence: int = 0,
    *,
    texts: _core.TextTable | None = None,
    compress: Compression = "none",
) -> Iterator[bytes]:
    """`encode_call` in pieces of whole packets, each made when it is asked for."""
    writer = _Writer(sequence or call.index + 2, commands, texts)
    writer.add(call_slice(call))
    return compressed(writer.chunks(counters), compress)


def host_chunks(
    spans: Iterable[Span],
    commands: CommandColumns,
    device: str,
    piece: int | None = None,
    counters: Sequence[Counter] = (),
    *,
    texts: _core.TextTable | None = None,
    compress: Compression = "none",
) -> Iterator[bytes]:
    """`encode_host` in pieces of whole packets. `piece` is the number of a piece that is written
    ahead of the rest; `counters` are samples that no call has."""
    sequence = HOST_SEQUENCE if piece is None else _FIRST_PIECE + piece
    writer = _Writer(sequence, commands, texts)
    for span in spans:
        writer.add(span_slice(span, device))
    return compressed(writer.chunks(counters), compress)


class _Writer:
    """Describes one file and has the core write its events: one packet sequence."""

    def __init__(
        self, sequence: int, commands: CommandColumns, texts: _core.TextTable | None
    ) -> None:
        self._sequence = sequence
        self._commands = commands
        self._texts = text_table() if texts is None else texts
        self._slices: list[SpanSlice] = []

    def add(self, piece: SpanSlice) -> None:
        self._slices.append(piece)

    def chunks(self, counters: Sequence[Counter]) -> Iterator[bytes]:
        tracks = list(dict.fromkeys([*self._commands.tracks, *(s.track for s in self._slices)]))
        encoder = self._encoder(tracks, counters)
        lanes = [tracks[track] for track in encoder.place(self._texts)]
        uuids = [(number << 32) | self._sequence for number in range(1, len(lanes) + 1)]
        head = schema.Trace()
        self._start(head, encoder.base_ns)
        self._describe_devices(head, {track.device for track in lanes}, counters)
        for track, uuid in zip(lanes, uuids, strict=True):
            self._describe_lane(head, track, uuid)
        self._describe_counters(head, counters)
        encoder.start(head.SerializeToString(), uuids)
        while chunk := encoder.chunk():
            yield chunk

    def _encoder(self, tracks: Sequence[Track], counters: Sequence[Counter]) -> _core.TraceEncoder:
        encoder = _core.TraceEncoder(
            self._sequence, [encodable(track.category) for track in tracks]
        )
        numbers = {track: number for number, track in enumerate(tracks)}
        if len(self._commands):
            self._add_commands(encoder, tracks, numbers)
        for s in self._slices:
            end_ns = UNKNOWN if s.duration_ns == UNKNOWN else s.start_ns + s.duration_ns
            encoder.add_slice(numbers[s.track], s.name, s.start_ns, end_ns, s.event())
        for counter in counters:
            order = np.lexsort((counter.values, counter.times_ns))
            real = counter.values.dtype == np.float64
            values = _column(counter.values[order], np.float64 if real else np.int64)
            encoder.add_counter(
                track_uuid(counter.device, counter.name),
                _column(counter.times_ns[order], np.int64),
                values.view(np.int64),
                real,
            )
        return encoder

    def _add_commands(
        self, encoder: _core.TraceEncoder, tracks: Sequence[Track], numbers: dict[Track, int]
    ) -> None:
        commands = self._commands
        track = commands.track
        if commands.tracks != tuple(tracks[: len(commands.tracks)]):  # a track listed twice
            track = np.array([numbers[t] for t in commands.tracks], dtype=np.int32)[track]
        narrow = ("layer", "command_index", "op_type", "role", "shapes", "stage", "step")
        wide = ("start_ns", "duration_ns", "bytes_read", "bytes_written", "flops")
        codes = [track, *(getattr(commands, name) for name in narrow)]
        optional = (commands.pipeline, commands.kernel, commands.module, commands.name)
        encoder.set_commands(
            commands.strings,
            [_column(code, np.int32) for code in codes],
            [None if code is None else _column(code, np.int32) for code in optional],
            [_column(getattr(commands, name), np.int64) for name in wide],
            _column(commands.flows, np.int64),
        )

    def _packet(self, trace: Any) -> Any:
        return trace.packet.add(trusted_packet_sequence_id=self._sequence)

    def _start(self, trace: Any, base_ns: int) -> None:
        if base_ns < 0:
            raise InputError(
                f"a trace cannot start before the epoch, but one starts at {base_ns} ns"
            )
        packet = self._packet(trace)
        packet.sequence_flags = schema.INCREMENTAL_STATE_CLEARED
        packet.trace_packet_defaults.timestamp_clock_id = schema.FIRST_SEQUENCE_CLOCK
        snapshot = packet.clock_snapshot
        snapshot.primary_trace_clock = schema.CLOCK_REALTIME
        snapshot.clocks.add(clock_id=schema.CLOCK_REALTIME, timestamp=base_ns)
        snapshot.clocks.add(
            clock_id=schema.FIRST_SEQUENCE_CLOCK, timestamp=base_ns, is_incremental=True
        )
        self._packet(trace).extension_descriptor.extension_set = schema.EXTENSION_SET

    def _describe_devices(self, trace: Any, devices: set[str], counters: Sequence[Counter]) -> None:
        for device in sorted(devices | {counter.device for counter in counters}):
            descriptor = self._packet(trace).track_descriptor
            descriptor.uuid = track_uuid(device)
            descriptor.name = encodable(device)
            descriptor.child_ordering = schema.ORDER_EXPLICIT

    def _describe_lane(self, trace: Any, track: Track, uuid: int) -> None:
        descriptor = self._packet(trace).track_descriptor
        descriptor.uuid, descriptor.parent_uuid = uuid, track_uuid(track.device)
        descriptor.name = encodable(track.name)
        descriptor.sibling_order_rank = _rank(track)

    def _describe_counters(self, trace: Any, counters: Sequence[Counter]) -> None:
        for counter in counters:
            descriptor = self._packet(trace).track_descriptor
            descriptor.uuid = track_uuid(counter.device, counter.name)
            descriptor.parent_uuid = track_uuid(counter.device)
            descriptor.name = encodable(counter.name)
            descriptor.sibling_order_rank = _COUNTER_RANK
            descriptor.counter.unit = (
                schema.UNIT_BYTES if counter.unit == "bytes" else schema.UNIT_COUNT
            )


def _column(values: Any, dtype: type[np.generic]) -> Any:
    return np.ascontiguousarray(values, dtype=dtype)


def _rank(track: Track) -> int:
    """The place of a track on its device: pipeline, calls, host work, then queues by category
    and by the number in their name. The UI orders equal ranks by name."""
    if track.name in _FIRST_TRACKS:
        return _FIRST_TRACKS.index(track.name)
    known = track.category in _CATEGORY_ORDER
    group = _CATEGORY_ORDER.index(track.category) if known else len(_CATEGORY_ORDER)
    number = _NUMBER.search(track.name)
    return (group + 1) * 100_000 + min(int(number.group()) if number else 0, 99_999)
