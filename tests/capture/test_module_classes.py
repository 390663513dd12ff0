"""Classes of modules in the manifest: of torch modules, and of ONNX graphs that torch exported."""

import onnx
import pytest

from profiler.capture.imports import known_modules
from profiler.capture.onnxruntime.onnx_graph import (
    ExportedModel,
    build_layer_map,
    module_classes,
    read_graph,
)
from profiler.capture.run_info import add_known
from profiler.pipelines import default_model_folder
from profiler.trace import Submodule


def graph_of(node):
    """The graph of that node, as capture reads it from a model."""
    graph = onnx.helper.make_graph([node], "g", [], [])
    return read_graph(onnx.helper.make_model(graph).SerializeToString())


def test_classes_of_an_onnx_graph():
    """Every module path on a node of the embedded transformer has its class, "" the model."""
    path = default_model_folder() / "transformer" / "model.onnx"
    classes = build_layer_map(ExportedModel(path), None).classes
    assert classes[""] == "SD3Transformer2DModel"
    assert classes["transformer_blocks.0.norm1"] == "AdaLayerNormZero"
    assert classes["transformer_blocks.0.norm1.norm"] == "LayerNorm"
    assert classes["pos_embed.proj"] == "Conv2d"


def test_graph_without_metadata_has_no_classes():
    """Another exporter's graph."""
    node = onnx.helper.make_node("Add", ["a", "b"], ["c"], name="add")
    assert module_classes(graph_of(node)) == {}


@pytest.mark.parametrize("scopes", ["", "[", "7", "['', 'a']", "['a', 'b', 'c']", "[7, 8, 9]"])
def test_metadata_of_another_form_is_passed_over(scopes):
    """Lists of different lengths, or that do not begin with the model itself."""
    node = onnx.helper.make_node("Add", ["a", "b"], ["c"], name="add")
    for key, value in (("name_scopes", scopes), ("class_hierarchy", "['m.Model', 'm.A', 'add']")):
        node.metadata_props.add(key=f"pkg.torch.onnx.{key}", value=value)
    assert module_classes(graph_of(node)) == {}


@pytest.mark.torch
def test_classes_of_a_torch_module():
    """Those below the submodule by path, its own under "", without torch.compile's wrapper."""
    torch = pytest.importorskip("torch", reason="needs the torch extra")
    from profiler.capture.torch.modules import ModuleRanges, class_name

    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ModuleList([torch.nn.SiLU()]))
    ranges = ModuleRanges(model)
    ranges.attach()
    ranges.detach()
    assert ranges.classes == {"": "Sequential", "0": "Linear", "1.0": "SiLU"}
    assert class_name(torch.compile(model)) == "Sequential"


def test_manifest_keeps_at_most_twenty_thousand():
    """The first ones, in the order of the model; nothing where nothing is known."""
    many = {f"layers.{n}": "Linear" for n in range(30_000)}
    kept = known_modules(many)
    assert len(kept) == 20_000
    assert list(kept)[-1] == "layers.19999"
    assert known_modules({}) == {}


def test_classes_of_several_sources_become_one_mapping():
    """A VAE's encoder and decoder are traced apart."""
    known = Submodule(runtime_calls=((1, 0),))
    known = add_known(known, Submodule(modules={"encoder": "Encoder"}, runtime_calls=((2, 0),)))
    known = add_known(known, Submodule(modules={"decoder": "Decoder"}))
    assert known == Submodule(
        modules={"encoder": "Encoder", "decoder": "Decoder"}, runtime_calls=((1, 0), (2, 0))
    )
