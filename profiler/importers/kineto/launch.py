"""Who launched what: from device work to the host call, operator, module and submodule call.

A kernel belongs to the call that launched it, whenever it ran: by `correlation` to the runtime
call that launched it (cuda_runtime, cuda_driver and their like), and by that one's thread and
time to the ranges around it. A thread that never has calls (autograd's) works for the one call
that is open elsewhere. Where that finds no call, by `External id` to an operator's. Work without a
launch belongs to the call on both sides of it, if it is one and the same; what runs ahead of all
launched work of its stream was launched before the recording began, and belongs to none. What the
backward of an operator launched in no call belongs to the call and the module of that operator.

The operator of a kernel is the innermost one around its launch that tells its input dims, where
none does the innermost of all. It is never that of its `External id`, in which old recorders wrote
the correlation id.
"""

from __future__ import annotations

import re
from operator import attrgetter

import numpy as np
from msgspec import Struct, field

from profiler.importers.kineto.calls import CallRange, call_ranges
from profiler.importers.kineto.frames import Frames
from profiler.importers.kineto.training import Training, training_of
from profiler.kineto.events import Scalar
from profiler.kineto.names import is_operator
from profiler.kineto.ranges import Bools, Ranges
from profiler.kineto.trace_file import KinetoTrace
from profiler.trace.columns import Int64s

__all__ = [
    "DEVICE_WORK",
    "OPERATORS",
    "RUNTIME",
    "Launches",
    "find_launches",
    "launched_work",
    "operators_around",
    "real_operators",
]

DEVICE_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
RUNTIME = (
    "cuda_runtime",
    "cuda_driver",
    "xpu_runtime",
    "xpu_driver",
    "privateuse1_runtime",
    "privateuse1_driver",
)
OPERATORS = "cpu_op"
_WAIT = re.compile("synchronize", re.IGNORECASE)
_NO_ID = frozenset((None, 0, -1, "", "0", "-1"))
_DIGITS = 19  # of an id
_NOTHING = np.zeros(0, dtype=np.int64)


class Launches(Struct, frozen=True, eq=False):
    """m pieces of work, all int64 [m]; -1 stands for unknown or none.

    `row` is the event that did the work, `launch` the runtime call's, `operator` the innermost
    operator's; `module` is an index in `Frames.modules`, `call` in the list of calls. `time_ns`
    is when it was launched, its own start where nobody knows. Wrappers that torch.compile and the
    profiler record among operators are none. `waits` are the rows of the runtime calls in which
    the host waited for a device, and the call in which each was made. `training` is None where
    nothing trains.
    """

    row: Int64s
    launch: Int64s
    operator: Int64s
    module: Int64s
    call: Int64s
    time_ns: Int64s
    waits: tuple[Int64s, Int64s] = field(default_factory=lambda: (_NOTHING, _NOTHING))
    training: Training | None = None

    def __len__(self) -> int:
        return len(self.row)


def find_launches(trace: KinetoTrace, frames: Frames, calls: list[CallRange]) -> Launches:
    """Everything that devices did. In a trace without device work, the outermost operators."""
    annotated = trace.rows_of(OPERATORS)
    operators = real_operators(trace, annotated)
    around = call_ranges(calls)
    work = trace.rows_of(*DEVICE_WORK)
    if not len(work):
        return _host_operators(trace, frames, operators, around)
    work, launch = launched_work(trace)
    external = _by_external_id(trace, work, annotated)
    origin = np.where(launch >= 0, launch, external)
    call = _around(trace, around, origin)
    training = training_of(trace, origin)
    _lend(trace, around, training, origin, call)
    strayed = (call < 0) & (external >= 0)
    origin = np.where(strayed, external, origin)
    call[strayed] = _around(trace, around, external[strayed])
    forward = np.full(len(work), -1, dtype=np.int64) if training is None else training.forward
    ahead = (call < 0) & (forward >= 0)
    call[ahead] = _around(trace, around, forward[ahead])
    _between(trace, work, launch, call)
    return Launches(
        row=work,
        launch=launch,
        operator=operators_around(trace, operators, launch),
        module=_module_in_call(
            trace, frames, around, np.where(forward >= 0, forward, origin), call
        ),
        call=_at(around.row, call),
        time_ns=np.where(origin >= 0, trace.start_ns[origin], trace.start_ns[work]),
        waits=_waits(trace, around, launch),
        training=training,
    )


