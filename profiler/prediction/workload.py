"""The workload of one request: its stages, steps and calls with measured times, and their graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Literal, get_args

import numpy as np
import polars as pl
from msgspec import Struct, field
from msgspec.structs import replace

from profiler.analysis.devices import submodule_weights
from profiler.analysis.result import Analysis
from profiler.analysis.timeline import PipelineCalls
from profiler.errors import InputError
from profiler.prediction.pieces import HOST, Piece, PipelinePieces, called_in, pieces_of
from profiler.run.intervals import Times
from profiler.run.run import Run

# --- The memory of submodules, as far as it was recorded: weights, activations, retained bytes.


def weights_of(run: Run, analysis: Analysis) -> dict[str, int]:
    """The bytes of weights by submodule, also if no memory use was recorded."""
    said = submodule_weights(run.info.submodules)
    known = {name: size for name, size in said.items() if size is not None}
    return {**known, **_known(analysis.memory, "weight_bytes")}


def activations_of(analysis: Analysis) -> dict[str, int]:
    """The peak bytes beside its weights in a call, by submodule."""
    return _known(analysis.memory, "activation_bytes")


def kept_of(analysis: Analysis) -> dict[str, int]:
    """The bytes beside its weights that a submodule retained while another ran, at the device's
    peak. ONNX Runtime's arena, one per session, keeps a call's memory for the next one."""
    running = analysis.memory_devices.select("device", running="submodule")
    held = analysis.memory.join(running, on="device", how="left")
    others = held.filter(pl.col("submodule").ne_missing(pl.col("running")))
    kept = pl.col("retained_bytes") - pl.col("weight_bytes").fill_null(0)
    found = _known(others.with_columns(kept=kept), "kept")
    return {name: size for name, size in found.items() if size > 0}


def _known(memory: pl.DataFrame, column: str) -> dict[str, int]:
    """The maximum of a column of the memory table, by submodule."""
    known = memory.drop_nulls(["submodule", column])
    return dict(known.group_by("submodule").agg(pl.col(column).max()).sort("submodule").iter_rows())


# --- The tasks of a request: pieces that all pipeline calls have in common, with their times.


class Task(Struct, frozen=True, eq=False):
    """One call of a submodule, or the host's time before the next one.

    p pipeline calls were measured. `first_ns` is the time in the first step of each, int64 [p]; of
    a task outside steps it is empty, int64 [0]. `steady_ns` are the times in later steps, int64 [p,
    k]; of a task outside steps its time in each pipeline call, int64 [p, 1]. A step without it
    counts as 0 ns.

    For host time (pipeline code, and its waits outside of calls) `submodule` is None, `device` and
    `branch` are "", and `of` is the name of the task that it leads to, "" if there is none.
    """

    name: str  # "text_encoder_3.prompt", "transformer.cond", "host", "tokenizer_2"
    submodule: str | None
    stage: str
    branch: str
    device: str
    first_ns: Times
    steady_ns: Times
    of: str = ""

    @property
    def total_ns(self) -> Times:
        """The task's time in each pipeline call, int64 [p]."""
        total: Times = self.steady_ns.sum(axis=1)
        return total + self.first_ns if len(self.first_ns) else total


_Key = tuple[str, int, str, str]  # name, number among equal names, leads to, stage
_Timed = dict[_Key, tuple[Piece, float]]


