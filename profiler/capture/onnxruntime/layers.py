"""Where an executed ONNX node lies, and its layer: the module path that the exporter left on the
node, and what the node is called in that module (`operations`).

torch's exporter writes on each node `pkg.torch.onnx.name_scopes`, the module paths from the root
to the innermost module and last the traced operation's own name. Its older exporter, by TorchScript
(`dynamo=False`, as optimum-onnx 0.1.0 exports), names nodes after their module instead:
`/text_model/encoder/layers.0/mlp/fc1/MatMul_1`. ONNX Runtime's optimizations rename, merge and
create nodes and keep no metadata, so a node is looked up, in this order,

1. by its own name;
2. by its name without what fusions append (`node_MatMul_3/MatMulAddFusion`);
3. by the tensors it writes, as produced in the exported graph, or is named after, whatever their
   precision; the nodes of an operation that was inlined, by what that operation writes;
4. by its neighbours in the optimized graph: the module path that all of them share.

A node without a name goes by the first tensor that it writes (its key), and `execution_order` finds
it in a run.

Where `profile-sd3 graph optimize` had no such metadata to keep, it writes `profile_sd3.layer`,
which counts as the exporter's. A node that none of these reaches has its own name alone.
The parts of an operation that `profile-sd3 graph split` has split are looked up as that operation.
"""

from __future__ import annotations

import ast
import json
import os
import re
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from profiler.capture.onnxruntime.execution_order import ExecutionOrder, execution_order
from profiler.capture.onnxruntime.layer_inference import (
    add_layers_of_inlined,
    add_layers_of_neighbours,
    node_key,
    original_value,
)
from profiler.capture.onnxruntime.model_graph import Graph, Node, read_graph
from profiler.capture.onnxruntime.operations import operations_of, path_of
from profiler.capture.onnxruntime.split_operations import (
    OperationPart,
    OperationParts,
    operation_parts,
)
from profiler.interruptions import let_pass
from profiler.ort_profiles.nodes import NodeKind

__all__ = [
    "ExportedModel",
    "LayerMap",
    "build_layer_map",
    "module_classes",
    "module_path",
    "node_count",
]

_NAME_SCOPES = "pkg.torch.onnx.name_scopes"
_CLASS_HIERARCHY = "pkg.torch.onnx.class_hierarchy"
_LAYER = "profile_sd3.layer"
_OPERATION = "profile_sd3.operation"
_NO_MODULE = "_empty_nn_module_stack"  # torch's mark on nodes that its export passes inserted
_TO_CHANNELS_LAST = "ReorderInput"
_CHANNELS_LAST = "_nchwc"  # ONNX Runtime names a convolution of its own layout after its output


@dataclass(frozen=True, slots=True)
class LayerMap:
    """Layers of the nodes of one model; `modules` maps a node's key to its module path, `classes`
    a module's path ("": the model itself) to its class; `parts` are those of split operations,
    `operations` what nodes that ONNX Runtime made are called in the model as it was given, `order`
    is that in which nodes without a name are executed, `keys` has those of such nodes by the names
    that a run's profile gives them."""

    modules: Mapping[str, str]
    classes: Mapping[str, str] = field(default_factory=dict)
    parts: OperationParts = field(default_factory=OperationParts)
    operations: Mapping[str, str] = field(default_factory=dict)
    order: ExecutionOrder = field(default_factory=ExecutionOrder)
    keys: Mapping[str, str] = field(default_factory=dict)

    def knowing(self, run: Iterable[NodeKind]) -> LayerMap:
        """This map with the names that a run's profile gives to nodes without one; this map itself
        where it has them."""
        found = self.order.keys_of(run)
        if found.items() <= self.keys.items():
            return self
        return replace(self, keys={**self.keys, **found})

    def layer_of(self, node: str, op_type: str) -> tuple[str, str]:
        """The layer of an executed node, the path of its operation; and that of its module, ""
        where it is not known."""
        place, known = self.place_of(node, op_type)
        if not known:
            return place, ""
        key = self.keys.get(node, node)
        part = self.parts.find(key)
        operation = self.operations.get(key, key) if part is None else part.operation
        return path_of(operation or op_type, place), place

    def place_of(self, node: str, op_type: str) -> tuple[str, bool]:
        """Where an executed node lies, by its name or key, and whether that is a module's path."""
        key = self.keys.get(node, node)
        part = self.parts.find(key)
        if part is None:
            module = _by_name(key, self.modules)
        else:
            module = self.modules.get(key) or _by_name(part.operation, self.modules)
        if module:
            return module, True
        if part is not None:
            return part.layer, bool(part.path)
        return self.operations.get(key, key) or op_type, False

    def part_of(self, node: str) -> OperationPart | None:
        """Which part of a split operation an executed node is, None where it is none."""
        return self.parts.find(self.keys.get(node, node))


