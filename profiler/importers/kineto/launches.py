"""Attribute device work to its launch, operator, module and submodule call.

A kernel belongs to the call that launched it, at any time that it ran. `correlation` leads to
the runtime call, and its thread and time lead to the ranges around it. `External id` is the
fallback for the call, never for the operator, because old recorders wrote the correlation id
there. Work ahead of all launched work on its stream was launched before the recording.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from math import prod
from operator import attrgetter
from typing import NamedTuple, TypeVar

import numpy as np
from msgspec import Struct, field

from profiler.importers.kineto.calls import CallRange, call_ranges, has_devices_alone
from profiler.importers.kineto.modules import (
    BACKWARD,
    RUNTIME,
    Frames,
    Training,
    innermost_at,
    input_dims,
    training_of,
    values_at,
)
from profiler.kineto.arguments import NO_NUMBER
from profiler.kineto.events import Bools, Event, Ranges
from profiler.kineto.operators import GRAPH_NODES, Scalar, is_operator
from profiler.kineto.trace_file import KinetoTrace
from profiler.trace.columns import Int64s
from profiler.trace.runtime_calls import last_begun

# --- Who launched what: from device work to the host call, operator, module and submodule call.
#
# A thread that never has calls (autograd's) works for the one call that is open elsewhere. Work
# without a launch belongs to the call on both sides of it, if it is one and the same; what runs
# ahead of all launched work of its stream belongs to none. What the backward of an operator
# launched in no call belongs to the call and the module of that operator.
#
# The operator of a kernel is the innermost one around its launch that tells its input dims, if none
# does the innermost of all.


DEVICE_WORK = ("kernel", "gpu_memcpy", "gpu_memset", *GRAPH_NODES)
OPERATORS = "cpu_op"
_WAIT = re.compile("synchronize", re.IGNORECASE)
_NO_ID = frozenset((None, 0, -1, "", "0", "-1"))
_DIGITS = 19  # of an id
_NOTHING = np.zeros(0, dtype=np.int64)
_EXACT_NS = 1_000  # clocks of µs round a start down to that of its launch
_TIMES = ("start_ns", "end_ns")


class Launches(Struct, frozen=True, eq=False):
    """m pieces of work and their launches, all int64 [m]; -1 for unknown or none.

    `row` is the event that did the work, `launch` the runtime call's, `operator` the innermost
    operator's; `module` is an index in `Frames.modules`, `call` in the list of calls. `time_ns` is
    when it was launched, its own start if unknown. Wrappers of torch.compile and the profiler are
    not operators. `waits` are the rows of runtime calls in which the host waited for a device,
    `unserved` the rows of launches without recorded work; both with the call of each. `training` is
    None if nothing trains.
    """

    row: Int64s
    launch: Int64s
    operator: Int64s
    module: Int64s
    call: Int64s
    time_ns: Int64s
    waits: tuple[Int64s, Int64s] = field(default_factory=lambda: (_NOTHING, _NOTHING))
    unserved: tuple[Int64s, Int64s] = field(default_factory=lambda: (_NOTHING, _NOTHING))
    training: Training | None = None

    def __len__(self) -> int:
        return len(self.row)


def find_launches(trace: KinetoTrace, frames: Frames, calls: list[CallRange]) -> Launches:
    """The launches of all device work. In a trace without device work, the outermost operators."""
    annotated = trace.rows_of(OPERATORS)
    operators = real_operators(trace, annotated)
    around = call_ranges(calls)
    work = trace.rows_of(*DEVICE_WORK)
    if not len(work):
        return _host_operators(trace, frames, operators, around)
    if has_devices_alone(trace):
        return _unlaunched(trace, calls, work)
    work, launch = launched_work(trace)
    external = _by_external_id(trace, work, annotated)
    origin = np.where(launch >= 0, launch, external)
    call = innermost_at(trace, around, origin)
    training = training_of(trace, origin)
    lend(trace, around, training, origin, call)
    strayed = (call < 0) & (external >= 0)
    origin = np.where(strayed, external, origin)
    call[strayed] = innermost_at(trace, around, external[strayed])
    forward = np.full(len(work), -1, dtype=np.int64) if training is None else training.forward
    ahead = (call < 0) & (forward >= 0)
    call[ahead] = innermost_at(trace, around, forward[ahead])
    _between(trace, work, launch, call)
    module = _module_in_call(trace, frames, around, origin, call)  # of a recomputed forward, too
    ours = np.where(module >= 0, -1, forward)
    of_forward = _module_in_call(trace, frames, around, ours, call)
    apart = np.array([each.instance == BACKWARD for each in calls] + [False])[
        values_at(around.row, call)
    ]
    of_forward = np.where(apart, innermost_at(trace, frames.modules, ours), of_forward)
    module = np.where(module >= 0, module, of_forward)
    # runtime calls that launched nothing and wait, and the call in which each was made
    waits = trace.rows_named(lambda name: bool(_WAIT.search(name)), *RUNTIME)
    waits = np.setdiff1d(waits, launch)
    operator = operators_around(trace, operators, launch)
    # a thread that launches for others, as Ascend's task queue does, has no operators of its own
    for_others = (launch >= 0) & ~np.isin(trace.thread[launch], np.unique(operators.thread))
    operator = np.where((operator < 0) & for_others, external, operator)
    return Launches(
        row=work,
        launch=launch,
        operator=operator,
        module=module,
        call=values_at(around.row, call),
        time_ns=np.where(origin >= 0, trace.start_ns[origin], trace.start_ns[work]),
        waits=(waits, values_at(around.row, innermost_at(trace, around, waits))),
        unserved=(
            trace.unserved,
            values_at(around.row, innermost_at(trace, around, trace.unserved)),
        ),
        training=training,
    )


def _unlaunched(trace: KinetoTrace, calls: list[CallRange], work: Int64s) -> Launches:
    """The work of devices in a trace without launches: it belongs to the call open at its own
    start."""
    none = np.full(len(work), -1, dtype=np.int64)
    times = [np.array([getattr(call, name) for call in calls], dtype=np.int64) for name in _TIMES]
    places = np.arange(len(calls), dtype=np.int64)
    together = Ranges.of(places, np.zeros(len(calls), dtype=np.int32), *times)
    inside = together.innermost(np.zeros(len(work), dtype=np.int32), trace.start_ns[work])
    call, start = values_at(together.row, inside), trace.start_ns[work]
    return Launches(row=work, launch=none, operator=none, module=none, call=call, time_ns=start)


def real_operators(trace: KinetoTrace, annotated: Int64s) -> Ranges:
    """The operators, without ranges of torch.compile and the profiler."""
    return trace.ranges(annotated[trace.events.named(annotated, is_operator)])


def launched_work(trace: KinetoTrace) -> tuple[Int64s, Int64s]:
    """The rows of all that devices did, and of the runtime call that launched each, -1 for none."""
    work = trace.rows_of(*DEVICE_WORK)
    runtime = trace.rows_of(*RUNTIME)
    if _has_unique_numbers(trace, runtime):
        return work, _matching(trace, work, runtime, "correlation")
    numbers = _ids(trace, runtime, "correlation")
    codes = {one: code for code, one in enumerate(dict.fromkeys(numbers))}
    codes.pop(None, None)
    if len(codes) == len(numbers) - numbers.count(None):
        return work, _matching(trace, work, runtime, "correlation")
    keys, asked = (
        np.array([codes.get(one, none) for one in of], dtype=np.int64)
        for of, none in ((numbers, -1), (_ids(trace, work, "correlation"), -2))
    )
    start = trace.start_ns
    at = start[work] + _EXACT_NS
    found = last_begun(keys, start[runtime], trace.end_ns[runtime], asked, at)
    return work, np.append(runtime, -1)[found]


def _has_unique_numbers(trace: KinetoTrace, launches: Int64s) -> bool:
    """Whether all launch numbers are integers and none repeats."""
    args = trace.events.args
    if not args.has_only_integers("correlation", launches):
        return False
    numbers = args.integers("correlation", launches)
    numbers = np.sort(numbers[_is_id(numbers)])
    return not (numbers[1:] == numbers[:-1]).any()


def operators_around(trace: KinetoTrace, operators: Ranges, launch: Int64s) -> Int64s:
    """The row of the innermost operator with input dims around each launch, else of the innermost;
    -1 for none."""
    kinds, index = trace.events.args.alike(operators.row)
    with_dims = [bytes(one.dims).strip() not in (b"", b"[]") for one in kinds]
    shaped = np.array(with_dims, dtype=np.bool_)[index]
    innermost = values_at(operators.row, innermost_at(trace, operators, launch))
    if shaped.all() or not shaped.any():
        return innermost
    ranges = operators.select(shaped)
    found = values_at(ranges.row, innermost_at(trace, ranges, launch))
    return np.where(found >= 0, found, innermost)


def _by_external_id(trace: KinetoTrace, work: Int64s, annotated: Int64s) -> Int64s:
    """The row of the operator with the `External id` of each piece of work, -1 for none. All are -1
    if the recorder wrote the correlation id there."""
    ids, numbers = (trace.events.args.values(name, work) for name in ("external_id", "correlation"))
    numbered = len(ids) - ids.count(None)
    same = sum(one is not None and one == other for one, other in zip(ids, numbers, strict=True))
    if 2 * same > numbered:
        return np.full(len(work), -1, dtype=np.int64)
    return _matching(trace, work, annotated, "external_id")


def lend(
    trace: KinetoTrace, around: Ranges, training: Training | None, origin: Int64s, call: Int64s
) -> None:
    """Assign launches of autograd, and of threads without calls, to the one call open at that time.
    If several are open, autograd's launches belong to the one on the thread of the forward, which
    waits for them."""
    rows = np.flatnonzero((call < 0) & (origin >= 0))
    lent = ~np.isin(trace.thread[origin[rows]], np.unique(around.thread))
    if training is not None:
        backward = np.array(training.phases, dtype=np.str_) == BACKWARD
        lent |= backward[rows]
        _lend_to_waiting(trace, around, training, rows[backward[rows]], origin, call)
    rows = rows[lent & (call[rows] < 0)]
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


def _lend_to_waiting(
    trace: KinetoTrace,
    around: Ranges,
    training: Training,
    rows: Int64s,
    origin: Int64s,
    call: Int64s,
) -> None:
    """Assign autograd's launches in `rows` to the call open on the thread of their forward
    operator. Graphs and sums of gradients have none: they belong to the thread of the forward
    operators, if it is only one."""
    known = training.forward[training.forward >= 0]
    threads = np.unique(trace.thread[known])
    if not len(threads):
        return
    forward = training.forward[rows]
    sure = (forward >= 0) | (len(threads) == 1)
    rows, forward = rows[sure], forward[sure]
    thread = np.where(forward >= 0, trace.thread[forward], threads[0])
    call[rows] = around.innermost(thread.astype(np.int32), trace.start_ns[origin[rows]])


def _between(trace: KinetoTrace, work: Int64s, launch: Int64s, call: Int64s) -> None:
    """Assign work without a launch to the call of the work before and after it, if both are of the
    same."""
    lost = (launch < 0) & (call < 0)
    if not lost.any():
        return
    device = np.array([str(one) for one in trace.events.args.values("device", work)])
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


def _host_operators(
    trace: KinetoTrace, frames: Frames, operators: Ranges, around: Ranges
) -> Launches:
    """The outermost operators of a run on the CPU, as work of the thread that ran them."""
    operators = _without_autograd(trace, operators)
    row = np.sort(operators.row[operators.parent < 0])
    call = innermost_at(trace, around, row)
    return Launches(
        row=row,
        launch=np.full(len(row), -1, dtype=np.int64),
        operator=row,
        module=_module_in_call(trace, frames, around, row, call),
        call=values_at(around.row, call),
        time_ns=trace.start_ns[row],
    )


_EVALUATED = "autograd::engine::evaluate_function: "
_SAME_WORK = 0.5  # of a node's time: if its operators take more, they are what it does


def _without_autograd(trace: KinetoTrace, operators: Ranges) -> Ranges:
    """The operators without autograd nodes that spend most of their time in others, and without the
    engine's records around nodes. Of `…evaluate_function: AddmmBackward0` and `AddmmBackward0`,
    only the `aten::mm` within stays."""
    evaluated = trace.events.named(operators.row, lambda name: name.startswith(_EVALUATED))
    if not evaluated.any():
        return operators
    inside = operators.parent >= 0
    parent = operators.parent[inside]
    length = operators.end_ns - operators.start_ns
    calls_others = np.bincount(parent, length[inside], len(operators)) > _SAME_WORK * length
    has_others = np.bincount(parent, minlength=len(operators)) > 0
    node = np.zeros(len(operators), dtype=np.bool_)
    node[inside] = evaluated[parent]
    return operators.select(~((evaluated & has_others) | (node & calls_others)))


def _module_in_call(
    trace: KinetoTrace, frames: Frames, around: Ranges, origin: Int64s, call: Int64s
) -> Int64s:
    """The innermost module range in the same call, -1 for none."""
    module = innermost_at(trace, frames.modules, origin)
    inside = (module >= 0) & (call >= 0)
    inside[inside] = frames.modules.start_ns[module[inside]] >= around.start_ns[call[inside]]
    return np.where(inside, module, -1)


def _matching(trace: KinetoTrace, work: Int64s, among: Int64s, name: str) -> Int64s:
    """For each event in `work`, the row in `among` with the same id in argument `name`, -1 for
    none."""
    args = trace.events.args
    if args.has_only_integers(name, among) and args.has_only_integers(name, work):
        return _last_with(args.integers(name, among), among, args.integers(name, work))
    rows = dict(zip(_ids(trace, among, name), among.tolist(), strict=True))
    rows.pop(None, None)
    return np.array([rows.get(key, -1) for key in _ids(trace, work, name)], dtype=np.int64)


def _last_with(keys: Int64s, rows: Int64s, wanted: Int64s) -> Int64s:
    """For each of `wanted`, the last of `rows` with that key, -1 for none."""
    known = _is_id(keys)
    order = np.argsort(keys[known], kind="stable")
    keys, rows = keys[known][order], np.append(rows[known][order], -1)
    place = np.searchsorted(keys, wanted, side="right") - 1
    there = (place >= 0) & _is_id(wanted)
    there[there] = keys[place[there]] == wanted[there]
    return rows[np.where(there, place, -1)]


def _is_id(numbers: Int64s) -> Bools:
    """Whether each number is an id: not 0, -1 or missing."""
    named: Bools = (numbers > 0) | ((numbers < -1) & (numbers != NO_NUMBER))
    return named


def _ids(trace: KinetoTrace, rows: Int64s, name: str) -> list[Scalar]:
    """The ids in argument `name`, which files write as numbers or strings; None for none (0,
    -1)."""
    values = trace.events.args.values(name, rows)
    return [value if type(value) is int and value > 0 else _id(value) for value in values]


def _id(value: Scalar) -> Scalar:
    plain = isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < _DIGITS
    return None if value in _NO_ID else int(value) if plain and value is not None else value


# --- Graphs that a trace captures: their windows, the launches in them, and whether it replays any.


_BEGIN = re.compile(r"StreamBeginCapture")
_CAPTURED = "StreamEndCapture"  # of CUDA and HIP alike, behind `cuda`, `cu` or `hip`
_REPLAYED = "GraphLaunch"
_WORK = re.compile(r"Launch\w*Kernel|Memcpy\w*Async|Memset\w*Async")


class Window(Struct, frozen=True):
    """A graph capture on a thread, from start to end; `launches` are the rows of the captured
    launches."""

    thread: int
    start_ns: int
    end_ns: int
    launches: Int64s


def capture_windows(trace: KinetoTrace) -> list[Window]:
    """The captures of a trace that hold a launch, in order of their ends."""
    rows = trace.rows_of(*RUNTIME)
    if not trace.events.named(rows, lambda name: _CAPTURED in name).any():
        return []
    rows = rows[np.argsort(trace.start_ns[rows], kind="stable")]
    open_on: dict[int, tuple[int, list[int]]] = {}
    found: list[Window] = []
    for row in rows.tolist():
        name, thread = trace.events.name_of(row), int(trace.thread[row])
        if _BEGIN.search(name):
            open_on[thread] = (int(trace.start_ns[row]), [])
        elif _CAPTURED in name and thread in open_on:
            begin, launches = open_on.pop(thread)
            captured = np.array(launches, dtype=np.int64)
            found.append(Window(thread, begin, int(trace.end_ns[row]), captured))
        elif thread in open_on and _WORK.search(name):
            open_on[thread][1].append(row)
    return [window for window in found if len(window.launches)]


def only_captures_graphs(trace: KinetoTrace) -> bool:
    """Whether a graph was captured and none was launched: between start and end of a capture,
    launches become nodes of the graph, and nothing runs."""
    captured = trace.rows_named(lambda name: _CAPTURED in name, *RUNTIME)
    return len(captured) > 0 and not len(trace.rows_named(lambda name: _REPLAYED in name, *RUNTIME))


# --- How many inputs the calls of a trace had at once, from the shapes of their operators.


class BatchSizes:
    """The batch sizes of a trace's calls; its operators are sorted once."""

    def __init__(self, trace: KinetoTrace) -> None:
        rows = trace.rows_of(OPERATORS)
        self._trace = trace
        self._rows = rows[np.lexsort((trace.start_ns[rows], trace.thread[rows]))]
        self._thread = trace.thread[self._rows]
        self._start_ns = trace.start_ns[self._rows]

    def of(self, call: CallRange) -> int:
        """The batch size of a call, 0 if shapes were not recorded.

        The most frequent leading dimension of the 4-dimensional inputs of attention, else of
        convolutions, else of all operators' inputs with three dimensions or more.
        """
        first, last = np.searchsorted(self._thread, (call.thread, call.thread + 1))
        times = (call.start_ns, call.end_ns)
        begin, end = first + np.searchsorted(self._start_ns[first:last], times)
        events = [self._trace.events[row] for row in np.sort(self._rows[begin:end]).tolist()]
        for word, ranks in (("attention", (4,)), ("conv", (4, 5)), ("", (3, 4, 5))):
            several = (input_dims(event.args)[:1] for event in events if word in event.name)
            counts = Counter(dims[0][0] for dims in several if dims and len(dims[0]) in ranks)
            if counts:
                return counts.most_common(1)[0][0]
        return 0


