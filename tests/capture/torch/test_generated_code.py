"""Generated code of torch.compile: a text of torch 2.13, without the bodies of its kernels, and
small ones in; what they execute and the layers of a call out."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest

import profiler
from profiler.capture.torch.compile import Statement, layers_of, source_of, statements

CODE = (Path(__file__).parent / "generated_code.txt").read_text()
OLDER = """
    def call(self, args):
        # Source Nodes: [silu, mul], Original ATen: [aten.silu, aten.mul]
        cpp_fused_mul_silu_0(arg0_1, buf0)
        # Topologically Sorted Source Nodes: [attn], Original ATen: [aten.view]
        buf1 = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default(buf0, buf0, buf0)
        buf2 = buf1[0]
        triton_poi_fused_add_1.run(buf2, 8, stream=stream0)
        cpp_fused_mul_2(buf2)
        return (buf2, )
"""
ATTENTION = "_scaled_dot_product_flash_attention_for_cpu"


def test_what_the_code_executes():
    """Kernels and operators in their order; nodes belong to the next statement alone."""
    assert statements(CODE) == [
        Statement("cpp_fused_native_layer_norm_0", extern=False),
        Statement("addmm", extern=True, nodes=("linear",)),
        Statement("cpp_fused_add_gelu_mul_native_layer_norm_1", extern=False),
        Statement("addmm", extern=True, nodes=("linear_1",)),
        Statement("cpp_fused_add_gelu_mul_2", extern=False),
    ]
    assert statements(OLDER) == [
        Statement("cpp_fused_mul_silu_0", extern=False, nodes=("silu", "mul")),
        Statement(ATTENTION, extern=True, nodes=("attn",)),
        Statement("triton_poi_fused_add_1", extern=False),
        Statement("cpp_fused_mul_2", extern=False),
    ]


@pytest.mark.parametrize("code", ["", "x = 1", "def call(", "    def call(self, args):\n  pass"])
def test_what_is_no_generated_code(code):
    """Nothing is read from it."""
    assert statements(code) == []


def test_layers_of_a_call():
    """A gap with one kernel is that kernel; one with several is a layer between them."""
    found = layers_of(statements(OLDER), [f"aten::{ATTENTION}"])
    assert found.operators == ("fx::attn",)
    assert found.gaps == (
        ("fx::silu_mul", "cpp_fused_mul_silu_0"),
        ("inductor::triton_poi_fused_add_1_to_cpp_fused_mul_2", "CompiledFxGraph"),
    )


@pytest.mark.parametrize("seen", [[], ["aten::mm"], ["aten::addmm"], ["aten::addmm"] * 3])
def test_a_call_that_differs_from_the_code(seen):
    """Where other operators ran, each gap is a layer by its number, never one for all."""
    found = layers_of(statements(CODE), seen)
    assert found.operators == ("",) * len(seen)
    assert [layer for layer, _ in found.gaps] == [
        f"inductor::part_{number}" for number in range(len(seen) + 1)
    ]


def test_kernels_that_record_themselves():
    """With TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE kernels are operators: each has its layer, with
    the code and without."""
    seen = ["graph_0_cpp_fused_mul_silu_0", f"aten::{ATTENTION}", "graph_0_cpp_fused_mul_2"]
    assert layers_of(statements(OLDER), seen).operators == (
        "fx::silu_mul",
        "fx::attn",
        "inductor::cpp_fused_mul_2",
    )
    assert layers_of([], seen).operators == (
        "inductor::cpp_fused_mul_silu_0",
        "",
        "inductor::cpp_fused_mul_2",
    )


def test_many_nodes_make_no_endless_name():
    """A kernel of many nodes is called after the first eight."""
    kernel = Statement("cpp_fused_0", extern=False, nodes=tuple("abcdefghij"))
    assert kernel.layer == "fx::a_b_c_d_e_f_g_h_and_more"


def test_a_graph_that_is_not_there():
    """Without torch's inductor, or with no graph of that key, there is no code."""
    assert source_of("nowhere") == ""


def test_a_graph_by_its_key(monkeypatch):
    """Of several compiled graphs the code is that of the key, whichever was compiled first."""

    class CompiledFxGraph:
        def __init__(self, key, code):
            self._fx_graph_cache_key, self.source_code = key, code

    module = SimpleNamespace(CompiledFxGraph=CompiledFxGraph)
    monkeypatch.setitem(sys.modules, "torch._inductor.output_code", module)
    graphs = [CompiledFxGraph(key, f"code of {key}") for key in ("first", "second", "third")]
    assert [source_of(graph._fx_graph_cache_key) for graph in graphs] == [
        "code of first",
        "code of second",
        "code of third",
    ]
    assert source_of("fourth") == ""


@pytest.mark.torch
@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
def test_a_layer_for_each_kernel(tmp_path):
    """Compiled by inductor, the first call, which compiles, and the second hold the same commands:
    a kernel, the product between, a kernel; compiling is a compilation."""
    torch = pytest.importorskip("torch", reason="needs the torch extra")
    torch._dynamo.reset()
    pipeline = _compiled(torch)
    with profiler.profile(pipeline, out=tmp_path) as capture, torch.no_grad():
        pipeline()
    run = profiler.load(capture.path)
    for call in (0, 1):
        commands = run.commands.filter(pl.col("call") == call).sort("start_ns")
        layers = commands["layer"].cast(pl.String).to_list()
        kinds = [layer.split("::")[0] for layer in layers]
        assert kinds == ["Net/inductor", "Net/fx", "Net/inductor"]
        assert len(set(layers)) == 3
        assert "dynamo" not in set(commands["op_type"].cast(pl.String))
    assert [found.call for found in run.info.compilations] == [0]


def _compiled(torch):
    """A pipeline that calls a compiled module twice."""

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.LayerNorm(8)
            self.fc = torch.nn.Linear(8, 8)

        def forward(self, x):
            return torch.nn.functional.gelu(self.fc(self.norm(x)))

    class Pipeline:
        def __init__(self):
            self.transformer = torch.compile(Net().eval())

        def __call__(self):
            return self.transformer(self.transformer(torch.ones(512, 8)))

    return Pipeline()
