"""Calls of a diffusion pipeline whose trace has no modules: where each begins and ends, and
which step and which call of the pipeline it is of."""

from __future__ import annotations

import polars as pl
import pytest

from .test_regions import encoder, work
from .traces import Trace, calls

LATENTS = [(1, 16, 8, 8), (64, 16, 2, 2)]
PACKED = [(1, 256, 64), (3072, 64)]
OUT = [(1, 256, 3072), (64, 3072)]


def layers(trace, start, count=12):
    """Matrix products, a kernel each, 12 µs apart."""
    for number in range(count):
        work(trace, "aten::linear", start + 12 * number, [(1, 256, 3072), (3072, 3072)])


def denoiser(trace, start):
    """A transformer that embeds latents by a product, 190 µs long, behind the scaled timestep."""
    work(trace, "aten::div", start - 12, [(1,)])
    work(trace, "aten::linear", start, PACKED)
    layers(trace, start + 12)
    work(trace, "aten::linear", start + 180, OUT)


def mixed(trace, start, count=2):
    """Operators of guidance and scheduler, 12 µs apart."""
    for number in range(count):
        work(trace, "aten::add", start + 12 * number, [(1, 256, 64)])


def decoder(trace, start, video=False):
    """A VAE decoder: from 16 channels to an image, or to a chunk of frames."""
    frames = (1,) if video else ()
    work(trace, "aten::convolution", start, [(1, 16, *frames, 8, 8), (512, 16, *frames, 3, 3)])
    work(trace, "aten::convolution", start + 20, [(1, 128, *frames, 8, 8), (3, 128, *frames, 3, 3)])


