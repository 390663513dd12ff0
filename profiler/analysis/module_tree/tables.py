"""The table of modules as a tree."""

from __future__ import annotations

import polars as pl

from profiler.analysis.accounting.tables import accounting
from profiler.analysis.inputs import Inputs
from profiler.analysis.module_tree.assembled import (
    around,
    inside,
    kept_kinds,
    once_of,
    paths_of,
    stage_sums,
)
from profiler.analysis.module_tree.columns import MODULE_TREE
from profiler.analysis.module_tree.measures import sums_of
from profiler.analysis.module_tree.own_times import own_times
from profiler.analysis.module_tree.rows import Around, tree
from profiler.analysis.roles.tables import kind_roles
from profiler.analysis.roofline.tables import kind_bounds
from profiler.analysis.table import FigureSpec, Table
from profiler.run.columns import schema

__all__ = ["TABLES"]


def _module_tree(of: Inputs) -> pl.DataFrame:
    calls, kinds = of.table("calls"), of.kinds
    if calls.is_empty():
        return pl.DataFrame(schema=schema(MODULE_TREE))
    kept, roles = kept_kinds(kinds), kind_roles(of)["role"]
    outside = _around(of, calls)
    names = calls["submodule"].unique(maintain_order=True).to_list()
    paths = paths_of(kinds, kept, roles, names, of.run.info.submodules)
    number = {name: at for at, name in enumerate(outside.stages)}
    stage = calls["stage"].replace_strict(number, return_dtype=pl.Int64).to_numpy()
    begin = calls["begin_ns"].fill_null(0).to_numpy()
    length = (calls["end_ns"].fill_null(0) - calls["begin_ns"].fill_null(0)).to_numpy()
    stages = len(outside.stages)
    own = own_times(of.commands, kinds.of_command, kept, (begin, length), stage, stages)
    commands, totals = stage_sums(of.call_kinds, stage, stages, len(kinds))
    sums = sums_of(own, commands, totals, once_of(kinds), kind_bounds(of))
    return tree(outside, inside(paths, sums, roles, of.call_kinds, stage, len(calls)))


def _around(of: Inputs, calls: pl.DataFrame) -> Around:
    info = of.run.info
    name = info.pipeline or info.model
    if of.selection:
        return around(name, calls, None, 0, 0)
    account = accounting(of)
    axis = of.axis.of_all()
    lost = account.residual_ns if account.possible else (axis.counted.minus(axis.tiles)).length
    return around(name, calls, account, lost, account.pipelines)


TABLES = (
    Table(
        name="module_tree",
        row="a stage, submodule, module or operator, with what is in it",
        section="modules",
        columns=MODULE_TREE,
        make=_module_tree,
        title="Module tree",
        about="Rows are in depth-first order: a node comes before the nodes in it, of which the "
        "longest come first. At every node, `elapsed_ns` is the sum of `self_ns` and the "
        "`elapsed_ns` of the nodes in it. Within a call, each moment of its tile belongs to one "
        "command: of those that were running, the one that began first. Together the commands of "
        "a call have the union of their times, and the submodule itself has the rest, in which "
        "nothing ran. A stage has the host work and idle time between its calls, together with "
        "device work of no call. The `elapsed_ns` of the run is the end-to-end time, or more "
        "where calls overlapped or ran outside of pipeline calls; for a selection, it is the sum "
        "of the selected calls. Equal blocks are one node, which gives the minimum, median and "
        "maximum over these blocks. Where layers do not name modules, operators are grouped by "
        "role. The table is empty without calls. [The decision](decisions/0073-module-tree.md) "
        "has details.",
        reads=("calls",),
        shown=40,
        figure=FigureSpec(
            "icicle", {"parent": ("parent",), "value": ("elapsed_ns",), "role": ("role",)}
        ),
    ),
)
