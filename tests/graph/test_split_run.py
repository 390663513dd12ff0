"""A profiled run of split models shows split operators, and folding gives the unsplit ones."""

from __future__ import annotations

import re

import polars as pl
import pytest

import profiler
from profiler.analysis.analyze import analyze
from profiler.pipelines import default_model_folder
from tests.command_line import run_command
from tests.graph.recording import recorded

PARTS = 3


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The tiny model as it is and split: a run of each, and its analysis."""
    folder = tmp_path_factory.mktemp("split")
    split = folder / "model"
    assert run_command("graph", "split", default_model_folder(), split, "--parts", PARTS) == 0
    found = []
    for name, model in (("whole", default_model_folder()), ("parts", split)):
        run = profiler.load(recorded(model, folder, name))
        found.append((run, analyze(run)))
    return found


def of_devices(run):
    """Submodule, module, layer and command index of the commands of devices."""
    texts = pl.col("submodule", "module", "layer").cast(pl.String)
    commands = run.commands.join(run.calls.select("call", "submodule"), on="call")
    return commands.filter(pl.col("category") != "host").select(texts, "command_index")


def test_folding_gives_the_operators_of_the_unsplit_run(runs):
    """Module by module, with ONNX Runtime's fusions on: nothing is missing, nothing is new. So it
    is with the operations that were split, but for what ONNX Runtime fuses in one model alone."""
    whole, parts = (of_devices(run) for run, _ in runs)
    modules = [found.select("submodule", "module").unique() for found in (whole, parts)]
    assert len(modules[0]) > 250
    keys = ["submodule", "module"]
    assert modules[0].sort(keys).equals(modules[1].sort(keys))
    layers = [set(found.select("submodule", "layer").iter_rows()) for found in (whole, parts)]
    split = set(parts.filter(pl.col("command_index") > 0).select("submodule", "layer").iter_rows())
    assert len(split) > 200
    assert len(split - layers[0]) < 0.05 * len(split)


def test_parts_are_commands_of_their_operation(runs):
    """A projection has as many commands as parts, and a copy, and so has its bias but for the copy;
    each is numbered as the model says. Unsplit, each is one command."""
    module = "transformer_blocks.0.attn.to_q"
    found = []
    for run, _ in runs:
        commands = run.commands.filter(pl.col("module").cast(pl.String) == module)
        call = commands.filter(pl.col("call") == commands["call"].min())
        columns = (pl.col("layer", "op_type", "category").cast(pl.String), "command_index")
        found.append(call.select(columns).sort("op_type", "command_index").rows())
    (product, *_), (bias, *_) = sorted(found[0], key=lambda row: row[1], reverse=True)
    assert found[0] == [(bias, "Add", "compute", 0), (product, "MatMul", "compute", 0)]

    assert found[1] == [
        *((bias, "Add", "compute", number) for number in range(PARTS)),
        (product, "Concat", "copy", PARTS),
        *((product, "MatMul", "compute", number) for number in range(PARTS)),
    ]
    operators = runs[1][1].operators.filter(pl.col("layer") == product)
    assert operators["commands_per_call"].item() == PARTS + 1


def test_partitioning_tells_computing_from_moving(runs):
    """What gathers the parts is data movement of the operator; convolutions, which ONNX Runtime
    gives another layout, and attention by heads, too."""
    for module, commands in (
        ("transformer_blocks.0.attn.to_q", {"compute": 2 * PARTS, "movement": 2}),
        ("pos_embed.proj", {"movement": 2}),
        ("transformer_blocks.0.attn", {"movement": 2 * 4}),
    ):
        own = pl.col("layer").str.contains(rf"^{re.escape(module)}/[^/]+$")
        rows = runs[1][1].partitioning.filter(own).group_by("part").agg(pl.col("commands").sum())
        found = dict(rows.iter_rows())
        assert found | commands == found
    assert not len(runs[0][1].partitioning)


def test_copies_are_no_track_that_stands_still(runs):
    """Parts run one after the other on one track: the whole is even, and its efficiency is the
    share of its time in which they computed, well above one half."""
    analysis = runs[1][1]
    both = ["whole", "compute"]
    of_split = analysis.partitioning.filter(pl.col("part").is_in(both))
    rows = of_split.filter((pl.col("part") == "compute").any().over("submodule", "layer"))
    whole = rows.filter(pl.col("part") == "whole")
    computed = rows.filter(pl.col("part") == "compute")
    assert len(whole) > 20
    assert whole["imbalance"].to_list() == pytest.approx([1.0] * len(whole))
    share = computed["total_ns"] / whole["wall_ns"]
    assert whole["parallel_utilization"].to_list() == pytest.approx(share.to_list())
    total = whole.select(pl.col("parallel_utilization").dot("wall_ns")).item()
    assert total > 0.6 * whole["wall_ns"].sum()
    operator = analysis.operators.filter(pl.col("layer") == whole["layer"][0])
    assert operator["parallel_utilization"].item() == whole["parallel_utilization"][0]


def test_roles_of_layers_stay(runs):
    """What an operator computes is for the same as before."""

    def roles(analysis):
        table = analysis.roles.filter(pl.col("submodule") == "transformer")
        return set(table["role"].cast(pl.String))

    assert roles(runs[0][1]) == roles(runs[1][1])