# --- What the operators of one thread show of the parts of a diffusion pipeline: convolutions,
# matrix products, embeddings of tokens, compiled regions, blocking calls.


_VOCABULARY = 20_000  # rows of an embedding of tokens; positions have fewer
_LATENT = range(4, 33)  # channels
_PACKED = range(16, 129)  # features of a patch of latents
_TOKENS = 64  # rows of latents, at least
_WIDER = 8  # times, from a patch to the width of a transformer
_LAYOUT = frozenset(
    f"aten::{name}"
    for name in ("reshape", "contiguous", "clone", "einsum", "permute", "flatten", "cat", "clamp_")
)
"""Operators that rearrange the results of a last layer."""

_REGION = "Torch-Compiled Region"
_CONVOLUTION = "aten::convolution"
_EMBEDDING = "aten::embedding"
_PRODUCTS = ("aten::linear", "aten::addmm", "aten::mm")
_DIMS = 64  # of a tensor, at most: torch's TensorIterator takes no more
_BLOCKING = frozenset(
    {"hipMemcpyWithStream", "cudaMemcpy", "hipMemcpy", "cudaStreamSynchronize"}
    | {"hipStreamSynchronize", "cudaDeviceSynchronize", "hipDeviceSynchronize"}
)


class Convolution(Struct, frozen=True):
    """A convolution of `batch` inputs with `channels` channels into `results` channels. `patch` is
    how many numbers it reads per result of a channel; `video`: its inputs have frames."""

    start_ns: int
    end_ns: int
    batch: int
    channels: int
    results: int
    patch: int
    video: bool

    @property
    def of_latents(self) -> bool:
        """Whether its inputs have a number of channels that latents have."""
        return self.channels in _LATENT

    @property
    def embeds_latents(self) -> bool:
        """Whether it turns latents into more channels than latents have."""
        return self.of_latents and self.results > _LATENT[-1]


