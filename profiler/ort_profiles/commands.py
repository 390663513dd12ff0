"""Executed nodes as commands: what each node is called and where it runs is asked once a node,
however often it was executed.

    table = CommandTable(kinds, of_kind)            # for all runs of a profile
    table.commands(run.nodes, origin_ns)            # CommandColumns
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from profiler.events import NO_STEP, UNKNOWN, Track
from profiler.ort_profiles.nodes import NodeColumns, NodeKind
from profiler.trace.columns import CommandColumns, Int32s, Int64s, numbered

__all__ = ["CommandTable", "Placed"]

_TEXTS = ("layer", "op_type", "shapes", "module", "kernel")
_NO_FLOWS: Int64s = np.zeros((0, 2), dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Placed:
    """What a node is as a command: `track` is that of the first of the executor's threads that has
    such nodes, others have tracks of their own."""

    track: Track
    layer: str
    module: str = ""
    command_index: int = UNKNOWN
    kernel: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class _Sequence:
    """What commands of these kinds, in this order, are, whenever they ran."""

    kind: Int32s
    strings: tuple[str, ...]
    text: dict[str, Int32s]
    command_index: Int32s


class CommandTable:
    """The commands of nodes of some `kinds`, as `of_kind` places them. Runs that execute the same
    nodes in the same order, as nearly all do, share the columns that do not tell of time."""

    def __init__(self, kinds: Sequence[NodeKind], of_kind: Callable[[NodeKind], Placed]) -> None:
        self._kinds, self._of_kind = kinds, of_kind
        self._strings, self._places = [""], {"": 0}
        self._tracks: dict[Track, int] = {}
        self._codes = np.full((len(kinds), len(_TEXTS)), -1, dtype=np.int64)
        self._numbers = np.zeros((len(kinds), 4), dtype=np.int64)
        self._last: _Sequence | None = None

    def commands(
        self, nodes: NodeColumns, origin_ns: int, flows: Int64s | None = None
    ) -> CommandColumns:
        """The commands of some executions; `origin_ns` is the profile's start on the run's
        clock, `flows` tell which of them launched which, int64 [m, 2]."""
        self._know(nodes.kind)
        tracks, track = self._threads(self._numbers[nodes.kind, 0], nodes.thread)
        order = np.argsort(nodes.start_ns, kind="stable")
        said = self._said(nodes.kind[order])
        kind, text = said.kind, said.text
        none: Int32s = np.zeros(len(kind), dtype=np.int32)
        module = text["module"] if text["module"].any() else None
        return CommandColumns(
            tracks=tracks,
            strings=said.strings,
            track=track[order],
            layer=text["layer"],
            command_index=said.command_index,
            op_type=text["op_type"],
            role=none,
            shapes=text["shapes"],
            stage=none,
            step=np.full(len(kind), NO_STEP, dtype=np.int32),
            start_ns=nodes.start_ns[order] + origin_ns,
            duration_ns=nodes.duration_ns[order],
            bytes_read=self._numbers[kind, 2],
            bytes_written=self._numbers[kind, 3],
            flops=np.full(len(kind), UNKNOWN, dtype=np.int64),
            flows=_NO_FLOWS if flows is None or not len(flows) else np.argsort(order)[flows],
            kernel=text["kernel"] if text["kernel"].any() else None,
            module=module,
            name=module,
        )

    def _said(self, kind: Int32s) -> _Sequence:
        """What these commands are; that of the last run where it had the same."""
        if self._last is None or not np.array_equal(self._last.kind, kind):
            strings, codes = self._texts(self._codes[kind])
            text = dict(zip(_TEXTS, codes, strict=True))
            index = numbered(text["layer"], self._numbers[kind, 1].astype(np.int32))
            self._last = _Sequence(kind, strings, text, index)
        return self._last

    def _know(self, kind: Int32s) -> None:
        """Place those kinds that are new."""
        for code in np.unique(kind[self._codes[kind, 0] < 0]).tolist():
            one = self._kinds[code]
            placed = self._of_kind(one)
            shapes = one.shapes if one.shapes.strip(" ->") else ""
            texts = (placed.layer, one.op_type, shapes, placed.module, placed.kernel)
            self._codes[code] = [self._code(text) for text in texts]
            lane = self._tracks.setdefault(placed.track, len(self._tracks))
            self._numbers[code] = lane, placed.command_index, one.bytes_read, one.bytes_written

    def _code(self, text: str) -> int:
        code = self._places.setdefault(text, len(self._strings))
        if code == len(self._strings):
            self._strings.append(text)
        return code

    def _threads(self, lane: Int64s, thread: Int64s) -> tuple[tuple[Track, ...], Int32s]:
        """The track of each node: its lane, apart by thread, which count in order of the nodes."""
        lanes = list(self._tracks)
        if len(lane) and (lane == lane[0]).all() and (thread == thread[0]).all():
            return (lanes[int(lane[0])],), np.zeros(len(lane), dtype=np.int32)
        threads, of_thread = np.unique(thread, return_inverse=True)
        pair = lane * len(threads) + of_thread.reshape(-1)
        found, first, place = np.unique(pair, return_index=True, return_inverse=True)
        seen: dict[Track, int] = {}
        tracks: list[Track] = []
        code = np.zeros(len(found), dtype=np.int32)
        for position in np.argsort(first).tolist():
            base = lanes[int(found[position]) // len(threads)]
            number = seen[base] = seen.get(base, -1) + 1
            name = f"{base.name} thread {number}" if number else base.name
            code[position] = len(tracks)
            tracks.append(Track(base.device, name, base.category))
        return tuple(tracks), code[place.reshape(-1)]

    def _texts(self, codes: Int64s) -> tuple[tuple[str, ...], list[Int32s]]:
        """The texts that these rows have, and their columns."""
        used = np.zeros(len(self._strings), dtype=np.bool_)
        used[0] = True
        used[codes] = True
        place = (np.cumsum(used) - 1).astype(np.int32)
        strings = tuple(map(self._strings.__getitem__, np.flatnonzero(used).tolist()))
        return strings, [np.ascontiguousarray(column) for column in place[codes].T]
