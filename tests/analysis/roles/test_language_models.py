"""Roles in language models whose operators lie in no module: grouped heads, experts, sampling."""

from __future__ import annotations

from collections import Counter

import pytest

from profiler.analysis import CommandArrays, kinds_of
from profiler.analysis.roles import roles_of

from .small import one_call, roles


def _layer(rows, hidden, heads, shared, width, experts):
    """The operators of a layer as vLLM runs them, with what each is for: (role, op type, shapes).
    Queries, keys and values are projected at once; `shared` is the number of heads of keys."""
    queries, keys = heads * width, shared * width
    qkv = queries + 2 * keys
    x = f"bfloat16[{rows},{hidden}]"
    q, kv = f"bfloat16[{rows},{heads},{width}]", f"bfloat16[{rows},{shared},{width}]"
    scores = f"bfloat16[{rows},{experts}]"
    return [
        ("norm", "_C::fused_add_rms_norm", f"in: {x} {x} bfloat16[{hidden}]"),
        ("qkv_projection", "aten::addmm", f"in: bfloat16[{qkv}] {x} bfloat16[{hidden},{qkv}]"),
        ("attention", "vllm::unified_attention_with_output", f"in: {q} {kv} {kv} {q}"),
        (
            "qkv_projection",
            "aten::addmm",
            f"in: bfloat16[{hidden}] bfloat16[{rows},{queries}] bfloat16[{queries},{hidden}]",
        ),
        ("norm", "_C::fused_add_rms_norm", f"in: {x} {x} bfloat16[{hidden}]"),
        ("router", "aten::addmm", f"in: bfloat16[{experts}] {x} bfloat16[{hidden},{experts}]"),
        ("router", "_moe_C::topk_softmax", f"in: float32[{rows},4] int32[{rows},4] {scores}"),
        ("mlp", "vllm::moe_forward", f"in: {x} {scores}"),
    ]


def _by_role(commands):
    """How many commands have each role in a model that is none of diffusion."""
    run = one_call(*commands, submodule="Model")
    arrays = CommandArrays.of(run.commands, run.calls)
    kinds = kinds_of(run.calls, run.commands, arrays.call)
    found = roles_of(run.info.submodules, kinds, arrays.call, denoises=False)["role"].to_list()
    return Counter(found[kind] for kind in kinds.of_command.tolist())


@pytest.mark.parametrize(
    "sizes",
    [
        (32, 2880, 64, 8, 64, 32),  # gpt-oss-20b
        (888, 2880, 8, 1, 64, 128),  # gpt-oss-120b, one of eight ranks
        (8192, 4096, 32, 8, 128, 8),  # Mixtral: keys are as wide as a fourth of the model
        (4, 2048, 32, 4, 128, 128),  # Qwen3-30B-A3B, decoding four requests
        (512, 4096, 64, 4, 128, 128),  # Qwen3-235B: more heads than the model is wide
        (64, 2048, 16, 16, 128, 64),  # OLMoE: no head is shared
    ],
)
def test_grouped_heads_and_experts_by_sizes(sizes):
    """Products of a layer are told apart by the heads of its attention and by the scores that its
    experts get; the order of the layers' operators says what each is for."""
    layer = _layer(*sizes)
    found = _by_role([(op, op, shapes) for _, op, shapes in layer * 3])
    assert found == Counter(role for role, _, _ in layer * 3)


def test_separate_projections_of_grouped_heads():
    """Llama's: of the queries' width, twice of the keys', and back; the mlp's stay its own."""
    x = "in: bfloat16[77,3072]"
    attention = "in: bfloat16[1,24,77,128] bfloat16[1,8,77,128] bfloat16[1,8,77,128]"
    products = {
        "bfloat16[3072,1024]": "qkv_projection",
        "bfloat16[3072,3072]": "qkv_projection",
        "bfloat16[3072,8192]": "mlp",
    }
    found = _by_role(
        [
            *[("aten::mm", "aten::mm", f"{x} {weight}") for weight in products],
            ("a", "aten::_scaled_dot_product_flash_attention", attention),
            ("aten::mm", "aten::mm", "in: bfloat16[77,8192] bfloat16[8192,3072]"),
        ]
    )
    assert found == Counter([*products.values(), "attention", "mlp"])


def test_few_rows_are_tokens_where_many_meet_the_same_weights():
    """Of a prompt and of a decoding step; a classifier's head meets no prompt."""
    attention = ("a", "aten::_scaled_dot_product_flash_attention", None)
    weights, head = "bfloat16[1024,2816]", "bfloat16[1024,1024]"
    products = [
        ("aten::mm", "aten::mm", f"in: bfloat16[{rows},1024] {weights}") for rows in (900, 2)
    ]
    found = _by_role([attention, *products, ("aten::mm", "aten::mm", f"in: float[2,1024] {head}")])
    assert found == {"attention": 1, "mlp": 2, "matmul": 1}


def test_a_router_written_out():
    """Product, softmax and top-k of eight experts, and the experts' own products, in no module. A
    top-k behind all products is of a sampler or of a classifier, and no router's."""
    choice = [
        ("aten::mm", "aten::mm", "in: bfloat16[64,4096] bfloat16[4096,8]"),
        ("aten::_softmax", "aten::_softmax", "in: float[64,8]"),
        ("aten::topk", "aten::topk", "in: float[64,8]"),
    ]
    expert = ("aten::mm", "aten::mm", "in: bfloat16[16,4096] bfloat16[4096,14336]")
    assert _by_role([*choice, expert])["router"] == 3
    assert _by_role([expert, *choice])["router"] == 0


def test_experts_are_chosen_in_their_mixture():
    """Softmax and top-k of a mixture's own, as Mixtral's, whose gate is but the product."""
    block = "model.layers.0.block_sparse_moe"
    found = roles(
        (f"{block}/aten::_softmax", "aten::_softmax", "in: float[64,8]"),
        (f"{block}/aten::topk", "aten::topk", "in: float[64,8]"),
        (f"{block}/aten::mul", "aten::mul", "in: float[64,8]"),
    )
    assert [role for role, _, _ in found] == ["router", "router", "mlp"]


def test_what_a_sampler_does_is_sampling():
    """All of it; without a module what chooses from the vocabulary that a product gives. Boxes of
    a detector may be as many."""
    scores = "in: float[4,151936]"
    of_sampler = ["aten::argmax", "aten::_softmax", "aten::cumsum"]
    run = [(op, op, scores) for op in of_sampler]
    assert [role for role, _, _ in roles(*run, submodule="Sampler")] == ["sampling"] * 3
    inside = [(f"TopKTopPSampler/{op}", op, scores) for op in of_sampler]
    assert [role for role, _, _ in roles(*inside)] == ["sampling"] * 3
    head = ("aten::mm", "aten::mm", "in: float[4,4096] float[4096,151936]")
    small = ("aten::argmax", "aten::argmax", "in: float[4,77]")
    assert [role for role, _, _ in roles(head, *run[:1], small)][1:] == ["sampling", "elementwise"]
    assert roles(*run[:1])[0][0] != "sampling"
    resampled = roles(("Upsampler/aten::mul", "aten::mul", scores))
    assert resampled[0][0] != "sampling"
