"""What first calls on sessions that were opened for profiling took longer than later ones.

A new session allocates its arena in its first call, and anew in its second, when ONNX Runtime knows
what the shapes take and allocates that at once. Without us these calls had run on the part's own
session: warm, where that had run before, as we know of earlier runs of ours in this process and of
sessions that were renewed within one. Where nobody knows, the own session may have been as new as
ours.
"""

from __future__ import annotations

import statistics
import weakref
from dataclasses import dataclass
from typing import Any

from profiler.capture.invocations import Invocation
from profiler.capture.operator_source import NewSessions
from profiler.interruptions import let_pass

__all__ = ["FirstCalls"]

_NEW = 2  # calls on a new session that take longer
_FEWEST, _MOST = 2, 200  # later calls of the same input shapes

_have_run: weakref.WeakSet[Any] = weakref.WeakSet()  # own sessions, or parts that open theirs


@dataclass(frozen=True, slots=True)
class _First:
    """A call on a new session; `warm` says whether it would have run on one that had run before."""

    shapes: frozenset[tuple[str, str]]
    duration_ns: int
    warm: bool


class FirstCalls:
    """The first calls of one part, whose own session is `own`, or which opens it itself."""

    def __init__(self, own: Any) -> None:
        self._warm = _has_run(own)
        self._own: Any = None if self._warm else weakref.ref(own) if _known_weakly(own) else None
        self._firsts: list[_First] = []
        self._later: dict[frozenset[tuple[str, str]], list[int]] = {}

    def add(self, invocation: Invocation, duration_ns: int, *, ran: int, renewed: bool) -> None:
        """A call has returned from one of our sessions, which `ran` so often before; `renewed`
        tells that others had run before it in place of the own one."""
        if invocation.failed:
            return
        shapes = frozenset(invocation.input_shapes.items())
        if ran >= _NEW:
            later = self._later.setdefault(shapes, [])
            if len(later) < _MOST:
                later.append(duration_ns)
        elif invocation.recorded:
            self._firsts.append(_First(shapes, duration_ns, renewed or self._warm))

    def close(self) -> None:
        """The run ends: what ran in it counts as warm in the next."""
        own = self._own() if self._own is not None else None
        if own is not None and (self._firsts or self._later):
            _have_run.add(own)

    def cost(self) -> NewSessions:
        """Of those calls that can be compared with two later ones of the same input shapes."""
        found = sum(map(self._of, self._firsts), start=NewSessions())
        return NewSessions(max(found.ns, 0.0), max(found.least_ns, 0.0), max(found.most_ns, 0.0))

    def _of(self, first: _First) -> NewSessions:
        later = self._later.get(first.shapes, [])
        if len(later) < _FEWEST:
            return NewSessions()
        most = float(first.duration_ns - min(later))
        if not first.warm:
            return NewSessions(most_ns=most)
        more = first.duration_ns - statistics.median(later)
        return NewSessions(more, float(first.duration_ns - max(later)), most)


def _has_run(own: Any) -> bool:
    return _known_weakly(own) and own in _have_run


def _known_weakly(own: Any) -> bool:
    try:
        weakref.ref(own)
        hash(own)
    except TypeError as error:
        let_pass(error)
        return False
    return True
