"""What the tree of modules is made of, from the inputs of an analysis."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from profiler.analysis.accounting.identity import Accounting
from profiler.analysis.call_kinds import CallKinds
from profiler.analysis.distinct_commands import Kinds
from profiler.analysis.module_tree.folding import Folded, folded
from profiler.analysis.module_tree.measures import Sums
from profiler.analysis.module_tree.paths import Kind, Paths
from profiler.analysis.module_tree.rows import Around, Inside
from profiler.run.intervals import Codes, Times, group_heads
from profiler.trace.manifest_fields import Submodule

__all__ = ["around", "inside", "kept_kinds", "once_of", "paths_of", "stage_sums"]

_CALLS = 1 << 12  # at a time
_Flags = npt.NDArray[np.bool_]


def kept_kinds(kinds: Kinds) -> _Flags:
    """Which kinds are work of a device in a call, bool [kinds]."""
    works = ~pl.col("host") & (pl.col("category") != "sync") & pl.col("submodule").is_not_null()
    found: _Flags = kinds.table.select(works.alias("works"))["works"].to_numpy()
    return found


def paths_of(
    kinds: Kinds, kept: _Flags, roles: pl.Series, names: list[str], known: dict[str, Submodule]
) -> Paths:
    """The modules and operators of the kinds that are `kept`; `roles` is that of each kind, `names`
    are the submodules by first call."""
    rows = kinds.table.with_columns(role=roles.cast(pl.String)).filter(pl.Series(kept))
    classes = {name: known[name].modules for name in names if name in known}
    return Paths.of(names, map(Kind._make, rows.select(Kind._fields).iter_rows()), classes)


def stage_sums(cells: CallKinds, stage: Codes, stages: int, kinds: int) -> tuple[Times, Times]:
    """Commands and durations of each kind in the calls of each stage, int64 [stages, kinds]."""
    code = stage[cells.call] * np.int64(kinds) + cells.kind
    found = tuple(
        np.bincount(code, values, stages * kinds).astype(np.int64).reshape(stages, kinds)
        for values in (cells.commands, cells.busy)
    )
    return found[0], found[1]


def once_of(kinds: Kinds) -> Times:
    """1 for kinds whose commands each are an execution, 0 for further kernels of an operator."""
    part = kinds.table["shapes"].str.extract(r" part (\d+)/\d+$").cast(pl.Int64)
    found: Times = (part.fill_null(1) == 1).cast(pl.Int64).to_numpy()
    return found


def around(
    name: str, calls: pl.DataFrame, account: Accounting | None, lost_ns: int, pipelines: int
) -> Around:
    """What is around modules; without an `account`, which is of the whole run, calls alone."""
    stages = {one.stage: one.host_ns + one.idle_ns for one in account.stages} if account else {}
    for stage in calls["stage"].unique(maintain_order=True).to_list():
        stages.setdefault(stage, 0)
    untraced = ~pl.col("ops_traced")
    submodules = calls.group_by("stage", "submodule", maintain_order=True).agg(
        calls=pl.len().cast(pl.Int64),
        elapsed_ns=pl.col("elapsed_ns").sum(),
        untraced=untraced.sum().cast(pl.Int64),
        untraced_ns=pl.col("elapsed_ns").filter(untraced).sum(),
    )
    return Around(name, pipelines, lost_ns, [*stages], [*stages.values()], submodules)


def inside(
    paths: Paths,
    sums: Sums,
    roles: pl.Series,
    cells: CallKinds,
    stage: Codes,
    calls: int,
) -> Inside:
    """What is in submodules: `sums` are the measures by stage and kind, `roles` that of each kind,
    `stage` that of each of the `calls`."""
    blocks, stages = folded(paths), len(sums)
    leaf = np.full(sums.shape[1], -1)
    leaf[[*paths.leaf]] = [*paths.leaf.values()]
    kept = np.flatnonzero(leaf >= 0)
    total = sums[:, :, 1]
    names = roles.unique().drop_nulls().cast(pl.String).sort().to_list()
    number = {name: at for at, name in enumerate(names)}
    role = np.array([number.get(name, -1) for name in roles.cast(pl.String)], dtype=np.int64)
    told = kept[role[kept] >= 0]
    of, parent = np.array(blocks.of, dtype=np.int64), np.array(blocks.parent, dtype=np.int64)
    by_node = np.zeros((len(parent), stages, sums.shape[2]))
    by_role = np.zeros((len(parent), stages, len(names)))
    for at in range(stages):
        np.add.at(by_node[:, at], of[leaf[kept]], sums[at, kept])
        np.add.at(by_role[:, at], (of[leaf[told]], role[told]), total[at, told])
    _upwards(parent, by_node, by_role)
    one_by_one = np.zeros((len(paths.parent), stages, 2))
    for at in range(stages):
        np.add.at(one_by_one[:, at], leaf[kept], sums[at][kept][:, [0, 2]])
    _upwards(np.array(paths.parent, dtype=np.int64), one_by_one)
    visits = np.zeros((len(parent), stages), dtype=np.int64)
    np.add.at(visits, of, _visits(paths, leaf, cells, stage, calls, stages))
    return Inside(paths, blocks, by_node, by_role, names, _blocks(blocks, one_by_one), visits)


def _upwards(parent: Times, *sums: Sums) -> None:
    """Add to each node what is in it, in place; parents stand before what is in them."""
    for nodes, heads, parents in _levels(parent):
        for values in sums:
            values[parents] += np.add.reduceat(values[nodes], heads, axis=0)


def _blocks(blocks: Folded, values: Sums) -> pl.LazyFrame:
    """The time of the blocks that each node stands for, by stage: `values` are theirs and the
    number of their commands, [blocks, stages, 2]. Single ones have none."""
    stages = values.shape[1]
    rows = pl.LazyFrame(
        {
            "within": np.repeat(np.array(blocks.of, dtype=np.int64), stages),
            "of_stage": np.tile(np.arange(stages), len(blocks.of)),
            "own_ns": values[:, :, 0].ravel(),
            "commands": values[:, :, 1].ravel(),
        }
    ).filter(pl.col("commands") > 0)
    own, several = pl.col("own_ns"), pl.len() > 1
    return rows.group_by("within", "of_stage").agg(
        count=pl.len().cast(pl.Int64),
        min_ns=pl.when(several).then(own.min()),
        median_ns=pl.when(several).then(own.median()),
        max_ns=pl.when(several).then(own.max()),
    )


def _visits(
    paths: Paths, leaf: Times, cells: CallKinds, stage: Codes, calls: int, stages: int
) -> Times:
    """In how many calls of each stage each node ran, int64 [nodes, stages]."""
    levels = _levels(np.array(paths.parent, dtype=np.int64))
    found = np.zeros((len(paths.parent), stages), dtype=np.int64)
    node = leaf[cells.kind]
    for first in range(0, calls, _CALLS):
        last = min(first + _CALLS, calls)
        rows = slice(*np.searchsorted(cells.call, (first, last)).tolist())
        ran = np.zeros((len(paths.parent) + 1, last - first), dtype=np.bool_)
        ran[node[rows], cells.call[rows] - first] = True  # what is no node, -1, is the last row
        for nodes, heads, parents in levels:
            ran[parents] |= np.logical_or.reduceat(ran[nodes], heads, axis=0)
        for at in range(stages):
            found[:, at] += ran[:-1, stage[first:last] == at].sum(axis=1)
    return found


def _levels(parent: Times) -> list[tuple[Times, Times, Times]]:
    """The nodes of each level but the first, the deepest first, those of one parent together: with
    the first of each parent's, and the parents."""
    depth, found = _depths(parent), []
    for level in range(int(depth.max(initial=0)), 0, -1):
        nodes = np.flatnonzero(depth == level)
        nodes = nodes[np.argsort(parent[nodes], kind="stable")]
        heads = group_heads(parent[nodes])
        found.append((nodes, heads, parent[nodes][heads]))
    return found


def _depths(parent: Times) -> Times:
    depth = np.zeros(len(parent), dtype=np.int64)
    for node, up in enumerate(parent.tolist()):
        if up >= 0:
            depth[node] = depth[up] + 1
    return depth
