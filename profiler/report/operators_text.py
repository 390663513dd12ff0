"""The terminal's tables of operators."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
from rich.table import Table

from profiler.report.terminal.layout import numbers, percents, ratios, table, texts, times
from profiler.report.lines import of_all
from profiler.report.patterns import by_pattern

__all__ = ["operator_sections"]

_HOST_ROWS = 5
_PATTERN_ROWS = 10


def operator_sections(operators: pl.DataFrame, top: int, width: int) -> Iterator[tuple[str, Table]]:
    """Titles and tables of the operators of repeated blocks as one, the `top` longest single ones,
    and what the host did."""
    on_devices = operators.filter(~pl.col("host"))
    on_host = operators.filter("host")
    folded = by_pattern(on_devices)
    if top and len(folded) < len(on_devices):
        shown = min(top, _PATTERN_ROWS, len(folded))
        title = f"Operators with equal blocks folded, {of_all(shown, len(folded))} by busy time"
        yield title, _operators(folded.head(shown), width)
    if top and len(on_devices):
        shown = min(top, len(on_devices))
        title = f"Operators, {of_all(shown, len(on_devices))} by busy time"
        yield title, _operators(on_devices.head(shown), width)
    if top and len(on_host):
        shown = min(top, _HOST_ROWS, len(on_host))
        title = f"Host work, {of_all(shown, len(on_host))} by time"
        yield title, _host_work(on_host.head(shown), width)


def _operators(operators: pl.DataFrame, width: int) -> Table:
    calibrated = operators["calibrated_ns"]
    differs = (calibrated != operators["busy_sum_ns"]).any()
    longest = max(operators["busy_sum_ns"], default=0)
    split = (operators["tracks"] > 1).any()  # else union and busy, efficiency and 1 are the same
    layers = [numbers("layers", operators["layers"])] if "layers" in operators.columns else []
    several = operators["submodule"].n_unique() > 1
    named = texts(
        "submodule",
        operators["submodule"],
        rank=0 if several else 4,
        shrink=11 if several else 0,
    )
    columns = [
        texts("layer", operators["layer"], shrink=32),
        *layers,
        named,
        texts("type", operators["op_types"], rank=5, shrink=14),
        numbers("tracks", operators["tracks"], rank=7),
        numbers("calls", operators["calls"], rank=6),
        numbers("commands", operators["commands"], rank=3 if layers else 0),
        times("union", operators["wall_union_ns"], rank=0 if split else 1, like_ns=longest),
        times("busy", operators["busy_sum_ns"], like_ns=longest),
        *([times("untraced", calibrated, rank=2)] if differs else []),
        times("median", operators["median_ns"], rank=8),
        ratios("parallel", operators["parallel_efficiency"], rank=0 if split else 2),
        ratios("imbalance", operators["imbalance"], rank=3),
        percents("share", operators["share"]),
    ]
    return table(columns, width)


def _host_work(operators: pl.DataFrame, width: int) -> Table:
    columns = [
        texts("layer", operators["layer"], shrink=24),
        texts("submodule", operators["submodule"], shrink=14),
        numbers("commands", operators["commands"]),
        times("union", operators["wall_union_ns"]),
        times("busy", operators["busy_sum_ns"]),
        times("median", operators["median_ns"], rank=1),
        percents("share", operators["share"]),
    ]
    return table(columns, width)
