"""What the time is for, in the terminal: roles by submodule, norms and modulation by block."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
from rich.table import Table
from rich.text import Text

from profiler.analysis.result import Analysis
from profiler.report.excerpts import WITHOUT_CLASSES, roles_shown
from profiler.report.terminal.layout import numbers, percents, table, texts, times

__all__ = ["role_sections"]

_BLOCKS = 4  # rows of blocks


def role_sections(analysis: Analysis, width: int) -> Iterator[tuple[str, list[Table | Text]]]:
    """Titles and tables; nothing where no command has a role."""
    shown = roles_shown(analysis.roles)
    if len(shown):
        parts: list[Table | Text] = [_roles(shown, width)]
        if not any("class" in by for by in analysis.roles["decided_by"]):
            parts.append(Text(WITHOUT_CLASSES, style="dim"))
        yield "What the device time of each submodule is for", parts
    blocks = _folded(analysis.blocks)
    if len(blocks):
        yield "Norms and modulation in blocks", [_blocks(blocks, width)]


def _roles(roles: pl.DataFrame, width: int) -> Table:
    longest = max(roles["busy_ns"], default=0)
    streams = roles["image_ns"].is_not_null().any()
    calibrated = (roles["calibrated_ns"] != roles["busy_ns"]).any()
    columns = [
        texts("submodule", roles["submodule"], shrink=12),
        texts("role", roles["role"]),
        numbers("commands", roles["commands"], rank=3),
        times("busy", roles["busy_ns"], like_ns=longest),
        *([times("untraced", roles["calibrated_ns"], rank=4)] if calibrated else []),
        percents("share", roles["share"]),
        *([times("image", roles["image_ns"], rank=1, like_ns=longest)] if streams else []),
        *([times("context", roles["context_ns"], rank=1, like_ns=longest)] if streams else []),
        texts("norms", roles["norm_kinds"], rank=2, shrink=12),
        texts("decided by", roles["decided_by"], rank=5, shrink=12),
    ]
    return table(columns, width)


def _folded(blocks: pl.DataFrame) -> pl.DataFrame:
    """Blocks that differ in their number as one row, those with most norm and modulation first."""
    sums = ("busy_ns", "norm_ns", "modulation_ns")
    return (
        blocks.with_columns(pl.col("block").str.replace(r"\d+$", "*"))
        .group_by("submodule", "block", maintain_order=True)
        .agg(pl.col(*sums).sum(), number=pl.len())
        .with_columns(conditioned=pl.col("norm_ns") + pl.col("modulation_ns"))
        .filter(pl.col("conditioned") > 0)
        .sort("conditioned", descending=True, maintain_order=True)
        .head(_BLOCKS)
    )


def _blocks(blocks: pl.DataFrame, width: int) -> Table:
    longest = max(blocks["busy_ns"], default=0)
    columns = [
        texts("submodule", blocks["submodule"], shrink=12),
        texts("block", blocks["block"], shrink=20),
        numbers("blocks", blocks["number"]),
        times("busy", blocks["busy_ns"], like_ns=longest),
        times("norms", blocks["norm_ns"], rank=1, like_ns=longest),
        percents("norms", blocks["norm_ns"] / blocks["busy_ns"]),
        times("modulation", blocks["modulation_ns"], rank=1, like_ns=longest),
        percents("modulation", blocks["modulation_ns"] / blocks["busy_ns"]),
    ]
    return table(columns, width)
