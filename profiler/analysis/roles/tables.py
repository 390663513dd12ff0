"""The tables of roles and of blocks."""

from __future__ import annotations

import polars as pl

from profiler.analysis.inputs import Inputs, shared
from profiler.analysis.roles.columns import BLOCKS, ROLES
from profiler.analysis.roles.of_kinds import roles_of
from profiler.analysis.roles.times import block_table, role_table
from profiler.analysis.table import FigureSpec, Table

__all__ = ["TABLES", "kind_roles"]


@shared
def kind_roles(of: Inputs) -> pl.DataFrame:
    """The role of each kind of the selected commands, and what decided."""
    given = of.frame["role"]
    return roles_of(of.run.info.submodules, of.kinds, of.commands.call, given)


def _roles(of: Inputs) -> pl.DataFrame:
    calibration = of.table("submodules").select("submodule", "calibration")
    return role_table(of.kinds, kind_roles(of), calibration)


def _blocks(of: Inputs) -> pl.DataFrame:
    return block_table(of.kinds, kind_roles(of))


TABLES = (
    Table(
        name="roles",
        row="one role in a submodule",
        section="time",
        columns=ROLES,
        make=_roles,
        title="What the device time of each submodule is for",
        about="Rows are by submodule, longest first: what the time of its device commands is for. "
        "[roles.md](roles.md) says more.",
        reads=("submodules",),
        rank=("submodule", "-busy_ns"),
        figure=FigureSpec(
            "bars", {"label": ("submodule",), "group": ("role",), "values": ("busy_ns",)}
        ),
    ),
    Table(
        name="blocks",
        row="one block of a submodule",
        section="time",
        columns=BLOCKS,
        make=_blocks,
        title="Norms and modulation in blocks",
        about="A block has a number: how much of it are norms and modulation. [roles.md](roles.md) "
        "says more.",
    ),
)
