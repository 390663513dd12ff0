"""Map executed ONNX Runtime nodes back to the exported model's operations and layers.

The graph is read without its weights and without the package `onnx`. ONNX Runtime renames,
merges and creates nodes and keeps no metadata. A node is looked up by its own name, by its name
without a fusion's suffix, by the tensors it writes, and last by its neighbours. A node without
a name is identified by execution order.
"""

from __future__ import annotations

import ast
import io
import json
import os
import re
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from profiler.capture.onnxruntime.weights import fields, messages_of, varint
from profiler.errors import InputError
from profiler.ort_profiles import NodeKind
from profiler.plugins import let_pass

# --- The nodes of an ONNX file, without its weights and without the package `onnx`.
#
# Whoever runs a model with ONNX Runtime need not have `onnx` installed. What layers are made of are
# names: of nodes, of what they read and write, and the metadata that exporters leave on them. Only
# that is read; tensors are passed over, and external data is not opened.


_DEEPEST = 64  # graphs in graphs
_LONGEST_NUMBER = 10  # bytes
# Field numbers of onnx.proto.
_MODEL_GRAPH = 7
_GRAPH_NODE, _GRAPH_NAME = 1, 2
_NODE_INPUT, _NODE_OUTPUT, _NODE_NAME, _NODE_OP_TYPE = 1, 2, 3, 4
_NODE_ATTRIBUTE, _NODE_METADATA = 5, 9
_ATTRIBUTE_GRAPH, _ATTRIBUTE_GRAPHS = 6, 11
_ENTRY_KEY, _ENTRY_VALUE = 1, 2


@dataclass(slots=True)
class Graph:
    """The nodes of a graph in its order, without those of subgraphs."""

    name: str = ""
    nodes: list[Node] = field(default_factory=list)

    def all_nodes(self) -> Iterator[Node]:
        """Every node, those of subgraphs after the one that has them."""
        for node in self.nodes:
            yield node
            for graph in node.graphs:
                yield from graph.all_nodes()


@dataclass(slots=True)
class Node:
    """A node as the file has it; `graphs` are those of its attributes: branches, a loop's body."""

    name: str = ""
    op_type: str = ""
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    metadata: dict[str, str] = field(default_factory=dict)
    graphs: list[Graph] = field(default_factory=list)


def read_graph(source: Path | bytes | BinaryIO, where: str = "the session's model") -> Graph:
    """The graph of a model. `where` names one that is not given by its path.

    Raises InputError if it is no readable ONNX model.
    """
    try:
        if isinstance(source, Path):
            where = str(source)
            with source.open("rb") as file:
                return _of_model(file)
        return _of_model(io.BytesIO(source) if isinstance(source, bytes) else source)
    except (OSError, ValueError, IndexError) as error:
        raise InputError(
            f"{where} is not a readable ONNX model ({error}): export it again"
        ) from error


def _of_model(file: BinaryIO) -> Graph:
    size = file.seek(0, os.SEEK_END)
    if not size:
        raise ValueError("it is empty")
    found, graphs = Graph(), 0
    for number, begin, end in _messages_in(file, 0, size):
        if number != _MODEL_GRAPH:
            continue
        graphs += 1
        for part, first, last in _messages_in(file, begin, end):
            if part in (_GRAPH_NODE, _GRAPH_NAME):
                _add(found, part, _bytes(file, first, last), 1)
    if not graphs:
        raise ValueError("it has no graph")
    return found


