"""Events as columns: what producers hand to the writer, and what the reader returns.

    builder = CommandBuilder()
    builder.add(track, "transformer_blocks.0.attn.to_q", "MatMul", start_ns, duration_ns)
    columns = builder.build()

Text is interned: a column of text holds positions in one tuple of strings.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from profiler.events import NO_PIPELINE, NO_STEP, UNKNOWN, Call, Drop, Span, Track

__all__ = [
    "ARG_KINDS",
    "TEXT_COLUMNS",
    "ArgColumns",
    "CommandBuilder",
    "CommandColumns",
    "Counter",
    "CounterColumns",
    "Int32s",
    "Int64s",
    "SliceColumns",
    "TraceColumns",
    "TrackRow",
    "number_within",
    "numbered",
    "same",
]

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]


def same(value: np.generic, rows: int) -> npt.NDArray[Any]:
    """A NumPy scalar, `rows` times without taking memory: an array without strides, not to be
    written to. What `np.broadcast_to` gives, at a tenth of its time."""
    return np.ndarray((rows,), value.dtype, value.tobytes(), strides=(0,))


TEXT_COLUMNS = ("layer", "op_type", "role", "shapes", "stage", "kernel", "module", "name")
"""The columns of `CommandColumns` that index its strings."""


@dataclass(frozen=True, slots=True, eq=False)
class CommandColumns:
    """n commands in order of their start.

    `track` indexes `tracks`; `layer`, `op_type`, `role`, `shapes`, `stage`, `kernel`, `module` and
    `name` index `strings`, whose entry 0 is "". `name` is what the command's slice is called in the
    trace, 0 where that is the layer. Times are ns; `duration_ns`, `bytes_read`, `bytes_written` and
    `flops` are `UNKNOWN` (-1) where nobody measured them. `stage`, `step` and `pipeline` are set
    for host work only: commands of a call have their call's. `pipeline`, `kernel`, `module` and
    `name` may be None where no command has one. `flows` has shape (m, 2): row of the source, row of
    the target of each dependency.
    """

    tracks: tuple[Track, ...]
    strings: tuple[str, ...]
    track: Int32s
    layer: Int32s
    command_index: Int32s
    op_type: Int32s
    role: Int32s
    shapes: Int32s
    stage: Int32s
    step: Int32s
    start_ns: Int64s
    duration_ns: Int64s
    bytes_read: Int64s
    bytes_written: Int64s
    flops: Int64s
    flows: Int64s
    pipeline: Int32s | None = None
    kernel: Int32s | None = None
    module: Int32s | None = None
    name: Int32s | None = None

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def end_ns(self) -> Int64s:
        """Ends, int64 [n]; a command that never closed (-1) ends where it starts."""
        return self.start_ns + np.maximum(self.duration_ns, 0)


@dataclass(frozen=True, slots=True, eq=False)
class Counter:
    """A value over time on a device: `values[i]`, whole or float64, holds from `times_ns[i]` on.

    `unit` is "bytes" or "count".
    """

    device: str
    name: str
    unit: str
    times_ns: Int64s
    values: Int64s | npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TrackRow:
    """One track of a trace. `kind` is `process`, `thread`, `counter` or `plain`; `parent` is the
    index of the parent in `TraceColumns.tracks`, -1 for a root.

    `process` and `thread` name what the track belongs to, itself or through its parents, with
    their ids `pid` and `tid`: "" and None where it belongs to none.
    """

    uuid: int
    name: str
    kind: str
    parent: int
    unit: str
    pid: int | None = None
    tid: int | None = None
    process: str = ""
    thread: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class SliceColumns:
    """n slices in order of their begin. Text columns index `TraceColumns.strings` (0 is "").

    `depth` counts the slices that enclose one on its track, `parent` is the row of the innermost
    of them, -1 for none. `call` is the index of the call that the slice's file records, -1 for
    slices of no call.
    `duration_ns` is -1 for a slice that never ends. `command_index` is -1 where the slice
    carries no command of ours; then `layer` equals `name`. Bytes and FLOPs: -1 is unknown.
    """

    track: Int32s
    call: Int32s
    name: Int32s
    category: Int32s
    depth: Int32s
    parent: Int32s
    layer: Int32s
    command_index: Int32s
    op_type: Int32s
    role: Int32s
    shapes: Int32s
    stage: Int32s
    step: Int32s
    pipeline: Int32s
    kernel: Int32s
    module: Int32s
    start_ns: Int64s
    duration_ns: Int64s
    bytes_read: Int64s
    bytes_written: Int64s
    flops: Int64s

    def __len__(self) -> int:
        return len(self.start_ns)


ARG_KINDS = ("int", "uint", "string", "real", "pointer", "bool", "json", "null")


@dataclass(frozen=True, slots=True, eq=False)
class ArgColumns:
    """k arguments of slices, by slice. `slice` is a row, `key` a text under trace_processor's
    syntax (`debug.a.b[0].c`), `kind` indexes `ARG_KINDS`. `value` holds integers as they are,
    reals by their bits (`value.view(np.float64)`), texts by their place in the strings."""

    slice: Int32s
    key: Int32s
    kind: npt.NDArray[np.uint8]
    value: Int64s

    def __len__(self) -> int:
        return len(self.slice)


@dataclass(frozen=True, slots=True, eq=False)
class CounterColumns:
    """m samples: `track` indexes `TraceColumns.tracks`; `call` is the index of the call in whose
    file the sample stands, -1 for none; `value` is float64."""

    track: Int32s
    call: Int32s
    time_ns: Int64s
    value: np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True, eq=False)
class TraceColumns:
    """What one trace holds. Calls and spans of ours stand in `calls` and `spans`, every other
    slice in `slices`. `instants` are the rows of `slices` that are moments: they have no
    duration. `flows` is int64 [k, 2]: rows in `slices` from which to which, where both ends are
    in `slices`."""

    tracks: tuple[TrackRow, ...]
    strings: tuple[str, ...]
    slices: SliceColumns
    calls: tuple[Call, ...]
    spans: tuple[Span, ...]
    counters: CounterColumns
    flows: Int64s
    drops: tuple[Drop, ...]
    instants: Int32s
    args: ArgColumns

    def args_of(self, row: int) -> dict[str, Any]:
        """The arguments of one slice, by key. For looking at single slices, not for loops."""
        args = self.args
        first, last = np.searchsorted(args.slice, [row, row + 1]).tolist()
        return {self.strings[args.key[i]]: self._arg_value(i) for i in range(first, last)}

    def _arg_value(self, index: int) -> Any:
        kind, value = ARG_KINDS[self.args.kind[index]], int(self.args.value[index])
        if kind in {"string", "json"}:
            return self.strings[value]
        if kind == "real":
            return float(self.args.value[index : index + 1].view(np.float64)[0])
        if kind in {"uint", "pointer"}:
            return value % (1 << 64)
        return {"bool": bool(value), "null": None}.get(kind, value)


_ROW = (
    "track",
    "layer",
    "op_type",
    "role",
    "shapes",
    "stage",
    "kernel",
    "module",
    "name",
    "step",
    "pipeline",
    "start_ns",
    "duration_ns",
    "bytes_read",
    "bytes_written",
    "flops",
    "command_index",
)
_OPTIONAL = {"pipeline": NO_PIPELINE, "kernel": 0, "module": 0, "name": 0}  # and what absence is
_WIDE = frozenset(("start_ns", "duration_ns", "bytes_read", "bytes_written", "flops"))


@dataclass(slots=True)
class CommandBuilder:
    """Collects commands in any order; `build` sorts them and numbers each layer's commands: those
    that were given a number keep it, the others follow."""

    _tracks: dict[Track, int] = field(default_factory=dict)
    _strings: dict[str, int] = field(default_factory=lambda: {"": 0})
    _rows: list[tuple[int, ...]] = field(default_factory=list)
    _flows: list[tuple[int, int]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self._rows)

    def add(  # noqa: PLR0913  # one argument a column
        self,
        track: Track,
        layer: str,
        op_type: str,
        start_ns: int,
        duration_ns: int,
        *,
        role: str = "",
        shapes: str = "",
        stage: str = "",
        kernel: str = "",
        module: str = "",
        name: str = "",
        step: int = NO_STEP,
        pipeline: int = NO_PIPELINE,
        bytes_read: int = UNKNOWN,
        bytes_written: int = UNKNOWN,
        flops: int = UNKNOWN,
        command_index: int = UNKNOWN,
    ) -> int:
        """Append one command and return its row, which `link` takes."""
        strings, code = self._strings, self._strings.setdefault
        row = (
            self._tracks.setdefault(track, len(self._tracks)),
            code(layer, len(strings)),
            code(op_type, len(strings)),
            code(role, len(strings)),
            code(shapes, len(strings)),
            code(stage, len(strings)),
            code(kernel, len(strings)),
            code(module, len(strings)),
            code(name, len(strings)),
            step,
            pipeline,
            start_ns,
            duration_ns,
            bytes_read,
            bytes_written,
            flops,
            command_index,
        )
        self._rows.append(row)
        return len(self._rows) - 1

    def link(self, source: int, target: int) -> None:
        """Record that the command in row `target` depends on the one in row `source`."""
        self._flows.append((source, target))

    def build(self) -> CommandColumns:
        count = len(self._rows)
        table = np.array(self._rows, dtype=np.int64).reshape(count, len(_ROW))
        columns = dict(zip(_ROW, table.T, strict=True))
        order = np.lexsort((np.arange(count), columns["start_ns"]))
        position = np.empty(count, dtype=np.int64)
        position[order] = np.arange(count)
        flows = np.array(self._flows, dtype=np.int64).reshape(-1, 2)
        sorted_columns: dict[str, Any] = {
            name: np.ascontiguousarray(column[order], dtype=np.int64 if name in _WIDE else np.int32)
            for name, column in columns.items()
        }
        for name, absent in _OPTIONAL.items():
            if (sorted_columns[name] == absent).all():
                sorted_columns[name] = None
        return CommandColumns(
            tracks=tuple(self._tracks),
            strings=tuple(self._strings),
            command_index=numbered(sorted_columns["layer"], sorted_columns.pop("command_index")),
            flows=position[flows] if len(flows) else flows,
            **sorted_columns,
        )


def numbered(layer: Int32s, given: Int32s) -> Int32s:
    """Numbers of the commands of each layer: the `given` ones, where a layer's first has it, and
    for the others those after the layer's largest."""
    numbers = number_within(layer)
    rows = np.flatnonzero(given != UNKNOWN)
    if not len(rows):
        return numbers
    _, first = np.unique(np.stack([layer[rows], given[rows]]), axis=1, return_index=True)
    kept = rows[first]
    after = np.zeros(int(layer.max()) + 1, dtype=np.int32)
    np.maximum.at(after, layer[kept], given[kept] + 1)
    others = np.setdiff1d(np.arange(len(layer)), kept)
    numbers[kept] = given[kept]
    numbers[others] = after[layer[others]] + number_within(layer[others])
    return numbers


def number_within(layer: Int32s) -> Int32s:
    """How many earlier rows have the same layer, for each row."""
    order = np.argsort(layer, kind="stable")
    begins = np.flatnonzero(np.diff(layer[order], prepend=-1))
    sizes = np.diff(begins, append=len(layer))
    numbers = np.empty(len(layer), dtype=np.int32)
    numbers[order] = np.arange(len(layer)) - np.repeat(begins, sizes)
    return numbers
