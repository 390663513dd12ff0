"""What the device time is for: roles by submodule and by block, norms and modulation."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from profiler.analysis.roles.columns import BLOCKS, ROLES
from profiler.messages import said, sentence
from profiler.report.charts.blocks import blocks as block_chart
from profiler.report.charts.blocks import submodule_of_blocks
from profiler.report.charts.roles import roles as role_chart
from profiler.report.model import Figure, Part, ReportInput, Shown
from profiler.report.views import table

__all__ = ["role_parts"]

_HELD = 200  # blocks
_WITHOUT_CLASSES = said(
    "the trace has no classes of modules: roles are by names, op types and shapes"
)
_ROLES = (
    Shown("submodule", "submodule", "text"),
    Shown("role", "role", "text"),
    Shown("commands", "commands", "count", 3),
    Shown("busy_ns", "busy", "ns"),
    Shown("share", "share", "share"),
    Shown("calibrated_ns", "untraced", "ns", 4),
    Shown("image_ns", "image", "ns", 1),
    Shown("context_ns", "context", "ns", 1),
    Shown("norm_kinds", "norms", "list", 2),
    Shown("decided_by", "decided by", "list", 5),
)
_OF_BLOCKS = (
    Shown("block", "block", "layer"),
    Shown("submodule", "submodule", "text"),
    Shown("commands", "commands", "count", 3),
    Shown("busy_ns", "busy", "ns"),
    Shown("norm_ns", "norms", "ns", 1),
    Shown("norm_share", "norms", "share"),
    Shown("modulation_ns", "modulation", "ns", 1),
    Shown("modulation_share", "modulation", "share"),
    Shown("image_ns", "image", "ns", 4),
    Shown("context_ns", "context", "ns", 4),
)


def role_parts(of: ReportInput) -> Iterator[Part]:
    """Roles of each submodule, image against context stream, and the blocks."""
    analysis = of.analysis
    roles = analysis.roles.drop_nulls("submodule").filter(pl.col("busy_ns") > 0)
    if roles.is_empty():
        return
    known = any("class" in by for by in roles["decided_by"])
    of_submodule = pl.col("busy_ns").sum().over("submodule")
    blocks = analysis.blocks.filter(pl.col("busy_ns") > 0).sort(
        of_submodule, descending=True, maintain_order=True
    )
    yield Part(
        said("What the device time is for"),
        figure=Figure("roles", lambda theme: role_chart(analysis, theme)),
        table=table("roles", "roles", _ROLES, ROLES, roles, shown=15, search=True, sort="busy_ns"),
        notes=() if known else (sentence(_WITHOUT_CLASSES),),
        anchor="roles",
    )
    largest = submodule_of_blocks(analysis)
    if largest:
        yield Part(
            said("Roles by block of {submodule}", submodule=largest),
            figure=Figure("blocks", lambda theme: block_chart(analysis, theme)),
        )
    yield Part(
        said("Norms and modulation in blocks"),
        table=table(
            "blocks",
            "blocks",
            _OF_BLOCKS,
            BLOCKS,
            blocks,
            shown=of.rows(10),
            held=_HELD,
            search=True,
        ),
        folded=True,
    )
