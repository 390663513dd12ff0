"""Which blocks diffusers' step caches skip, against the blocks that really ran."""

from __future__ import annotations

import re
from functools import partial

import pytest

import profiler

torch = pytest.importorskip("torch", reason="needs the torch extra")
diffusers = pytest.importorskip("diffusers", reason="needs the torch extra")
if not hasattr(diffusers, "SeaCacheConfig"):
    pytest.skip("needs diffusers with all six caches", allow_module_level=True)
pytestmark = pytest.mark.torch

STEPS = 6
BLOCK = r"(single_)?transformer_blocks\.\d+"
ATTENTION = rf"{BLOCK}\.attn"


@pytest.fixture
def flux():
    """A pipeline whose transformer has two blocks of either kind."""
    from tests.capture import tiny_diffusers

    pipe = tiny_diffusers.flux()
    config = {**pipe.transformer.config, "num_layers": 2, "num_single_layers": 2}
    torch.manual_seed(0)
    pipe.transformer = diffusers.FluxTransformer2DModel.from_config(config).eval()
    return pipe


def watched(transformer, pattern):
    """The parts whose paths match note each of their runs: put below the hooks of a cache, which
    calls what it finds."""
    ran = []
    for path, module in transformer.named_modules():
        if re.fullmatch(pattern, path):
            module.forward = partial(_noting, ran, path, module.forward)
    return ran


def _noting(ran, path, forward, *args, **kwargs):
    ran.append(path)
    return forward(*args, **kwargs)


def images(pipe):
    from tests.capture import tiny_diffusers

    made = pipe(
        "a cat",
        num_inference_steps=STEPS,
        output_type="np",
        generator=torch.Generator().manual_seed(1),
        **tiny_diffusers.SIZE,
    )
    return made.images


def configs(pipe):
    """Each cache, what it skips, and which of these are outermost."""
    timestep = {"current_timestep_callback": lambda: pipe.current_timestep}
    return {
        "FirstBlockCache": (diffusers.FirstBlockCacheConfig(threshold=0.28), BLOCK),
        "MagCache": (
            diffusers.MagCacheConfig(
                num_inference_steps=STEPS, mag_ratios=[0.99] * STEPS, max_skip_steps=2
            ),
            BLOCK,
        ),
        "TaylorSeerCache": (
            diffusers.TaylorSeerCacheConfig(cache_interval=2, disable_cache_before_step=2),
            ATTENTION,
        ),
        "PyramidAttentionBroadcast": (
            diffusers.PyramidAttentionBroadcastConfig(
                spatial_attention_block_skip_range=2,
                spatial_attention_timestep_skip_range=(100, 900),
                spatial_attention_block_identifiers=["transformer_blocks"],
                **timestep,
            ),
            ATTENTION,
        ),
        "FasterCache": (
            diffusers.FasterCacheConfig(
                spatial_attention_block_skip_range=2,
                spatial_attention_timestep_skip_range=(-1, 901),
                attention_weight_callback=lambda _: 0.3,
                tensor_format="BCHW",
                is_guidance_distilled=True,
                **timestep,
            ),
            ATTENTION,
        ),
    }


CACHES = (
    "FirstBlockCache",
    "MagCache",
    "TaylorSeerCache",
    "PyramidAttentionBroadcast",
    "FasterCache",
)


@pytest.mark.parametrize("cache", CACHES)
def test_skipped_blocks_are_those_that_did_not_run(tmp_path, flux, cache):
    """Of every step; some are skipped, and some are not. The image is the one without capture, in
    both of two pipeline calls, and the cache has its own threshold again."""
    config, pattern = configs(flux)[cache]
    ran = watched(flux.transformer, pattern)
    flux.transformer.enable_cache(config)
    plain = images(flux)
    truth = []
    before = flux.transformer.register_forward_pre_hook(lambda *_: truth.append(len(ran)))
    ran.clear()
    with profiler.profile(flux, out=tmp_path, ops="none") as run:
        first = images(flux)
        second = images(flux)
    before.remove()
    assert (first == plain).all()
    assert (second == plain).all()
    steps = [set(ran[a:b]) for a, b in zip(truth, [*truth[1:], len(ran)], strict=True)]
    everything = set().union(*steps)
    found = profiler.load(run.path)
    assert found.info.drops == ()
    cached = found.info.cached_calls
    assert [one.cache for one in cached] == [cache] * 2 * STEPS
    assert [set(one.skipped) for one in cached] == [everything - step for step in steps]
    assert any(one.skipped for one in cached)
    assert not all(one.skipped for one in cached)
    can = everything - {"transformer_blocks.0"} if cache == "FirstBlockCache" else everything
    assert {one.blocks for one in cached} == {len(can)}
    for module in flux.transformer.modules():
        for hook in getattr(vars(module).get("_diffusers_hook"), "hooks", {}).values():
            assert type(getattr(hook, "threshold", 0.28)) is float