class Product(Struct, frozen=True):
    """A matrix product: `rows` of `features` → `rows` of `results`; `batch` as in the input's
    shape."""

    start_ns: int
    end_ns: int
    batch: int
    rows: int
    features: int
    results: int

    @property
    def embeds_latents(self) -> bool:
        """Whether it widens patches of latents to the width of a transformer."""
        wide = self.results >= _WIDER * self.features
        return self.features in _PACKED and wide and self.rows >= _TOKENS


class Part(NamedTuple):
    """The time range of a call, and its batch size, 0 if not known."""

    start_ns: int
    end_ns: int
    inputs: int = 0


class HostMarks(Struct, frozen=True):
    """What the operators of one thread show, each in order of time: starts, ends and names of
    outermost operators that launched a kernel, times of blocking calls, convolutions, products,
    compiled regions and embeddings of tokens. `end_ns` is when the last of its operators ended."""

    thread: int
    end_ns: int
    begins: list[int]
    ends: list[int]
    names: list[str]
    blocking: list[int]
    convolutions: list[Convolution] = field(default_factory=list)
    products: list[Product] = field(default_factory=list)
    regions: list[tuple[int, int]] = field(default_factory=list)
    embeddings: list[tuple[int, str]] = field(default_factory=list)

    def last_end(self, begin_ns: int, limit_ns: int, without: Collection[str] = frozenset()) -> int:
        """When the last operator ended that started from `begin_ns` on and before `limit_ns`;
        `limit_ns` if there is none. Later operators with names in `without` do not count."""
        index = bisect_left(self.begins, limit_ns) - 1
        while index >= 0 and self.begins[index] > begin_ns and self.names[index] in without:
            index -= 1
        known = index >= 0 and self.begins[index] >= begin_ns
        return min(self.ends[index], limit_ns) if known else limit_ns

    def launching(self, begin_ns: int, end_ns: int) -> int:
        """How many outermost operators that launched kernels started in a range."""
        return bisect_left(self.begins, end_ns) - bisect_left(self.begins, begin_ns)

    def before(self, time_ns: int) -> int:
        """The place of the last operator that launched a kernel and started before a time, or
        -1."""
        return bisect_left(self.begins, time_ns) - 1

    def laid_out(self, end_ns: int) -> int:
        """When the operators ended that rearrange results which were ready at `end_ns`."""
        place = bisect_left(self.begins, end_ns)
        while place < len(self.begins) and self.names[place] in _LAYOUT:
            end_ns = self.ends[place]
            place += 1
        return end_ns

    def embedded(self) -> list[int]:
        """The times at which products embedded latents or tokens were embedded, ascending."""
        latents = [one.start_ns for one in self.products if one.embeds_latents]
        return sorted([*latents, *(begin for begin, _ in self.embeddings)])


