"""Whole pipelines exported: their graphs compute what torch does, and SD3 runs from the folder."""

from __future__ import annotations

import json

import numpy as np
import onnx_ir as ir
import polars as pl
import pytest

pytest.importorskip("diffusers", reason="needs the torch extra")

import profiler
from profiler.graph import check_model, export_pipeline, run_model
from profiler.graph.export_torch import ExportOptions, StaticSizes
from profiler.graph.model import layer_of
from profiler.pipelines import StableDiffusion3Pipeline, default_model_folder
from profiler.pipelines.model_layouts import position_ids
from tests.command_line import run_command
from tests.documents import conforms
from tests.graph.export_sources import exported, source_folder

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

BRANCHES = {  # of the transformer's calls in two steps of `run`
    "sd35": ["batched"] * 2,
    "flux": ["cond"] * 2,
    "qwen": ["cond", "uncond"] * 2,
}
ALL_PARTS = ("text_encoder", "text_encoder_2", "text_encoder_3", "transformer", "vae_decoder")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """The tiny SD3 by its name, exported by the command line with its JSON beside it."""
    folder = tmp_path_factory.mktemp("tiny")
    out = folder / "out"
    assert run_command("graph", "export", "tiny", out, "--json", folder / "out.json") == 0
    return folder


def image_of(folder, **settings):
    pipeline = StableDiffusion3Pipeline.from_folder(folder)
    given = {"height": 64, "width": 96, "seed": 1, "num_inference_steps": 2, "output_type": "np"}
    return pipeline("a red fox", "blurry", **(given | settings)).images


def test_the_exported_sd3_makes_the_image_of_the_shipped_one(tiny):
    """The exported folder runs and makes, pixel by pixel, the image of the folder that the package
    ships, which has the same weights."""
    ours, shipped = image_of(tiny / "out"), image_of(default_model_folder())
    assert ours.shape == (1, 64, 96, 3)
    assert np.abs(ours - shipped).max() < 1e-3


def test_odd_numbers_of_patches(tiny):
    """Images of 3 by 5 patches are made: position embeddings are cropped by sizes rounded down."""
    assert image_of(tiny / "out", height=48, width=80).shape == (1, 48, 80, 3)


def test_the_exported_sd3_is_profiled_by_module(tiny, tmp_path):
    """`run --model OUT` profiles it, and modules of operators are their paths."""
    arguments = ("--model", tiny / "out", "--steps", 1, "--warmup", 0, "--height", 64)
    assert run_command("run", *arguments, "--width", 64, "--out", tmp_path, "--name", "r") == 0
    modules = set(profiler.load(tmp_path / "r").commands["module"])
    assert "transformer_blocks.0.attn.to_q" in modules


def test_what_the_command_tells(tiny):
    """The JSON has each part with its graph's size, free axes, and how far it is from torch."""
    parts = conforms(json.loads((tiny / "out.json").read_text()))["parts"]
    assert [part["folder"] for part in parts] == list(ALL_PARTS)
    transformer = parts[3]
    assert transformer["class_name"] == "SD3Transformer2DModel"
    assert transformer["inputs"]["hidden_states"] == ["batch_size", 16, "height", "width"]
    assert transformer["layer_norms"] == 16
    assert len(transformer["compared_on"]) == 2
    for part in parts:
        assert part["node_count"] == len(
            ir.load(tiny / "out" / part["folder"] / "model.onnx").graph
        )
        assert all(0 <= found["relative"] <= 1e-4 for found in part["differences"])
        assert max(found["absolute"] for found in part["differences"]) > 0


def test_module_paths_stay_and_local_paths_go(tiny):
    """Nearly all nodes tell their module, and no byte of a graph tells where it was made."""
    for part in ALL_PARTS:
        path = tiny / "out" / part / "model.onnx"
        graph = ir.load(path).graph
        named = [node for node in graph if "pkg.torch.onnx.name_scopes" in node.metadata_props]
        assert len(named) >= 0.95 * len(graph)
        assert not any(text in path.read_bytes() for text in (b"site-packages", b".py"))
    transformer = ir.load(tiny / "out" / "transformer" / "model.onnx").graph
    layers = {layer_of(node) for node in transformer if node.op_type in ("MatMul", "Gemm")}
    assert "transformer_blocks.2.ff_context.net.2" in layers


def test_no_layer_norm_lacks_scale_or_bias(tiny):
    """Every LayerNormalization has named scale and bias; the unrepaired export has ones without."""
    assert not lacking(tiny / "out" / "transformer" / "model.onnx")
    assert lacking(default_model_folder() / "transformer" / "model.onnx")


def lacking(path):
    nodes = [node for node in ir.load(path).graph if node.op_type == "LayerNormalization"]
    assert nodes
    return [node for node in nodes if len(node.inputs) < 3 or None in node.inputs]


