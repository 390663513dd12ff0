"""The roofline in the terminal: verdicts by role or operator, and what fusing would save."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
from rich.table import Table
from rich.text import Text

from profiler.analysis.result import Analysis
from profiler.analysis.roofline.codes import Bound, FusionKind
from profiler.report.excerpts import roof_sentence, with_rates
from profiler.report.layout import clean, numbers, percents, ratios, sizes, table, texts, times
from profiler.report.lines import of_all
from profiler.report.sentences.worded import labels

__all__ = ["roofline_sections"]

_ROWS = 8


def roofline_sections(
    analysis: Analysis, top: int, width: int
) -> Iterator[tuple[str, list[Table | Text]]]:
    """Title and parts of each section; none where no FLOP and no byte of the run is known."""
    rows = analysis.roofline
    if top and (rows["flops"].is_not_null() | rows["bytes"].is_not_null()).any():
        by_role = analysis.roofline_roles
        shown = by_role if len(by_role) else rows
        count = min(top, _ROWS if shown is rows else len(shown), len(shown))
        noun = "Operators" if shown is rows else "Roles"
        title = f"{noun} against the roof, {of_all(count, len(shown))} by busy time"
        note = Text(clean(roof_sentence(analysis)), style="dim")
        yield title, [_roofline(shown.head(count), width), note]
    fusions = analysis.fusions
    if top and len(fusions):
        count = min(top, _ROWS, len(fusions))
        title = f"What fusing would save at most, {of_all(count, len(fusions))} by bytes"
        yield title, [_fusions(fusions.head(count), width)]


def _roofline(rows: pl.DataFrame, width: int) -> Table:
    name = "role" if "role" in rows.columns else "layer"
    rows = with_rates(rows)
    longest = max(rows["busy_ns"], default=0)
    return table(
        [
            texts(name, rows[name], shrink=24),
            texts("submodule", rows["submodule"], shrink=11, rank=1),
            texts("device", rows["device"], rank=5),
            times("busy", rows["busy_ns"], like_ns=longest),
            times("attainable", rows["attainable_ns"], like_ns=longest),
            percents("of roof", rows["of_roof"]),
            numbers("GFLOP/s", rows["rate"], rank=3),
            numbers("GB/s", rows["bandwidth"], rank=3),
            ratios("FLOPs/byte", rows["intensity"], rank=4),
            times("waited", rows["wait_ns"], rank=2, like_ns=longest),
            texts("verdict", labels(rows["verdict"], Bound)),
        ],
        width,
    )


def _fusions(rows: pl.DataFrame, width: int) -> Table:
    longest = max(rows["busy_ns"], default=0)
    return table(
        [
            texts("what", labels(rows["what"], FusionKind)),
            texts("op types", rows["op_types"], shrink=20),
            texts("submodule", rows["submodule"], shrink=11, rank=2),
            numbers("chains", rows["chains"], rank=1),
            times("busy", rows["busy_ns"], like_ns=longest),
            sizes("saves traffic", rows["saved_bytes"]),
            times("saves time", rows["saved_ns"], like_ns=longest),
        ],
        width,
    )