class ScaledPieces(Struct, frozen=True):
    """Pieces of p pipeline calls, whose calls are multiplied by `factors`, one per row of the run's
    calls; empty for none."""

    cut: Sequence[PipelinePieces]
    factors: Sequence[float]

    def tasks(self, phase: str) -> tuple[Task, ...]:
        """The tasks of `encode`, `step` or `decode`."""
        in_steps = phase == "step"
        table = [
            [self._timed(some) for some in (pieces.steps if in_steps else [getattr(pieces, phase)])]
            for pieces in self.cut
        ]
        longest_first = sorted((t for row in table for t in row), key=len, reverse=True)
        order = _merged(longest_first)
        pieces = {key: piece for row in table for timed in row for key, (piece, _) in timed.items()}
        return tuple(self._task(key, pieces[key], table, in_steps=in_steps) for key in order)

    def _timed(self, pieces: Sequence[Piece]) -> _Timed:
        """The pieces of one phase with their times, by key, in order."""
        found: _Timed = {}
        of_call = _numbered(pieces)
        for piece in pieces:
            name, number = of_call.get(piece.call, ("", 0))
            if piece.submodule is None:
                key, factor = (piece.name, number, name or "end", piece.stage), 1.0
            else:
                factor = self.factors[piece.call] if self.factors else 1.0
                key = (name, number, "", "")
            before = found[key][1] if key in found else 0.0
            found[key] = (piece, before + piece.duration_ns * factor)
        return found

    def _task(
        self, key: _Key, piece: Piece, table: Sequence[Sequence[_Timed]], *, in_steps: bool
    ) -> Task:
        times = np.array(
            [[round(timed[key][1]) if key in timed else 0 for timed in row] for row in table],
            dtype=np.int64,
        )
        return Task(
            name=piece.name,
            submodule=piece.submodule,
            stage=piece.stage,
            branch=piece.branch,
            device=piece.device,
            first_ns=times[:, 0] if in_steps else np.zeros(0, dtype=np.int64),
            steady_ns=times[:, 1:] if in_steps else times,
            of=key[2] if key[2] != "end" else "",
        )


def _numbered(pieces: Sequence[Piece]) -> dict[int, tuple[str, int]]:
    """The name of each call of a phase, and its number among calls of that name."""
    counts: Counter[str] = Counter()
    found = {}
    for piece in called_in(pieces):
        found[piece.call] = (piece.name, counts[piece.name])
        counts[piece.name] += 1
    return found


def _merged(sequences: Iterable[Iterable[_Key]]) -> Iterator[_Key]:
    """Merge sequences of keys, each key once; a new one is placed directly after the key before it
    in its own sequence."""
    following: dict[_Key | None, _Key | None] = {None: None}  # None: the start, and the end
    for keys in sequences:
        previous: _Key | None = None
        for key in keys:
            if key not in following:
                following[key] = following[previous]
                following[previous] = key
            previous = key
    place = following[None]
    while place is not None:
        yield place
        place = following[place]


# --- Which numbers in a submodule's shapes count the tokens of an image or video.


_FRAMES = 4  # different numbers of latent frames that are looked at
_Dims = tuple[int, ...]


class Tokens(Struct, frozen=True):
    """Dims that may be numbers of tokens: `ahead` are directly before channels, `inner` neither
    first nor last, `mixed` those that attention mixes."""

    ahead: frozenset[int]
    inner: frozenset[int]
    mixed: frozenset[int]

    @classmethod
    def of(cls, shapes: Iterable[_Dims], channels: Collection[int], mixed: Iterable[int]) -> Tokens:
        """Collect the candidates from `shapes` without rows and columns."""
        shapes = list(shapes)
        rows = [tuple(dim for dim in dims if dim != 1) for dims in shapes]
        ahead = frozenset(d[-2] for d in rows if len(d) in (2, 3) and d[-1] in channels)
        inner = ahead | {dim for d in shapes for dim in d[1:-1]}
        return cls(ahead, inner, frozenset(mixed))


def token_counts(
    grids: Mapping[_Dims, _Dims], seen: Collection[_Dims], tokens: Tokens, shapes: Collection[_Dims]
) -> dict[int, int]:
    """Map old to new numbers of tokens, for the `grids` (new by old) that have tokens.

    Of grids that no tensor has as rows and columns (not in `seen`, as if the host packs patches),
    only the largest has tokens: the number of a smaller one is something else.
    """
    batches = _batches(shapes)
    have: list[tuple[_Dims, int]] = []
    for grid, count in product(grids, sorted(_frames(shapes, grids, batches))):
        was = grid[0] * grid[1] * count
        if was in tokens.inner and any(was * batch in tokens.ahead for batch in batches):
            have.append((grid, count))
    largest = max((grid for grid, _ in have), key=lambda grid: grid[0] * grid[1], default=None)
    found: dict[int, int] = {}
    for grid, count in have:
        if grid not in seen and grid != largest:
            continue
        was, becomes = (rows * columns * count for rows, columns in (grid, grids[grid]))
        joined = sorted({one - was for one in tokens.mixed} & tokens.ahead)
        for text, batch in product((0, *joined), sorted(batches)):
            found.setdefault((was + text) * batch, (becomes + text) * batch)
    return found