@pytest.mark.filterwarnings("ignore:torch.meshgrid:UserWarning")
def test_faster_cache_leaves_out_the_unconditional_half(tmp_path):
    """With guidance FasterCache computes half of the batch in some steps: these are the calls that
    say so, by the batch that the model's first layer got, in both of two pipeline calls; the image
    is the one without capture."""
    from tests.capture import tiny_diffusers

    pipe = tiny_diffusers.quiet(tiny_diffusers.sd3(num_layers=2))
    now = []
    pipe.transformer.register_forward_pre_hook(
        lambda _module, _args, given: now.append(int(given["timestep"][0])), with_kwargs=True
    )
    inputs = ("hidden_states", "encoder_hidden_states", "timestep", "pooled_projections")
    diffusers.hooks.apply_faster_cache(
        pipe.transformer,
        diffusers.FasterCacheConfig(
            spatial_attention_block_skip_range=2,
            spatial_attention_timestep_skip_range=(-1, 901),
            unconditional_batch_skip_range=3,
            unconditional_batch_timestep_skip_range=(-1, 901),
            attention_weight_callback=lambda _: 0.3,
            tensor_format="BCHW",
            current_timestep_callback=lambda: now[-1],
            _unconditional_conditional_input_kwargs_identifiers=inputs,
        ),
    )
    hooks = diffusers.hooks.HookRegistry.check_if_exists_or_initialize(pipe.transformer)
    plain = images(pipe)
    hooks.reset_stateful_hooks()  # models of other pipelines have that done when a call ends
    batches = []
    embed = pipe.transformer.pos_embed
    before = embed.register_forward_pre_hook(lambda _, given: batches.append(len(given[0])))
    with profiler.profile(pipe, out=tmp_path, ops="none") as run:
        first = images(pipe)
        hooks.reset_stateful_hooks()
        second = images(pipe)
    before.remove()
    assert (first == plain).all()
    assert (second == plain).all()
    assert batches[:STEPS].count(1) in range(1, STEPS)
    cached = profiler.load(run.path).info.cached_calls
    assert [one.cache for one in cached] == ["FasterCache"] * 2 * STEPS
    assert [one.without_uncond for one in cached] == [batch == 1 for batch in batches]
    assert any(one.skipped for one in cached)


def test_residual_ratio(tmp_path, flux):
    """It is what decided: above the threshold the blocks ran. It is a counter of the device, too;
    the first step of a call has none to compare with."""
    flux.transformer.enable_cache(diffusers.FirstBlockCacheConfig(threshold=0.28))
    with profiler.profile(flux, out=tmp_path, ops="none") as run:
        images(flux)
    found = profiler.load(run.path)
    ratios = [one.residual_ratio for one in found.info.cached_calls]
    assert ratios[0] is None
    decided = [ratio > 0.28 for ratio in ratios[1:]]
    assert decided == [not one.skipped for one in found.info.cached_calls[1:]]
    samples = found.counters.filter(found.counters["name"].cast(str).str.contains("residual"))
    assert samples["value"].to_list() == [round(ratio * 1e6) for ratio in ratios[1:]]
    ends = (found.calls["start_ns"] + found.calls["duration_ns"]).filter(
        found.calls["submodule"].cast(str) == "transformer"
    )
    assert samples["time_ns"].to_list() == ends.to_list()[1:]


class Video:
    """A loop around a denoiser of videos, which says where it is."""

    def __init__(self):
        torch.manual_seed(0)
        self.transformer = diffusers.WanTransformer3DModel(
            patch_size=(1, 2, 2),
            num_attention_heads=2,
            attention_head_dim=12,
            in_channels=4,
            out_channels=4,
            text_dim=16,
            freq_dim=16,
            ffn_dim=32,
            num_layers=3,
        ).eval()

    @torch.no_grad()
    def __call__(self):
        latents = torch.randn((1, 4, 2, 8, 8), generator=torch.Generator().manual_seed(0))
        text = torch.zeros((1, 4, 16))
        for step in range(STEPS):
            where = {"step_index": step, "sigma": 1 - step / STEPS, "num_inference_steps": STEPS}
            with self.transformer.cache_context("cond", **where):
                time = torch.tensor([1000 - 100 * step])
                latents = latents - 0.02 * self.transformer(latents, time, text)[0]
        return latents


def test_sea_cache(tmp_path):
    """Of its call-backs and counters in a loop of a script's own."""
    video = Video()
    ran = watched(video.transformer, r"blocks\.\d")
    video.transformer.enable_cache(diffusers.SeaCacheConfig(threshold=0.5))
    plain = video()
    truth = []
    before = video.transformer.register_forward_pre_hook(lambda *_: truth.append(len(ran)))
    video.transformer._reset_stateful_cache()
    ran.clear()
    with profiler.profile(video, out=tmp_path, ops="none") as run:
        assert torch.equal(video(), plain)
    before.remove()
    steps = [set(ran[a:b]) for a, b in zip(truth, [*truth[1:], len(ran)], strict=True)]
    cached = profiler.load(run.path).info.cached_calls
    everything = {"blocks.0", "blocks.1", "blocks.2"}
    assert [set(one.skipped) for one in cached] == [everything - step for step in steps]
    assert [one.blocks for one in cached] == [3] * STEPS
    assert any(one.skipped for one in cached)


def test_no_cache(tmp_path, flux):
    """Calls without a cache are told nothing of."""
    with profiler.profile(flux, out=tmp_path, ops="none") as run:
        images(flux)
    assert profiler.load(run.path).info.cached_calls == ()