class ExportedModel:
    """A model whose layers are wanted when the run has ended. Its file is kept open until then, for
    it may be deleted: optimum exports to a folder that goes before the process ends."""

    def __init__(self, model: Path | bytes) -> None:
        self.class_name = _model_class(model)
        self._model = model
        self._file = -1
        if isinstance(model, bytes) or os.name != "posix":
            return
        try:
            self._file = os.open(model, os.O_RDONLY | os.O_CLOEXEC)
            weakref.finalize(self, os.close, self._file).atexit = False  # our end comes after
        except OSError as error:
            let_pass(error)

    def graph(self) -> Graph:
        """The model's graph. Raises InputError where it cannot be read."""
        if self._file < 0:
            return read_graph(self._model)
        with os.fdopen(os.dup(self._file), "rb") as file:
            return read_graph(file, str(self._model))


def build_layer_map(exported: ExportedModel, optimized: Path | None) -> LayerMap:
    """Attribute the nodes of the model `exported` and of what ONNX Runtime made of it.

    `optimized` is what `SessionOptions.optimized_model_filepath` wrote, None if there is none.
    Raises InputError where a model cannot be read.
    """
    graph = exported.graph()
    root = _root_of(graph, exported.class_name)
    parts = operation_parts(graph.all_nodes())
    layers, producers = _exported_layers(graph, root, parts)
    classes = module_classes(graph)
    given = nodes = list(graph.all_nodes())
    add_layers_of_neighbours(nodes, layers, root, parts)
    for node in nodes:
        name = parts.operation_of(node_key(node))
        if name in layers:
            producers |= dict.fromkeys(filter(None, node.outputs), layers[name])
    if optimized is None or not optimized.is_file():
        return LayerMap(layers, classes, parts)
    optimized_graph = read_graph(optimized)
    nodes = list(optimized_graph.all_nodes())
    for node in nodes:
        found = _by_name_or_output(node, layers, producers)
        read = node.inputs[0] if node.inputs else ""
        if not found and node.op_type == _TO_CHANNELS_LAST and read in parts.by_output:
            found = producers.get(read)  # needed only because of the split
        if found:
            layers[node_key(node)] = found
    add_layers_of_inlined(nodes, layers)
    add_layers_of_neighbours(nodes, layers, root, parts)
    order = execution_order(optimized_graph, nodes)
    return LayerMap(layers, classes, parts, operations_of(given, nodes), order)


def node_count(model: Path) -> tuple[int, bool]:
    """How many nodes the model has, subgraphs included, and whether it has loops."""
    nodes = list(read_graph(model).all_nodes())
    return len(nodes), any(node.op_type in ("Loop", "Scan") for node in nodes)


def module_path(node: Node) -> str:
    """The module path on an exported node, "" where it carries none.

    The root module's path is empty in the metadata; its class name stands for it.
    """
    scopes = _strings(node.metadata.get(_NAME_SCOPES, ""))
    if len(scopes) < 2 or scopes[0].startswith(_NO_MODULE) or scopes[-2].startswith(_NO_MODULE):
        return ""
    return scopes[-2] or _root_class(node)


