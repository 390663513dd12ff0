"""What the device time is for: roles by submodule and by block, norms and modulation."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from profiler.analysis.result import Analysis
from profiler.analysis.roles.columns import BLOCKS, ROLES
from profiler.analysis.roles.times import block_roles
from profiler.report.model import Figure, Part, ReportInput, Selected
from profiler.report.sections.block_submodule import submodule_of_blocks
from profiler.report.views import table
from profiler.text import said, sentence

__all__ = ["blocks_figure", "role_parts", "roles_figure"]

_HELD = 200  # blocks
_WITHOUT_CLASSES = said(
    "the trace has no classes of modules: roles are by names, op types and shapes"
)
_ROLES = (
    "submodule",
    "role",
    "commands",
    "total_ns",
    "share",
    "corrected_ns",
    "image_stream_ns",
    "text_stream_ns",
    "norm_kinds",
    "decided_by",
)
_OF_BLOCKS = (
    "block",
    "submodule",
    "commands",
    "total_ns",
    "norm_ns",
    "norm_share",
    "modulation_ns",
    "modulation_share",
    "image_stream_ns",
    "text_stream_ns",
)


def roles_figure(analysis: Analysis) -> Figure:
    """The share of each role in the device time of each submodule."""
    return Figure("roles", "roles", (analysis.roles,))


def blocks_figure(analysis: Analysis, submodule: str) -> Figure:
    """What the device time of each block of that submodule is for."""
    found = block_roles(analysis.kinds, analysis.kind_roles)
    rows = found.filter(pl.col("submodule") == submodule)
    return Figure("blocks", "blocks", (rows,))


def role_parts(of: ReportInput) -> Iterator[Part]:
    """Roles of each submodule, image against context stream, and the blocks."""
    analysis = of.analysis
    roles = analysis.roles.drop_nulls("submodule").filter(pl.col("total_ns") > 0)
    if roles.is_empty():
        return
    known = any("class" in by for by in roles["decided_by"])
    of_submodule = pl.col("total_ns").sum().over("submodule")
    blocks = analysis.blocks.filter(pl.col("total_ns") > 0).sort(
        of_submodule, descending=True, maintain_order=True
    )
    yield Part(
        said("What the device time is for"),
        figure=roles_figure(analysis),
        table=table(
            "roles",
            "roles",
            _ROLES,
            ROLES,
            roles,
            shown=15,
            search=True,
            sort="total_ns",
            selected=Selected("roles", known=("submodule",), positive="total_ns"),
        ),
        notes=() if known else (sentence(_WITHOUT_CLASSES),),
        anchor="roles",
    )
    largest = submodule_of_blocks(analysis.blocks)
    if largest:
        yield Part(
            said("Roles by block of {submodule}", submodule=largest),
            figure=blocks_figure(analysis, largest),
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
            selected=Selected("blocks", positive="total_ns"),
        ),
        folded=True,
    )
