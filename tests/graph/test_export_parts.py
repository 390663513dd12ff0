"""Single parts exported: types, random weights, LayerNorms, large weights, proofs that fail."""

from __future__ import annotations

import dataclasses
import json
import shutil
import weakref

import numpy as np
import onnx_ir as ir
import pytest

pytest.importorskip("diffusers", reason="needs the torch extra")
pytest.importorskip("torch", reason="needs the torch extra")

import torch

from profiler.errors import OutputError
from profiler.graph import export_pipeline, model, read_model, run_model, verify
from profiler.graph.export import export_module
from profiler.graph.export_torch import (
    ExportOptions,
    PartGraph,
    StaticSizes,
    with_affine_layer_norms,
)
from profiler.graph.model import all_tensors
from tests.graph.export_sources import source_folder

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]


class Norms(torch.nn.Module):
    """A LayerNorm without affine parameters, and one with a scale alone, after a projection."""

    def __init__(self):
        super().__init__()
        self.project = torch.nn.Linear(6, 8)
        self.bare = torch.nn.LayerNorm(8, elementwise_affine=False)
        self.scaled = torch.nn.LayerNorm(8, bias=False)

    def forward(self, x):
        return (self.scaled(self.bare(self.project(x))),)


def graph_of(module, **changes):
    def draw(random, sizes):
        return {"x": torch.from_numpy(random.standard_normal((sizes["n"], 6), np.float32))}

    given = PartGraph(
        module=module,
        forward=module.forward,
        inputs={"x": ("n", 6)},
        outputs=("y",),
        draw=draw,
        trials=({"n": 3}, {"n": 5}),
    )
    graph = dataclasses.replace(given, **changes)
    return lambda _: graph


def test_layer_norms_get_ones_and_zeros(tmp_path):
    """Both norms come with scale and bias, and the module has none when it is done."""
    module = Norms().eval()
    part = export_module(graph_of(module), tmp_path / "m" / "model.onnx", ExportOptions(), name="m")
    assert part.layer_norms == 2
    assert (module.bare.weight, module.bare.bias, module.scaled.bias) == (None, None, None)
    nodes = [n for n in ir.load(tmp_path / "m" / "model.onnx").graph if "Layer" in n.op_type]
    assert [len(node.inputs) for node in nodes] == [3, 3]
    weight = nodes[0].inputs[1].const_value.numpy()
    bias = nodes[0].inputs[2].const_value.numpy()
    assert (weight == 1).all()
    assert (bias == 0).all()


def test_layer_norms_can_be_left(tmp_path):
    """Without the repair no norm is touched, and the graph's bare norm has no bias."""
    options = ExportOptions(layernorm_fix=False)
    part = export_module(graph_of(Norms().eval()), tmp_path / "m" / "model.onnx", options, name="m")
    assert part.layer_norms == 0
    nodes = [n for n in ir.load(tmp_path / "m" / "model.onnx").graph if "Layer" in n.op_type]
    assert len(nodes[0].inputs) == 2


def test_norms_are_put_back_after_an_error():
    """What fails inside the block leaves the module as it was."""
    module = Norms()

    def use():
        with with_affine_layer_norms(module, torch.float32):
            assert module.bare.bias is not None
            raise RuntimeError

    with pytest.raises(RuntimeError):
        use()
    assert module.bare.bias is None


def test_a_graph_that_is_wrong_is_refused(tmp_path):
    """Where torch computes something else than the graph, by more than the tolerance, nothing
    passes."""
    module = Norms().eval()

    def other(sizes, tensors):
        return (module.forward(**tensors)[0] * 1.001,)

    wrong = graph_of(module, reference=other)
    with pytest.raises(
        OutputError, match="m was not written, for torch computes something else: y"
    ):
        export_module(wrong, tmp_path / "m" / "model.onnx", ExportOptions(), name="m")


def test_an_error_that_shows_at_another_size_is_found(tmp_path):
    """A graph is compared at a size that it was not traced at, too."""
    module = Norms().eval()

    def other(sizes, tensors):
        return (module.forward(**tensors)[0] + (sizes["n"] == 5),)

    wrong = graph_of(module, reference=other)
    with pytest.raises(OutputError, match="on n 5"):
        export_module(wrong, tmp_path / "m" / "model.onnx", ExportOptions(), name="m")


def test_outputs_without_a_finite_value_prove_nothing(tmp_path):
    """A part whose outputs are all NaN is refused, though both sides agree."""
    module = Norms().eval()
    with torch.no_grad():
        module.scaled.weight.fill_(torch.nan)
    with pytest.raises(OutputError, match="nothing is proven: torch's y has no finite"):
        export_module(graph_of(module), tmp_path / "m" / "model.onnx", ExportOptions(), name="m")


WITH_HALVES = ("text_encoder_3", "transformer", "vae")