def real_operators(trace: KinetoTrace, annotated: Int64s) -> Ranges:
    """Operators, without the ranges of torch.compile and the profiler among them."""
    return trace.ranges(annotated[trace.events.named(annotated, is_operator)])


def launched_work(trace: KinetoTrace) -> tuple[Int64s, Int64s]:
    """The rows of all that devices did, and of the runtime call that launched each, -1 for none."""
    work = trace.rows_of(*DEVICE_WORK)
    runtime = trace.rows_of(*RUNTIME)
    return work, _matching(trace, work, runtime, "correlation")


def operators_around(trace: KinetoTrace, operators: Ranges, launch: Int64s) -> Int64s:
    """The row of the innermost operator with input dims around each launch, else of the innermost;
    -1 for none."""
    shaped = _has_dims(trace, operators.row)
    innermost = _at(operators.row, _around(trace, operators, launch))
    if shaped.all() or not shaped.any():
        return innermost
    ranges = operators.select(shaped)
    found = _at(ranges.row, _around(trace, ranges, launch))
    return np.where(found >= 0, found, innermost)


def _has_dims(trace: KinetoTrace, rows: Int64s) -> Bools:
    """Which operators tell the dims of their inputs; dims that are equal are one object."""
    args = trace.events.args
    dims = [one.dims if (one := args[row]) else None for row in rows.tolist()]
    without = {id(one) for one in dims if one is None or bytes(one).strip() in (b"", b"[]")}
    return np.array([id(one) not in without for one in dims], dtype=np.bool_)


def _waits(trace: KinetoTrace, around: Ranges, launch: Int64s) -> tuple[Int64s, Int64s]:
    """Runtime calls that launched nothing and wait, and the call in which each was made."""
    runtime = trace.rows_of(*RUNTIME)
    waits = runtime[trace.events.named(runtime, lambda name: bool(_WAIT.search(name)))]
    rows = np.setdiff1d(waits, launch)
    return rows, _at(around.row, _around(trace, around, rows))


def _by_external_id(trace: KinetoTrace, work: Int64s, annotated: Int64s) -> Int64s:
    """The row of the operator with the `External id` of each piece of work, -1 for none. Of none
    where recorders wrote the correlation id there."""
    args = [trace.events.args[row] for row in work.tolist()]
    told = [a for a in args if a is not None and a.external_id is not None]
    same = sum(a.external_id == a.correlation for a in told)
    if 2 * same > len(told):
        return np.full(len(work), -1, dtype=np.int64)
    return _matching(trace, work, annotated, "external_id")


def _lend(
    trace: KinetoTrace, around: Ranges, training: Training | None, origin: Int64s, call: Int64s
) -> None:
    """Give what autograd launched, and threads without calls of their own, to the one call open at
    that time."""
    rows = np.flatnonzero((call < 0) & (origin >= 0))
    lent = ~np.isin(trace.thread[origin[rows]], np.unique(around.thread))
    if training is not None:
        lent |= training.backward[rows] >= 0
    rows = rows[lent]
    if not len(rows):
        return
    time_ns = trace.start_ns[origin[rows]]
    outermost = np.flatnonzero(around.parent < 0)
    of_no_thread = np.zeros(len(outermost), dtype=np.int32)
    start, end = around.start_ns[outermost], around.end_ns[outermost]
    together = Ranges.of(outermost, of_no_thread, start, end)
    begun = np.searchsorted(together.start_ns, time_ns, side="right")
    single = begun - np.searchsorted(np.sort(end), time_ns, side="right") == 1
    rows, time_ns = rows[single], time_ns[single]
    open_one = together.row[together.innermost(np.zeros(len(rows), dtype=np.int32), time_ns)]
    call[rows] = around.innermost(around.thread[open_one], time_ns)


