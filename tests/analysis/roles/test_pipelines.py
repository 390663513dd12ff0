"""Roles of real pipelines with tiny models, against a table written by hand.

The share of time that agrees is of times stored beside the table, so that no run decides by how
fast it happened to be.
"""

from __future__ import annotations

import polars as pl
import pytest

import profiler
from tests.command_line import run_command

from .expectation import (
    EXPECTED,
    HERE,
    ROOT_CLASS,
    agreement,
    agreement_of_rows,
    coverage,
    found_roles,
    rows,
)

LEAST = 0.95
LEAST_OF_ROWS = 0.9  # attention alone can be most of the time; of rows each counts once
RECORDED = ("flux", "qwen", "sd35", "sdxl")
PIPELINES = ("sd3", "sd35", "flux", "qwen", "sdxl")


def _recorded(name, folder):
    from tests.capture import tiny_diffusers as tiny

    make, more = {
        "sd3": (tiny.sd3, {"negative_prompt": "b"}),
        "sd35": (
            lambda: tiny.sd3(qk_norm="rms_norm", dual_attention_layers=(0,)),
            {"negative_prompt": "b"},
        ),
        "flux": (tiny.flux, {"guidance_scale": 3.5}),
        "qwen": (tiny.qwen_image, {"negative_prompt": "b", "true_cfg_scale": 2.0}),
        "sdxl": (tiny.sdxl, {"negative_prompt": "b"}),
    }[name]
    pipe = make()
    with profiler.profile(pipe, out=folder, name=name) as profile:
        pipe("a cat", num_inference_steps=2, output_type="pt", **tiny.SIZE, **more)
    return profiler.load(profile.path)


@pytest.fixture(scope="module", params=PIPELINES)
def on_torch(request, tmp_path_factory):
    """Two steps of a diffusers pipeline on torch's CPU, and its name."""
    pytest.importorskip("torch", reason="needs the torch extra")
    pytest.importorskip("diffusers", reason="needs the torch extra")
    return request.param, _recorded(request.param, tmp_path_factory.mktemp("traces"))


@pytest.fixture(scope="module")
def on_onnxruntime(tmp_path_factory):
    """Two steps of the embedded Stable Diffusion 3 on ONNX Runtime."""
    out = tmp_path_factory.mktemp("traces")
    assert run_command("run", "--steps", 2, "--warmup", 0, "--out", out) == 0
    return profiler.load(out)


def _agrees(run, name, least=LEAST):
    reference = HERE / "reference" / f"{name}.tsv"
    share, differing = agreement(run, reference)
    assert coverage(run, reference) >= 0.99, f"write {reference.name} anew: other operators ran"
    assert share >= least, "\n".join(differing)
    assert agreement_of_rows(run) >= LEAST_OF_ROWS, "\n".join(differing)


def _without_classes(run):
    from dataclasses import replace

    from msgspec import structs

    submodules = {
        name: structs.replace(known, modules={}, model=ROOT_CLASS + known.modules[""])
        for name, known in run.info.submodules.items()
    }
    return replace(run, info=structs.replace(run.info, submodules=submodules))


@pytest.mark.torch
def test_roles_on_torch(on_torch):
    """At least 95 % of the time has the role, and norms the kind, that a human gave it."""
    name, run = on_torch
    _agrees(run, name)


@pytest.mark.torch
def test_roles_on_torch_by_paths_alone(on_torch):
    """A trace without the classes of modules is as good, but for kinds of norms."""
    name, run = on_torch
    _agrees(_without_classes(run), name)


def test_roles_on_onnxruntime(on_onnxruntime):
    """The same on ONNX Runtime, whose optimizations renamed and fused the nodes."""
    _agrees(on_onnxruntime, "ort")


def test_roles_on_onnxruntime_by_paths_alone(on_onnxruntime):
    """And without classes."""
    _agrees(_without_classes(on_onnxruntime), "ort")


@pytest.mark.parametrize("name", RECORDED)
def test_roles_of_recorded_denoisers(name):
    """FLUX, Qwen-Image, SD3.5 and SDXL on ONNX Runtime, recorded once (`record_onnxruntime`)."""
    run = profiler.load(HERE / "recorded" / name)
    _agrees(run, f"{name}_onnxruntime")
    _agrees(_without_classes(run), f"{name}_onnxruntime")


@pytest.mark.torch
def test_streams_of_joint_transformers(on_torch):
    """Names and numbers of tokens tell the streams apart; attention works on both; a UNet and
    text encoders have none."""
    name, run = on_torch
    found = found_roles(run)
    streams = found.filter(pl.col("submodule").is_in(["transformer"]))
    assert found.filter(pl.col("submodule").is_in(["unet", "vae"]))["stream"].null_count() == len(
        found.filter(pl.col("submodule").is_in(["unet", "vae"]))
    )
    if name == "sdxl":
        assert streams.is_empty()
        return
    by_path = dict(streams.select("path", "stream").unique(maintain_order=True).rows())
    expected = (
        {"txt_in": "text", "transformer_blocks.N.img_mlp.net.N": "image"}
        if name == "qwen"
        else {
            "context_embedder": "text",
            "transformer_blocks.N.ff.net.N": "image",
            "transformer_blocks.N.ff_context.net.N": "text",
        }
    )
    assert {path: by_path[path] for path in expected} == expected
    joint = streams.filter(
        (pl.col("op") == "scaled_dot_product_attention")
        & (pl.col("path") == "transformer_blocks.N.attn")
    )
    assert joint["stream"].to_list() == [None] * len(joint)
    residual = streams.filter(
        (pl.col("path") == "transformer_blocks.N") & (pl.col("role") == "residual")
    )
    assert set(residual["stream"]) == {"image", "text"}


@pytest.mark.parametrize("name", [*PIPELINES, "ort"])
def test_table_names_every_operator(name):
    """No stored row is without a line in the table."""
    reference = HERE / "reference" / f"{name}.tsv"
    denoisers = {"flux": "FluxTransformer2DModel", "qwen": "QwenImageTransformer2DModel"}
    classes = {
        "text_encoder_3": "T5EncoderModel",
        "vae": "AutoencoderKLQwenImage" if name == "qwen" else "AutoencoderKL",
        "unet": "UNet2DConditionModel",
        "transformer": denoisers.get(name, "SD3Transformer2DModel"),
        "text_encoder": "Qwen2_5_VLForConditionalGeneration" if name == "qwen" else "CLIPTextModel",
        "text_encoder_2": "T5EncoderModel" if name == "flux" else "CLIPTextModel",
    }
    for row in rows(reference):
        assert EXPECTED.of(classes[row.submodule], row).roles
