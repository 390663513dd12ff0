"""Training: which phase launched what, and of which forward operator a backward one is.

Autograd gives an operator's backward the sequence number of the forward one, and the thread of the
forward (`Fwd thread id`, which no forward operator has). Several forward operators may share a
number, nested or in turn: the backward is the last one's. What else autograd's own threads launch
(sums of gradients) is backward, too. Optimizers are ranges that torch names.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profiler.kineto.events import Event
from profiler.kineto.ranges import Ranges
from profiler.kineto.trace_file import KinetoTrace
from profiler.trace.columns import Int64s

__all__ = ["BACKWARD", "FORWARD", "OPTIMIZER", "Training", "training_of"]

FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"
_OPTIMIZER = "Optimizer."
_ENGINE = "autograd::"


class Training(Struct, frozen=True, eq=False):
    """`phases` has the phase of each launch, "" for none; `backward` is the row of the outermost
    backward operator around it, `forward` that of the operator whose backward it is, int64, -1 for
    none."""

    phases: tuple[str, ...]
    backward: Int64s
    forward: Int64s


def training_of(trace: KinetoTrace, origin: Int64s) -> Training | None:
    """What the launches in the rows `origin` (-1: unknown) are of; None where nothing trains."""
    rows = trace.rows_of("cpu_op")
    args = [trace.events.args[row] for row in rows.tolist()]
    if not any(one is not None and one.forward_thread for one in args):
        return None
    events = [trace.events[row] for row in rows.tolist()]
    numbered = np.array([_number(event) >= 0 for event in events], dtype=np.bool_)
    behind = np.array([_is_backward(event) for event in events], dtype=np.bool_)
    if not behind.any():
        return None
    named = trace.rows_of("user_annotation")
    steps = [row for row in named.tolist() if trace.events.name_of(row).startswith(_OPTIMIZER)]
    optimizing = _found(trace, np.array(steps, dtype=np.int64), origin) >= 0
    backward = _found(trace, rows[behind], origin)
    forward = _found(trace, rows[numbered & ~behind], origin) >= 0
    own = np.setdiff1d(trace.thread[rows[behind]], trace.thread[rows[numbered & ~behind]])
    beside = (origin >= 0) & np.isin(trace.thread[origin], own)
    phases = np.select(
        [optimizing, (backward >= 0) | beside, forward], [OPTIMIZER, BACKWARD, FORWARD], default=""
    )
    return Training(
        phases=tuple(phases.tolist()),
        backward=backward,
        forward=_forward(trace, rows[numbered & ~behind], backward),
    )


def _found(trace: KinetoTrace, rows: Int64s, origin: Int64s) -> Int64s:
    """The row of the outermost of some ranges around each launch, -1 for none."""
    found = np.full(len(origin), -1, dtype=np.int64)
    known = origin >= 0
    if not len(rows) or not known.any():
        return found
    ranges = Ranges.of(rows, trace.thread[rows], trace.start_ns[rows], trace.end_ns[rows])
    outer = ranges.outermost()
    at = outer.innermost(trace.thread[origin[known]], trace.start_ns[origin[known]])
    found[known] = np.append(outer.row, -1)[at]
    return found


def _forward(trace: KinetoTrace, forwards: Int64s, backward: Int64s) -> Int64s:
    """The last forward operator with the number of each backward one, that began before it."""
    by_number: dict[int, list[int]] = {}
    order = np.argsort(trace.start_ns[forwards], kind="stable")
    for row in forwards[order].tolist():
        by_number.setdefault(_number(trace.events[row]), []).append(row)
    known: dict[int, int] = {-1: -1}
    for row in np.unique(backward[backward >= 0]).tolist():
        begin = trace.start_ns[row]
        found = by_number.get(_number(trace.events[row]), [])
        known[row] = next((one for one in reversed(found) if trace.start_ns[one] < begin), -1)
    return np.array([known[row] for row in backward.tolist()], dtype=np.int64)


def _number(event: Event) -> int:
    value = event.args.sequence if event.args else None
    return value if isinstance(value, int) else -1


def _is_backward(event: Event) -> bool:
    thread = event.args.forward_thread if event.args else None
    numbered = thread not in (None, 0) and _number(event) >= 0
    return numbered or event.name.startswith(_ENGINE)