def _root_class(node: Node) -> str:
    """The class name of the model itself, "" where the node does not tell."""
    classes = _strings(node.metadata.get(_CLASS_HIERARCHY, ""))
    inserted = _strings(node.metadata.get(_NAME_SCOPES, ""))[:1] != [""]
    return "" if inserted or not classes else classes[0].rsplit(".", 1)[-1]


def module_classes(graph: Graph) -> dict[str, str]:
    """The class of each module path on the nodes of an exported graph, "" for the model itself."""
    found: dict[str, str] = {}
    for node in graph.all_nodes():
        paths = _strings(node.metadata.get(_NAME_SCOPES, ""))
        classes = _strings(node.metadata.get(_CLASS_HIERARCHY, ""))
        if paths[:1] != [""] or len(paths) != len(classes):
            continue
        for path, name in zip(paths[:-1], classes[:-1], strict=True):  # the last is the operation
            found.setdefault(path, name.rsplit(".", 1)[-1])
    return found


def _root_of(graph: Graph, class_name: str) -> str:
    """What stands for the model itself: its class where nodes or its config.json tell, else the
    graph's name where nodes are named after modules, else ""."""
    found = next(filter(None, map(_root_class, graph.nodes)), "") or class_name
    if not found and any(_traced_path(n.name, n.op_type, graph.name) for n in graph.nodes):
        return graph.name
    return found


def _model_class(model: Path | bytes) -> str:
    """The class name in the config.json beside a model, as diffusers and transformers write it,
    "" where there is none."""
    if isinstance(model, bytes):
        return ""
    try:
        config = json.loads((model.parent / "config.json").read_bytes())
        found = (config.get("architectures") or [config.get("_class_name")])[0]
    except (OSError, ValueError, AttributeError, LookupError, TypeError, RecursionError) as error:
        let_pass(error)
        return ""
    return found if isinstance(found, str) else ""


def _traced_path(name: str, op_type: str, root: str) -> str:
    """The module path in the name of a node that the exporter by TorchScript wrote, `root` for
    the model itself; "" for other names."""
    path, slash, operation = name.rpartition("/")
    named = slash and name.startswith("/")
    if not named or not re.fullmatch(rf"{re.escape(op_type)}(_\d+)?", operation):
        return ""
    return path[1:].replace("/", ".") or root


def _strings(text: str) -> list[str]:
    """A Python list of strings as the exporter prints it; anything else is no list."""
    try:
        value = ast.literal_eval(text) if len(text) < 1 << 16 else ()
    except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
        let_pass(error)
        return []
    return [v for v in value if isinstance(v, str)] if isinstance(value, (list, tuple)) else []


def _exported_layers(
    graph: Graph, root: str, parts: OperationParts
) -> tuple[dict[str, str], dict[str, str]]:
    """Layers by node name and by written tensor, where the exporter left a module path."""
    layers: dict[str, str] = {}
    producers: dict[str, str] = {}
    for node in graph.all_nodes():
        part = parts.find(node.name)
        name = part.operation if part is not None else node_key(node)
        path = module_path(node) or _traced_path(name, node.op_type, root)
        path = path or (part.path if part is not None else _written_layer(node))
        if path:
            layers[name] = path
            producers |= dict.fromkeys(filter(None, node.outputs), path)
    return layers, producers


def _written_layer(node: Node) -> str:
    """The module path that `profile-sd3 graph optimize` wrote on a node, "" for none."""
    layer = node.metadata.get(_LAYER, "")
    return "" if layer == node.metadata.get(_OPERATION) else layer


def _by_name_or_output(
    node: Node, layers: Mapping[str, str], producers: Mapping[str, str]
) -> str | None:
    by_name = _by_name(node.name, layers)
    if by_name:
        return by_name
    written = (*node.outputs, *map(original_value, node.outputs))
    names = (*written, node.name.removesuffix(_CHANNELS_LAST))
    return next((producers[name] for name in names if name in producers), None)


def _by_name(name: str, layers: Mapping[str, str]) -> str | None:
    """The layer of a node with that name, or of the node that a fusion has named it after."""
    while name:
        if name in layers:
            return layers[name]
        name = name.rpartition("/")[0]
    return None