def ranges(run):
    """Submodule, begin and length in µs of each call on the host."""
    first = run.calls["start_ns"].min()
    return [
        (name, (start - first) // 1000, length // 1000)
        for name, start, length in run.calls.select("submodule", "start_ns", "duration_ns").rows()
    ]


def test_products_that_widen_patches_of_latents_begin_a_denoiser(tmp_path):
    """FLUX has no convolution in its transformer: a call ends where its patches come out, before
    the scheduler's step."""
    trace = Trace()
    encoder(trace, 0, 49408, 768)
    for step in range(3):
        denoiser(trace, 200 + 300 * step)
        mixed(trace, 200 + 300 * step + 200)
    decoder(trace, 1200)
    run = trace.imported(tmp_path)
    assert ranges(run)[1:] == [
        *(("transformer", 200 + 300 * step, 190) for step in range(3)),
        ("vae", 1200, 30),
    ]
    assert run.calls["step"].to_list() == [-1, 0, 1, 2, -1]


def test_an_adapter_of_patch_size_begins_no_denoiser(tmp_path):
    """LoRA of rank 64 widens as many features, directly behind what narrowed them to that."""
    trace = Trace()
    for step in range(2):
        begin = 300 * step
        work(trace, "aten::linear", begin, PACKED)
        layers(trace, begin + 12)
        work(trace, "aten::linear", begin + 160, OUT)
        work(trace, "aten::linear", begin + 172, PACKED)
        work(trace, "aten::linear", begin + 190, OUT)
        mixed(trace, begin + 205)
    decoder(trace, 700)
    run = trace.imported(tmp_path)
    assert ranges(run) == [("transformer", 0, 200), ("transformer", 300, 200), ("vae", 700, 30)]


def test_denoisers_may_follow_each_other_with_nothing_between(tmp_path):
    """The last layer before patches come out makes modulation, of one row, and is no adapter's."""
    trace = Trace()
    for step in range(2):
        work(trace, "aten::linear", 300 * step, PACKED)
        layers(trace, 300 * step + 12)
        work(trace, "aten::linear", 300 * step + 160, [(1, 3072), (6144, 3072)])
        work(trace, "aten::linear", 300 * step + 172, OUT)
    decoder(trace, 700)
    found = ranges(trace.imported(tmp_path))
    assert found == [("transformer", 0, 182), ("transformer", 300, 182), ("vae", 700, 30)]


def test_a_condition_that_is_embedded_behind_the_latents_begins_no_call(tmp_path):
    """A ControlNet embeds both, before its layers."""
    trace = Trace()
    for step in range(2):
        begin = 300 * step
        work(trace, "aten::linear", begin, PACKED)
        work(trace, "aten::linear", begin + 12, PACKED)
        layers(trace, begin + 24)
        mixed(trace, begin + 180)
    decoder(trace, 700)
    assert ranges(trace.imported(tmp_path))[:2] == [
        ("transformer", 0, 202),
        ("transformer", 300, 202),
    ]


def test_compiled_blocks_of_a_denoiser_are_in_its_call(tmp_path):
    """`compile_repeated_blocks` makes many regions of one call."""
    trace = Trace()
    for step in range(2):
        begin = 300 * step
        work(trace, "aten::div", begin - 12, [(1,)])
        work(trace, "aten::linear", begin, PACKED)
        for block in range(5):
            trace.op("Torch-Compiled Region: 0/0", begin + 20 + 30 * block, 20)
            work(trace, "aten::mm", begin + 25 + 30 * block, [(256, 3072), (3072, 3072)])
        work(trace, "aten::linear", begin + 180, OUT)
    decoder(trace, 700)
    assert calls(trace.imported(tmp_path)) == [
        ("transformer", "denoise", "cond", 0),
        ("transformer", "denoise", "cond", 1),
        ("vae", "decode", None, -1),
    ]


def test_chunks_of_video_are_one_call_of_its_decoder(tmp_path):
    """Three chunks of frames, behind a convolution from latents to latents; images stay apart."""
    trace = Trace()
    denoiser(trace, 0)
    work(trace, "aten::convolution", 280, [(1, 16, 3, 8, 8), (16, 16, 1, 1, 1)])
    for chunk in range(3):
        decoder(trace, 300 + 50 * chunk, video=True)
    assert ranges(trace.imported(tmp_path)) == [("transformer", 0, 190), ("vae", 280, 150)]
    trace = Trace()
    denoiser(trace, 0)
    decoder(trace, 300)
    decoder(trace, 350)
    (tmp_path / "images").mkdir()
    assert trace.imported(tmp_path / "images").calls["submodule"].to_list()[1:] == ["vae", "vae"]


def test_an_encoder_that_waits_between_its_layers_is_whole(tmp_path):
    """A blocking call before two layers have run lies within the encoder; the next one ends it, and
    what the pipeline makes of its embeddings is not the encoder's."""
    trace = Trace()
    work(trace, "aten::embedding", 0, [(256384, 4096), (1, 512)])
    trace.event("cuda_runtime", "cudaStreamSynchronize", 15, 2)
    layers(trace, 20, 14)
    work(trace, "aten::cat", 200, [(1, 512, 4096)])
    trace.event("cuda_runtime", "cudaStreamSynchronize", 215, 2)
    work(trace, "aten::randn", 230)
    denoiser(trace, 300)
    decoder(trace, 600)
    run = trace.imported(tmp_path)
    assert ranges(run)[0] == ("text_encoder", 0, 20 + 13 * 12 + 10)


def guided(scheduled, prompts=2, steps=2):
    """`steps` pairs of denoiser calls, with so many operators behind each pair."""
    trace = Trace()
    for number in range(prompts):
        encoder(trace, 100 * number, 49408, 768)
    for step in range(steps):
        begin = 300 + 600 * step
        denoiser(trace, begin)
        denoiser(trace, begin + 220)
        mixed(trace, begin + 440, scheduled)
    decoder(trace, 300 + 600 * steps)
    return trace


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_calls_with_and_without_the_condition_share_a_step(tmp_path, steps):
    """Little runs between the two of a pair, the scheduler behind them; with one pair, two prompts
    were encoded."""
    found = calls(guided(scheduled=3, steps=steps).imported(tmp_path))
    assert [row[2:] for row in found if row[0] == "transformer"] == [
        (branch, step) for step in range(steps) for branch in ("cond", "uncond")
    ]


@pytest.mark.parametrize(("scheduled", "prompts"), [(0, 2), (3, 1)])
def test_calls_alike_or_of_one_prompt_are_steps_of_their_own(tmp_path, scheduled, prompts):
    """As much behind each call as behind the next, or one prompt: no pairs."""
    found = calls(guided(scheduled, prompts).imported(tmp_path))
    assert [row[3] for row in found if row[0] == "transformer"] == [0, 1, 2, 3]


def test_what_runs_behind_the_last_decoder_is_the_next_call_of_the_pipeline(tmp_path):
    """An image is decoded while the pipeline runs again, whose own latents nobody decodes: its
    loop is there, with its own steps."""
    trace = Trace()
    for number in range(2):
        begin = 1000 * number
        encoder(trace, begin, 49408, 768)
        for step in range(2):
            denoiser(trace, begin + 200 + 300 * step)
            mixed(trace, begin + 400 + 300 * step)
        if not number:
            decoder(trace, 850)
    run = trace.imported(tmp_path)
    one = [("text_encoder", "encode", "prompt", -1)]
    one += [("transformer", "denoise", "cond", step) for step in range(2)]
    assert calls(run) == [*one, ("vae", "decode", None, -1), *one]
    assert run.spans.filter(pl.col("kind") == "pipeline").height == 2
