"""Runs that were killed: pipeline spans, which are written as a run ends, made of their calls."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from profiler.run.columns import SPANS, schema
from profiler.run.run import Run
from profiler.trace.events import NO_PIPELINE, DropKind

__all__ = ["with_spans_of_calls"]


def with_spans_of_calls(run: Run) -> Run:
    """A run that was killed with a span for each of its pipeline calls, from the begin of its first
    call to the return of its last one. The last pipeline call, which was cut short, has none where
    there are others. Any other run as it is."""
    told = not run.spans.filter(pl.col("kind") == "pipeline").is_empty()
    if told or all(drop.kind != DropKind.ABORTED_RUN for drop in run.drops):
        return run
    calls = run.calls.filter(pl.col("pipeline") != NO_PIPELINE, pl.col("duration_ns") >= 0)
    extents = (
        calls.group_by("pipeline")
        .agg(
            begin=pl.col("start_ns").min(),
            end=(pl.col("start_ns") + pl.col("duration_ns")).max(),
        )
        .sort("pipeline")
    )
    whole = extents[:-1] if len(extents) > 1 else extents
    name = run.info.pipeline or "pipeline"
    rows = [
        ("pipeline", number, name, None, -1, begin, end - begin)
        for number, begin, end in whole.iter_rows()
    ]
    spans = pl.DataFrame(rows, schema=schema(SPANS), orient="row")
    return replace(run, spans=pl.concat([run.spans, spans]))
