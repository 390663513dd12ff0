"""Denoising steps in the terminal: how they change, why some stand out, what could be left out."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
from rich.table import Table
from rich.text import Text

from profiler.analysis.denoise.codes import (
    GuidanceKind,
    InvariantEvidence,
    InvariantKind,
    OutlierCause,
    Over,
)
from profiler.analysis.result import Analysis
from profiler.report.excerpts import (
    HALF_OF_BATCH,
    again_notes,
    changing_parts,
    explained_outliers,
    only_at_most,
    outlier_count,
)
from profiler.report.layout import clean, numbers, percents, table, texts, times
from profiler.report.lines import of_all
from profiler.report.sentences.denoise import NO_CAUSE
from profiler.report.sentences.worded import labels, worded_cell

__all__ = ["denoise_sections"]

_ROWS = 8


def denoise_sections(
    analysis: Analysis, top: int, width: int
) -> Iterator[tuple[str, list[Table | Text]]]:
    """Title and parts of each section; none of what was not found."""
    if not top:
        return
    parts = changing_parts(analysis.step_operators)
    if len(parts):
        count = min(top, _ROWS, len(parts))
        shown = of_all(count, len(parts))
        title = f"From step to step, {shown} with a warm-up, a drift beyond noise or outliers"
        yield title, [_parts(parts.head(count), width)]
    outliers = analysis.step_outliers
    if len(outliers):
        count = min(top, _ROWS, len(outliers))
        title = f"Outliers and what explains them, {of_all(count, outlier_count(analysis))}"
        yield title, [_outliers(explained_outliers(outliers.head(count)), width)]
    if len(analysis.guidance):
        estimated = analysis.guidance["estimated"].any()
        notes = [Text(f"* {HALF_OF_BATCH}", style="dim")] if estimated else []
        yield "What guidance costs", [_guidance(analysis.guidance, width), *notes]
    again = analysis.invariants
    if len(again):
        count = min(top, _ROWS, len(again))
        title = f"Computed again, {of_all(count, len(again))} by what hoisting would save"
        yield title, [_invariants(again.head(count), width), *_again_notes(analysis)]


def _parts(parts: pl.DataFrame, width: int) -> Table:
    longest = max(parts["median_ns"], default=0)
    return table(
        [
            texts("part", parts["part"], shrink=24),
            texts("submodule", parts["submodule"], rank=4, shrink=11),
            numbers("steps", parts["steps"], rank=5),
            times("median", parts["median_ns"], like_ns=longest),
            percents("spread", parts["spread"], rank=3),
            numbers("warm-up", parts["warmup_steps"], rank=1),
            times("cost", parts["warmup_ns"], rank=2, like_ns=longest),
            percents("drift", parts["drift"]),
            percents("from", parts["drift_low"], rank=1),
            percents("to", parts["drift_high"], rank=1),
            numbers("outliers", parts["outliers"]),
        ],
        width,
    )


def _outliers(rows: pl.DataFrame, width: int) -> Table:
    several = rows["pipeline"].n_unique() > 1
    longest = max(rows["busy_ns"], default=0)
    return table(
        [
            *([numbers("call", rows["pipeline"])] if several else []),
            numbers("step", rows["step"]),
            texts("part", rows["part"], shrink=20),
            times("time", rows["busy_ns"], rank=2, like_ns=longest),
            times("too long", rows["excess_ns"], like_ns=longest),
            texts("cause", labels(rows["cause"], OutlierCause, NO_CAUSE)),
            times("of it", rows["cause_ns"], rank=1, like_ns=longest),
            texts("on", rows["place"], rank=1, shrink=12),
            texts("running", rows["cause_layer"], rank=1, shrink=12),
        ],
        width,
    )


def _guidance(rows: pl.DataFrame, width: int) -> Table:
    marks = rows["estimated"].replace_strict({True: "*", False: ""}, return_dtype=pl.String)
    longest = max(rows["wall_ns"], default=0)
    kinds = labels(rows["what"], GuidanceKind)
    calibrated = (rows["calibrated_ns"] != rows["wall_ns"]).any()
    return table(
        [
            texts("what", [f"{what}{mark}" for what, mark in zip(kinds, marks, strict=True)]),
            texts("submodule", rows["submodule"], shrink=12),
            texts("branch", rows["branch"], rank=1),
            numbers("calls", rows["calls"], rank=2),
            times("costs", rows["wall_ns"], like_ns=longest),
            *([times("untraced", rows["calibrated_ns"], rank=4)] if calibrated else []),
            times("busy", rows["busy_ns"], rank=3, like_ns=longest),
            percents("share", rows["share"]),
        ],
        width,
    )


def _invariants(rows: pl.DataFrame, width: int) -> Table:
    marks = rows["estimated"].replace_strict({True: "*", False: ""}, return_dtype=pl.String)
    longest = max(rows["saved_ns"], default=0)
    evidence = [worded_cell(text, InvariantEvidence) for text in rows["evidence"]]
    return table(
        [
            texts("layer", rows["layer"], shrink=24),
            texts("submodule", rows["submodule"], shrink=11, rank=2),
            texts("what", labels(rows["rule"], InvariantKind)),
            texts("same over", labels(rows["same_over"], Over), rank=1),
            numbers("calls", rows["calls"], rank=3),
            numbers("needed", rows["needed"], rank=4),
            times("busy", rows["busy_ns"], rank=3, like_ns=longest),
            times("saved", rows["saved_ns"], like_ns=longest),
            texts("", marks),
            texts("evidence", evidence, rank=5, shrink=20),
        ],
        width,
    )


def _again_notes(analysis: Analysis) -> list[Text]:
    at_most = only_at_most(analysis)
    notes = [again_notes(analysis), *([f"* {at_most}"] if at_most else [])]
    return [Text(clean(note).replace("\N{NO-BREAK SPACE}", " "), style="dim") for note in notes]
