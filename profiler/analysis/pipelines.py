"""Which pipeline call a row of a run belongs to, and how many of them ran at the same time.

A run that was recorded says so in its column `pipeline`. In others (foreign traces, bundles from
before pipeline calls had numbers) a row belongs to the pipeline span that began last before it.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from profiler.analysis.arrays import CommandArrays
from profiler.run.intervals import Codes, Times, ends, positions
from profiler.run.run import Run
from profiler.trace.events import NO_PIPELINE

__all__ = ["PipelineCalls", "call_groups", "step_keys"]


class PipelineCalls(Struct, frozen=True, eq=False):
    """The pipeline calls of a run. `known` tells whether the run says what belongs to which;
    `numbers` are those of its pipeline spans, sorted, int32 [p]; `spans` are these spans."""

    known: bool
    numbers: Codes
    spans: pl.DataFrame
    starts: Times

    @classmethod
    def of(cls, run: Run) -> PipelineCalls:
        """The pipeline calls of `run`."""
        spans = run.spans.filter(pl.col("kind") == "pipeline").sort("start_ns")
        told = spans if len(spans) else run.calls
        known = len(told) > 0 and bool(
            (told["pipeline"] != NO_PIPELINE).all()
            if len(spans)
            else (told["pipeline"] != NO_PIPELINE).any()
        )
        if not known:
            spans = spans.with_columns(pipeline=pl.int_range(pl.len(), dtype=pl.Int32))
        numbers = spans["pipeline"].unique().sort().to_numpy()
        return cls(known, numbers, spans, spans["start_ns"].to_numpy())

    def number_of(self, frame: pl.DataFrame, rows: Times | None = None) -> Codes:
        """The number of the pipeline call of each row of `frame`, of its `rows` where they are
        given; int32, `NO_PIPELINE` where it is in none."""
        column = frame["pipeline" if self.known else "start_ns"]
        values = (column if rows is None else column.gather(rows)).to_numpy()
        if self.known:
            return values
        begun = np.searchsorted(self.starts, values, side="right") - 1
        return np.maximum(begun, 0).astype(np.int32)

    def code_of(self, frame: pl.DataFrame) -> Codes:
        """The place in `numbers` of each row's pipeline call, -1 for none."""
        return positions(self.number_of(frame), self.numbers)

    @property
    def code_of_spans(self) -> Codes:
        """The place in `numbers` of each of `spans`: those that nobody numbered have one each, also
        where two begin at the same moment."""
        return (
            self.code_of(self.spans) if self.known else np.arange(len(self.spans), dtype=np.int32)
        )

    @property
    def apart(self) -> bool:
        """Whether what belongs to which is known: the run says so, or they follow each other."""
        return len(self.numbers) > 0 and (self.known or not self.overlapping().any())

    def overlapping(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Whether each pipeline call ran at the same time as another, bool [p]."""
        first = np.full(len(self.numbers), np.iinfo(np.int64).max)
        last = np.full(len(self.numbers), np.iinfo(np.int64).min)
        codes = self.code_of_spans
        np.minimum.at(first, codes, self.starts)
        np.maximum.at(last, codes, ends(self.spans))
        found = np.zeros(len(self.numbers), dtype=np.bool_)
        order = np.lexsort((last, first))
        reached = np.maximum.accumulate(last[order])
        into = first[order][1:] < reached[:-1]  # begins before one of those before it has ended
        found[order[1:]] = into
        # The one that it runs into is not always its neighbour: whoever ends after a later begin.
        after = np.searchsorted(first[order], last[order], side="left")
        found[order] |= after > np.arange(1, len(order) + 1)
        return found


def step_keys(pipeline: Codes, step: Codes) -> Times:
    """One number a step of a pipeline call, int64 [n], in order of both: the number of the call in
    the upper, the step in the lower 32 bits. `NO_STEP` is one below the call's first."""
    keys: Times = (pipeline.astype(np.int64) << 32) + step
    return keys


def call_groups(calls: pl.DataFrame, frame: pl.DataFrame, commands: CommandArrays) -> Codes:
    """The call of each command of `frame`, whose arrays are `commands`, as its row in `calls`;
    behind all calls, the pipeline call and step of work of none."""
    free = np.flatnonzero(commands.call < 0)
    group = commands.call.astype(np.int32)  # a copy: who asks may write over it
    group[free] = commands.step[free] + (len(calls) + 1)
    last = frame["pipeline"].max()
    if isinstance(last, int) and last > 0:
        pipeline = frame["pipeline"].gather(free).to_numpy()
        _, place = np.unique(step_keys(pipeline, commands.step[free]), return_inverse=True)
        group[free] = len(calls) + place
    return group
