"""Host events of a torch.profiler session as nested ranges: whose invocation, module and operator.

Our own ranges stand among the operators: one around each invocation, one around each module call,
one around each move of weights.
Annotations of the script are never ours, whatever they are called.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from profiler.capture.torch.events import Activity, TorchEvents
from profiler.kineto.names import is_compiling, is_operator
from profiler.kineto.ranges import Ranges
from profiler.trace.columns import Int64s

__all__ = ["CALL", "MODULE", "WEIGHTS", "HostRanges", "RangeKind", "weights_moved"]

CALL = "profile-sd3 call "  # a range of an invocation: its number follows
MODULE = "profile-sd3 module "  # a range of a module call: the module's path follows
WEIGHTS = "profile-sd3 weights "  # around what moves some: way, bytes and module's path follow

_GRAPH = "## Call CompiledFxGraph"
_REGION = "Torch-Compiled Region"


class RangeKind(IntEnum):
    """What a range stands for."""

    OTHER = 0  # a range of the user, or a step of torch.compile
    CALL = 1
    MODULE = 2
    OPERATOR = 3
    GRAPH = 4  # code that torch.compile generated
    REGION = 5
    COMPILING = 6  # torch.compile at work: `compilations` tells of it
    WEIGHTS = 7  # what moves weights


class HostRanges:
    """The ranges of all threads, nested. All lists are by range, in order of thread and start, so
    that a parent comes before what it encloses.

    `row` is the event's row, `parent` the index of the innermost range around it (-1: none).
    `call` is the number of the invocation (-1: none), `module` the path of its innermost module
    ("": none), `operator` the index of the innermost operator in that (-1: none), itself included.
    """

    def __init__(self, events: TorchEvents) -> None:
        self._events = events
        rows = events.rows_of(Activity.OPERATOR, Activity.ANNOTATION)
        # Of ranges that begin and end together the one with the lower id is the outer one.
        rows = rows[np.argsort(events.correlation[rows], kind="stable")]
        start = events.start_ns[rows]
        ends = start + events.duration_ns[rows]
        self._ranges = Ranges.of(rows, events.thread[rows].astype(np.int32), start, ends)
        self.row: list[int] = self._ranges.row.tolist()
        self.parent: list[int] = self._ranges.parent.tolist()
        self.start_ns: list[int] = self._ranges.start_ns.tolist()
        self.end_ns: list[int] = self._ranges.end_ns.tolist()
        self.kinds, labels = self._named()
        self.call, self.module, self.operator = self._enclosing(labels)

    def _named(self) -> tuple[list[RangeKind], list[str]]:
        """What each range is, and the label of our own: a number or a path."""
        known: dict[str, tuple[RangeKind, str]] = {}
        kinds, labels = [], []
        annotated = self._events.activity == Activity.ANNOTATION
        for row in self.row:
            name = self._events.names[row]
            found = known.get(name)
            if found is None:
                found = known[name] = _kind(name, annotation=bool(annotated[row]))
            kinds.append(found[0])
            labels.append(found[1])
        return kinds, labels

    def _enclosing(self, labels: list[str]) -> tuple[list[int], list[str], list[int]]:
        """For each range the invocation (-1: none), the path of the innermost module of it, and
        the innermost operator (index, -1: none), itself included."""
        calls: list[int] = []
        modules: list[str] = []
        operators: list[int] = []
        for index, parent in enumerate(self.parent):
            call, module, operator = -1, "", -1
            if parent >= 0:
                call, module, operator = calls[parent], modules[parent], operators[parent]
            kind = self.kinds[index]
            if kind == RangeKind.CALL:
                call, module, operator = int(labels[index]), "", -1
            elif kind in (RangeKind.MODULE, RangeKind.WEIGHTS):
                module, operator = labels[index], -1
            elif kind == RangeKind.OPERATOR:
                operator = index
            calls.append(call)
            modules.append(module)
            operators.append(operator)
        return calls, modules, operators

    def linked(self, rows: Int64s) -> list[int]:
        """For each row the range of the operator that was running when it was launched, or -1."""
        ids = self._events.correlation[self._ranges.row].tolist()
        by_id = dict(zip(ids, range(len(ids)), strict=True))
        by_id.pop(0, None)
        return [by_id.get(key, -1) for key in self._events.linked[rows].tolist()]

    def places(self, rows: Int64s) -> list[int]:
        """For each runtime call the innermost range around it, or -1. The link is exact; times
        are not, because a device's runtime has a clock of its own."""
        threads = self._events.thread[rows].astype(np.int32)
        around = self._ranges.innermost(threads, self._events.start_ns[rows]).tolist()
        linked = self.linked(rows)
        return [
            link if link >= 0 else by_time for link, by_time in zip(linked, around, strict=True)
        ]

    def composed(self) -> list[bool]:
        """Which ranges have a module range or compiled code somewhere inside."""
        composed = [False] * len(self.row)
        for index in range(len(self.row) - 1, -1, -1):
            parent = self.parent[index]
            marks = self.kinds[index] in (RangeKind.MODULE, RangeKind.GRAPH, RangeKind.REGION)
            if parent >= 0 and (marks or composed[index]):
                composed[parent] = True
        return composed


def weights_moved(name: str) -> tuple[str, int]:
    """Which way weights went in a range, and how many bytes."""
    kind, nbytes, _ = name[len(WEIGHTS) :].split(" ", 2)
    return kind, int(nbytes)


def _kind(name: str, *, annotation: bool) -> tuple[RangeKind, str]:
    kind, label = RangeKind.OPERATOR, ""
    if name.startswith(_GRAPH):
        kind = RangeKind.GRAPH
    elif name.startswith(_REGION):
        kind = RangeKind.REGION
    elif not annotation and is_compiling(name):
        kind = RangeKind.COMPILING
    elif annotation or not is_operator(name):
        kind = RangeKind.OTHER
    elif name.startswith(MODULE):
        kind, label = RangeKind.MODULE, name[len(MODULE) :]
    elif name.startswith(WEIGHTS):
        kind, label = RangeKind.WEIGHTS, name[len(WEIGHTS) :].split(" ", 2)[2]
    elif name.startswith(CALL):
        number = name[len(CALL) :]
        ours = number.isascii() and number.isdigit()
        kind, label = (RangeKind.CALL, number) if ours else (RangeKind.OTHER, "")
    return kind, label
