"""FLOPs of recorded torch runs against those that torch counts in the same model."""

from __future__ import annotations

import polars as pl
import pytest

from profiler.analysis import CommandArrays, kind_work, kinds_of
from profiler.run import load_bundle

pytestmark = pytest.mark.torch

PRODUCTS = ("matmul", "convolution", "attention")


def _pipelines():
    pytest.importorskip("diffusers")
    from tests.capture import tiny_diffusers as tiny

    return {
        "SD3.5": lambda: tiny.sd3(qk_norm="rms_norm", dual_attention_layers=(0,)),
        "FLUX": tiny.flux,
        "Qwen-Image": tiny.qwen_image,
        "SDXL": tiny.sdxl,
    }


def _counted(pipe, parts):
    """FLOPs of one run by submodule, counted below the pipeline by torch. Attention runs as two
    products there: torch has no formula for the CPU's fused one."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    sums = dict.fromkeys(parts, 0)

    def counting(name, call):
        def counted(*args, **kwargs):
            with FlopCounterMode(display=False) as mode:
                result = call(*args, **kwargs)
            sums[name] += mode.get_total_flops()
            return result

        return counted

    own = {}
    for name in parts:
        part, method = getattr(pipe, name), "decode" if name == "vae" else "forward"
        own[name] = (part, method)
        setattr(part, method, counting(name, getattr(part, method)))
    with sdpa_kernel(SDPBackend.MATH):
        _run(pipe)
    for part, method in own.values():
        delattr(part, method)
    return sums


def _run(pipe):
    from tests.capture.tiny_diffusers import SIZE

    pipe("a cat", num_inference_steps=2, output_type="np", **SIZE)


@pytest.mark.parametrize("model", ["SD3.5", "FLUX", "Qwen-Image", "SDXL"])
def test_products_count_as_torch_counts_them(model, tmp_path):
    """Products, convolutions and attention of every submodule, to the last operation; torch counts
    what causal masks leave out."""
    import profiler

    pipe = _pipelines()[model]()
    denoiser = "unet" if model == "SDXL" else "transformer"
    with profiler.profile(pipe, out=tmp_path):
        _run(pipe)
    run = load_bundle(next(tmp_path.iterdir()))
    kinds = kinds_of(run.calls, run.commands, CommandArrays.of(run.commands, run.calls).call)
    work = kind_work(kinds, run.commands)
    table = kinds.table.hstack(work.table.drop("kind"))
    counted = _counted(pipe, (denoiser, "vae", "text_encoder"))
    products = [row for row in table.to_dicts() if row["family"] in PRODUCTS]
    assert all(row["flops"] is not None for row in products)
    unknown = {
        row["op_type"]
        for row in table.to_dicts()
        if row["flops"] is None and row["category"] == "compute"
    }
    assert not unknown & {"aten::conv2d", "aten::conv3d", "aten::linear", "aten::matmul"}
    for name, flops in counted.items():
        found = sum(
            row["flops"] * (2 if row["shapes"].endswith(" causal") else 1)
            for row in products
            if row["submodule"] == name
        )
        assert found == flops > 0, name
    assert any(row["shapes"].endswith(" causal") for row in products)


@pytest.mark.filterwarnings("ignore")  # torch, diffusers and transformers warn about each other
def test_onnx_graphs_count_as_their_modules(tmp_path):
    """The embedded model on ONNX Runtime, its graphs optimized, weights packed and left out of the
    profile, computes the products that torch counts in the modules it was exported from."""
    pytest.importorskip("diffusers")
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    import profiler
    from profiler.graph.tiny_model import T5_WIDTH, build_parts
    from profiler.pipelines import StableDiffusion3Pipeline, default_model_folder

    pipe = StableDiffusion3Pipeline.from_folder(default_model_folder())
    with profiler.profile(pipe, out=tmp_path):
        pipe("a cat", num_inference_steps=1)
    run = load_bundle(next(tmp_path.iterdir()))
    kinds = kinds_of(run.calls, run.commands)
    table = kinds.table.hstack(kind_work(kinds, run.commands).table.drop("kind"))
    parts = build_parts()
    inputs = {
        "hidden_states": torch.zeros(2, 16, 48, 48),
        "encoder_hidden_states": torch.zeros(2, 77 + 256, T5_WIDTH),
        "pooled_projections": torch.zeros(2, parts.transformer.config.pooled_projection_dim),
        "timestep": torch.ones(2),
    }
    ids = torch.zeros(1, 256, dtype=torch.long)
    modules = {
        "transformer": lambda: parts.transformer(**inputs),
        "vae": lambda: parts.vae.decode(torch.zeros(1, 16, 48, 48)),
        "text_encoder_3": lambda: [parts.text_encoder_3(ids) for _ in range(2)],
    }
    for name, call in modules.items():
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as mode, torch.no_grad():
            call()
        counted = mode.get_flop_counts()["Global"]
        convolutions = counted.pop(torch.ops.aten.convolution, 0)
        own = table.filter(pl.col("submodule") == name)
        sums = dict(own.group_by("family").agg(pl.col("flops").sum()).iter_rows())
        assert sums["matmul"] == sum(counted.values()) > 0, name
        # in blocks of channels, which are padded: 8 channels are computed as 16
        assert sums.get("convolution", 0) >= convolutions
        if name == "transformer":
            assert sums["convolution"] == convolutions > 0
