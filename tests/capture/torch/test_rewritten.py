"""Operators of pipelines that diffusers' hooks or torch.compile have rewritten: calls, labels and
operators are right, pixels are the same, and everything is as it was afterwards."""

from __future__ import annotations

import polars as pl
import pytest

import profiler

pytest.importorskip("diffusers", reason="needs the torch extra")
torch = pytest.importorskip("torch", reason="needs the torch extra")

from tests.capture import tiny_diffusers as tiny  # noqa: E402 - it imports them
from tests.capture.pipelines.test_diffusers_hooks import (  # noqa: E402
    CPU,
    PARTS,
    cache_first_block,
    compile_in_place,
    compile_method,
    compile_module,
    group_offload,
    model_offload,
)

pytestmark = pytest.mark.torch

EXPECTED = [
    ("text_encoder", "prompt", -1),
    ("text_encoder_2", "prompt", -1),
    *(("transformer", "cond", step) for step in range(3)),
    ("vae", None, -1),
]


def layer_offload(pipeline):
    """What `enable_sequential_cpu_offload` does, with the CPU in an accelerator's place."""
    from accelerate import cpu_offload

    for name in PARTS:
        part = getattr(pipeline, name)
        cpu_offload(part, CPU, offload_buffers=bool(part._parameters))


def cast_layerwise(pipeline):
    pipeline.transformer.enable_layerwise_casting(
        storage_dtype=torch.bfloat16, compute_dtype=torch.float32
    )


def broadcast_attention(pipeline):
    from diffusers import PyramidAttentionBroadcastConfig

    pipeline.transformer.enable_cache(
        PyramidAttentionBroadcastConfig(
            spatial_attention_block_skip_range=2,
            spatial_attention_timestep_skip_range=(-1, 1001),
            current_timestep_callback=lambda: pipeline._current_timestep,
        )
    )


def cache_faster(pipeline):
    from diffusers import FasterCacheConfig

    pipeline.transformer.enable_cache(
        FasterCacheConfig(
            spatial_attention_block_skip_range=2,
            spatial_attention_timestep_skip_range=(-1, 681),
            tensor_format="BCHW",
            is_guidance_distilled=True,
            current_timestep_callback=lambda: pipeline._current_timestep,
        )
    )


def compile_whole(pipeline):
    """Code that inductor generates."""
    pipeline.transformer.compile(fullgraph=True)


def compile_blocks(pipeline):
    """Regional compilation: each kind of block once."""
    pipeline.transformer.compile_repeated_blocks(fullgraph=True)


def generate(pipeline):
    return pipeline(
        "a cat",
        num_inference_steps=3,
        max_sequence_length=16,
        output_type="np",
        generator=torch.Generator().manual_seed(1),
        **tiny.SIZE,
    ).images


def state_of(pipeline):
    """Every attribute of every module and object of a pipeline, hooks among them, by identity."""
    owners = {"pipeline": pipeline, **pipeline.components}
    found = {}
    for name, owner in owners.items():
        inner = owner.named_modules() if isinstance(owner, torch.nn.Module) else [("", owner)]
        for path, module in inner:
            found[name, path, "class"] = type(module)
            for key, value in getattr(module, "__dict__", {}).items():
                hooks = key.endswith("_hooks") and isinstance(value, dict)
                found[name, path, key] = list(value.items()) if hooks else id(value)
    return {key: value for key, value in found.items() if not str(key[2]).startswith(_OF_A_RUN)}


_OF_A_RUN = (
    "_current",
    "_num_timesteps",
    "_step",
    "_begin",
    "_guid",
    "_interrupt",
    "_joint",
    "timesteps",
    "sigmas",
    "num_inference",
    "_internal",
    "deprecat",
    "model_",
)


@pytest.mark.parametrize(
    "rewrite",
    [
        group_offload,
        model_offload,
        layer_offload,
        cast_layerwise,
        cache_first_block,
        broadcast_attention,
        cache_faster,
        compile_module,
        compile_in_place,
        compile_method,
    ],
)
def test_rewritten_pipelines_have_operators_and_are_left_as_they_were(tmp_path, rewrite):
    """Offload, casting, caching and compilation that are there before us."""
    run = check(rewrite, tmp_path)
    steps = run.commands.filter(pl.col("step") == 2, pl.col("call") >= 0)
    layers = set(steps["layer"].cast(str))
    if rewrite in (compile_module, compile_in_place):
        assert layers == {"FluxTransformer2DModel"}
    else:
        assert {"x_embedder", "transformer_blocks.0.ff.net.2"} <= layers


@pytest.mark.parametrize(
    "rewrite", [compile_blocks, pytest.param(compile_whole, marks=pytest.mark.nightly)]
)
def test_generated_code_is_traced(tmp_path, rewrite):
    """What inductor has compiled, as a whole or block by block, keeps its compiled code: its
    operators and the code between them are commands of the module that was compiled."""
    torch._dynamo.reset()
    run = check(rewrite, tmp_path)
    steps = run.commands.filter(pl.col("step") == 1, pl.col("call") >= 0)
    kinds = steps.filter(pl.col("op_type").cast(str) == "CompiledFxGraph")
    layers = {layer.partition("/")[0] for layer in kinds["layer"].cast(str)}
    if rewrite is compile_whole:
        assert layers == {"FluxTransformer2DModel"}
    else:
        assert layers == {"transformer_blocks.0", "single_transformer_blocks.0"}


def check(rewrite, out):
    pipeline = tiny.flux()
    rewrite(pipeline)
    expected = generate(pipeline)
    before = state_of(pipeline)
    with profiler.profile(pipeline, out=out) as recording:
        found = generate(pipeline)
    assert state_of(pipeline) == before
    assert (found == expected).all()
    assert (generate(pipeline) == expected).all()
    run = profiler.load(recording.path)
    assert run.calls.select("submodule", "branch", "step").rows() == EXPECTED
    assert run.calls["ops_traced"].all()
    assert run.drops == ()
    inside = run.commands.filter(pl.col("call") >= 0).group_by("call").len()
    assert len(inside) == len(EXPECTED)
    return run
