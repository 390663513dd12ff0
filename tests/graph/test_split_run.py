"""A profiled run of split models shows split operators, and folding gives the unsplit ones."""

from __future__ import annotations

import polars as pl
import pytest

import profiler
from profiler.analysis.analyze import analyze
from profiler.pipelines.tiny import default_model_folder
from tests.command_line import run_command

PARTS = 3


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The tiny model as it is and split: a run of each by the command line, and its analysis."""
    folder = tmp_path_factory.mktemp("split")
    split = folder / "model"
    assert run_command("graph", "split", default_model_folder(), split, "--parts", PARTS) == 0
    found = []
    for name, model in (("whole", default_model_folder()), ("parts", split)):
        arguments = ("--model", model, "--name", name, "--out", folder, "--steps", 2)
        assert run_command("run", *arguments, "--warmup", 0) == 0
        run = profiler.load(folder / name)
        found.append((run, analyze(run)))
    return found


def operators(analysis):
    """Submodule, layer and calls of the operators of devices."""
    return (
        analysis.operators.filter(~pl.col("host"))
        .select("submodule", "layer", "calls")
        .sort("submodule", "layer")
    )


def test_folding_gives_the_operators_of_the_unsplit_run(runs):
    """Layer by layer, with ONNX Runtime's fusions on: nothing is missing, nothing is new."""
    whole, parts = (operators(analysis) for _, analysis in runs)
    assert len(whole) > 250
    assert parts.equals(whole)


def test_parts_are_commands_of_their_layer(runs):
    """A projection and its bias have as many commands each as parts, and a copy; they are numbered
    as the model says."""
    layer = "transformer_blocks.0.attn.to_q"
    before, after = (
        analysis.operators.filter(pl.col("layer") == layer)["commands_per_call"].item()
        for _, analysis in runs
    )
    assert (before, after) == (2, 2 * PARTS + 1)
    commands = runs[1][0].commands.filter(pl.col("layer").cast(pl.String) == layer)
    call = commands.filter(pl.col("call") == commands["call"].min()).sort("command_index")
    assert call.select("command_index", pl.col("op_type", "category").cast(pl.String)).rows() == [
        *((number, "MatMul", "compute") for number in range(PARTS)),
        *((number, "Add", "compute") for number in range(PARTS, 2 * PARTS)),
        (2 * PARTS, "Concat", "copy"),
    ]


def test_partitioning_tells_computing_from_moving(runs):
    """What gathers the parts is data movement of the operator; convolutions, which ONNX Runtime
    gives another layout, and attention by heads, too."""
    for layer, commands in (
        ("transformer_blocks.0.attn.to_q", {"compute": 2 * 2 * PARTS, "movement": 2}),
        ("pos_embed.proj", {"movement": 2}),
        ("transformer_blocks.0.attn", {"movement": 2 * 4}),
    ):
        rows = runs[1][1].partitioning.filter(pl.col("layer") == layer)
        found = dict(rows.select("part", "commands").iter_rows())
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
