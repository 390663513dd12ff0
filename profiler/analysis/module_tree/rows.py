"""The tree of modules, row by row: sums of what is in each node, and what follows from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl
from msgspec import Struct, field
from msgspec.structs import replace

from profiler.analysis.module_tree.codes import Node
from profiler.analysis.module_tree.columns import MODULE_TREE
from profiler.analysis.module_tree.folding import Folded
from profiler.analysis.module_tree.measures import BOUNDS, MEASURES, Sums
from profiler.analysis.module_tree.paths import Paths
from profiler.analysis.roofline.codes import Bound
from profiler.run.columns import schema
from profiler.run.intervals import Times

__all__ = ["Around", "Inside", "tree"]

_OWN, _COMMANDS = MEASURES.index("own_ns"), MEASURES.index("commands")
_EXECUTIONS = MEASURES.index("executions")


class Around(Struct, frozen=True, eq=False):
    """What is around modules: the `name` of the run, its number of `pipelines`, the time in none of
    its `stages` (`self_ns`), of each of these the time in no call (`outside_ns`). `submodules` has
    a row a stage and submodule in order of first calls: stage, submodule, calls, elapsed_ns,
    untraced, untraced_ns."""

    name: str
    pipelines: int
    self_ns: int
    stages: Sequence[str]
    outside_ns: Sequence[int]
    submodules: pl.DataFrame


_MOST = float((1 << 63) - (1 << 10))  # FLOPs that an Int64 holds and a float64 tells


class Inside(Struct, frozen=True, eq=False):
    """What is in submodules. `sums` are the measures of each node of `folded` by stage, [nodes,
    stages, measures], its `roles` what it took by role, [nodes, stages, roles], in the order of
    `role_names`; `blocks` has the times of those that it stands for: node, stage, count, min_ns,
    median_ns, max_ns; `visits` how often it was in a call, [nodes, stages]."""

    paths: Paths
    folded: Folded
    sums: Sums
    roles: Sums
    role_names: Sequence[str]
    blocks: pl.LazyFrame
    visits: Times


class _Row(Struct, frozen=True):
    parent: int
    depth: int
    kind: Node
    name: str
    elapsed_ns: int
    executions: int | None
    within: int = -1  # the node of `Folded`; -1 where it is none
    of_stage: int = -1
    class_name: str | None = None
    stage: str | None = None
    submodule: str | None = None
    path: str | None = None


class _Rows(Struct):
    around: Around
    inside: Inside
    rows: list[_Row] = field(default_factory=list)
    children: list[list[int]] = field(default_factory=list)

    def fill(self) -> None:
        """All rows, depth first: stages in order, what is in submodules by time."""
        folded = self.inside.folded
        self.children = [[] for _ in folded.parent]
        for node, parent in enumerate(folded.parent):
            if parent >= 0:
                self.children[parent].append(node)
        roots = {folded.name[at]: at for at, up in enumerate(folded.parent) if up < 0}
        around = self.around
        elapsed = around.self_ns + sum(around.outside_ns) + _elapsed(around.submodules)
        self.rows.append(_Row(-1, 0, Node.RUN, around.name, elapsed, around.pipelines or None))
        parts = around.submodules.partition_by("stage", as_dict=True)
        for number, (stage, outside) in enumerate(
            zip(around.stages, around.outside_ns, strict=True)
        ):
            own = parts.get((stage,))
            took = outside + (_elapsed(own) if own is not None else 0)
            row = _Row(0, 1, Node.STAGE, stage, took, None, of_stage=number, stage=stage)
            at = self._add(row)
            for one in own.iter_rows(named=True) if own is not None else ():
                self._submodule(at, row, one, roots[one["submodule"]])

    def _add(self, row: _Row) -> int:
        self.rows.append(row)
        return len(self.rows) - 1

    def _submodule(self, parent: int, stage: _Row, one: dict[str, int], node: int) -> None:
        paths, folded = self.inside.paths, self.inside.folded
        row = _Row(
            parent,
            2,
            Node.SUBMODULE,
            folded.name[node],
            one["elapsed_ns"],
            one["calls"],
            node,
            stage.of_stage,
            paths.class_name[folded.members[node][0]] or None,
            stage.stage,
            folded.name[node],
            "",
        )
        at = self._add(row)
        if 0 < one["untraced"] < one["calls"]:
            left = replace(
                row,
                parent=at,
                depth=3,
                kind=Node.UNTRACED,
                name="",
                elapsed_ns=one["untraced_ns"],
                executions=one["untraced"],
                within=-1,
                class_name=None,
            )
            self._add(left)
        self._below(at, row)

    def _below(self, at: int, row: _Row) -> None:
        inside, stage = self.inside, row.of_stage
        paths, folded = inside.paths, inside.folded
        for node in self._present(row.within, stage):
            member = folded.members[node][0]
            kind, sums = paths.kind[member], inside.sums[node, stage]
            ran = sums[_EXECUTIONS] if kind is Node.OPERATOR else inside.visits[node, stage]
            below = _Row(
                at,
                row.depth + 1,
                kind,
                folded.name[node],
                int(sums[_OWN]),
                int(ran),
                node,
                stage,
                paths.class_name[member] or None,
                row.stage,
                row.submodule,
                folded.path[node],
            )
            self._below(self._add(below), below)

    def _present(self, node: int, stage: int) -> Iterator[int]:
        """The nodes in one that ran in a stage, longest first."""
        sums = self.inside.sums
        ran = [child for child in self.children[node] if sums[child, stage, _COMMANDS] > 0]
        name = self.inside.folded.name
        yield from sorted(ran, key=lambda child: (-sums[child, stage, _OWN], name[child]))


def _elapsed(submodules: pl.DataFrame) -> int:
    return int(submodules["elapsed_ns"].sum())


def tree(around: Around, inside: Inside) -> pl.DataFrame:
    """The rows of the table (`columns.MODULE_TREE`)."""
    made = _Rows(around, inside)
    made.fill()
    rows = made.rows
    taken = [name for name in _Row.__struct_fields__ if name != "kind"]
    columns = {name: [getattr(row, name) for row in rows] for name in taken}
    columns |= {"kind": [row.kind.value for row in rows], "class": columns.pop("class_name")}
    frame = (
        pl.DataFrame(columns, strict=False).with_row_index("node").hstack(_measures(rows, inside))
    )
    parent = pl.col("parent").cast(pl.UInt32, strict=False)
    inner = frame.lazy().group_by(node=parent).agg(inner_ns=pl.col("elapsed_ns").sum())
    whole_ns = rows[0].elapsed_ns
    found = (
        frame.lazy()
        .join(inner, on="node", how="left", maintain_order="left")
        .join(inside.blocks, on=["within", "of_stage"], how="left", maintain_order="left")
        .with_columns(
            *_derived(),
            self_ns=pl.col("elapsed_ns") - pl.col("inner_ns").fill_null(0),
            share=pl.when(whole_ns > 0).then(pl.col("elapsed_ns") / whole_ns),
            count=pl.col("count").fill_null(1),
        )
    )
    declared = schema(MODULE_TREE)
    return found.select(pl.col(name).cast(dtype) for name, dtype in declared.items()).collect()


def _measures(rows: list[_Row], inside: Inside) -> pl.DataFrame:
    """The measures of each row; those of stages and of the run are sums of submodules'."""
    sums = np.zeros((len(rows), len(MEASURES)))
    roles = np.zeros((len(rows), len(inside.role_names)))
    for at in range(len(rows) - 1, -1, -1):
        row = rows[at]
        if row.within >= 0:
            sums[at] = inside.sums[row.within, row.of_stage]
            roles[at] = inside.roles[row.within, row.of_stage]
        if row.kind in (Node.SUBMODULE, Node.STAGE):
            sums[row.parent] += sums[at]
            roles[row.parent] += roles[at]
    found = pl.DataFrame({name: sums[:, at] for at, name in enumerate(MEASURES)})
    most = roles.argmax(axis=1) if len(inside.role_names) else np.zeros(len(rows), np.int64)
    half = roles.max(axis=1, initial=0) * 2 > sums[:, MEASURES.index("total_ns")]
    names = pl.Series([*inside.role_names, None], dtype=pl.String)
    role = names.gather(pl.Series(np.where(half, most, len(inside.role_names))))
    return found.drop("own_ns", "executions").with_columns(role=role)


