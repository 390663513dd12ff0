"""Names of commands: which grammar reads what, and how another package adds one."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.grammars import names
from profiler.grammars.names import BUILT_IN, UNNUMBERED, ParsedName, parse_name
from profiler.plugins import plugins


@pytest.mark.parametrize(
    ("name", "layer", "index", "path", "op_types"),
    [
        ("12_linear_196_0", "linear_196", 0, "", ("linear",)),
        ("i0_12_W3_fused(conv_1+relu_2)_4", "fused(conv_1+relu_2)", 4, "", ("fused(conv+relu)",)),
        ("/encoder/layers.0/fc1/MatMul", None, -1, "encoder.layers.0.fc1", ("MatMul",)),
        ("/conv_in/Conv_nchwc", None, -1, "conv_in", ("Conv",)),
        ("/Add_12", None, -1, "", ("Add",)),
        ("/up/Resize_kernel_time", "/up/Resize", -1, "up", ("Resize",)),
        ("node_MatMul_3", None, -1, "", ("MatMul",)),
        (
            "node_MatMul_3/MatMulAddFusion",
            "node_MatMul_3",
            -1,
            "",
            ("MatMul", "MatMulAddFusion"),
        ),
        ("blocks.0.attn.to_q", None, -1, "blocks.0.attn.to_q", ()),
        ("T5Stack.T5Block_2/aten::add", None, -1, "T5Stack.T5Block_2", ("aten::add",)),
        ("Conv_5 + Add_6 + Relu_7", None, -1, "", ("Conv", "Add", "Relu")),
        (
            "/blocks.0/attn/to_q/MatMul + /blocks.0/attn/to_k/MatMul",
            None,
            -1,
            "blocks.0.attn",
            ("MatMul", "MatMul"),
        ),
        ("PWN(PWN(/act/Sigmoid), /act/Mul)", None, -1, "act", ("Sigmoid", "Mul")),
        (
            "Reformatting CopyNode for Input Tensor 0 to Conv_0 + Relu_1",
            None,
            -1,
            "",
            ("Reformat",),
        ),
        ("{ForeignNode[/layers.0/Constant.../layers.0/mlp/Add]}", None, -1, "layers.0", ()),
        ("__myl_MulMeaAddSqrtDiv_myl0_12", None, -1, "", ("Mul", "Mea", "Add", "Sqrt", "Div")),
    ],
)
def test_names(name, layer, index, path, op_types):
    """Each producer's name gives its layer, its module path and what it computes."""
    assert parse_name(name, BUILT_IN) == ParsedName(layer or name, index, path, op_types)


@pytest.mark.parametrize("name", ["", "aten::mm", "tokenizer", "void kernel<int>(float*)", "a b"])
def test_other_names_stay_whole(name):
    """What no grammar knows is no layer with parts."""
    assert parse_name(name, BUILT_IN) is None


@given(st.text(max_size=60))
def test_every_text_is_a_name_or_none(name):
    """No grammar fails on what a foreign trace may hold."""
    parsed = parse_name(name, BUILT_IN)
    assert parsed is None or (parsed.layer and parsed.command_index >= UNNUMBERED)


def test_layers_of_a_real_engine():
    """Of TensorRT's 36 layers of a ResNet all that fuse or copy are read."""
    corpus = Path(__file__).parents[2].parent / "shared/corpus/tensorrt"
    if not corpus.is_dir():
        pytest.skip("the corpus is not here")
    profile = json.loads((corpus / "resnet_fp16_a100.profile.json").read_text())
    layers = [entry["name"] for entry in profile if "name" in entry]
    composed = [name for name in layers if " " in name]
    assert len(layers) == 36
    assert composed
    assert all(parse_name(name, BUILT_IN) for name in composed)


class _Shouting:
    name = "shouting"

    def parse(self, name):
        return ParsedName(name.lower(), 7) if name.isupper() else None


SHOUTING = _Shouting()


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Entry points as a package declares them."""

    def install(value):
        info = tmp_path / "shouting-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shouting\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{names.GROUP}]\nshouting = {value}\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        plugins.cache_clear()
        names.grammars.cache_clear()

    yield install
    plugins.cache_clear()
    names.grammars.cache_clear()


def test_another_package_adds_a_grammar(installed):
    """Its grammar is tried first; names that it does not know go to the others."""
    installed(f"{__name__}:SHOUTING")
    assert parse_name("CONV") == ParsedName("conv", 7)
    assert parse_name("12_linear_196_0") == ParsedName("linear_196", 0, "", ("linear",))


@pytest.mark.parametrize(
    ("value", "what"),
    [(f"{__name__}:MISSING", "cannot be loaded"), (f"{__name__}:json", "has no name")],
)
def test_a_broken_grammar_is_left_out(installed, capsys, value, what):
    """One line on stderr says which grammar of which package; names are read by the others."""
    installed(value)
    assert parse_name("12_linear_196_0") == ParsedName("linear_196", 0, "", ("linear",))
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert "the plug-in shouting (profile_sd3.grammars)" in line
    assert what in line


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "all_gather"),
        ("void (anonymous namespace)::multimem_all_reduce_kernel<bf16, 16>(bf16*)", "all_reduce"),
        ("void vllm::cross_device_reduce_1stage<__half, 4>(vllm::RankData*)", "all_reduce"),
        ("void at::native::reduce_kernel<512, 1>(at::native::ReduceOp<float>)", None),
        ("void at::native::vectorized_gather_kernel<16, long>(char*)", None),
        ("triton_poi_fused_all_reduce_add_0", None),  # beside one
    ],
)
def test_kernels_that_exchange_data_between_ranks(kernel, kind):
    """Of NCCL, of symmetric memory, of serving engines; reductions on a device are none."""
    assert names.is_collective(kernel) is (kind is not None)
    assert kind is None or names.collective_kind(kernel) == kind
