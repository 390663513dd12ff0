"""Where in the model the time went: the tree from stages down to operators."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from profiler.analysis.module_tree.codes import Node
from profiler.analysis.module_tree.columns import MODULE_TREE
from profiler.analysis.registry import table_named
from profiler.analysis.result import Analysis
from profiler.report.model import TOP, Figure, Part, ReportInput, SectionKind
from profiler.report.nodes import labelled
from profiler.report.views import declared_figure, inwards, table
from profiler.run.columns import Column
from profiler.text import count, duration, percent, said

__all__ = ["SECTION", "icicle_figure", "longest", "nodes_of"]

_LABEL = Column(
    "label",
    pl.String(),
    "",
    "stage, submodule, module or operator; equal blocks are one, with how many it stands for",
    label="node",
    kind="layer",
)
_COLUMNS = (
    _LABEL,
    "elapsed_ns",
    "self_ns",
    "share",
    "executions",
    "min_ns",
    "median_ns",
    "max_ns",
    "total_ns",
    "commands",
    "teraflops_per_s",
    "flops_of_peak",
    "bound",
    "role",
    "kind",
)
_ROWS = 2 * TOP
_HELD = 2_000  # nodes of a page
_LEAST = 0.01  # share of a node on paper
_BESIDE = 1.01  # times the end-to-end time: more is no rounding


def icicle_figure(analysis: Analysis) -> Figure:
    """The module tree, each node as wide as its time below the one that it is in."""
    figure = declared_figure(table_named("module_tree"), analysis.module_tree)
    assert figure is not None  # the table declares it
    return figure


def nodes_of(analysis: Analysis, held: int) -> pl.DataFrame:
    """The `held` longest nodes of the tree, with their labels."""
    return longest(labelled(analysis.module_tree), held)


def _parts(of: ReportInput) -> Iterator[Part]:
    tree = labelled(of.analysis.module_tree)
    inner = tree.filter(pl.col("depth") > 2)
    if inner.is_empty():
        return
    held = longest(tree, _HELD)
    yield Part(
        lead=_most(tree),
        table=table(
            "module_tree",
            "module tree",
            _COLUMNS,
            MODULE_TREE,
            _unfolding(held),
            shown=of.rows(_ROWS),
            search=True,
            nested=True,
            paper=_indented(tree),
        ),
        notes=(*_held(held, tree), *_beside(of.analysis, tree)),
    )


def _held(held: pl.DataFrame, tree: pl.DataFrame) -> Iterator[str]:
    """How many nodes a page holds, where these are not all."""
    if len(held) < len(tree):
        yield said(
            "This page holds the longest {held} of {total} nodes.",
            held=count(len(held)),
            total=count(len(tree)),
        )


def _beside(analysis: Analysis, tree: pl.DataFrame) -> Iterator[str]:
    """That calls ran beside each other, where the tree adds up to more than passed."""
    account = analysis.accounting
    whole = int(tree["elapsed_ns"].max() or 0)  # type: ignore[arg-type]
    passed = account.end_to_end_ns
    if not analysis.run.selection and passed and whole > _BESIDE * passed:
        yield said(
            "Calls ran at the same time on several devices: the run took {passed} end to end, and "
            "the times of the tree add up to {whole}, to which its shares refer.",
            passed=duration(passed),
            whole=duration(whole),
        )


def longest(tree: pl.DataFrame, held: int) -> pl.DataFrame:
    """That many nodes: a node takes at least as long as what is in it, and stands before it."""
    ranked = tree.sort("elapsed_ns", "node", descending=[True, False])
    return ranked.head(held).sort("node")


def _unfolding(tree: pl.DataFrame) -> pl.DataFrame:
    """The rows of a page: what is told by other columns is left out, and a name by its label."""
    name = pl.when(pl.col("name") != pl.col("label")).then("name")
    shown = [column if isinstance(column, str) else column.name for column in _COLUMNS]
    return tree.select(*shown, "depth", name=name)


def _indented(tree: pl.DataFrame) -> pl.DataFrame:
    """The nodes of at least one per cent, each further in than the one that it is in."""
    large = tree.filter((pl.col("share") >= _LEAST) & (pl.col("depth") > 0))
    return large.with_columns(label=inwards(pl.col("depth") - 1) + pl.col("label"))


def _most(tree: pl.DataFrame) -> str:
    """Which modules take most: the blocks, else the modules directly in a submodule."""
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
    }
    if len(blocks):
        return said(
            "{node} of {submodule} take {time}, {share} of the whole; one of them takes {least} to "
            "{most}.",
            **words,
            least=duration(first["min_ns"]),
            most=duration(first["max_ns"]),
        )
    return said("{node} of {submodule} takes {time}, {share} of the whole.", **words)


SECTION = SectionKind(
    "modules",
    47,
    said("Module tree"),
    _parts,
    tables=("module_tree",),
)
