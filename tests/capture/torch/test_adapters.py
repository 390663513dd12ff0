"""What LoRA adapters compute is told apart from the weights that they adapt."""

from __future__ import annotations

import polars as pl
import pytest

import profiler
from profiler.analysis.analyze import analyze

torch = pytest.importorskip("torch", reason="needs the torch extra")
pytest.importorskip("diffusers", reason="needs the torch extra")
peft = pytest.importorskip("peft", reason="needs the torch extra")
pytestmark = pytest.mark.torch

ADAPTED = ("to_q", "to_v")


def adapted_pipeline():
    """A tiny Stable Diffusion 3 with an adapter of rank 2 on four projections of its blocks."""
    from tests.capture import tiny_diffusers

    pipe = tiny_diffusers.sd3()
    config = peft.LoraConfig(r=2, lora_alpha=4, target_modules=list(ADAPTED), lora_dropout=0.1)
    pipe.transformer.add_adapter(config)
    pipe.transformer.eval()
    return pipe


def roles(tmp_path, pipe):
    """Layer, op type and role of what one step of the transformer executes."""
    from tests.capture import tiny_diffusers

    with profiler.profile(pipe, out=tmp_path) as run:
        pipe("a cat", num_inference_steps=1, output_type="np", **tiny_diffusers.SIZE)
    found = profiler.load(run.path)
    calls = found.calls.filter(pl.col("submodule") == "transformer")["call"]
    return (
        analyze(found)
        .commands.filter(pl.col("call").is_in(calls.implode()))
        .select(pl.col("layer", "op_type").cast(pl.String), pl.col("role").cast(pl.String))
    )


def test_operations_of_adapters(tmp_path):
    """Of each adapted projection: two products, a scaling, a sum and a cast are the adapter's;
    the projection itself keeps its role, and nothing else is an adapter's."""
    found = roles(tmp_path, adapted_pipeline())
    own = found.filter(pl.col("role") == "adapter").select("layer", "op_type").sort(pl.all()).rows()
    expected = [
        (f"transformer_blocks.{block}.attn.{name}{part}", op_type)
        for block in (0, 1)
        for name in ADAPTED
        for part, op_type in (
            ("", "aten::to"),
            ("", "aten::mul"),
            ("", "aten::add"),
            (".lora_A.default", "aten::linear"),
            (".lora_B.default", "aten::linear"),
            (".lora_dropout.default", "aten::dropout"),
        )
    ]
    assert own == sorted(expected)
    bases = found.filter(pl.col("layer").str.ends_with(".base_layer"))
    assert bases["role"].to_list() == ["qkv_projection"] * 4


def test_fused_adapters_have_no_operations(tmp_path):
    """What is merged into the weights computes nothing of its own."""
    from diffusers.loaders import PeftAdapterMixin

    pipe = adapted_pipeline()
    assert isinstance(pipe.transformer, PeftAdapterMixin)
    pipe.transformer.fuse_lora()
    assert "adapter" not in roles(tmp_path, pipe)["role"].to_list()
