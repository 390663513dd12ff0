"""Wan 2.2 as it is downloaded: a folder whose configuration is the published one but for widths,
loaded as its users load it, by the classic class and as a modular pipeline."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("diffusers", reason="needs the torch extra")
pytest.importorskip("torch", reason="needs the torch extra")

import diffusers
import torch
import transformers

from tests.capture import tiny_diffusers as tiny
from tests.sweep.cases import Case
from tests.sweep.compare import compared
from tests.sweep.families.wan import OFFERED

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore"),  # diffusers' and transformers' own
]

SCHEDULER = {  # scheduler/scheduler_config.json of Wan2.2-T2V-A14B-Diffusers
    "flow_shift": 3.0,
    "prediction_type": "flow_prediction",
    "use_flow_sigmas": True,
    "num_train_timesteps": 1000,
    "solver_order": 2,
    "solver_type": "bh2",
    "timestep_spacing": "linspace",
}
TRANSFORMER = {
    "patch_size": (1, 2, 2),
    "in_channels": 16,
    "out_channels": 16,
    "freq_dim": 256,
    "cross_attn_norm": True,
    "qk_norm": "rms_norm_across_heads",
    "rope_max_seq_len": 1024,
    "eps": 1e-6,
    "num_attention_heads": 2,  # 40
    "attention_head_dim": 12,  # 128
    "num_layers": 2,  # 40
    "text_dim": 32,  # 4096
    "ffn_dim": 32,  # 13824
}
VAE = {
    "z_dim": 16,
    "dim_mult": [1, 2, 4, 4],
    "num_res_blocks": 2,
    "attn_scales": [],
    "temperal_downsample": [False, True, True],
    "base_dim": 4,  # 96
}
ENCODER = {
    "vocab_size": 1103,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 37,
    "num_layers": 1,
    "num_heads": 4,
    "feed_forward_proj": "gated-gelu",
}
INDEX = {  # model_index.json
    "_class_name": "WanPipeline",
    "boundary_ratio": 0.875,
    "scheduler": ["diffusers", "UniPCMultistepScheduler"],
    "text_encoder": ["transformers", "UMT5EncoderModel"],
    "transformer": ["diffusers", "WanTransformer3DModel"],
    "transformer_2": ["diffusers", "WanTransformer3DModel"],
    "vae": ["diffusers", "AutoencoderKLWan"],
}
STEPS = 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder, with weights."""
    torch.manual_seed(0)
    where = tmp_path_factory.mktemp("Wan2.2-T2V-A14B-Diffusers")
    diffusers.WanPipeline(
        tokenizer=tiny.t5_tokenizer(),
        text_encoder=transformers.UMT5EncoderModel(transformers.UMT5Config(**ENCODER)),
        vae=diffusers.AutoencoderKLWan(**VAE),
        scheduler=diffusers.UniPCMultistepScheduler(**SCHEDULER),
        transformer=diffusers.WanTransformer3DModel(**TRANSFORMER),
        transformer_2=diffusers.WanTransformer3DModel(**TRANSFORMER),
        boundary_ratio=0.875,
    ).save_pretrained(where)
    found = json.loads((where / "model_index.json").read_text("utf-8"))
    assert {key: found[key] for key in INDEX} == INDEX
    return where


def classic(folder):
    return diffusers.DiffusionPipeline.from_pretrained(folder)


def modular(folder):
    pipeline = diffusers.ModularPipeline.from_pretrained(str(folder))
    pipeline.load_components()
    return pipeline


@pytest.mark.parametrize(
    ("kind", "load"), [("WanPipeline", classic), ("Wan22ModularPipeline", modular)]
)
def test_two_experts_that_take_turns(folder, tmp_path, kind, load):
    """Noisy steps are the first expert's, the others the second's, both branches of each; steps
    count through. The video is bit by bit that without capture."""

    def loaded(_kind, _parts):
        pipeline = load(folder)
        assert type(pipeline).__name__ == kind
        return pipeline

    offered = {key: value for key, value in OFFERED.items() if key != "image"}
    offered |= {"num_inference_steps": STEPS, "output": "videos"}
    result = compared(Case(kind, "wan", dict, offered, make=loaded), tmp_path)
    assert result.differences == ()
    experts = {name: result.calls[name] for name in ("transformer", "transformer_2")}
    assert sum(experts.values()) == 2 * STEPS
    assert min(experts.values()) >= 2
    branches = {name: n for name, n in result.branches.items() if "transformer" in name}
    assert branches == {
        f"{name} {branch}": count // 2
        for name, count in experts.items()
        for branch in ("cond", "uncond")
    }
    assert (result.calls["text_encoder"], result.calls["vae"], result.steps) == (2, 1, STEPS)