def _messages_in(file: BinaryIO, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Fields of a file that have a length: number, start and end of what they hold, none of which
    is read. Who takes them may read elsewhere."""
    while begin < end:
        head = _bytes(file, begin, min(begin + 2 * _LONGEST_NUMBER, end))
        number, at, value_end = _first_field(head, end - begin)
        if at:
            yield number, begin + at, begin + value_end
        begin += value_end


def _first_field(head: bytes, room: int) -> tuple[int, int, int]:
    """The first field: number, start (0: it has no length) and end of what it holds."""
    tag, at = varint(head, 0)
    number, wire = tag >> 3, tag & 7
    if wire == 2:
        length, at = varint(head, at)
        value_end = at + length
    elif wire == 0:
        _, value_end = varint(head, at)
        at = 0
    elif wire in (1, 5):
        at, value_end = 0, at + (8 if wire == 1 else 4)
    else:
        raise ValueError(f"field {number} is of no known kind")
    if value_end > room:
        raise ValueError(f"field {number} is cut")
    return number, at, value_end


def _bytes(file: BinaryIO, begin: int, end: int) -> bytes:
    file.seek(begin)
    found = file.read(end - begin)
    if len(found) != end - begin:
        raise ValueError(f"it ends at byte {begin + len(found)}")
    return found


def _add(graph: Graph, number: int, data: bytes, depth: int) -> None:
    """Add a field of a graph to it."""
    if number == _GRAPH_NODE:
        graph.nodes.append(_node(data, depth))
    elif number == _GRAPH_NAME:
        graph.name = _text(data)


def _node(data: bytes, depth: int) -> Node:
    found = Node()
    for number, begin, end in fields(data, 0, len(data)):
        if end < 0:
            continue
        if number == _NODE_INPUT:
            found.inputs.append(_text(data[begin:end]))
        elif number == _NODE_OUTPUT:
            found.outputs.append(_text(data[begin:end]))
        elif number == _NODE_NAME:
            found.name = _text(data[begin:end])
        elif number == _NODE_OP_TYPE:
            found.op_type = _text(data[begin:end])
        elif number == _NODE_METADATA:
            entry = {n: data[a:b] for n, a, b in messages_of(data, begin, end, 1, 2)}
            found.metadata[_text(entry.get(_ENTRY_KEY, b""))] = _text(entry.get(_ENTRY_VALUE, b""))
        elif number == _NODE_ATTRIBUTE:
            for _, first, last in messages_of(
                data, begin, end, _ATTRIBUTE_GRAPH, _ATTRIBUTE_GRAPHS
            ):
                found.graphs.append(_subgraph(data[first:last], depth + 1))
    return found


def _subgraph(data: bytes, depth: int) -> Graph:
    if depth > _DEEPEST:
        raise ValueError(f"graphs nested more than {_DEEPEST} deep")
    found = Graph()
    for number, begin, end in messages_of(data, 0, len(data), _GRAPH_NODE, _GRAPH_NAME):
        _add(found, number, data[begin:end], depth)
    return found


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


# --- Commands of operations that `profile-sd3 graph split` has split, as it wrote them on the
# nodes.
#
# ONNX Runtime keeps no metadata in its optimized graph, but names what it makes of a node after the
# node (`fc1/part_0/MatMulAddFusion`, `fused fc1/part_0`) or, for convolutions, after its output
# (`conv/part_0_nchwc`).


_LAYER = "profile_sd3.layer"
_COMMAND_INDEX = "profile_sd3.command_index"
_OPERATION = "profile_sd3.operation"
_CATEGORY = "profile_sd3.category"
_CHANNELS_LAST = "_nchwc"
_WITH_ACTIVATION = "fused "


@dataclass(frozen=True, slots=True)
class OperationPart:
    """A node of a split operation: `operation` is the name of the node that was split, `moves`
    whether it only hands data to parts or gathers theirs."""

    operation: str
    layer: str
    command_index: int
    moves: bool

    @property
    def path(self) -> str:
        """The module path of its layer, "" if that is called after the operation."""
        return "" if self.layer == self.operation else self.layer


@dataclass(frozen=True, slots=True)
class OperationParts:
    """The parts in a model, by the names of their nodes and of the tensors that they write."""

    by_node: Mapping[str, OperationPart] = field(default_factory=dict)
    by_output: Mapping[str, OperationPart] = field(default_factory=dict)

    def find(self, node: str) -> OperationPart | None:
        """The part that a node of that name is, or was made of."""
        if not self.by_node:
            return None
        if node.endswith(_CHANNELS_LAST):
            return self.by_output.get(node.removesuffix(_CHANNELS_LAST))
        name = node.removeprefix(_WITH_ACTIVATION)
        while name:
            if name in self.by_node:
                return self.by_node[name]
            name = name.rpartition("/")[0]
        return None

    def operation_of(self, node: str) -> str:
        """The name of the operation that a node is a part of, its own if of none."""
        part = self.find(node)
        return part.operation if part is not None else node


def operation_parts(nodes: Iterable[Node]) -> OperationParts:
    """The parts among `nodes` of the model as it was given: those with a layer and a number."""
    by_node: dict[str, OperationPart] = {}
    by_output: dict[str, OperationPart] = {}
    for node in nodes:
        layer, index = node.metadata.get(_LAYER, ""), node.metadata.get(_COMMAND_INDEX, "")
        if not (layer and index.isdecimal() and len(index) < 9):
            continue
        operation = node.metadata.get(_OPERATION) or layer
        moves = node.metadata.get(_CATEGORY) == "copy"
        part = OperationPart(operation, layer, int(index), moves)
        by_output |= dict.fromkeys(filter(None, node.outputs), part)
        if node.name:
            by_node[node.name] = part
    return OperationParts(by_node, by_output)


# --- Layers of ONNX nodes whose name and tensors tell none: from the nodes around them.


_CASTS = ("InsertedPrecisionFreeCast_", "InsertedCast_")
_INLINED = "_inlfunc_"


def node_key(node: Node) -> str:
    """What layers call a node: its name, of one without a name the first tensor that it writes."""
    return node.name or next(filter(None, node.outputs), "")


def original_value(name: str) -> str:
    """The tensor that one of ONNX Runtime's holds in another precision, `name` itself of others."""
    for prefix in _CASTS:
        name = name.removeprefix(prefix)
    return name


def add_layers_of_inlined(nodes: Sequence[Node], layers: dict[str, str]) -> None:
    """Give the nodes of operations that ONNX Runtime has inlined the operation's layer.

    It inlines an operation that it has no kernel for, such as Softmax in float16 on CPUs. The last
    node writes the operation's own output; what the others write is read only by those after them.
    `nodes` are in topological order.
    """
    reader: dict[str, str] = {}
    for node in reversed(nodes):
        key = node_key(node)
        outputs = [original_value(value) for value in node.outputs]
        if key not in layers and outputs and all(v.startswith(_INLINED) for v in outputs):
            found = next((layers[reader[v]] for v in node.outputs if v in reader), "")
            if found:
                layers[key] = found
        if key in layers:
            reader |= dict.fromkeys(filter(None, node.inputs), key)


def add_layers_of_neighbours(
    nodes: Sequence[Node], layers: dict[str, str], root: str, parts: OperationParts
) -> None:
    """Give operations without a layer the path that their neighbours share, until nothing changes.

    Neighbours that share no path share the model itself: `root`. The parts of a split operation
    are one.
    """
    named = [(parts.operation_of(node_key(node)), node) for node in nodes]
    writer = {value: name for name, node in named for value in node.outputs if value}
    readers: dict[str, list[str]] = {}
    for name, node in named:
        for value in node.inputs:
            readers.setdefault(value, []).append(name)
    missing: dict[str, list[Node]] = {}
    for name, node in named:
        if name and name not in layers:
            missing.setdefault(name, []).append(node)
    while missing:
        found = {}
        for name, members in missing.items():
            before = [writer[v] for node in members for v in node.inputs if v in writer]
            after = [
                reader for node in members for v in node.outputs for reader in readers.get(v, ())
            ]
            known = [layers[other] for other in (*before, *after) if other in layers]
            if known:
                found[name] = _shared(known) or root or known[0]
        if not found:
            return
        layers.update(found)
        missing = {name: members for name, members in missing.items() if name not in found}


def _shared(paths: Sequence[str]) -> str:
    """The longest module path that all `paths` lie in, "" if there is none."""
    shared, *others = [path.split(".") for path in paths]
    for path in others:
        length = next(
            (i for i, (a, b) in enumerate(zip(shared, path, strict=False)) if a != b),
            min(len(shared), len(path)),
        )
        shared = shared[:length]
    return ".".join(shared)


# --- Nodes without a name, found in a profile by the order of execution.
#
# ONNX Runtime calls such a node after its type and a number that only it knows (`Sub_538`). It
# writes the optimized graph in the order in which it executes it, so the events of a run are that
# graph's nodes one by one.


@dataclass(frozen=True, slots=True)
class ExecutionOrder:
    """The nodes of an optimized graph as executed: of each its name, type and `node_key`.

    `inner` are the names of the nodes in subgraphs, whose events lie between those of others.
    """

    nodes: tuple[tuple[str, str, str], ...] = ()
    inner: frozenset[str] = field(default_factory=frozenset)

    def keys_of(self, events: Iterable[NodeKind]) -> dict[str, str]:
        """The keys of nodes without a name in one run, by the names that its profile gives them.

        Empty if the run's events are not these nodes in this order, from the first on; a run
        that failed may end early.
        """
        if not self.nodes:
            return {}
        found: dict[str, str] = {}
        executed = [event for event in events if event.name not in self.inner]
        if len(executed) > len(self.nodes):
            return {}
        for event, (name, op_type, key) in zip(executed, self.nodes, strict=False):
            named = event.name == name if name else _numbered(event.name, op_type)
            if event.op_type != op_type or not named:
                return {}
            if key and not name:
                found[event.name] = key
        return found


def execution_order(graph: Graph, nodes: Iterable[Node]) -> ExecutionOrder:
    """The order of an optimized graph, empty if all of its nodes have names.

    `nodes` are all of them, those of subgraphs included.
    """
    if all(node.name for node in graph.nodes):
        return ExecutionOrder()
    outer = tuple((node.name, node.op_type, node_key(node)) for node in graph.nodes)
    names = frozenset(node.name for node in nodes)
    return ExecutionOrder(outer, names.difference(name for name, _, _ in outer))


def _numbered(name: str, op_type: str) -> bool:
    return re.fullmatch(rf"{re.escape(op_type)}_\d+", name) is not None


# --- What an executed ONNX node is called: after the operation of the model as it was given.
#
# ONNX Runtime names what it makes in ways that depend on its version and optimizations
# (`node_MatMul_3/MatMulAddFusion`, `fused conv`, `conv2d_12_nchwc`, `GPT2Gelu`), and some of it in
# each session again (`ReorderOutput_token_120`). The operation that such a node stands for is the
# one of the given model whose name it keeps, else the one whose tensor it writes. What stands for
# none, and all but the first that stand for one, are called after the operation whose tensor they
# write or read and their own type (`node_conv2d_12/ReorderOutput`), else after their type.


_LAYOUTS = ("ReorderInput", "ReorderOutput")  # write tensors of others, in another layout


def operations_of(given: Iterable[Node], executed: Sequence[Node]) -> dict[str, str]:
    """What those of the `executed` nodes, in order of execution, are called that have a key which
    no node of the `given` model has, by this key."""
    writer: dict[str, str] = {}
    known: set[str] = set()
    for node in given:
        key = node_key(node)
        known.add(key)
        writer |= dict.fromkeys(filter(None, node.outputs), key)
    taken = {key for key in map(node_key, executed) if key in known}
    found = {}
    for node in executed:
        key = node_key(node)
        if key in known or key in found:  # a cast is named after the tensor of a nameless node
            continue
        operation = _stands_for(node, key, known, writer)
        if not operation or operation in taken:
            operation = _beside(node, writer)
        taken.add(operation)
        found[key] = operation
    return found


def _stands_for(node: Node, key: str, known: set[str], writer: Mapping[str, str]) -> str:
    """The key of the operation that a node with another key stands for, "" if none is known."""
    if node.op_type in _LAYOUTS:
        return ""
    name = key.removeprefix(_WITH_ACTIVATION)
    while name:
        if name in known:
            return name
        name = name.rpartition("/")[0]
    tensors = (*map(original_value, node.outputs), key.removesuffix(_CHANNELS_LAST))
    return next((writer[tensor] for tensor in tensors if tensor in writer), "")


def _beside(node: Node, writer: Mapping[str, str]) -> str:
    tensors = map(original_value, (*node.outputs, *node.inputs))
    beside = next((writer[tensor] for tensor in tensors if tensor in writer), "")
    return f"{beside}/{node.op_type}" if beside else node.op_type


def path_of(operation: str, module: str) -> str:
    """The path of an operation in its module: its name, if that is a path itself."""
    return operation if operation.startswith("/") else f"{module}/{operation}"


# --- Where an executed ONNX node lies, and its layer: the module path that the exporter left on the
# node, and what the node is called in that module (`operations`).
#
# torch's exporter writes on each node `pkg.torch.onnx.name_scopes`, the module paths from the root
# to the innermost module and last the traced operation's own name. Its older exporter, by
# TorchScript (`dynamo=False`, as optimum-onnx 0.1.0 exports), names nodes after their module
# instead: `/text_model/encoder/layers.0/mlp/fc1/MatMul_1`. ONNX Runtime's optimizations rename,
# merge and create nodes and keep no metadata, so a node is looked up, in this order,
#
# 1. by its own name;
# 2. by its name without what fusions append (`node_MatMul_3/MatMulAddFusion`);
# 3. by the tensors it writes, as produced in the exported graph, or is named after, whatever
# their
#    precision; the nodes of an operation that was inlined, by what that operation writes;
# 4. by its neighbours in the optimized graph: the module path that all of them share.
#
# A node without a name goes by the first tensor that it writes (its key), and `execution_order`
# finds it in a run.
#
# Where `profile-sd3 graph optimize` had no such metadata to keep, it writes `profile_sd3.layer`,
# which counts as the exporter's. A node that none of these reaches has its own name alone.
# The parts of an operation that `profile-sd3 graph split` has split are looked up as that
# operation.


_NAME_SCOPES = "pkg.torch.onnx.name_scopes"
_CLASS_HIERARCHY = "pkg.torch.onnx.class_hierarchy"
_NO_MODULE = "_empty_nn_module_stack"  # torch's mark on nodes that its export passes inserted
_TO_CHANNELS_LAST = "ReorderInput"


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
        if it has them."""
        found = self.order.keys_of(run)
        if found.items() <= self.keys.items():
            return self
        return replace(self, keys={**self.keys, **found})

    def layer_of(self, node: str, op_type: str) -> tuple[str, str]:
        """The layer of an executed node, the path of its operation; and that of its module, ""
        if it is not known."""
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
        """Which part of a split operation an executed node is, None if it is none."""
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
        """The model's graph. Raises InputError if it cannot be read."""
        if self._file < 0:
            return read_graph(self._model)
        with os.fdopen(os.dup(self._file), "rb") as file:
            return read_graph(file, str(self._model))


def build_layer_map(exported: ExportedModel, optimized: Path | None) -> LayerMap:
    """Attribute the nodes of the model `exported` and of what ONNX Runtime made of it.

    `optimized` is what `SessionOptions.optimized_model_filepath` wrote, None if there is none.
    Raises InputError if a model cannot be read.
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
    """The module path on an exported node, "" if it carries none.

    The root module's path is empty in the metadata; its class name stands for it.
    """
    scopes = _strings(node.metadata.get(_NAME_SCOPES, ""))
    if len(scopes) < 2 or scopes[0].startswith(_NO_MODULE) or scopes[-2].startswith(_NO_MODULE):
        return ""
    return scopes[-2] or _root_class(node)


def _root_class(node: Node) -> str:
    """The class name of the model itself, "" if the node does not tell."""
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
    """What stands for the model itself: its class if nodes or its config.json tell, else the
    graph's name where nodes are named after modules, else ""."""
    found = next(filter(None, map(_root_class, graph.nodes)), "") or class_name
    if not found and any(_traced_path(n.name, n.op_type, graph.name) for n in graph.nodes):
        return graph.name
    return found


def _model_class(model: Path | bytes) -> str:
    """The class name in the config.json beside a model, as diffusers and transformers write it,
    "" if there is none."""
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
    """Layers by node name and by written tensor, if the exporter left a module path."""
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
