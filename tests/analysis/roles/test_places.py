"""What a module path says: purpose, block and stream, with and without classes."""

import pytest

from profiler.analysis.role_kernel_names import Places, Purpose

from .small import roles


@pytest.mark.parametrize(
    ("layer", "purpose"),
    [
        ("transformer_blocks.0.ff.net.0.proj", Purpose.MLP),
        ("transformer_blocks.0.ff_context.net.2", Purpose.MLP),
        ("text_model.encoder.layers.3.mlp.fc1", Purpose.MLP),
        ("encoder.block.1.layer.0.SelfAttention.q", Purpose.ATTENTION),
        ("encoder.block.1.layer.1.DenseReluDense.wi_0", Purpose.MLP),
        ("transformer_blocks.0.attn.norm_added_q", Purpose.NORM),
        ("transformer_blocks.1.txt_mod.1", Purpose.MODULATION),
        ("down_blocks.0.resnets.1.time_emb_proj", Purpose.MODULATION),
        ("time_text_embed.timestep_embedder.linear_1", Purpose.EMBEDDING),
        ("model.language_model.rotary_emb", Purpose.ROPE),
        ("decoder.up_blocks.0.upsamplers.0", Purpose.RESAMPLE),
        ("decoder.conv_in", Purpose.CONVOLUTION),
        ("transformer_blocks.3", Purpose.BLOCK),
        ("T5Stack.T5Block_2.T5LayerFF.T5DenseGatedActDense.Linear_0", Purpose.MLP),
        ("CLIPEncoder.CLIPEncoderLayer_3.CLIPMLP.QuickGELUActivation", Purpose.MLP),
        ("Decoder.UpDecoderBlock2D_1.ResnetBlock2D_0/aten::add", Purpose.RESNET),
        ("/blocks.0/attn/to_q/MatMul", Purpose.ATTENTION),
        ("linear_196", None),
        ("aten::mm", None),
        ("triton_poi_fused_add_0", None),
    ],
)
def test_purpose_by_names(layer, purpose):
    """The innermost name that says something; importers' paths are made of classes."""
    assert Places([layer], {}).of(layer).purpose is purpose


def test_attention_by_its_projections():
    """`attentions.0` of a VAE is one, of a UNet a whole transformer: what is in it tells."""
    vae = Places(["mid_block.attentions.0", "mid_block.attentions.0.to_q"], {})
    assert vae.of("mid_block.attentions.0").purpose is Purpose.ATTENTION
    unet = Places(["mid_block.attentions.0", "mid_block.attentions.0.proj_in"], {})
    assert unet.of("mid_block.attentions.0").purpose is Purpose.BLOCK


def test_output_of_a_fused_block_is_part_of_its_mlp():
    """FLUX's single blocks project attention and mlp at once; a UNet's proj_out embeds."""
    flux = Places(["single_transformer_blocks.0.proj_mlp"], {})
    assert flux.of("single_transformer_blocks.0.proj_out").purpose is Purpose.MLP
    assert flux.of("proj_out").purpose is Purpose.EMBEDDING


@pytest.mark.parametrize(
    ("layer", "block", "context"),
    [
        ("transformer_blocks.12.ff_context.net.2", "transformer_blocks.12", True),
        ("transformer_blocks.12.attn.add_k_proj", "transformer_blocks.12", True),
        ("transformer_blocks.0.img_mod.1", "transformer_blocks.0", False),
        ("down_blocks.1.attentions.0.transformer_blocks.1.ff.net.2", "down_blocks.1", False),
        ("text_model.encoder.layers.3.mlp.fc1", "text_model.encoder.layers.3", False),
        ("decoder.mid_block.resnets.0.conv1", "decoder.mid_block", False),
        ("T5Stack.T5Block_2.T5LayerFF/aten::add", "T5Stack.T5Block_2", False),
        ("context_embedder", None, True),
        ("proj_out", None, False),
    ],
)
def test_blocks_and_streams(layer, block, context):
    """The outermost numbered block, and whether a name belongs to the context stream."""
    place = Places([layer], {}).of(layer)
    assert (place.block, place.context) == (block, context)


def test_layers_of_other_producers():
    """Names of TensorRT's layers and ONNX nodes have paths too; without an op type in the trace
    the name's own is taken."""
    found = roles(
        ("/blocks.0/attn/to_q/MatMul + /blocks.0/attn/to_q/Add", ""),
        ("/blocks.0/attn/Softmax", ""),
        ("/blocks.0/ff/net.0/proj/MatMul", "MatMul"),
        ("Reformatting CopyNode for Input Tensor 0 to /blocks.0/ff/net.0/proj/MatMul", ""),
        ("Conv_5 + Add_6 + Relu_7", ""),
        ("SDPA_3", "SDPA"),
    )
    assert [role for role, _, _ in found] == [
        "qkv_projection",
        "attention",
        "mlp",
        "data_movement",
        "convolution",
        "attention",
    ]


def test_adapters_stand_beside_what_they_adapt():
    """Of a projection with a LoRA the adapter's modules and its own arithmetic are the adapter's,
    the weights are the projection's; without `base_layer` it is no adapter."""
    found = roles(
        ("blocks.0.attn.to_q.base_layer", "aten::linear"),
        ("blocks.0.attn.to_q.lora_A.default", "aten::linear"),
        ("blocks.0.attn.to_q.lora_B.default", "aten::linear"),
        ("blocks.0.attn.to_q", "aten::mul"),
        ("blocks.0.attn.to_q", "aten::add"),
        ("blocks.0.attn.to_k", "aten::linear"),
    )
    assert [role for role, _, _ in found] == [
        "qkv_projection",
        *["adapter"] * 4,
        "qkv_projection",
    ]
