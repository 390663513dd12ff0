"""The module tree as a table: device time, FLOPs and bounds per module and operator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import astuple, replace

from profiler.analysis.commands import CallKinds, are_single
from profiler.analysis.context import Inputs
from profiler.analysis.document import TOP, Figure, Part, SectionGroup, SectionKind
from profiler.analysis.end_to_end import accounting
from profiler.analysis.module_paths import (
    BOUNDS,
    MEASURES,
    Folded,
    Kind,
    Paths,
    Sums,
    folded,
    own_times,
    sums_of,
)
from profiler.analysis.question import FigureSpec, Table, table_named
from profiler.analysis.result import Analysis, ReportInput
from profiler.analysis.roles import kind_roles
from profiler.analysis.roofline import Bound, bound_by, kind_bounds
from profiler.analysis.table_text import (
    Node,
    Sentences,
    columns_of,
    declared_drawing,
    inwards,
    labelled,
    renamed,
    table,
)
from profiler.run.columns import (
    DATA_ONLY,
    INT32,
    INT64,
    LAYER,
    NS,
    SHARE,
    STRING,
    TFLOPS,
    Column,
    col,
    schema,
)
from profiler.run.intervals import Codes, Times, group_heads
from profiler.text import count, duration, percent, said

# --- The columns of the module tree.


MODULE_TREE: tuple[Column, ...] = (
    col("node", INT32, "number of the node: its row", importance=DATA_ONLY),
    col("parent", INT32, "parent node; -1 for the run", importance=DATA_ONLY),
    col("depth", INT32, "depth in the tree; 0 for the run", importance=DATA_ONLY),
    col(
        "name",
        LAYER,
        "its own name: part of a path, with `*` for the numbers of equal blocks; op type for an "
        "operator",
    ),
    col("kind", STRING, "kind of node: " + ", ".join(Node), importance=16, codes=Node),
    col("class", STRING, "class of the module, if known", True, importance=8),
    col("count", INT64, "how many equal blocks or operators it stands for", importance=5),
    col(
        "elapsed_ns",
        NS,
        "inclusive time on the devices' axis: self_ns plus elapsed_ns of the nodes in it",
    ),
    col(
        "self_ns",
        NS,
        "part of elapsed_ns that belongs to no node in it",
        label="self",
        importance=2,
    ),
    col("share", SHARE, "elapsed_ns / elapsed_ns of the run", True),
    col(
        "executions",
        INT64,
        "calls of a submodule; calls in which a module ran, counted separately for each of "
        "several equal blocks; executions of an operator, counted once if it has several "
        "kernels",
        True,
        label="executed",
        importance=1,
    ),
    col(
        "min_ns",
        NS,
        "smallest elapsed_ns among those that it stands for",
        True,
        label="shortest",
        importance=11,
    ),
    col("median_ns", NS, "median elapsed_ns of those that it stands for", True, importance=6),
    col(
        "max_ns",
        NS,
        "largest elapsed_ns among those that it stands for",
        True,
        label="longest",
        importance=11,
    ),
    col(
        "total_ns",
        NS,
        "sum of the durations of its device commands, whether or not they overlap",
        importance=14,
    ),
    col("commands", INT64, "its device commands", importance=15),
    col(
        "teraflops_per_s",
        TFLOPS,
        "FLOPs / time, of commands whose FLOPs are known",
        True,
        label="compute",
        importance=3,
    ),
    col(
        "flops_of_peak",
        SHARE,
        "that rate / the device's peak for its data type; null above the peak",
        True,
        label="of peak, FLOPs known",
        importance=4,
    ),
    col(
        "bound",
        STRING,
        "what bounds it: " + ", ".join(Bound) + "; null if that is known for less than half",
        True,
        codes=Bound,
        importance=4,
    ),
    col("role", STRING, "role of more than half of its total_ns", True, importance=10),
    col("flops", INT64, "sum of the FLOPs that are known", True, importance=DATA_ONLY),
    col("stage", STRING, "stage that it lies in", True, importance=DATA_ONLY),
    col("submodule", STRING, "submodule that it lies in", True, importance=DATA_ONLY),
    col(
        "path",
        STRING,
        "path of its module in the submodule: `*` stands for any number, `[0-22]` for one of these",
        True,
        importance=DATA_ONLY,
    ),
)


# --- The tree of modules, row by row: sums of what is in each node, and what follows from them.


class Around(Struct, frozen=True, eq=False):
    """The tree above modules: the `name` of the run, its number of `pipelines`, the time in none of
    its `stages` (`self_ns`), and the time of each stage in no call (`before_after_ns`).
    `submodules` has one row per stage and submodule in order of first calls: stage, submodule,
    calls, elapsed_ns, untraced, untraced_ns."""

    name: str
    pipelines: int
    self_ns: int
    stages: Sequence[str]
    before_after_ns: Sequence[int]
    submodules: pl.DataFrame


_MOST = float((1 << 63) - (1 << 10))  # FLOPs that fit into both Int64 and float64


class Inside(Struct, frozen=True, eq=False):
    """The tree within submodules. `sums` are the measures of each node of `folded` by stage,
    [nodes, stages, measures], `roles` its time by role, [nodes, stages, roles], in the order of
    `role_names`; `blocks` has the times of the blocks that it stands for: node, stage, count,
    min_ns, median_ns, max_ns; `visits` is the number of calls in which it ran, [nodes, stages]."""

    paths: Paths
    folded: Folded
    sums: Sums
    roles: Sums
    role_names: Sequence[str]
    blocks: pl.DataFrame
    visits: Times


class _Row(Struct, frozen=True):
    parent: int
    depth: int
    kind: Node
    name: str
    elapsed_ns: int
    executions: int | None
    within: int = -1  # the node of `Folded`; -1 if it is none
    of_stage: int = -1
    class_name: str | None = None
    stage: str | None = None
    submodule: str | None = None
    path: str | None = None


def _rows(around: Around, inside: Inside) -> list[_Row]:
    """All rows, depth first: stages in order, the nodes in submodules by time."""
    folded, paths = inside.folded, inside.paths
    children: dict[int, list[int]] = {}
    for node, parent in enumerate(folded.parent):
        children.setdefault(parent, []).append(node)
    roots = {folded.name[at]: at for at, up in enumerate(folded.parent) if up < 0}
    measured = map(MEASURES.index, ("own_ns", "commands", "executions"))
    own_ns, commands, executions = (inside.sums[:, :, at].tolist() for at in measured)
    visits = inside.visits.tolist()
    elapsed = around.self_ns + sum(around.before_after_ns) + _elapsed(around.submodules)
    rows = [_Row(-1, 0, Node.RUN, around.name, elapsed, around.pipelines or None)]

    def add_below(row: _Row, at: int) -> None:
        """The nodes in one, the row `at`, that ran in a stage, longest first."""
        stage = row.of_stage
        ran = [n for n in children.get(row.within, ()) if commands[n][stage] > 0]
        for node in sorted(ran, key=lambda n: (-own_ns[n][stage], folded.name[n])):
            member = folded.members[node][0]
            kind = paths.kind[member]
            times = (executions if kind is Node.OPERATOR else visits)[node][stage]
            below = _Row(
                parent=at,
                depth=row.depth + 1,
                kind=kind,
                name=folded.name[node],
                elapsed_ns=int(own_ns[node][stage]),
                executions=int(times),
                within=node,
                of_stage=stage,
                class_name=paths.class_name[member] or None,
                stage=row.stage,
                submodule=row.submodule,
                path=folded.path[node],
            )
            rows.append(below)
            add_below(below, len(rows) - 1)

    for number, (stage, outside) in enumerate(
        zip(around.stages, around.before_after_ns, strict=True)
    ):
        own, at = around.submodules.filter(stage=stage), len(rows)
        took = outside + _elapsed(own)
        rows.append(_Row(0, 1, Node.STAGE, stage, took, None, of_stage=number, stage=stage))
        for one in own.iter_rows(named=True):
            name, node = one["submodule"], roots[one["submodule"]]
            row = replace(
                rows[at],
                parent=at,
                depth=2,
                kind=Node.SUBMODULE,
                name=name,
                elapsed_ns=one["elapsed_ns"],
                executions=one["calls"],
                within=node,
                class_name=paths.class_name[folded.members[node][0]] or None,
                submodule=name,
                path="",
            )
            rows.append(row)
            of_submodule = len(rows) - 1
            if 0 < one["untraced"] < one["calls"]:
                left = {"elapsed_ns": one["untraced_ns"], "executions": one["untraced"]}
                place = {"parent": of_submodule, "depth": 3, "within": -1, "class_name": None}
                rows.append(replace(row, kind=Node.UNTRACED, name="", **place, **left))
            add_below(row, of_submodule)
    return rows


def _elapsed(submodules: pl.DataFrame) -> int:
    return int(submodules["elapsed_ns"].sum())


def tree(around: Around, inside: Inside) -> pl.DataFrame:
    """The table of the module tree (`MODULE_TREE`)."""
    rows = _rows(around, inside)
    values = zip(*map(astuple, rows), strict=True)
    columns: dict[str, Sequence[Any]] = dict(zip(_Row.__struct_fields__, values, strict=True))
    columns |= {"kind": [row.kind.value for row in rows], "class": columns.pop("class_name")}
    own = pl.DataFrame(columns, strict=False).with_row_index("node")
    frame = own.hstack(_measures(rows, inside))
    parent = pl.col("parent").cast(pl.UInt32, strict=False)
    inner = frame.group_by(node=parent).agg(inner_ns=pl.col("elapsed_ns").sum())
    whole_ns = rows[0].elapsed_ns
    found = (
        frame.join(inner, on="node", how="left", maintain_order="left")
        .join(inside.blocks, on=["within", "of_stage"], how="left", maintain_order="left")
        .with_columns(
            **_derived(),
            self_ns=pl.col("elapsed_ns") - pl.col("inner_ns").fill_null(0),
            share=pl.when(whole_ns > 0).then(pl.col("elapsed_ns") / whole_ns),
            count=pl.col("count").fill_null(1),
        )
    )
    declared = schema(MODULE_TREE)
    return found.select(pl.col(name).cast(dtype) for name, dtype in declared.items())


def _measures(rows: list[_Row], inside: Inside) -> pl.DataFrame:
    """The measures of each row; those of stages and of the run are sums over submodules."""
    sums = np.zeros((len(rows), len(MEASURES)))
    roles = np.zeros((len(rows), len(inside.role_names)))
    within, stage = np.array([(row.within, row.of_stage) for row in rows]).T
    known = within >= 0
    sums[known] = inside.sums[within[known], stage[known]]
    roles[known] = inside.roles[within[known], stage[known]]
    for at in range(len(rows) - 1, -1, -1):
        row = rows[at]
        if row.kind in (Node.SUBMODULE, Node.STAGE):
            sums[row.parent] += sums[at]
            roles[row.parent] += roles[at]
    found = pl.DataFrame({name: sums[:, at] for at, name in enumerate(MEASURES)})
    most = roles.argmax(axis=1) if len(inside.role_names) else np.zeros(len(rows), np.int64)
    half = roles.max(axis=1, initial=0) * 2 > sums[:, MEASURES.index("total_ns")]
    names = pl.Series([*inside.role_names, None], dtype=pl.String)
    role = names.gather(pl.Series(np.where(half, most, len(inside.role_names))))
    return found.drop("own_ns", "executions").with_columns(role=role)


def _derived() -> dict[str, pl.Expr]:
    """Rates and bound by measures."""
    flops, flops_ns, rated = (pl.col(name) for name in ("flops", "flops_ns", "rated_ns"))
    of_peak = pl.col("compute_ns") / pl.col("computed_ns")
    counted = pl.when(flops_ns > 0).then(flops.round().clip(upper_bound=_MOST))
    terms = dict(zip((Bound.COMPUTE, Bound.MEMORY, Bound.LAUNCH), BOUNDS, strict=True))
    host, known = (pl.col("blamed_ns") > rated) & (rated > 0), 2 * pl.col("known_ns") >= rated
    return {
        "teraflops_per_s": pl.when(flops_ns > 0, flops > 0).then(flops / flops_ns / 1e3),
        "flops_of_peak": pl.when(pl.col("compute_ns") > 0, of_peak <= 1).then(of_peak),
        "flops": counted,
        "bound": bound_by(terms, known=known, host=host, took=pl.col("known_ns")),
    }


# --- What the tree of modules is made of, from the inputs of an analysis.


_CALLS = 1 << 12  # at a time


def _around(of: Inputs, calls: pl.DataFrame) -> Around:
    """Return the tree above modules; for a selection, only its calls."""
    info, lost, pipelines = of.run.info, 0, 0
    stages: dict[str, int] = {}
    if not of.selection:
        account = accounting(of)
        pipelines = account.pipelines
        lost = account.unaccounted_ns
        if not account.possible:  # of all as if they were one, if nobody knows what is of which
            codes = range(len(of.pipelines.numbers) if of.pipelines.apart else 0)
            groups = [of.axis.of_pipeline(code) for code in codes] or [of.axis.of_all()]
            lost = sum(group.counted.minus(group.tiles).length for group in groups)
        stages = {one.stage: one.elapsed_ns - one.calls_ns for one in account.stages}
    for stage in calls["stage"].unique(maintain_order=True).to_list():
        stages.setdefault(stage, 0)
    untraced = ~pl.col("ops_traced")
    submodules = calls.group_by("stage", "submodule", maintain_order=True).agg(
        calls=pl.len().cast(pl.Int64),
        elapsed_ns=pl.col("elapsed_ns").sum(),
        untraced=untraced.sum().cast(pl.Int64),
        untraced_ns=pl.col("elapsed_ns").filter(untraced).sum(),
    )
    name = info.pipeline or info.model
    return Around(name, pipelines, lost, [*stages], [*stages.values()], submodules)


def inside(
    paths: Paths, sums: Sums, roles: pl.Series, cells: CallKinds, stage: Codes, calls: int
) -> Inside:
    """Return the tree within submodules: `sums` are the measures by stage and kind, `roles` the
    role of each kind, `stage` the stage of each of the `calls`."""
    blocks, stages = folded(paths), len(sums)
    leaf = np.full(sums.shape[1], -1)
    leaf[[*paths.leaf]] = [*paths.leaf.values()]
    kept = np.flatnonzero(leaf >= 0)
    total = sums[:, :, 1]
    names = roles.unique().drop_nulls().cast(pl.String).sort().to_list()
    number = {name: at for at, name in enumerate(names)}
    role = np.array([number.get(name, -1) for name in roles.cast(pl.String)], dtype=np.int64)
    with_role = kept[role[kept] >= 0]
    of, parent = np.array(blocks.of, dtype=np.int64), np.array(blocks.parent, dtype=np.int64)
    by_node = np.zeros((len(parent), stages, sums.shape[2]))
    by_role = np.zeros((len(parent), stages, len(names)))
    one_by_one = np.zeros((len(paths.parent), stages, 2))
    for at in range(stages):
        np.add.at(by_node[:, at], of[leaf[kept]], sums[at, kept])
        np.add.at(by_role[:, at], (of[leaf[with_role]], role[with_role]), total[at, with_role])
        np.add.at(one_by_one[:, at], leaf[kept], sums[at][kept][:, [0, 2]])
    _upwards(parent, by_node, by_role)
    _upwards(np.array(paths.parent, dtype=np.int64), one_by_one)
    visits = np.zeros((len(parent), stages), dtype=np.int64)
    np.add.at(visits, of, _visits(paths, leaf, cells, stage, calls, stages))
    return Inside(paths, blocks, by_node, by_role, names, _blocks(blocks, one_by_one), visits)


def _upwards(parent: Times, *sums: Sums) -> None:
    """Add to each node the values of those in it, in place; parents come before children."""
    for nodes, heads, parents in _levels(parent):
        for values in sums:
            values[parents] += np.add.reduceat(values[nodes], heads, axis=0)


def _blocks(blocks: Folded, values: Sums) -> pl.DataFrame:
    """The times of the blocks that each node stands for, by stage. `values` are time and number of
    commands of each block, [blocks, stages, 2]. A single block has no times."""
    stages = values.shape[1]
    rows = pl.DataFrame(
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
    """Return in how many calls of each stage each node ran, int64 [nodes, stages]."""
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
    depth = np.zeros(len(parent), dtype=np.int64)
    for node, up in enumerate(parent.tolist()):
        if up >= 0:
            depth[node] = depth[up] + 1
    found = []
    for level in range(int(depth.max(initial=0)), 0, -1):
        nodes = np.flatnonzero(depth == level)
        nodes = nodes[np.argsort(parent[nodes], kind="stable")]
        heads = group_heads(parent[nodes])
        found.append((nodes, heads, parent[nodes][heads]))
    return found


# --- The table of modules as a tree.


def _module_tree(of: Inputs) -> pl.DataFrame:
    calls, kinds, cells = of.table("calls"), of.kinds, of.call_kinds
    if calls.is_empty():
        return pl.DataFrame(schema=schema(MODULE_TREE))
    works = ~pl.col("host") & (pl.col("category") != "sync") & pl.col("submodule").is_not_null()
    roles, part = kind_roles(of)["role"], pl.col("shapes").str.extract(r" part (\d+)/\d+$")
    table = kinds.table.with_columns(
        role=roles.cast(pl.String),
        works=works,
        once=(part.fill_null("1") == "1").cast(pl.Int64),  # further kernels do not count
    )
    kept, once = table["works"].to_numpy(), table["once"].to_numpy()
    names = calls["submodule"].unique(maintain_order=True).to_list()
    known = of.run.info.submodules
    classes = {name: known[name].modules for name in names if name in known}
    rows = table.filter("works").select(Kind._fields).iter_rows()
    paths = Paths.of(names, map(Kind._make, rows), classes)
    outside = _around(of, calls)
    number, stages = {name: at for at, name in enumerate(outside.stages)}, len(outside.stages)
    stage = calls["stage"].replace_strict(number, return_dtype=pl.Int64).to_numpy()
    begin = calls["begin_ns"].fill_null(0)
    tiles = begin.to_numpy(), (calls["end_ns"].fill_null(0) - begin).to_numpy()
    own = own_times(of.commands, kinds.of_command, kept, tiles, stage, stages)
    code = stage[cells.call] * np.int64(len(kinds)) + cells.kind
    commands, totals = (
        np.bincount(code, values, stages * len(kinds)).astype(np.int64).reshape(stages, -1)
        for values in (cells.commands, cells.busy)
    )
    sums = sums_of(own, commands, totals, once, kind_bounds(of))
    found = tree(outside, inside(paths, sums, roles, cells, stage, len(calls)))
    if are_single(of.run.drops):
        found = found.with_columns(share=pl.lit(None, dtype=found.schema["share"]))
    return found


TABLES = (
    Table(
        name="module_tree",
        row="a stage, submodule, module or operator, with what is in it",
        section="modules",
        columns=MODULE_TREE,
        make=_module_tree,
        title="Module tree",
        about="Rows are in depth-first order: a node comes before the nodes in it, of which the "
        "longest come first. Within a call, each moment of its tile belongs to one command: of "
        "those that were running, the one that started first. The submodule itself has the rest, "
        "in which nothing ran. A stage has the host work and idle time between its calls, together "
        "with device work of no call. The `elapsed_ns` of the run is the end-to-end time, or more "
        "if calls overlapped or ran outside of pipeline calls: a note says so. For a selection, it "
        "is the sum of the selected calls. Equal blocks are one node. If layers do not name "
        "modules, operators are grouped by role. The table is empty without calls. "
        "[Why it is so](why.md#module-tree) has details.",
        reads=("calls",),
        shown=40,
        figure=FigureSpec(
            "icicle", {"parent": ("parent",), "value": ("elapsed_ns",), "role": ("role",)}
        ),
    ),
)


# --- Where in the model the time went: the tree from stages down to operators.


_LABEL = col(
    "label",
    LAYER,
    "stage, submodule, module or operator; equal blocks are one, with how many it stands for",
    label="node",
)
_COLUMNS = (
    _LABEL,
    "elapsed_ns self_ns",
    "share",
    "executions min_ns median_ns max_ns total_ns commands",
    "teraflops_per_s flops_of_peak bound role kind",
)
_ROWS = 2 * TOP
_HELD = 2_000  # nodes of a page
_LEAST = 0.01  # share of a node on paper, and of one whose rates have a note
_BESIDE = 1.01  # times the end-to-end time: more is no rounding
_MOSTLY = 0.95  # of a node's time: if its rates cover less, a note says so


def icicle_figure(analysis: Analysis) -> Figure:
    """The figure of the module tree, each node as wide as its time, below its parent."""
    figure = declared_drawing(table_named("module_tree"), analysis.module_tree)
    assert figure is not None  # the table declares it
    return figure


def nodes_of(analysis: Analysis, held: int) -> pl.DataFrame:
    """The `held` longest nodes of the tree, with their labels."""
    return longest(neutral(labelled(analysis.module_tree)), held)


def neutral(tree: pl.DataFrame) -> pl.DataFrame:
    """The tree with bounds only for leaves, and roles only for leaves and nodes that are roles:
    other nodes are a mix."""
    leaf = ~pl.col("node").is_in(tree["parent"].unique().implode())
    return tree.with_columns(
        role=pl.when(leaf | (pl.col("kind") == Node.ROLE)).then("role"),
        bound=pl.when(leaf).then("bound"),
    )


def _parts(of: ReportInput) -> Iterator[Part]:
    tree = neutral(labelled(of.analysis.module_tree))
    inner = tree.filter(pl.col("depth") > 2)
    if inner.is_empty():
        return
    held, adds_up = longest(tree, _HELD), _adds_up(of.analysis, tree)
    share = renamed(MODULE_TREE, "share", label="of the sum") if adds_up else "share"
    large = tree.filter((pl.col("share").fill_null(1) >= _LEAST) & (pl.col("depth") > 0))
    paper = large.with_columns(label=inwards(pl.col("depth") - 1) + pl.col("label"))
    yield Part(
        lead=_most(tree, said("the sum over devices") if adds_up else said("the whole")),
        table=table(
            "module_tree",
            "module tree",
            [share if name == "share" else name for name in _COLUMNS],
            MODULE_TREE,
            _unfolding(held),
            shown=of.rows(_ROWS),
            search=True,
            nested=True,
            paper=paper,
        ),
        notes=tuple(_notes(of.analysis, held, tree, adds_up)),
    )


def _notes(
    analysis: Analysis, held: pl.DataFrame, tree: pl.DataFrame, adds_up: bool
) -> Iterator[str]:
    """How many nodes a page holds, if these are not all; that calls ran beside each other, if
    the tree adds up to more than passed."""
    if len(held) < len(tree):
        yield said(
            "This page holds the longest {held} of {total} nodes.",
            held=count(len(held)),
            total=count(len(tree)),
        )
    if adds_up:
        yield said(
            "Calls ran at the same time on several devices: the run took {passed} end to end, and "
            "the times of the tree add up to {whole}, to which its shares refer.",
            passed=duration(analysis.accounting.end_to_end_ns),
            whole=duration(_whole(tree)),
        )
    yield from _known_flops(tree)


def _whole(tree: pl.DataFrame) -> int:
    return int(tree["elapsed_ns"].max() or 0)  # type: ignore[arg-type]


def _adds_up(analysis: Analysis, tree: pl.DataFrame) -> bool:
    """Whether the times of the tree are those of several devices, longer than the run."""
    passed = analysis.accounting.end_to_end_ns
    return bool(passed) and not analysis.run.selection and _whole(tree) > _BESIDE * passed


def _known_flops(tree: pl.DataFrame) -> Iterator[str]:
    """Yield how much time rates cover, if that is clearly less than a node's, for the longest such
    node."""
    known = (pl.col("flops") / pl.col("teraflops_per_s") / 1e3).alias("known_ns")
    around = pl.col("kind").is_in((Node.SUBMODULE, Node.MODULE, Node.ROLE))
    inner = tree.filter(around & (pl.col("share").fill_null(1) >= _LEAST))
    partly = inner.with_columns(known).filter(pl.col("known_ns") < _MOSTLY * pl.col("total_ns"))
    if len(partly):
        row = partly.sort("total_ns", descending=True, maintain_order=True).row(0, named=True)
        yield said(
            "Rates are of the time of operators whose FLOPs are known: of {node} {known} of "
            "{total}.",
            node=row["label"],
            known=duration(row["known_ns"]),
            total=duration(row["total_ns"]),
        )


def longest(tree: pl.DataFrame, held: int) -> pl.DataFrame:
    """Return the `held` longest nodes. A node takes at least as long as the nodes in it, and comes
    before them."""
    ranked = tree.sort("elapsed_ns", "node", descending=[True, False])
    return ranked.head(held).sort("node")


def _unfolding(tree: pl.DataFrame) -> pl.DataFrame:
    """The rows of a page: only shown columns, and a name only if it differs from the label."""
    name = pl.when(pl.col("name") != pl.col("label")).then("name")
    shown = [column.name for column in columns_of(_COLUMNS, MODULE_TREE)]
    return tree.select(*shown, "depth", name=name)


def _most(tree: pl.DataFrame, whole: str) -> str:
    """Which modules take most, and what share of `whole`: the blocks, else the modules directly in
    a submodule."""
    modules = tree.filter(pl.col("kind") == Node.MODULE)
    blocks = modules.filter((pl.col("count") > 1) & (pl.col("median_ns") > 0))
    found = blocks if len(blocks) else modules
    if found.is_empty():
        return said("Operators by role: the trace names no modules.")
    first = found.sort("elapsed_ns", descending=True, maintain_order=True).row(0, named=True)
    words = {
        "node": first["label"],
        "submodule": first["submodule"],
        "time": duration(first["elapsed_ns"]),
        "share": percent(first["share"] or 0),
        "whole": whole,
    }
    if len(blocks):
        return said(
            "{node} of {submodule} take {time}, {share} of {whole}; one of them takes {least} to "
            "{most}.",
            **words,
            least=duration(first["min_ns"]),
            most=duration(first["max_ns"]),
        )
    return said("{node} of {submodule} takes {time}, {share} of {whole}.", **words)


SECTION = SectionKind(
    "modules", 37, said("Module tree"), _parts, tables=("module_tree",), group=SectionGroup.MODEL
)


SENTENCES: Sentences = {Node: {Node.UNTRACED: "calls without operators"}}
