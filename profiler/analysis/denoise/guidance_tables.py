"""The table of what guidance costs."""

from __future__ import annotations

import polars as pl

from profiler.analysis.accounting.tables import accounting
from profiler.analysis.denoise.columns import GUIDANCE
from profiler.analysis.denoise.guidance import guidance_table
from profiler.analysis.inputs import Inputs
from profiler.analysis.replay.shared_gains import replay_gains
from profiler.analysis.roofline.tables import profiles
from profiler.analysis.table import Table

__all__ = ["TABLES"]


def _guidance(of: Inputs) -> pl.DataFrame:
    return guidance_table(
        of.calls,
        of.table("calls"),
        of.table("branches"),
        of.kinds.table,
        profiles(of),
        of.table("submodules").select("submodule", "overhead_ratio"),
        accounting(of).end_to_end_ns,
        lambda: replay_gains(of),
    )


TABLES = (
    Table(
        name="guidance",
        row="one measure of the cost of guidance",
        section="guidance",
        columns=GUIDANCE,
        make=_guidance,
        title="Cost of classifier-free guidance",
        about="The table gives the cost of classifier-free guidance, the negative prompt and "
        "skip-layer guidance for each submodule. [steps.md](steps.md) has details.",
        reads=("branches", "calls", "submodules"),
    ),
)
