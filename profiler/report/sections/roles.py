"""What the device time is for: roles by submodule and by block, norms and modulation."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from profiler.analysis.roles.columns import BLOCKS, ROLES
from profiler.messages import said, sentence
from profiler.report.charts.blocks import blocks as block_chart
from profiler.report.charts.blocks import submodule_of_blocks
from profiler.report.charts.roles import roles as role_chart
from profiler.report.model import Figure, Part, ReportInput
from profiler.report.views import table

__all__ = ["role_parts"]

_HELD = 200  # blocks
_WITHOUT_CLASSES = said(
    "the trace has no classes of modules: roles are by names, op types and shapes"
)
_ROLES = (
    "submodule",
    "role",
    "commands",
    "busy_ns",
    "share",
    "calibrated_ns",
    "image_ns",
    "context_ns",
    "norm_kinds",
    "decided_by",
)
_OF_BLOCKS = (
    "block",
    "submodule",
    "commands",
    "busy_ns",
    "norm_ns",
    "norm_share",
    "modulation_ns",
    "modulation_share",
    "image_ns",
    "context_ns",
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
