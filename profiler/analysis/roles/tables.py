"""The tables of roles and of blocks."""

from __future__ import annotations

import polars as pl

from profiler.analysis.inputs import Inputs, shared
from profiler.analysis.partials import Partials
from profiler.analysis.roles.columns import BLOCKS, ROLES
from profiler.analysis.roles.of_kinds import roles_of
from profiler.analysis.roles.partials import Cells, cells_of
from profiler.analysis.roles.times import block_table, role_table
from profiler.analysis.table import Table

__all__ = ["TABLES", "cell_partials", "kind_roles", "work_cells"]


@shared
def kind_roles(of: Inputs) -> pl.DataFrame:
    """The role of each kind of the selected commands, and what decided."""
    given = of.frame["role"]
    return roles_of(of.run.info.submodules, of.kinds, of.commands.call, given)


@shared
def work_cells(of: Inputs) -> Cells:
    """The selected commands by operator and role, call and device."""
    return cells_of(
        of, kind_roles(of), of.table("submodules").select("submodule", "overhead_ratio")
    )


@shared
def cell_partials(of: Inputs) -> Partials:
    """The same as partial results, for every table that is made of them."""
    return work_cells(of).partials()


def _partials(of: Inputs) -> tuple[Partials, ...]:
    return (cell_partials(of),)


def _roles(of: Inputs) -> pl.DataFrame:
    overhead_ratio = of.table("submodules").select("submodule", "overhead_ratio")
    return role_table(of.kinds, kind_roles(of), overhead_ratio)


def _blocks(of: Inputs) -> pl.DataFrame:
    return block_table(of.kinds, kind_roles(of))


TABLES = (
    Table(
        name="roles",
        row="one role in a submodule",
        section="roofline",
        columns=ROLES,
        make=_roles,
        title="What the device time of each submodule is for",
        about="Rows are grouped by submodule, longest first, and show what the time of its "
        "device commands is for. [roles.md](roles.md) has details.",
        reads=("submodules",),
        rank=("submodule", "-total_ns"),
        partials=_partials,
    ),
    Table(
        name="blocks",
        row="one block of a submodule",
        section="roofline",
        columns=BLOCKS,
        make=_blocks,
        title="Norms and modulation in blocks",
        about="A block is a module with a number in its path. Its row shows how much of its time "
        "goes into norms and modulation. [roles.md](roles.md) has details.",
        partials=_partials,
    ),
)
