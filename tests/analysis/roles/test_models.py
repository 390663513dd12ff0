"""Roles that depend on the model: routers of experts, modulation, operators named by a part."""

from __future__ import annotations

import pytest

from profiler.analysis import CommandArrays, kinds_of
from profiler.analysis.analyze import analyze
from profiler.analysis.role_rules import role_of_name
from profiler.analysis.roles import roles_of
from tests.importers.kineto.traces import Trace

from .small import kinds_and_roles, one_call, roles

FLASH = "void cutlass::device_kernel<flash::FlashAttnBwd<flash::Mainloop<2, 64> > >"
X = "float[2,64,32]"


def _roles(folder, *operators):
    """Device time by role of operators in a module: (path of modules, operator, kernel)."""
    trace = Trace()
    trace.module("Model_0", 0, 1000)
    for number, (modules, name, kernel) in enumerate(operators):
        begin = 50.0 * number + 10
        for depth, module in enumerate(modules):
            trace.module(module, begin + depth, 40 - 2 * depth)
        external = trace.op(name, begin + 10, 10)
        trace.kernel(kernel, begin + 25, 4, launched=begin + 12, external=external)
    return dict(analyze(trace.imported(folder)).roles.select("role", "total_ns").rows())


@pytest.mark.parametrize("modules", [(), ("RopeAttention_0",), ("RotaryEmbedding_0",)])
def test_kernels_outweigh_a_word_in_a_name(tmp_path, modules):
    """A fused operator, or its module, is called after a small part of it."""
    found = _roles(tmp_path, *[(modules, "RopeFlashAttnFuncBackward", FLASH)] * 3)
    assert found == {"attention": 12_000}


def test_rotary_positions_stay_what_they_are(tmp_path):
    """Where the kernel says nothing else, the name counts."""
    found = _roles(tmp_path, (("RotaryEmbedding_0",), "aten::mul", "elementwise_kernel"))
    assert found == {"rope": 4_000}


def test_the_gate_of_a_mixture_of_experts(tmp_path):
    """By its class: products, softmax and top-k alike; its experts are an mlp."""
    gate, expert = ("SwitchMoE_0", "SwitchGate_0"), ("SwitchMoE_0", "FeedForward_0")
    found = _roles(
        tmp_path,
        (gate, "aten::addmm", "ampere_sgemm"),
        (gate, "aten::_softmax", "softmax_warp_forward"),
        (gate, "aten::topk", "gatherTopK"),
        (expert, "aten::addmm", "ampere_sgemm"),
        (("SwitchMoE_0",), "aten::mul", "elementwise_kernel"),
    )
    assert found == {"router": 12_000, "mlp": 8_000}


def test_the_gate_beside_experts_by_path():
    """`gate` is a router beside `experts`, and a router is one by its name."""
    found = roles(
        ("model.layers.0.block_sparse_moe.gate/aten::linear", "aten::linear"),
        ("model.layers.0.block_sparse_moe.experts.3.w1/aten::linear", "aten::linear"),
        ("model.layers.0.block_sparse_moe.experts/aten::mm", "aten::mm"),
        ("model.layers.0.mlp.router/aten::linear", "aten::linear"),
    )
    assert [role for role, _, _ in found] == ["router", "mlp", "mlp", "router"]


_BLOCK = [
    ("model.layers.0/aten::mul", "aten::mul", f"{X} float[32] -> {X}"),
    ("model.layers.0/aten::add", "aten::add", f"{X} float[2,1,32] -> {X}"),
]


def _found(commands, submodule, denoises):
    run = one_call(*commands, submodule=submodule)
    arrays = CommandArrays.of(run.commands, run.calls)
    kinds = kinds_of(run.calls, run.commands, arrays.call)
    found = roles_of(run.info.submodules, kinds, arrays.call, denoises=denoises)
    return found["role"].to_list()


def test_only_models_of_diffusion_modulate():
    """A language model scales and shifts, too, but by no timestep's vector."""
    assert _found(_BLOCK, "LlamaModel", denoises=True) == ["modulation"] * 2
    assert _found(_BLOCK, "LlamaModel", denoises=False) == ["elementwise"] * 2
    conditioned = [*_BLOCK, ("time_text_embed.linear/aten::linear", "aten::linear", None)]
    assert _found(conditioned, "LlamaModel", denoises=False)[:2] == ["modulation"] * 2


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("void tensorflow::functor::FillPhiloxRandomKernelLaunch<NormalDistribution>()", "random"),
        ("FillPhiloxRandom", "random"),
        ("void curand_kernel<X>()", "random"),
        ("fill_kernel", "data_movement"),
        ("void vllm::moe::topkGatingSoftmax<4>()", "router"),
        ("void vllm::moe::moe_align_block_size_kernel<int>()", "router"),
        ("fused_moe_kernel", "mlp"),
    ],
)
def test_random_numbers_and_routers_by_kernel(name, role):
    """Filling with random numbers moves no data; choosing experts is not their work."""
    assert role_of_name(name) == role


def test_random_numbers_by_operator():
    """As torch and ONNX call them."""
    names = ("aten::randn", "aten::normal_", "RandomNormalLike", "aten::add")
    run = one_call(*((f"node_{at}", name, None) for at, name in enumerate(names)))
    _, found = kinds_and_roles(run)
    assert sorted(found["role"].to_list()) == ["elementwise", "random", "random", "random"]
