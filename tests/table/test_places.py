"""Places: where in a model a command lies, whatever its layer is called."""

from __future__ import annotations

import polars as pl
import pytest

from profiler.analysis.commands import place_of, places_by_layer


@pytest.mark.parametrize(
    ("layer", "module", "place"),
    [
        ("blocks.0.attn/node_MatMul_3", "blocks.0.attn", "blocks.0.attn"),
        ("/blocks.0/attn/fc/MatMul/MatMulAddFusion", "blocks.0.attn.fc", "blocks.0.attn.fc"),
        ("/Add_output_0_nchwc", "UNet2DConditionModel", "UNet2DConditionModel"),
        ("blocks.0.attn", "blocks.0.attn", "blocks.0.attn"),
        ("blocks.0.attn", None, "blocks.0.attn"),
        ("blocks.0.attn_2/MatMul", "blocks.0.attn", "blocks.0.attn_2/MatMul"),
        ("/blocks.0/attn/MatMul", None, "/blocks.0/attn/MatMul"),
        ("linear_196", None, "linear_196"),
    ],
)
def test_place_of_a_layer(layer, module, place):
    """A layer that is a path in its module lies there; any other says by itself where it lies."""
    frame = pl.DataFrame(
        {"layer": [layer], "module": [module]}, schema=dict.fromkeys(("layer", "module"), pl.String)
    )
    assert frame.select(place_of(pl.col("layer"), pl.col("module"))).item() == place
    typed = frame.cast(pl.Categorical)
    assert places_by_layer(typed) == {layer: place}


def test_a_layer_has_one_place():
    """Where only some commands of a layer tell a module, it is that of all of them."""
    layers = ["a/node_1", "a/node_1", "b"]
    frame = pl.DataFrame({"layer": layers, "module": [None, "a", None]})
    assert places_by_layer(frame.cast(pl.Categorical)) == {"a/node_1": "a", "b": "b"}