def _between(trace: KinetoTrace, work: Int64s, launch: Int64s, call: Int64s) -> None:
    """Give work whose launch is lost to the call of the work on both sides of it, if it is one."""
    lost = (launch < 0) & (call < 0)
    if not lost.any():
        return
    args = [trace.events.args[row] for row in work.tolist()]
    device = np.array([str(a.device if a else None) for a in args])
    for name in np.unique(device[lost]).tolist():
        here = np.flatnonzero(device == name)
        here = here[np.argsort(trace.start_ns[work[here]], kind="stable")]
        known = np.flatnonzero(launch[here] >= 0)
        if not len(known):
            continue
        place = np.searchsorted(known, np.arange(len(here)))
        before = call[here[known[np.maximum(place - 1, 0)]]]
        behind = call[here[known[np.minimum(place, len(known) - 1)]]]
        inside = (place > 0) & (place < len(known)) & (before == behind) & lost[here]
        call[here[inside]] = before[inside]


def _at(values: Int64s, indices: Int64s) -> Int64s:
    """`values` at these indices, -1 for index -1."""
    return np.append(values, -1)[indices]


def _host_operators(
    trace: KinetoTrace, frames: Frames, operators: Ranges, around: Ranges
) -> Launches:
    """The outermost operators of a run on the CPU, as work of the thread that ran them."""
    row = np.sort(operators.row[operators.parent < 0])
    call = _around(trace, around, row)
    return Launches(
        row=row,
        launch=np.full(len(row), -1, dtype=np.int64),
        operator=row,
        module=_module_in_call(trace, frames, around, row, call),
        call=_at(around.row, call),
        time_ns=trace.start_ns[row],
    )


def _module_in_call(
    trace: KinetoTrace, frames: Frames, around: Ranges, origin: Int64s, call: Int64s
) -> Int64s:
    """The innermost module range in the same call, -1 for none."""
    module = _around(trace, frames.modules, origin)
    inside = (module >= 0) & (call >= 0)
    inside[inside] = frames.modules.start_ns[module[inside]] >= around.start_ns[call[inside]]
    return np.where(inside, module, -1)


def _around(trace: KinetoTrace, ranges: Ranges, origin: Int64s) -> Int64s:
    """Index of the innermost range around the begin of each event, -1 for event -1."""
    found = np.full(len(origin), -1, dtype=np.int64)
    known = origin >= 0
    rows = origin[known]
    found[known] = ranges.innermost(trace.thread[rows], trace.start_ns[rows])
    return found


def _matching(trace: KinetoTrace, work: Int64s, among: Int64s, name: str) -> Int64s:
    """For each event in `work` the row in `among` with the same id of this name, -1 for none."""
    rows = dict(zip(_ids(trace, among, name), among.tolist(), strict=True))
    rows.pop(None, None)
    return np.array([rows.get(key, -1) for key in _ids(trace, work, name)], dtype=np.int64)


def _ids(trace: KinetoTrace, rows: Int64s, name: str) -> list[Scalar]:
    """Ids, which files write as numbers and as strings; None for none (0, -1)."""
    args, told = trace.events.args, attrgetter(name)
    values = [told(one) if (one := args[row]) else None for row in rows.tolist()]
    return [value if type(value) is int and value > 0 else _id(value) for value in values]


def _id(value: Scalar) -> Scalar:
    if value in _NO_ID:
        return None
    plain = isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < _DIGITS
    return int(value) if plain and value is not None else value
