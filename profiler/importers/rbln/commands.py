"""The commands of one RBLN trace: names parsed, `Slice Arguments` read, times moved."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from profiler.events import NO_STEP, UNKNOWN, Track
from profiler.grammars.rbln import parse_name
from profiler.importers.rbln.trace import RblnTrace
from profiler.trace.columns import CommandColumns, Counter, Int32s, Int64s
from profiler.typed_json import decoded

__all__ = ["CYCLES", "Arguments", "RblnCommands", "commands_of", "parse_arguments"]

CYCLES = "comp_cycle"
_BYTES = re.compile(r":([0-9]{1,18})Byte")
_READS = re.compile(r"\b(?:read|load)\b", re.IGNORECASE)
_WRITES = re.compile(r"\b(?:write|store)\b", re.IGNORECASE)
_MOST = 1 << 53  # bytes or cycles of one command; more is no measurement


class _Document(msgspec.Struct):
    transfer: list[str] = []
    comp_cycle: list[str | int] = []


@dataclass(frozen=True, slots=True)
class Arguments:
    """What `Slice Arguments` says of one command; `UNKNOWN` where it says nothing."""

    bytes_read: int = UNKNOWN
    bytes_written: int = UNKNOWN
    cycles: int = UNKNOWN


@dataclass(frozen=True, slots=True, eq=False)
class RblnCommands:
    """The commands of one call, and beside them what has no column.

    `counters` hold the cycles that the device counted, cumulative within the call; `cycles` is
    their sum, `UNKNOWN` without any. `malformed` slices have arguments that cannot be read,
    `unnamed` ones a name that fits no grammar.
    """

    columns: CommandColumns
    counters: tuple[Counter, ...]
    cycles: int
    malformed: int
    unnamed: int


def parse_arguments(text: str) -> Arguments | None:
    """Read the JSON of `Slice Arguments`, `{"transfer": ["…:64Byte"], "comp_cycle": ["12"]}`.

    A transfer reads its source and writes its destination, so its bytes count as both; a text
    before the colon with the word read or load counts as read only, write or store as written
    only. None where `text` is not of that form.
    """
    try:
        document = decoded(text, _Document)
        cycles = [int(value) for value in document.comp_cycle]
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    read = written = 0
    for transfer in document.transfer:
        match = _BYTES.search(transfer)
        if match is None:
            return None
        what, size = transfer[: match.start()], int(match[1])
        only_read, only_written = bool(_READS.search(what)), bool(_WRITES.search(what))
        read += size if only_read or not only_written else 0
        written += size if only_written or not only_read else 0
    if min(cycles, default=0) < 0 or max(read, written, sum(cycles)) > _MOST:
        return None
    moved = (read, written) if document.transfer else (UNKNOWN, UNKNOWN)
    return Arguments(*moved, sum(cycles) if cycles else UNKNOWN)


def commands_of(
    trace: RblnTrace, tracks: Sequence[Track], offsets: Mapping[str, int]
) -> RblnCommands:
    """The commands of `trace`, whose rows are `tracks`, each device moved by its offset in ns."""
    move = np.array([offsets[track.device] for track in tracks], dtype=np.int64)
    start_ns = trace.start_ns + (move[trace.track] if len(tracks) else 0)
    order = np.argsort(start_ns, kind="stable")
    name, text = trace.name[order], trace.arguments[order]
    distinct, track = _distinct(tracks, trace.track[order])
    names = _Names.of(trace.strings, name)
    arguments = _Table.of(trace.strings, text)
    layer = names.layer[name]
    columns = CommandColumns(
        tracks=distinct,
        strings=names.strings,
        track=track,
        layer=layer,
        command_index=_command_index(names.command_index[name], layer),
        op_type=names.op_type[name],
        role=_zeros(len(trace)),
        shapes=_zeros(len(trace)),
        stage=_zeros(len(trace)),
        step=np.full(len(trace), NO_STEP, dtype=np.int32),
        start_ns=start_ns[order],
        duration_ns=trace.duration_ns[order],
        bytes_read=arguments.bytes_read[text],
        bytes_written=arguments.bytes_written[text],
        flops=np.full(len(trace), UNKNOWN, dtype=np.int64),
        flows=_moved(trace.flows, order),
    )
    cycles = arguments.cycles[text]
    counted = cycles >= 0
    return RblnCommands(
        columns=columns,
        counters=tuple(_cycle_counters(columns, cycles)),
        cycles=int(cycles[counted].sum()) if counted.any() else UNKNOWN,
        malformed=int(arguments.malformed[text].sum()),
        unnamed=int((names.command_index[name] < 0).sum()),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Names:
    """What each string of a trace says where it is a name: codes into `strings`, by string."""

    strings: tuple[str, ...]
    layer: Int32s
    op_type: Int32s
    command_index: Int32s

    @classmethod
    def of(cls, strings: Sequence[str], used: Int32s) -> _Names:
        codes = {"": 0}
        table = np.zeros((3, len(strings)), dtype=np.int32)
        for position in np.unique(used).tolist():
            name = strings[position]
            command = parse_name(name)
            layer, op_type, index = name, "", UNKNOWN
            if command is not None:
                layer, op_type, index = command.layer, command.op_type, command.command_index
            table[:, position] = (
                codes.setdefault(layer, len(codes)),
                codes.setdefault(op_type, len(codes)),
                index,
            )
        return cls(tuple(codes), table[0], table[1], table[2])


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    """What each string of a trace says where it is `Slice Arguments`."""

    bytes_read: Int64s
    bytes_written: Int64s
    cycles: Int64s
    malformed: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, strings: Sequence[str], used: Int32s) -> _Table:
        table = np.full((3, len(strings)), UNKNOWN, dtype=np.int64)
        malformed = np.zeros(len(strings), dtype=np.bool_)
        for position in np.unique(used).tolist():
            if not strings[position]:
                continue
            found = parse_arguments(strings[position])
            malformed[position] = found is None
            found = found or Arguments()
            table[:, position] = (found.bytes_read, found.bytes_written, found.cycles)
        return cls(table[0], table[1], table[2], malformed)


def _command_index(parsed: Int32s, layer: Int32s) -> Int32s:
    """Indices as the names have them; those of other names count their layer's commands."""
    index = parsed.copy()
    seen: dict[int, int] = {}
    for row in np.flatnonzero(parsed < 0).tolist():
        code = int(layer[row])
        index[row] = seen.get(code, 0)
        seen[code] = index[row] + 1
    return index