def _derived() -> Iterator[pl.Expr]:
    most = pl.max_horizontal(*BOUNDS)
    of_peak = pl.col("compute_ns") / pl.col("computed_ns")
    yield (
        pl.when((pl.col("flops_ns") > 0) & (pl.col("flops") > 0))
        .then(pl.col("flops") / pl.col("flops_ns") / 1e3)
        .alias("teraflops_per_s")
    )
    yield pl.when((pl.col("computed_ns") > 0) & (of_peak <= 1)).then(of_peak).alias("flops_of_peak")
    yield (
        pl.when(pl.col("flops_ns") > 0)
        .then(pl.col("flops").round().clip(upper_bound=_MOST))
        .alias("flops")
    )
    bound = (
        pl.when((pl.col("blamed_ns") > pl.col("rated_ns")) & (pl.col("rated_ns") > 0))
        .then(pl.lit(Bound.HOST.value))
        .when((2 * pl.col("known_ns") < pl.col("rated_ns")) | (most <= 0))
        .then(None)
    )
    for name, code in zip(BOUNDS, (Bound.COMPUTE, Bound.MEMORY, Bound.LAUNCH), strict=True):
        bound = bound.when(pl.col(name) == most).then(pl.lit(code.value))
    yield bound.otherwise(None).alias("bound")
