"""Beside diffusers', accelerate's and torch's own rewriting of modules, before or after ours."""

from __future__ import annotations

import pytest

import profiler

pytest.importorskip("diffusers", reason="needs the torch extra")
torch = pytest.importorskip("torch", reason="needs the torch extra")

from tests.capture import tiny_diffusers as tiny  # noqa: E402 - it imports them

pytestmark = pytest.mark.torch

CPU = torch.device("cpu")
PARTS = ("text_encoder", "text_encoder_2", "transformer", "vae")


def group_offload(pipeline):
    from diffusers.hooks import apply_group_offloading

    apply_group_offloading(
        pipeline.transformer,
        onload_device=CPU,
        offload_device=CPU,
        offload_type="leaf_level",
    )


def cache_first_block(pipeline):
    from diffusers import FirstBlockCacheConfig

    pipeline.transformer.enable_cache(FirstBlockCacheConfig(threshold=0.2))


def model_offload(pipeline):
    from accelerate import cpu_offload_with_hook

    hook = None
    for name in PARTS:
        part = getattr(pipeline, name)
        _, hook = cpu_offload_with_hook(part, execution_device=CPU, prev_module_hook=hook)


def compile_module(pipeline):
    pipeline.transformer = torch.compile(pipeline.transformer, backend="eager", fullgraph=True)


def compile_in_place(pipeline):
    pipeline.transformer.compile(backend="eager", fullgraph=True)


def compile_method(pipeline):
    pipeline.vae.decode = torch.compile(pipeline.vae.decode, backend="eager", fullgraph=True)


REWRITES = [
    group_offload,
    cache_first_block,
    model_offload,
    compile_module,
    compile_in_place,
    compile_method,
]


def run_once(pipeline):
    generator = torch.Generator().manual_seed(1)
    options = {"num_inference_steps": 2, "max_sequence_length": 16, **tiny.SIZE}
    return pipeline("a cat", generator=generator, output_type="np", **options).images


@pytest.mark.parametrize("rewrite", REWRITES)
@pytest.mark.parametrize("when", ["before attaching", "between runs"])
def test_every_call_is_recorded_whoever_rewrites_modules(tmp_path, rewrite, when):
    """Offload, caching and compilation, before attaching or between two runs, change neither the
    calls of a run nor, through us, its pixels; what they set up survives us."""
    pipeline = tiny.flux()
    runs = 2 if when == "between runs" else 1
    if when == "before attaching":
        rewrite(pipeline)
    with profiler.profile(pipeline, out=tmp_path, ops="none") as run:
        if when == "between runs":
            run_once(pipeline)
            rewrite(pipeline)
        with_hooks = run_once(pipeline)
    assert (run_once(pipeline) == with_hooks).all()
    calls = profiler.load(run.path).calls.select("submodule", "branch", "step").rows()
    assert calls == runs * [
        ("text_encoder", "prompt", -1),
        ("text_encoder_2", "prompt", -1),
        ("transformer", "cond", 0),
        ("transformer", "cond", 1),
        ("vae", None, -1),
    ]


def test_hooks_taken_off_while_attached_stay_off(tmp_path):
    """Caching that is switched off inside the block is not brought back by detaching."""
    pipeline = tiny.flux()
    cache_first_block(pipeline)
    with profiler.profile(pipeline, out=tmp_path, ops="none") as run:
        run_once(pipeline)
        pipeline.transformer.disable_cache()
    assert not pipeline.transformer.is_cache_enabled
    assert pipeline.transformer._diffusers_hook.hooks == {}
    run_once(pipeline)
    assert len(profiler.load(run.path).calls) == 5


def test_the_device_is_where_the_offload_hook_runs_a_module():
    """An offloaded module waits on the CPU; its execution device is where its calls are."""
    from types import SimpleNamespace

    from profiler.capture.backend import device_name, output_device
    from profiler.capture.torch.backend import execution_device

    module = torch.nn.Linear(2, 2)
    assert execution_device(module) == "cpu:0"
    module._hf_hook = SimpleNamespace(execution_device=torch.device("cuda", 1))
    assert execution_device(module) == "cuda:1"
    module._hf_hook = SimpleNamespace(hooks=[SimpleNamespace(execution_device=0)])
    assert execution_device(module) == "cuda:0"
    assert output_device((torch.empty(1, device="meta"),)) == "meta:0"
    assert output_device({"sample": torch.empty(1)}) == "cpu:0"
    assert output_device(None) == ""
    assert device_name("mps") == "mps:0"
