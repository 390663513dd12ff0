"""What one request (one pipeline call) does, in order, each part with its measured times."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import polars as pl

from profiler.analysis.pipelines import PipelineCalls
from profiler.analysis.prediction.held_memory import activations_of, kept_of, weights_of
from profiler.analysis.prediction.pieces import (
    HOST_TIME,
    Piece,
    PipelinePieces,
    pieces_of,
)
from profiler.analysis.prediction.tasks import ScaledPieces, Task
from profiler.analysis.result import Analysis
from profiler.errors import InputError
from profiler.run.run import Run

__all__ = ["HOST", "Workload", "with_pieces", "workload_of"]

HOST = HOST_TIME  # the name of tasks that are the host's time
_Times = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """The tasks of one request in the order in which the pipeline calls them: those of `encode`
    (before the first step) once, those of `step` in each of `steps` steps, those of `decode` once.

    `measured_ns`, int64 [p], is the time of each pipeline call, the sum over its tasks.
    `weights` are bytes, `activations` the most bytes beside them in a call, by submodule, of those
    where they are known, `kept` those of them that stay held while others run. `devices` are those
    of the run.

    Times of traced calls were multiplied with `overhead_ratio`, untraced over traced time by
    submodule, where it is known; `recorded_ns`, int64 [p], are the pipeline calls without that,
    None where nothing was corrected. `numbers` are the pipeline calls. `steps_of` says in how
    many steps (a mean) a call of a name happened where that is not all.
    """

    encode: tuple[Task, ...]
    step: tuple[Task, ...]
    decode: tuple[Task, ...]
    steps: int
    weights: Mapping[str, int]
    activations: Mapping[str, int]
    measured_ns: _Times
    devices: tuple[str, ...]
    overhead_ratio: Mapping[str, float] = field(default_factory=dict)
    recorded_ns: _Times | None = None
    numbers: tuple[int, ...] = ()
    steps_of: Mapping[str, float] = field(default_factory=dict)
    kept: Mapping[str, int] = field(default_factory=dict)

    @property
    def tasks(self) -> tuple[Task, ...]:
        """All tasks, each once."""
        return (*self.encode, *self.step, *self.decode)

    def mapped(self, change: Callable[[tuple[Task, ...]], tuple[Task, ...]]) -> Workload:
        """With each part (`encode`, `step`, `decode`) changed; `measured_ns` is what the measured
        pipeline calls, with their own steps, would have taken."""
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
    """The workload of the pipeline calls of `run`, of one of them where `pipeline` is its number.

    Of several the first is left out where nothing was run to warm up. Raises InputError where the
    run has no pipeline call with steps, or its pipeline calls did different things.
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
    called = [row for pieces in cut for row in _calls_in(pieces)]
    applied = {names[row]: factors[names[row]] for row in called if factor_of_call[row] != 1.0}
    scaled = ScaledPieces(cut, factor_of_call)
    workload = Workload(
        encode=scaled.tasks("encode"),
        step=scaled.tasks("step"),
        decode=scaled.tasks("decode"),
        steps=len(cut[0].steps),
        weights=weights_of(run, analysis),
        activations=activations_of(analysis),
        measured_ns=np.zeros(len(cut), dtype=np.int64),
        devices=tuple(analysis.devices["device"]),
        overhead_ratio=applied,
        recorded_ns=np.array([p.duration_ns for p in cut], dtype=np.int64) if applied else None,
        numbers=tuple(pieces.number for pieces in cut),
        steps_of=_steps_of(cut),
        kept=kept_of(analysis),
    )
    return workload.mapped(lambda tasks: tasks)


def with_pieces(workload: Workload, cut: Sequence[PipelinePieces]) -> Workload:
    """`workload` were its pipeline calls these, which nothing corrects any more."""
    pieces = (piece for each in cut for piece in _pieces_in(each))
    last = max((piece.call for piece in pieces), default=-1)
    scaled = ScaledPieces(cut, [1.0] * (last + 1))
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
    """The pipeline calls to be measured."""
    if pipeline is not None:
        found = [pieces for pieces in cut if pieces.number == pipeline]
        if not found:
            known = ", ".join(str(pieces.number) for pieces in cut[:8])
            raise InputError(f"the run has no pipeline call {pipeline}: choose one of {known}")
    elif warm or len(cut) == 1:
        found = list(cut)
    else:
        found = list(cut[1:])  # the first paid for what happens once
    if not any(pieces.steps for pieces in found):
        raise InputError(
            "predict starts from the denoising steps of a pipeline call, and the run holds none: "
            "give the trace of a whole pipeline call of a diffusion pipeline"
        )
    kinds = {_kind(pieces): pieces.number for pieces in reversed(found)}
    if len(kinds) > 1:
        some = ", ".join(str(number) for number in sorted(kinds.values())[:4])
        raise InputError(
            f"pipeline calls {some} of the run did different things (steps, guidance, "
            "submodules): choose one with --pipeline"
        )
    return found


def _kind(pieces: PipelinePieces) -> tuple[object, ...]:
    """What pipeline calls that are measured together have in common."""

    def names(some: Sequence[Piece]) -> tuple[str, ...]:
        return tuple(sorted(piece.name for piece in some if piece.submodule is not None))

    in_steps = tuple(sorted({name for step in pieces.steps for name in names(step)}))
    parts = names(pieces.encode), in_steps, names(pieces.decode)
    return (pieces.pipeline, *parts, len(pieces.steps))


def _calls_in(pieces: PipelinePieces) -> Iterator[int]:
    yield from (piece.call for piece in _pieces_in(pieces) if piece.submodule is not None)


def _pieces_in(pieces: PipelinePieces) -> Iterator[Piece]:
    for phase in (pieces.encode, *pieces.steps, pieces.decode):
        yield from phase


def _overhead_ratio(analysis: Analysis) -> dict[str, float]:
    """Untraced over traced time by submodule: what capture measured, else where enough calls of
    both kinds tell."""
    rows = analysis.submodules.select("submodule", "overhead_ratio").drop_nulls()
    return {name: factor for name, factor in rows.iter_rows() if 0 < factor < float("inf")}


def _steps_of(cut: Sequence[PipelinePieces]) -> dict[str, float]:
    """By name in how many steps a call happened, those that do not happen in all."""
    counts: dict[str, int] = {}
    for pieces in cut:
        for step in pieces.steps:
            for name in {piece.name for piece in step if piece.submodule is not None}:
                counts[name] = counts.get(name, 0) + 1
    steps = len(cut[0].steps)
    return {n: count / len(cut) for n, count in counts.items() if count != steps * len(cut)}
