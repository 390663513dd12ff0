"""The table of chains that could be fused."""

from __future__ import annotations

import polars as pl

from profiler.analysis.inputs import Inputs
from profiler.analysis.roles.tables import kind_roles
from profiler.analysis.roofline.columns import FUSIONS
from profiler.analysis.roofline.fusion import fusion_table
from profiler.analysis.roofline.tables import profiles, works
from profiler.analysis.table import Table

__all__ = ["TABLES"]


def _fusions(of: Inputs) -> pl.DataFrame:
    role = kind_roles(of)["role"]
    return fusion_table(of.calls, of.kinds, works(of), of.commands, profiles(of), role)


TABLES = (
    Table(
        name="fusions",
        row="one chain of operators that could be fused",
        section="roofline",
        columns=FUSIONS,
        make=_fusions,
        title="What fusing would save at most",
        about="The commands of a chain pass tensors to each other through memory. Chains with "
        "equal op types are added up; rows are in order of `saved_bytes`, largest first. "
        "[roofline.md](roofline.md) has details.",
        rank=("-saved_bytes",),
    ),
)