def test_weights_are_stored_as_they_are_read(tiny):
    """No weight is turned at run time: each Transpose is of an activation."""
    for part in ALL_PARTS:
        graph = ir.load(tiny / "out" / part / "model.onnx").graph
        turned = [node.inputs[0] for node in graph if node.op_type == "Transpose"]
        assert all(value.const_value is None for value in turned)


def test_static_sizes_run_with_guidance(tmp_path):
    """Graphs for one image of 64 by 96 pixels have no free axis, the transformer's batch is two for
    guidance, and the pipeline makes the image of the free graphs."""
    from profiler.graph.tiny_model import write_source

    write_source(tmp_path / "source")
    sizes = StaticSizes(batch=1, height=64, width=96, sequence=256)
    parts = export_pipeline(
        tmp_path / "source", tmp_path / "out", ExportOptions(static=sizes, opset=20)
    )
    for part in parts:
        assert not [a for axes in part.inputs.values() for a in axes if isinstance(a, str)]
        assert part.opset == 20
        assert len(part.trials) == 1
    transformer = next(part for part in parts if part.submodule == "transformer")
    assert transformer.inputs["hidden_states"] == (2, 16, 8, 12)
    assert transformer.inputs["encoder_hidden_states"] == (2, 77 + 256, 64)
    static, shipped = image_of(tmp_path / "out"), image_of(default_model_folder())
    assert np.abs(static - shipped).max() < 1e-3


LAYERS = {
    "sd35": "transformer_blocks.0.attn2.to_q",
    "flux": "single_transformer_blocks.0.attn.to_q",
    "qwen": "transformer_blocks.1.attn.add_k_proj",
}
"""A layer that only this pipeline's transformer has."""


def check_parts(name, out, parts):
    """Each part is within the tolerance at two sizes and is read by `graph check`; the transformer
    has module paths."""
    for part in parts:
        assert len(part.trials) == 2
        assert all(found.within and found.tolerance == 1e-4 for found in part.differences)
        check_model(out / part.folder / "model.onnx")
    graph = ir.load(out / "transformer" / "model.onnx").graph
    assert LAYERS[name] in {layer_of(node) for node in graph}


def test_the_transformer_of_another_sd3(tmp_path):
    """That of SD3.5 alone, whose other parts are SD3's, is within the tolerance at two sizes and
    has module paths."""
    options = ExportOptions(parts=("transformer",))
    parts = export_pipeline(source_folder("sd35"), tmp_path / "out", options)
    assert [part.folder for part in parts] == ["transformer"]
    check_parts("sd35", tmp_path / "out", parts)


@pytest.mark.parametrize("name", ["flux", "qwen", pytest.param("sd35", marks=pytest.mark.nightly)])
def test_other_pipelines(name, tmp_path):
    """SD3.5, FLUX and Qwen-Image export whole, are within the tolerance at two sizes, have module
    paths, are read by `graph check`, and `run` profiles them by module."""
    out, parts = exported(name)
    check_parts(name, out, parts)
    assert (out / "tokenizer" / "tokenizer.json").is_file()
    assert (out / "scheduler" / "scheduler_config.json").is_file()
    arguments = ("--steps", 2, "--warmup", 0, "--height", 32, "--width", 32)
    options = (*arguments, "--out", tmp_path, "--name", "r")
    assert run_command("run", "--model", out, *options) == 0
    run = profiler.load(tmp_path / "r")
    assert LAYERS[name] in set(run.commands["module"])
    calls = run.calls.filter(pl.col("submodule").cast(pl.String) == "transformer")
    assert calls["branch"].cast(pl.String).to_list() == BRANCHES[name]


def test_qwens_transformer_takes_positions_of_any_size():
    """With positions of an image that it was not traced on, the graph computes what diffusers does
    with that image's size."""
    import diffusers
    import torch

    out, _ = exported("qwen")
    random = np.random.default_rng(5)
    states = random.standard_normal((1, 9 * 5, 16), np.float32)
    text = random.standard_normal((1, 6, 16), np.float32)
    image_ids, text_ids = position_ids(9, 5, 6)
    inputs = {
        "hidden_states": states,
        "encoder_hidden_states": text,
        "encoder_hidden_states_mask": np.ones((1, 6), bool),
        "timestep": np.array([0.7], np.float32),
        "img_ids": image_ids,
        "txt_ids": text_ids,
    }
    found = run_model(out / "transformer" / "model.onnx", inputs)
    saved = source_folder("qwen") / "transformer"
    torch_model = diffusers.QwenImageTransformer2DModel.from_pretrained(saved)
    tensors = {k: torch.from_numpy(v) for k, v in inputs.items() if not k.endswith("_ids")}
    with torch.no_grad():
        wanted = torch_model(**tensors, img_shapes=[[(1, 9, 5)]], return_dict=False)[0].numpy()
    assert np.abs(found["out_hidden_states"] - wanted).max() < 1e-4 * np.abs(wanted).max()