@pytest.mark.parametrize(
    ("dtype", "parts"),
    [
        ("fp16", ("vae",)),
        pytest.param("bf16", ("transformer", "vae"), marks=pytest.mark.nightly),
        pytest.param("fp16", WITH_HALVES, marks=pytest.mark.nightly),
        pytest.param("bf16", WITH_HALVES, marks=pytest.mark.nightly),
    ],
)
def test_half_types(dtype, parts, tmp_path):
    """Weights and floats are of the type that was asked for; SD3's timestep stays float32. A part
    in float16 of each kind is exported, compared with torch and run where docs/graph-export.md is
    executed."""
    options = ExportOptions(dtype=dtype, parts=parts)
    exported = export_pipeline(source_folder("sd3"), tmp_path / "out", options)
    wanted = ir.DataType.FLOAT16 if dtype == "fp16" else ir.DataType.BFLOAT16
    for part in exported:
        model = read_model(tmp_path / "out" / part.folder / "model.onnx")
        assert model.graph.outputs[0].dtype == wanted
        assert all(found.tolerance == 1e-2 and found.within for found in part.differences)
    if "transformer" in parts:
        transformer = read_model(tmp_path / "out" / "transformer" / "model.onnx").graph
        assert transformer.inputs[0].dtype == wanted
        assert transformer.inputs[3].dtype == ir.DataType.FLOAT
    vae = read_model(tmp_path / "out" / "vae_decoder" / "model.onnx")
    assert {t.dtype for t in all_tensors(vae) if t.size > 32 and t.dtype.is_floating_point()} == {
        wanted
    }


def weights_of(folder):
    model = read_model(folder / "text_encoder" / "model.onnx")
    return {tensor.name: tensor.numpy() for tensor in all_tensors(model) if tensor.size > 8}


def test_random_weights_from_configuration_alone(tmp_path):
    """Without any weights in the source the graph has random ones, the same for the same seed."""
    source = tmp_path / "source"
    shutil.copytree(
        source_folder("sd3"), source, ignore=shutil.ignore_patterns("*.safetensors", "*.json.index")
    )
    found = []
    for number, seed in enumerate((4, 4, 5)):
        options = ExportOptions(random_weights=True, seed=seed, parts=("text_encoder",))
        export_pipeline(source, tmp_path / str(number), options)
        found.append(weights_of(tmp_path / str(number)))
    first, same, other = found
    assert first.keys() == same.keys()
    assert all(np.array_equal(first[name], same[name]) for name in first)
    assert not all(np.array_equal(first[name], other[name]) for name in first)


def test_random_weights_of_a_tied_encoder(tmp_path):
    """T5 from its configuration has one embedding, and a file of its own weights is not left."""
    options = ExportOptions(random_weights=True, parts=("text_encoder_3",), dtype="fp16")
    export_pipeline(source_folder("sd3"), tmp_path / "out", options)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]
    tensors = list(all_tensors(read_model(tmp_path / "out" / "text_encoder_3" / "model.onnx")))
    assert sum(list(tensor.shape) == [64, 64] for tensor in tensors) == 1


def test_large_models_have_external_data(tmp_path, monkeypatch):
    """Beyond the size of one file weights lie beside the graph, and compute the same."""
    options = ExportOptions(parts=("text_encoder",))
    export_pipeline(source_folder("sd3"), tmp_path / "whole", options)
    monkeypatch.setattr(model, "_INLINE_BYTES", 10_000)
    export_pipeline(source_folder("sd3"), tmp_path / "apart", options)
    whole = tmp_path / "whole" / "text_encoder" / "model.onnx"
    apart = tmp_path / "apart" / "text_encoder" / "model.onnx"
    assert apart.with_name("model.onnx.data").stat().st_size > 50_000
    assert apart.stat().st_size < whole.stat().st_size
    ids = {"input_ids": np.arange(77)[None] % 64}
    first, second = run_model(whole, ids), run_model(apart, ids)
    assert all(np.array_equal(first[name], second[name]) for name in first)


def test_the_module_is_freed_before_the_graph_runs(tmp_path, monkeypatch):
    """Memory holds the torch module or ONNX Runtime's session, not both, and so does the disk."""
    modules, scratches, seen = [], [], []

    def load(scratch):
        module = Norms().eval()
        modules.append(weakref.ref(module))
        scratches.append(scratch)
        return graph_of(module)(scratch)

    def run(path, inputs):
        seen.append((modules[0](), scratches[0].exists()))
        return run_model(path, inputs)

    monkeypatch.setattr(verify, "run_model", run)
    export_module(load, tmp_path / "m" / "model.onnx", ExportOptions(), name="m")
    assert seen == [(None, False)] * 2


def test_flux_static_needs_both_sides():
    """FLUX's image is a number of tokens: one side alone does not give it."""
    from profiler.errors import InputError

    with pytest.raises(InputError, match="give both, or none"):
        export_pipeline(
            source_folder("flux"),
            source_folder("flux").with_name("never"),
            ExportOptions(parts=("transformer",), static=StaticSizes(height=32)),
        )


def test_a_variant_is_found(tmp_path):
    """Weights that are only there as `model.fp16.safetensors` are taken."""
    source = tmp_path / "source"
    shutil.copytree(source_folder("sd3"), source)
    weights = source / "text_encoder_3" / "model.safetensors"
    weights.rename(weights.with_name("model.fp16.safetensors"))
    options = ExportOptions(parts=("text_encoder_3",))
    (part,) = export_pipeline(source, tmp_path / "out", options)
    assert json.loads((tmp_path / "out" / "model_index.json").read_text())
    assert part.weight_bytes > 30_000