def _distinct(tracks: Sequence[Track], codes: Int32s) -> tuple[tuple[Track, ...], Int32s]:
    """Tracks without repetition: rows of one device and name are one track."""
    distinct = {track: position for position, track in enumerate(dict.fromkeys(tracks))}
    renumbered = np.array([distinct[track] for track in tracks], dtype=np.int32)
    return tuple(distinct), renumbered[codes] if len(tracks) else codes


def _moved(flows: Int64s, order: Int64s) -> Int64s:
    position = np.empty(len(order), dtype=np.int64)
    position[order] = np.arange(len(order))
    return position[flows] if len(flows) else flows


def _cycle_counters(columns: CommandColumns, cycles: Int64s) -> Iterator[Counter]:
    """The cycles of each track, added up at the end of the command that they were spent in."""
    counted = cycles >= 0
    for code in np.unique(columns.track[counted]).tolist():
        rows = np.flatnonzero(counted & (columns.track == code))
        ends = columns.end_ns[rows]
        order = np.argsort(ends, kind="stable")
        track = columns.tracks[code]
        values = np.cumsum(cycles[rows][order])
        yield Counter(track.device, f"{track.name} {CYCLES}", "count", ends[order], values)


def _zeros(count: int) -> Any:
    return np.zeros(count, dtype=np.int32)
