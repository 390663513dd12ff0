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
from profiler.trace.schema import serialized

# --- Calls and spans as slices of their tracks, with the fields of our extension.


class SpanSlice(Struct, frozen=True):
    """A call or a span; `event` is the serialized TrackEvent that starts the slice."""

    track: Track
    name: str
    start_ns: int
    duration_ns: int
    event: bytes


_CALL, _SPAN = 9901, 9902  # extensions of TrackEvent; their fields: schemas/profile_sd3.proto
_CORRELATION = (
    53  # slices with one value share a colour in the Perfetto UI, whatever digits end their names
)


def call_slice(call: Call) -> SpanSlice:
    """The slice of a call on its device's track of calls."""
    fields: list[tuple[int, int | str | bytes]] = [
        (1, call.index),
        (2, call.submodule),
        (3, call.stage),
        (4, call.branch),
        (5, call.step),
        (6, call.device),
        (7, call.ops_traced),
        *((8, serialized((1, name), (2, shape))) for name, shape in call.input_shapes.items()),
    ]
    if call.pipeline != NO_PIPELINE:
        fields.append((9, call.pipeline))
    if call.iteration != NO_ITERATION:
        fields.append((10, call.iteration))
    if call.device_duration_ns != UNKNOWN:
        fields += ((11, call.device_lag_ns), (12, call.device_duration_ns))
    track = Track(call.device, CALLS_TRACK, "other")
    colour = [(_CORRELATION, call.submodule)] if call.submodule else []
    event = serialized(*colour, (_CALL, serialized(*fields)))
    return SpanSlice(track, call.submodule, call.start_ns, call.duration_ns, event)


def span_slice(span: Span, device: str) -> SpanSlice:
    """The slice of a pipeline, stage or step on the pipeline track of the root `device`. Profiling
    overhead gets its own track, because it need not nest with them."""
    fields: list[tuple[int, int | str]] = [(1, span.kind), (2, span.stage), (3, span.step)]
    if span.pipeline != NO_PIPELINE:
        fields.append((4, span.pipeline))
    own = span.kind == "profiler"
    track = Track(device, PROFILER_TRACK if own else PIPELINE_TRACK, "other")
    event = serialized((_SPAN, serialized(*fields)))
    return SpanSlice(track, span.name, span.start_ns, span.duration_ns, event)


# --- A file of a bundle that grows through the run under a temporary name until it is complete.


_FLAGS = os.O_WRONLY | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


def begin_file(path: Path, chunks: Iterable[bytes], begun: int) -> int:
    """Append to the temporary file of `path`, which has `begun` bytes. Return how many it has now.
    Bytes left after an OutputError are overwritten next time."""
    try:
        with _opened(_part_of(path), begun) as file:
            return begun + sum(map(file.write, chunks))
    except OSError as error:
        raise not_writable(path, error) from error


def finish_file(path: Path, chunks: Iterable[bytes], begun: int, *, sync: bool = False) -> int:
    """Write the rest of the file that `begin_file` started, and rename it to `path`. Return its
    size in bytes. `sync` forces it to disk first. After an OutputError no file is left."""
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
    """Open a file for writing after its first `begun` bytes; the rest is removed."""
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
_FIRST_PIECE: Final = 1 << 27  # sequences of pieces of host.pb, above those of calls
_FIRST_TEXT: Final = 1 << 21  # numbers take four bytes from here on, five from 1 << 28
_TEXT_RANGES: Final = ((1 << 28) - _FIRST_TEXT >> 14) - 16
_COUNTER_RANK: Final = 1_000_000  # below every queue
_FIRST_TRACKS = (PIPELINE_TRACK, CALLS_TRACK, HOST_TRACK)
_CATEGORY_ORDER = ("compute", "dma", "copy", "collective", "sync", "host", "other")
_NUMBER = re.compile(r"\d+")


def track_uuid(*path: str) -> int:
    """The uuid of a device or counter, from its names: equal in every file, above those of
    lanes."""
    digest = hashlib.blake2b("\x00".join(path).encode("utf-8", "replace"), digest_size=6).digest()
    return int.from_bytes(digest, "little") | 1 << 62


def text_table(*, run: bool = False) -> _core.TextTable:
    """A table that numbers texts; files that share it never give two texts one number.

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
    """Yield `encode_call` in pieces of whole packets, each made when needed."""
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
    """Describes one file, one packet sequence, and has the core write its events."""

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
        head = [
            *self._start(encoder.base_ns),
            *self._devices({track.device for track in lanes}, counters),
            *(self._lane(track, uuid) for track, uuid in zip(lanes, uuids, strict=True)),
            *map(self._counter, counters),
        ]
        encoder.start(serialized(*((1, packet) for packet in head)), uuids)
        while chunk := encoder.chunk():
            yield chunk

    def _encoder(self, tracks: Sequence[Track], counters: Sequence[Counter]) -> _core.TraceEncoder:
        encoder = _core.TraceEncoder(
            self._sequence, [track.category.encode("utf-8", "replace").decode() for track in tracks]
        )
        numbers = {track: number for number, track in enumerate(tracks)}
        if len(self._commands):
            self._add_commands(encoder, tracks, numbers)
        for s in self._slices:
            end_ns = UNKNOWN if s.duration_ns == UNKNOWN else s.start_ns + s.duration_ns
            encoder.add_slice(numbers[s.track], s.name, s.start_ns, end_ns, s.event)
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

    # Packets, with the numbers of schemas/perfetto_subset.proto

    def _start(self, base_ns: int) -> tuple[bytes, bytes]:
        if base_ns < 0:
            raise InputError(
                f"a trace cannot start before the epoch, but one starts at {base_ns} ns"
            )
        clocks = (
            (1, serialized((1, schema.CLOCK_REALTIME), (2, base_ns))),
            (1, serialized((1, schema.FIRST_SEQUENCE_CLOCK), (2, base_ns), (3, True))),
        )
        first = serialized(
            (6, serialized(*clocks, (2, schema.CLOCK_REALTIME))),
            (10, self._sequence),
            (13, schema.INCREMENTAL_STATE_CLEARED),
            (59, serialized((58, schema.FIRST_SEQUENCE_CLOCK))),
        )
        return first, serialized((10, self._sequence), (72, serialized((1, schema.EXTENSION_SET))))

    def _descriptor(self, *fields: tuple[int, int | str | bytes]) -> bytes:
        return serialized((10, self._sequence), (60, serialized(*fields)))

    def _devices(self, devices: set[str], counters: Sequence[Counter]) -> Iterator[bytes]:
        for device in sorted(devices | {counter.device for counter in counters}):
            yield self._descriptor(
                (1, track_uuid(device)), (2, device), (11, schema.ORDER_EXPLICIT)
            )

    def _lane(self, track: Track, uuid: int) -> bytes:
        parent = track_uuid(track.device)
        return self._descriptor((1, uuid), (2, track.name), (5, parent), (12, _rank(track)))

    def _counter(self, counter: Counter) -> bytes:
        unit = schema.UNIT_BYTES if counter.unit == "bytes" else schema.UNIT_COUNT
        return self._descriptor(
            (1, track_uuid(counter.device, counter.name)),
            (2, counter.name),
            (5, track_uuid(counter.device)),
            (8, serialized((3, unit))),
            (12, _COUNTER_RANK),
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
