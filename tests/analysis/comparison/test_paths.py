"""Module paths of two sides."""

import pytest

from profiler.analysis.role_kernel_names import module_path
from profiler.compare.tables import class_paths, nearest_common, pattern


@pytest.mark.parametrize(
    ("layer", "path"),
    [
        ("/transformer_blocks.0/attn/to_q/MatMul", "transformer_blocks.0.attn.to_q"),
        ("transformer_blocks.0.attn.to_q", "transformer_blocks.0.attn.to_q"),
        ("T5Stack.T5Block_0/aten::bmm", "T5Stack.T5Block_0"),
        ("SD3Transformer2DModel", ""),
        ("aten::addmm", ""),
        ("triton_poi_fused_add_0", ""),
        ("node_MatMul_3", ""),
        ("norm_out", "norm_out"),
    ],
)
def test_path_of_a_layer(layer, path):
    """Nodes of ONNX, modules of torch, and what names no module."""
    assert module_path(layer, "SD3Transformer2DModel") == path


def test_paths_of_classes():
    """Lists of modules have no part; what a parent has several times is numbered."""
    modules = {
        "": "T5EncoderModel",
        "encoder": "T5Stack",
        "encoder.block": "ModuleList",
        "encoder.block.0": "T5Block",
        "encoder.block.0.q": "Linear",
        "encoder.block.0.k": "Linear",
        "encoder.block.1": "T5Block",
        "encoder.norm": "T5LayerNorm",
    }
    assert class_paths(modules) == {
        "": "",
        "encoder": "T5Stack",
        "encoder.block.0": "T5Stack.T5Block_0",
        "encoder.block.0.q": "T5Stack.T5Block_0.Linear_0",
        "encoder.block.0.k": "T5Stack.T5Block_0.Linear_1",
        "encoder.block.1": "T5Stack.T5Block_1",
        "encoder.norm": "T5Stack.T5LayerNorm",
    }


def test_nearest_module_that_both_have():
    """The same path; the module around it; the submodule where nothing else is common."""
    found = nearest_common(["a.norm1.norm", "a.ff", "b"], ["a.norm1", "a.ff", "c.d"])
    assert found == {
        "a.norm1.norm": "a.norm1",
        "a.norm1": "a.norm1",
        "a.ff": "a.ff",
        "b": "",
        "c.d": "",
    }


def test_pattern():
    """Numbers of their own become a star, those in names stay."""
    assert pattern("blocks.10.attn.to_out.0") == "blocks.*.attn.to_out.*"
    assert pattern("T5Block_3.conv1") == "T5Block_*.conv1"