def _frames(
    shapes: Collection[_Dims], grids: Mapping[_Dims, _Dims], batches: Collection[int]
) -> set[int]:
    """The likely numbers of latent frames: 1, and those most tensors of videos have before rows and
    columns, or flattened with the batch."""
    on_grid = [dims for dims in shapes if dims[-2:] in grids]
    ahead = Counter(dims[-3] for dims in on_grid if len(dims) > 4)
    flat = Counter(dims[0] for dims in on_grid if len(dims) == 4)
    flattened = product((count for count, _ in flat.most_common(_FRAMES)), batches)
    return {
        1,
        *(count for count, _ in ahead.most_common(_FRAMES)),
        *(count // batch for count, batch in flattened if count % batch == 0),
    }


def _batches(shapes: Collection[_Dims]) -> set[int]:
    """The likely batch sizes: 1, and the most frequent first dims of tensors with 3 or more dims,
    and of videos."""
    ranks = (Counter(dims[0] for dims in shapes if len(dims) > rank) for rank in (2, 4))
    most = (max(sizes, key=lambda n: (sizes[n], -n), default=1) for sizes in ranks)
    return {1, *most}


# --- The workload of one request (one pipeline call): its tasks in order, with measured times.


class Workload(Struct, frozen=True, eq=False):
    """The tasks of one request in the order in which the pipeline calls them: those of `encode`
    (before the first step) once, those of `step` in each of `steps` steps, those of `decode` once.

    `measured_ns`, int64 [p], is the time of each pipeline call, the sum over its tasks. By
    submodule, if known: `weights` are bytes, `activations` the peak bytes beside them in a call,
    and `kept` the bytes retained while others run. `devices` are those of the run.

    Times of traced calls were multiplied with `overhead_ratio`, untraced over traced time by
    submodule, if it is known; `recorded_ns`, int64 [p], are the pipeline calls without that, None
    if nothing was corrected. `numbers` are the pipeline calls. `steps_of` is the mean number of
    steps with a call of this name, for calls that are not in all steps.
    """

    encode: tuple[Task, ...]
    step: tuple[Task, ...]
    decode: tuple[Task, ...]
    steps: int
    weights: Mapping[str, int]
    activations: Mapping[str, int]
    measured_ns: Times
    devices: tuple[str, ...]
    overhead_ratio: Mapping[str, float] = field(default_factory=dict)
    recorded_ns: Times | None = None
    numbers: tuple[int, ...] = ()
    steps_of: Mapping[str, float] = field(default_factory=dict)
    kept: Mapping[str, int] = field(default_factory=dict)

    @property
    def uncorrected_ns(self) -> Times:
        """The time of each pipeline call with the overhead of profiling, int64 [p]."""
        return self.measured_ns if self.recorded_ns is None else self.recorded_ns

    @property
    def tasks(self) -> tuple[Task, ...]:
        """All tasks, each once."""
        return (*self.encode, *self.step, *self.decode)

    def mapped(self, change: Callable[[tuple[Task, ...]], tuple[Task, ...]]) -> Workload:
        """Return the workload with each part (`encode`, `step`, `decode`) changed by `change`;
        `measured_ns` is recomputed for the measured pipeline calls with their own steps."""
        encode, step, decode = (change(part) for part in (self.encode, self.step, self.decode))
        total = np.zeros_like(self.measured_ns)
        for task in (*encode, *step, *decode):
            total = total + task.total_ns
        return replace(self, encode=encode, step=step, decode=decode, measured_ns=total)

    @property
    def submodules(self) -> tuple[str, ...]:
        """The submodules that are called, in order of their first calls."""
        names = (task.submodule for task in self.tasks)
        return tuple(dict.fromkeys(name for name in names if name is not None))


def workload_of(run: Run, analysis: Analysis, pipeline: int | None = None) -> Workload:
    """Return the workload of the pipeline calls of `run`, or of the one numbered `pipeline`.

    Of several the last is left out if the recording ended before it did, and the first if there was
    no warm-up. Raises InputError if the run has no pipeline call that called anything, or its
    pipeline calls did different things.
    """
    calls = run.calls if run.calls["call"].is_sorted() else run.calls.sort("call")
    pipelines = PipelineCalls.of(run)
    if pipelines.spans.is_empty():
        raise InputError(
            "the run holds no pipeline span, so what a request is made of is not known: record it "
            "with profiler.profile(pipeline), or give another run"
        )
    if not pipelines.known and bool(pipelines.overlapping().any()):
        raise InputError(
            "the run's pipeline calls overlap and it does not say what belongs to which: give a "
            "run in which they run one after the other"
        )
    cut = _chosen(pieces_of(run, pipelines), pipeline, warm=bool(run.info.warmup))
    factors = _overhead_ratio(analysis)
    traced = calls["ops_traced"].to_list()
    names = calls["submodule"].cast(pl.String).to_list()
    factor_of_call = [
        factors.get(name, 1.0) if was_traced else 1.0
        for name, was_traced in zip(names, traced, strict=True)
    ]
    called = [piece.call for pieces in cut for piece in pieces.called]
    applied = {names[row]: factors[names[row]] for row in called if factor_of_call[row] != 1.0}
    workload = Workload(
        encode=(),  # replaced by `with_pieces`
        step=(),
        decode=(),
        steps=0,
        weights=weights_of(run, analysis),
        activations=activations_of(analysis),
        measured_ns=np.zeros(len(cut), dtype=np.int64),
        devices=tuple(analysis.devices["device"]),
        overhead_ratio=applied,
        recorded_ns=np.array([p.duration_ns for p in cut], dtype=np.int64) if applied else None,
        numbers=tuple(pieces.number for pieces in cut),
        kept=kept_of(analysis),
    )
    return with_pieces(workload, cut, factor_of_call)


def with_pieces(
    workload: Workload, cut: Sequence[PipelinePieces], factors: Sequence[float] = ()
) -> Workload:
    """Return `workload` with these pipeline calls, corrected by `factors` as in `ScaledPieces`."""
    scaled = ScaledPieces(cut, factors)
    found = replace(
        workload,
        encode=scaled.tasks("encode"),
        step=scaled.tasks("step"),
        decode=scaled.tasks("decode"),
        steps=len(cut[0].steps),
        steps_of=_steps_of(cut),
    )
    return found.mapped(lambda tasks: tasks)


def _chosen(
    cut: Sequence[PipelinePieces], pipeline: int | None, *, warm: bool
) -> list[PipelinePieces]:
    """Choose the pipeline calls to measure."""
    if pipeline is not None:
        found = [pieces for pieces in cut if pieces.number == pipeline]
        if not found:
            known = ", ".join(str(pieces.number) for pieces in cut[:8])
            raise InputError(f"the run has no pipeline call {pipeline}: choose one of {known}")
    else:
        found = _whole(cut)
        if not warm and len(found) > 1:
            del found[0]  # it paid for what happens once
    if not any(pieces.steps or pieces.called for pieces in found):
        raise InputError(
            "predict starts from the calls of a pipeline call, and the run holds none: give a "
            "trace in which something was called"
        )
    kinds = {_kind(pieces): pieces.number for pieces in reversed(found)}
    if len(kinds) > 1:
        some = ", ".join(str(number) for number in sorted(kinds.values())[:4])
        raise InputError(
            f"pipeline calls {some} of the run did different things (steps, guidance, "
            "submodules): choose one with --pipeline"
        )
    return found


def _whole(cut: Sequence[PipelinePieces]) -> list[PipelinePieces]:
    """The pipeline calls without a last one that the recording cut short: its calls are only the
    start of an earlier one's."""
    *before, last = cut

    def names(pieces: PipelinePieces) -> list[str]:
        return [pieces.pipeline, *(piece.name for piece in pieces.called)]

    own = names(last)
    cut_short = any(len(all_) > len(own) and all_[: len(own)] == own for all_ in map(names, before))
    return before if cut_short else [*cut]


def _kind(pieces: PipelinePieces) -> tuple[object, ...]:
    """A key that pipeline calls measured together have in common."""
    encode, decode = (
        tuple(sorted(piece.name for piece in called_in(phase)))
        for phase in (pieces.encode, pieces.decode)
    )
    in_steps = {piece.name for step in pieces.steps for piece in called_in(step)}
    return (pieces.pipeline, encode, tuple(sorted(in_steps)), decode, len(pieces.steps))


def shortened(run: Run, workload: Workload, factors: Sequence[float]) -> Workload:
    """Return `workload` of `run` with its recorded calls multiplied by `factors`, one per row of
    the run's calls."""
    pieces = pieces_of(run, PipelineCalls.of(run))
    cut = [one for one in pieces if one.number in workload.numbers]
    return with_pieces(workload, cut, factors)


def _overhead_ratio(analysis: Analysis) -> dict[str, float]:
    """Untraced over traced time by submodule: as capture measured it, else if there are enough
    calls of both kinds."""
    rows = analysis.submodules.select("submodule", "overhead_ratio").drop_nulls()
    return {name: factor for name, factor in rows.iter_rows() if 0 < factor < float("inf")}


def _steps_of(cut: Sequence[PipelinePieces]) -> dict[str, float]:
    """The mean number of steps with a call of each name, for calls that are not in every step."""
    in_steps = (step for pieces in cut for step in pieces.steps)
    counts = Counter(name for step in in_steps for name in {p.name for p in called_in(step)})
    steps = len(cut[0].steps)
    return {n: count / len(cut) for n, count in counts.items() if count != steps * len(cut)}


# --- The tasks of one request as a graph: what each waits for, and which resource it needs.
#
# Two orders. `pipeline` is a thread for each request, which calls one submodule after another, as
# diffusers does. `graph` needs a scheduler such as Triton's ensembles: a call starts as soon as its
# inputs are there. Calls of `encode` wait only for the request and their own host work, calls of
# one step for the step before and for earlier calls of their own branch. Host work at the end of a
# part (joining embeddings, the scheduler) waits for all of the part. Tasks of `decode` stay in
# order.


Order = Literal["graph", "pipeline"]
ORDERS: tuple[str, ...] = get_args(Order)
DEFAULT_ORDER: Order = "pipeline"  # as diffusers does
_Edges = list[list[int]]  # by task of a part: the tasks of the part that it waits for


class RequestGraph(Struct, frozen=True, eq=False):
    """The graph of a request: n nodes, each after all that it waits for.

    `work[i]` is what node i does: tasks with their steps, -1 outside of steps. It is one call, or
    consecutive host work. `resource[i]` is the number in `resources` of what it needs; the first is
    the process's host thread, the others are devices. `waits_for[i]` counts the nodes directly
    before node i, `after[i]` are those directly after it. `servers[r]` is how many nodes resource r
    runs at once: one each if it is empty.
    """

    work: tuple[tuple[tuple[Task, int], ...], ...]
    resources: tuple[str, ...]
    resource: tuple[int, ...]
    waits_for: tuple[int, ...]
    after: tuple[tuple[int, ...], ...]
    servers: tuple[int, ...] = ()

    def critical_path(self, durations: Sequence[float]) -> float:
        """The length of the longest chain of nodes with these durations [n]: the time of a request
        that never waits for a device."""
        begin = [0.0] * len(self.work)
        end = 0.0
        for node, duration in enumerate(durations):
            done = begin[node] + duration
            end = max(end, done)
            for following in self.after[node]:
                begin[following] = max(begin[following], done)
        return end


def request_graph(workload: Workload, order: Order = DEFAULT_ORDER) -> RequestGraph:
    """The graph of one request of `workload`, with each task on its own device.

    Raises InputError for another order, and for a workload without tasks.
    """
    if order not in ORDERS:
        raise InputError(f"{order!r} is not an order of tasks; use {' or '.join(ORDERS)}")
    edges_of = _in_line if order == "pipeline" else None
    parts = [(-1, workload.encode, edges_of or _encode_edges)]
    parts += [(step, workload.step, edges_of or _step_edges) for step in range(workload.steps)]
    parts.append((-1, workload.decode, _in_line))
    work: list[tuple[Task, int]] = []
    before: _Edges = []
    ends: list[int] = []  # nodes that the next part waits for
    for step, part, edges in parts:
        if not part:
            continue
        base = len(work)
        of_part = edges(part)
        before += [[base + i for i in needed] if needed else list(ends) for needed in of_part]
        followed = {i for needed in of_part for i in needed}
        ends = [base + i for i in range(len(part)) if i not in followed]
        work += [(task, step) for task in part]
    if not work:
        raise InputError("the workload has no tasks; record a run with at least one call")
    return _graph(work, before)


def _graph(work: Sequence[tuple[Task, int]], before: _Edges) -> RequestGraph:
    """Build the graph of tasks, each of which waits for those in `before`; host work followed by
    nothing but other host work is merged into one node."""
    followers = Counter(earlier for needed in before for earlier in needed)
    node_of: list[int] = []
    grouped: list[list[tuple[Task, int]]] = []
    after: _Edges = []
    waits_for: list[int] = []
    for (task, step), needed in zip(work, before, strict=True):
        only = needed[0] if len(needed) == 1 and followers[needed[0]] == 1 else None
        if task.submodule is None and only is not None and work[only][0].submodule is None:
            node_of.append(node_of[only])
            grouped[node_of[only]].append((task, step))
            continue
        node_of.append(len(grouped))
        grouped.append([(task, step)])
        after.append([])
        waits_for.append(len(needed))
        for earlier in needed:
            after[node_of[earlier]].append(node_of[-1])
    calls = [group[0][0] for group in grouped]
    devices = sorted({task.device for task in calls if task.submodule is not None})
    number = {device: i for i, device in enumerate(devices, start=1)}
    return RequestGraph(
        work=tuple(map(tuple, grouped)),
        resources=(HOST, *devices),
        resource=tuple(0 if t.submodule is None else number[t.device] for t in calls),
        waits_for=tuple(waits_for),
        after=tuple(map(tuple, after)),
    )


def _in_line(part: Sequence[Task]) -> _Edges:
    return [[i - 1] if i else [] for i in range(len(part))]


def _encode_edges(part: Sequence[Task]) -> _Edges:
    """The edges of `encode`: each call waits for the host work directly before it."""
    return _edges(part, [str(i) for i in range(len(part))])


def _step_edges(part: Sequence[Task]) -> _Edges:
    """Each call waits for the calls of its branch before it, and for the host work between."""
    branches = {task.branch for task in part if task.submodule is not None}
    if len(branches) > 1 and not branches <= {"cond", "uncond"}:
        return _in_line(part)  # both branches need a batched call's result
    return _edges(part, [task.branch for task in part])


def _edges(part: Sequence[Task], chains: Sequence[str]) -> _Edges:
    """The edges of a part: each call waits for the one before it in its chain and for the host work
    directly before it; host work after the last call waits for all calls."""
    edges: _Edges = []
    pending: list[int] = []  # host work since the last call
    last: dict[str, int] = {}  # call by chain
    behind = 1 + max((i for i, task in enumerate(part) if task.submodule is not None), default=-1)
    for i, (task, chain) in enumerate(zip(part, chains, strict=True)):
        needed = pending[-1:]
        if task.submodule is None:
            if i == behind:
                needed = sorted(last.values())
            pending.append(i)
        else:
            needed += [last[chain]] if chain in last else []
            last[chain] = i
            pending = []
        edges.append(needed)
    return edges