def host_marks(trace: KinetoTrace, threads: Collection[int]) -> Iterator[HostMarks]:
    """The marks of each of these threads, ascending."""
    nested = trace.ranges(trace.rows_of(OPERATORS))
    outer = _launching(trace, nested.outermost())
    words = (_CONVOLUTION, _EMBEDDING, *_PRODUCTS)
    tells = trace.events.named(nested.row, lambda one: one in words or one.startswith(_REGION))
    telling = nested.select(tells)
    blocking = trace.rows_named(_BLOCKING.__contains__, *RUNTIME)
    blocking = blocking[np.lexsort((trace.start_ns[blocking], trace.thread[blocking]))]
    for thread in sorted(threads):
        first, last = np.searchsorted(outer.thread, (thread, thread + 1))
        waits = np.searchsorted(trace.thread[blocking], (thread, thread + 1))
        own = slice(*np.searchsorted(nested.thread, (thread, thread + 1)))
        marks = HostMarks(
            thread,
            end_ns=int(nested.end_ns[own].max(initial=0)),
            begins=outer.start_ns[first:last].tolist(),
            ends=outer.end_ns[first:last].tolist(),
            names=[trace.events.name_of(row) for row in outer.row[first:last].tolist()],
            blocking=trace.start_ns[blocking[slice(*waits)]].tolist(),
        )
        some = slice(*np.searchsorted(telling.thread, (thread, thread + 1)))
        columns = (one[some].tolist() for one in (telling.row, telling.start_ns, telling.end_ns))
        for row, start, end in zip(*columns, strict=True):
            _note(marks, trace.events[row], start, end)
        yield marks


