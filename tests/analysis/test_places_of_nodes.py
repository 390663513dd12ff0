"""What is told by module stays as it was when every node has a layer of its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

import profiler
from profiler.analysis.operators import command_positions
from profiler.compare.measure import measure
from profiler.report.html.timeline import module_stretches
from tests.analysis.asked import asked

RECORDED = Path(__file__).parent / "roles" / "recorded"
"""One step of tiny denoisers, recorded when their layers were paths of modules."""


def by_nodes(run):
    """The run as if each node had been a layer of its own in its module."""
    layer = pl.col("layer").cast(pl.String)
    node = pl.format("{}/node_{}_{}", layer, pl.col("op_type").cast(pl.String), "command_index")
    own = (pl.col("call") >= 0) & (pl.col("category") != "host")
    renamed = run.commands.with_columns(
        layer=pl.when(own).then(node).otherwise(layer).cast(pl.Categorical),
        module=pl.when(own).then(layer).cast(pl.Categorical),
        command_index=pl.when(own).then(0).otherwise(pl.col("command_index")).cast(pl.Int32),
    )
    return replace(run, commands=renamed.select(run.commands.columns))


@pytest.fixture(scope="module", params=sorted(path.name for path in RECORDED.iterdir()))
def both(request):
    """A run whose layers are modules, and the same with a layer for every node."""
    run = profiler.load(RECORDED / request.param)
    return run, by_nodes(run)


def test_sums_by_role_and_module_stay(both):
    """Roles of all commands, and time by role and module, are what the modules alone gave."""
    modules, nodes = (
        measure(run).work.group_by("submodule", "role", "module").agg(pl.col("total_ns").sum())
        for run in both
    )
    keys = ["submodule", "role", "module"]
    assert len(modules) > 80
    assert modules.sort(keys).equals(nodes.sort(keys))
    modules, nodes = (asked(run).roles for run in both)
    assert modules.equals(nodes)


def test_every_node_is_an_operator(both):
    """Operators are the nodes, and by module their sums are those of the modules' operators."""
    modules, nodes = (
        asked(run).operators.filter(~pl.col("host")).select("layer", "commands", "total_ns")
        for run in both
    )
    assert set(nodes["commands"]) == {1}
    assert len(nodes) == modules["commands"].sum()
    folded = (
        nodes.with_columns(pl.col("layer").str.replace("/node_[^/]*$", ""))
        .group_by("layer")
        .agg(pl.col("commands", "total_ns").sum())
    )
    assert folded.sort("layer").equals(modules.sort("layer"))


def test_positions_and_lanes_of_blocks_stay(both):
    """What finds the nodes of a graph, and the page's lanes of blocks, go by module."""
    modules, nodes = both
    submodule = str(modules.calls["submodule"][0])
    assert command_positions(modules, submodule).equals(command_positions(nodes, submodule))
    lanes = [module_stretches(run.commands, run.calls) for run in both]
    assert len(lanes[0]) > 2
    assert lanes[0].equals(lanes[1])
