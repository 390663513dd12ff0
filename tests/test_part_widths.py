"""Whether parts fit together is read from what their configurations say of widths."""

from __future__ import annotations

import pytest

from profiler.errors import InputError
from profiler.graph.export import PIPELINES
from profiler.graph.export_models import CONFIGURATIONS
from profiler.pipelines.model_layouts import check_widths

SD3 = {
    "text_encoder": {"hidden_size": 24, "projection_dim": 24},
    "text_encoder_2": {"hidden_size": 32, "projection_dim": 32},
    "text_encoder_3": {"d_model": 64},
    "transformer": {"joint_attention_dim": 64, "pooled_projection_dim": 56, "in_channels": 16},
    "vae": {"latent_channels": 16},
}
FLUX = {
    "text_encoder": {"hidden_size": 32},
    "text_encoder_2": {"d_model": 48},
    "transformer": {"joint_attention_dim": 48, "pooled_projection_dim": 32, "in_channels": 64},
    "vae": {"latent_channels": 16},
}
QWEN = {
    "text_encoder": {"text_config": {"hidden_size": 16}},
    "transformer": {"joint_attention_dim": 16, "in_channels": 64},
    "vae": {"z_dim": 16},
}
FITTING = {"StableDiffusion3Pipeline": SD3, "FluxPipeline": FLUX, "QwenImagePipeline": QWEN}


def changed(parts, name, **values):
    return parts | {name: parts[name] | values}


@pytest.mark.parametrize("name", PIPELINES)
def test_parts_of_one_model_fit(name):
    """Parts of one model pass, and so do those whose configurations say nothing."""
    check_widths(name, FITTING[name])
    check_widths(name, {})
    check_widths(name, {part: {} for part in FITTING[name]})


def test_a_published_model_fits():
    """Stable Diffusion 3 medium passes, with T5 and without."""
    files = CONFIGURATIONS["sd3-medium"].items()
    parts = {path.split("/")[0]: content for path, content in files if path.endswith("config.json")}
    check_widths("StableDiffusion3Pipeline", parts)
    del parts["text_encoder_3"]
    check_widths("StableDiffusion3Pipeline", parts)


@pytest.mark.parametrize(
    ("name", "part", "values", "said"),
    [
        ("StableDiffusion3Pipeline", "text_encoder", {"hidden_size": 40}, "72, more than d_model"),
        (
            *("StableDiffusion3Pipeline", "text_encoder_3", {"d_model": 80}),
            "d_model of text_encoder_3 is 80 where joint_attention_dim of transformer is 64",
        ),
        (
            *("StableDiffusion3Pipeline", "text_encoder_2", {"projection_dim": 30}),
            "together is 54 where pooled_projection_dim of transformer is 56",
        ),
        (
            *("StableDiffusion3Pipeline", "vae", {"latent_channels": 4}),
            "latent_channels of vae is 4 where in_channels of transformer is 16",
        ),
        ("FluxPipeline", "text_encoder", {"hidden_size": 24}, "24 where pooled_projection_dim"),
        ("FluxPipeline", "text_encoder_2", {"d_model": 32}, "32 where joint_attention_dim"),
        ("FluxPipeline", "vae", {"latent_channels": 4}, "4 × latent_channels of vae is 16 where"),
        (
            *("QwenImagePipeline", "text_encoder", {"text_config": {"hidden_size": 8}}),
            "text_config.hidden_size of text_encoder is 8 where joint_attention_dim",
        ),
        ("QwenImagePipeline", "vae", {"z_dim": 4}, "4 × z_dim of vae is 16 where in_channels"),
    ],
)
def test_parts_of_different_models_are_told(name, part, values, said):
    """A width that does not fit is named with the one that it should be."""
    with pytest.raises(InputError) as refused:
        check_widths(name, changed(FITTING[name], part, **values))
    assert said in str(refused.value)


def test_the_encoders_fit_the_denoiser_where_there_is_no_t5():
    """Without T5 the zeros that stand for it are as wide as the denoiser takes."""
    parts = {name: values for name, values in SD3.items() if name != "text_encoder_3"}
    check_widths("StableDiffusion3Pipeline", parts)
    with pytest.raises(InputError, match="72, more than joint_attention_dim of transformer"):
        check_widths("StableDiffusion3Pipeline", changed(parts, "text_encoder", hidden_size=40))