def launching_operators(trace: KinetoTrace) -> Ranges:
    """The outermost operators that launched a kernel, in order of thread and time."""
    rows = trace.rows_of(OPERATORS)
    ranges = (rows, trace.thread[rows], trace.start_ns[rows], trace.end_ns[rows])
    return _launching(trace, Ranges.outermost_of(*ranges))


def _launching(trace: KinetoTrace, outer: Ranges) -> Ranges:
    work, launch = launched_work(trace)
    kernels = trace.events.of_category(work, "kernel")
    asked = trace.rows_named(lambda name: "LaunchKernel" in name, *RUNTIME)
    # when each kernel was launched, those that a capture kept from running as well
    launches = np.sort(trace.start_ns[np.union1d(launch[kernels & (launch >= 0)], asked)])
    busy = np.searchsorted(launches, outer.start_ns) < np.searchsorted(launches, outer.end_ns)
    return outer.select(busy & trace.events.named(outer.row, is_operator))


def _note(marks: HostMarks, event: Event, start: int, end: int) -> None:
    """Add what one operator shows to `marks`; outer operators come before those inside."""
    if event.name.startswith(_REGION):
        if not marks.regions or start >= marks.regions[-1][1]:
            marks.regions.append((start, end))
        return
    dims = input_dims(event.args)
    if event.name == _CONVOLUTION:
        if len(dims) >= 2 and len(dims[0]) in (4, 5) and len(dims[1]) in (4, 5):
            batch, channels, results = *dims[0][:2], dims[1][0]
            patch, video = prod(dims[1][1:]), len(dims[0]) == 5
            one = Convolution(start, end, batch, channels, results, patch, video)
            marks.convolutions.append(one)
    elif event.name == _EMBEDDING:
        if dims and len(dims[0]) == 2 and dims[0][0] >= _VOCABULARY:
            marks.embeddings.append((start, "x".join(map(str, dims[0]))))
    elif not marks.products or start >= marks.products[-1].end_ns:
        factors = dims[1:3] if event.name == "aten::addmm" else dims[:2]
        if len(factors) == 2 and len(factors[0]) <= _DIMS and len(factors[1]) == 2:
            own, other = factors  # `linear` has its matrix as [results, features]
            results = other[0] if event.name == "aten::linear" else other[1]
            batch = own[0] if len(own) > 2 else 0
            product = Product(start, end, batch, prod(own[:-1]), own[-1], results)
            marks.products.append(product)


_Mark = TypeVar("_Mark", Convolution, Product)


def begun(marks: Sequence[_Mark], after_ns: int, before_ns: int) -> Sequence[_Mark]:
    """The marks that started after `after_ns` and before `before_ns`; `marks` are in order of
    time."""
    start = attrgetter("start_ns")
    first = bisect_right(marks, after_ns, key=start)
    return marks[first : bisect_left(marks, before_ns, first, key=start)]


def within(time_ns: int, ranges: Sequence[tuple[int, int]]) -> bool:
    """Whether a time is in one of `ranges`, which are in order and do not overlap."""
    index = bisect_right(ranges, (time_ns, 1 << 63)) - 1
    return index >= 0 and time_ns < ranges[index][1]
