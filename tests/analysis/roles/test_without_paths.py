"""Roles in traces of torch that name no modules: what shapes and neighbours tell."""

from __future__ import annotations

import pytest

from .small import roles

_SDPA = (
    "aten::_cudnn_attention_forward",
    "aten::_cudnn_attention_forward",
    "in: bfloat16[2,24,4429,64] bfloat16[2,24,4429,64] bfloat16[2,24,4429,64]",
)


def _of(*commands, submodule="transformer"):
    """The roles of commands given as op type and shapes."""
    named = ((op_type, op_type, shapes) for op_type, shapes in commands)
    return [role for role, _, _ in roles(*named, submodule=submodule)]


def test_a_batched_product_of_tokens_that_are_not_contiguous_is_a_layer():
    """SD3.5's projection out of attention: torch expands its weight over the batch. Scores, and
    what they weight, have a head's width on one side."""
    found = _of(
        _SDPA[1:],
        ("aten::bmm", "in: bfloat16[2,4096,1536] bfloat16[2,1536,1536]"),
        ("aten::bmm", "in: bfloat16[2,333,1536] bfloat16[2,1536,1536] bfloat16[2,333,1536]"),
        ("aten::bmm", "in: bfloat16[48,4096,64] bfloat16[48,64,4096]"),
        ("aten::bmm", "in: bfloat16[48,4096,4096] bfloat16[48,4096,64]"),
        ("aten::bmm", "in: bfloat16[1,16384,512] bfloat16[1,512,16384]"),
    )
    assert found == ["attention", *["qkv_projection"] * 2, *["attention"] * 3]


@pytest.mark.parametrize(
    "shape",
    ["[1,14040,12,64] bfloat16[1,14040,1,64]", "[1,12,14040,64] bfloat16[1,1,14040,64]"],
)
def test_rotary_positions(shape):
    """Queries and keys meet cosines and sines that all heads share; their halves are added."""
    large = shape.partition(" ")[0]
    found = _of(
        _SDPA[1:],
        ("aten::mul", f"in: bfloat16{shape}"),
        ("aten::sub", f"in: bfloat16{large} bfloat16{large}"),
        ("aten::add", f"in: bfloat16{large} bfloat16{large}"),
        ("aten::add", "in: bfloat16[1,14040,1536] bfloat16[1,14040,1536]"),
    )
    assert found == ["attention", "rope", "rope", "rope", "residual"]


def test_images_are_not_rotated():
    """A vector of the batch that scales the channels of images is modulation, also beside
    attention; without attention nothing is rotated."""
    scaled = ("aten::mul", "in: float32[2,64,32,32] float32[2,64,1,1]")
    tokens = ("aten::mul", "in: float32[1,64,12,32] float32[1,64,1,32]")
    assert _of(_SDPA[1:], scaled) == ["attention", "modulation"]
    assert _of(tokens) == ["modulation"]


def test_the_bias_of_a_convolution():
    """cuDNN's convolution has none: torch adds it in place. A timestep's vector, one for each of
    the batch and added out of place, is modulation."""
    found = _of(
        ("aten::add_", "in: bfloat16[1,128,1024,1024] bfloat16[1,128,1,1]"),
        ("aten::add_", "in: bfloat16[1,96,4,480,832] bfloat16[1,96,1,1,1]"),
        ("aten::add", "in: bfloat16[2,128,64,64] bfloat16[2,128,1,1]"),
        submodule="vae",
    )
    assert found == ["convolution", "convolution", "modulation"]


def test_activations_of_a_video():
    """Between convolutions of five dimensions as between those of four."""
    assert _of(("aten::silu", "in: bfloat16[1,96,4,480,832]"), submodule="vae") == ["convolution"]


def test_a_fused_activation_beside_heads():
    """FLUX's single blocks join heads and a gelu in one kernel: what is largest has no pixels."""
    heads, wide = "bfloat16[1,24,4608,128]", "bfloat16[4608,12288]"
    joined = ("triton_poi_fused_cat_gelu_view_3", f"in: {heads} {wide} bfloat16[1,4608,15360]")
    pixels = ("triton_poi_fused_gelu_4", "in: bfloat16[1,64,128,128] bfloat16[64]")
    assert _of(_SDPA[1:], joined, pixels) == ["attention", "mlp", "convolution"]


def test_a_norm_by_normalize():
    """Wan's: the root of the mean square as a vector norm, then the quotient, scales and a shift;
    the activation after it is the convolution's."""
    x = "[1,96,4,480,832]"
    found = _of(
        ("aten::copy_", f"in: float32{x} bfloat16{x}"),
        ("aten::linalg_vector_norm", f"float32{x} -> float32[1,1,4,480,832]"),
        ("aten::clamp_min", "in: float32[1,1,4,480,832]"),
        ("aten::div", f"in: float32{x} float32{x}"),
        ("aten::copy_", f"in: bfloat16{x} float32{x}"),
        ("aten::mul", f"in: bfloat16{x}"),
        ("aten::mul", f"in: bfloat16{x} bfloat16[96,1,1,1]"),
        ("aten::add", f"in: bfloat16{x}"),
        ("aten::silu", f"in: bfloat16{x}"),
        submodule="vae",
    )
    moves = "data_movement"
    assert found == [moves, "norm", "norm", "norm", moves, *["norm"] * 3, "convolution"]
