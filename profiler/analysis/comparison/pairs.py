"""Submodules of two sides under one name, where no name is on both: producers call them after
classes, files or nothing at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from profiler.analysis.comparison.codes import ComparisonNote
from profiler.analysis.comparison.measure import Measurement
from profiler.text import Note
from profiler.trace.events import NO_STEP, RUN_STAGE

__all__ = ["Paired", "paired"]


@dataclass(frozen=True, slots=True)
class Paired:
    """Both sides with names in common, and what was called alike."""

    base: Sequence[Measurement]
    new: Sequence[Measurement]
    note: Note | None = None


def paired(base: Sequence[Measurement], new: Sequence[Measurement]) -> Paired:
    """The only submodule of one side as the only one of the other; else, where a side has several,
    all of each side as one. Sides that share a name stay as they are."""
    names = [_names(side) for side in (base, new)]
    if {*names[0]} & {*names[1]} or not names[0] or not names[1]:
        return Paired(base, new)
    if len(names[0]) == len(names[1]) == 1:
        left, right = names[0][0], names[1][0]
        note = Note.of(ComparisonNote.PAIRED, left=left, right=right)
        return Paired(base, [_renamed(run, {right: left}) for run in new], note)
    note = Note.of(ComparisonNote.TOGETHER, left=tuple(names[0]), right=tuple(names[1]))
    return Paired([*map(_as_one, base)], [*map(_as_one, new)], note)


def _names(side: Sequence[Measurement]) -> list[str]:
    return [*dict.fromkeys(name for run in side for name in run.calls["submodule"])]


def _as_one(run: Measurement) -> Measurement:
    """All submodules as one; calls that lie in no pipeline call are parts of the same execution."""
    found = _renamed(run, dict.fromkeys(_names([run]), RUN_STAGE))
    pipelines = run.calls.filter(pl.col("pipeline") >= 0)["pipeline"].n_unique()
    details = replace(found.details, samples={RUN_STAGE: max(pipelines, 1)})
    place = {"step": pl.lit(NO_STEP, pl.Int32())}
    if not pipelines:
        place["pipeline"] = pl.lit(0, pl.Int64())
    calls, work = (frame.with_columns(**place) for frame in (found.calls, found.work))
    return replace(found, calls=calls, work=work, details=details)


def _renamed(run: Measurement, names: Mapping[str, str]) -> Measurement:
    def under(frame: pl.DataFrame) -> pl.DataFrame:
        return frame.with_columns(pl.col("submodule").replace(names))

    samples: dict[str, int] = {}
    for name, count in run.details.samples.items():
        renamed = names.get(name, name)
        samples[renamed] = max(samples.get(renamed, 0), count)
    return replace(
        run,
        calls=under(run.calls),
        work=under(run.work),
        overhead_ratio={names.get(name, name): own for name, own in run.overhead_ratio.items()},
        modules={names.get(name, name): own for name, own in run.modules.items()},
        details=replace(
            run.details,
            layers=under(run.details.layers),
            operations=under(run.details.operations),
            samples=samples,
        ),
    )
