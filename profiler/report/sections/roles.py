"""What the device time is for: roles by submodule and by block, norms and modulation."""

from __future__ import annotations

import polars as pl

from profiler.analysis.result import Analysis
from profiler.analysis.roles.columns import BLOCKS, ROLES
from profiler.messages import said, sentence
from profiler.report.charts import blocks as block_chart
from profiler.report.charts import roles as role_chart
from profiler.report.excerpts import WITHOUT_CLASSES
from profiler.report.lines import of_all
from profiler.report.model import Figure, Part, Section, Shown, table

__all__ = ["role_section"]

_BLOCKS = 200
_ROLES = (
    Shown("submodule", "submodule", "text"),
    Shown("role", "role", "text"),
    Shown("commands", "commands", "count"),
    Shown("busy_ns", "busy", "ns"),
    Shown("share", "share", "share"),
    Shown("calibrated_ns", "untraced", "ns"),
    Shown("image_ns", "image", "ns"),
    Shown("context_ns", "context", "ns"),
    Shown("norm_kinds", "norms", "list"),
    Shown("decided_by", "decided by", "list", minor=True),
)
_OF_BLOCKS = (
    Shown("block", "block", "layer"),
    Shown("submodule", "submodule", "text"),
    Shown("commands", "commands", "count"),
    Shown("busy_ns", "busy", "ns"),
    Shown("norm_ns", "norms", "ns"),
    Shown("norm_share", "norms", "share"),
    Shown("modulation_ns", "modulation", "ns"),
    Shown("modulation_share", "modulation", "share"),
    Shown("image_ns", "image", "ns"),
    Shown("context_ns", "context", "ns"),
)


def role_section(analysis: Analysis) -> Section:
    """Roles of each submodule, image against context stream, and the blocks."""
    roles = analysis.roles.drop_nulls("submodule").filter(pl.col("busy_ns") > 0)
    known = any("class" in by for by in roles["decided_by"])
    of_submodule = pl.col("busy_ns").sum().over("submodule")
    blocks = analysis.blocks.filter(pl.col("busy_ns") > 0).sort(
        of_submodule, descending=True, maintain_order=True
    )
    shown = blocks.head(_BLOCKS)
    largest = block_chart.submodule_of_blocks(analysis)
    parts = (
        Part(
            figure=Figure("roles", role_chart.roles),
            table=table(
                "roles", "roles", _ROLES, ROLES, roles, shown=10, search=True, sort="busy_ns"
            ),
            notes=() if known else (sentence(WITHOUT_CLASSES),),
        ),
        Part(
            said("Roles by block of {submodule}", submodule=largest),
            figure=Figure("blocks", block_chart.blocks) if largest else None,
        ),
        Part(
            said("Norms and modulation in blocks, {shown}", shown=of_all(len(shown), len(blocks))),
            table=table("blocks", "blocks", _OF_BLOCKS, BLOCKS, shown, shown=10, search=True),
            folded=True,
        ),
    )
    return Section("roles", said("What the device time is for"), said("Roles"), parts)
