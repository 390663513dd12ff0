"""Map executed ONNX Runtime nodes back to the exported model's operations and layers.

The graph is read without its weights and without the package `onnx`. ONNX Runtime renames,
merges and creates nodes and keeps no metadata.
"""

from __future__ import annotations

import ast
import io
import json
import os
import re
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, takewhile
from pathlib import Path
from typing import BinaryIO

from profiler.capture.onnxruntime.weights import messages, messages_of, varint
from profiler.errors import InputError
from profiler.ort_profiles import NodeKind
from profiler.plugins import let_pass

# --- The nodes of an ONNX file, read without the package `onnx`, which a user need not have.
#
# Only names of nodes and tensors are read, and the metadata that exporters leave on nodes; weights
# are passed over, and external data is not opened.


_DEEPEST = 64  # graphs nested in graphs
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
    """The nodes of a graph in its order, without nodes of subgraphs."""

    name: str = ""
    nodes: list[Node] = field(default_factory=list)

    def all_nodes(self) -> Iterator[Node]:
        """Yield every node, followed by the nodes of its subgraphs."""
        for node in self.nodes:
            yield node
            for graph in node.graphs:
                yield from graph.all_nodes()


@dataclass(slots=True)
class Node:
    """A node as in the file; `graphs` are those in its attributes: branches, the body of a loop."""

    name: str = ""
    op_type: str = ""
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    metadata: dict[str, str] = field(default_factory=dict)
    graphs: list[Graph] = field(default_factory=list)


def read_graph(source: Path | bytes | BinaryIO, where: str = "the session's model") -> Graph:
    """Read the graph of a model. `where` describes one without a path in errors.

    Raises InputError if it is not a readable ONNX model.
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
    """Yield number, start and end of the fields of a file that have a length, without reading their
    content. The caller may read elsewhere in the file meanwhile."""
    while begin < end:
        head = _bytes(file, begin, min(begin + 2 * _LONGEST_NUMBER, end))
        number, at, value_end = _first_field(head, end - begin)
        if at:
            yield number, begin + at, begin + value_end
        begin += value_end


def _first_field(head: bytes, room: int) -> tuple[int, int, int]:
    """The first field: its number, and start and end of its content (start 0: it has no length)."""
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
    for number, begin, end in messages(data, 0, len(data)):
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
            graphs = messages_of(data, begin, end, _ATTRIBUTE_GRAPH, _ATTRIBUTE_GRAPHS)
            found.graphs += [_subgraph(data[first:last], depth + 1) for _, first, last in graphs]
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


# --- Commands of operations that `profile-sd3 graph split` has split, as it wrote them on nodes.
#
# ONNX Runtime keeps no metadata in its optimized graph, but names the nodes that it makes after the
# original node (`fc1/part_0/MatMulAddFusion`, `fused fc1/part_0`) or, for convolutions, after its
# output (`conv/part_0_nchwc`).


_LAYER = "profile_sd3.layer"
_COMMAND_INDEX = "profile_sd3.command_index"
_OPERATION = "profile_sd3.operation"
_CATEGORY = "profile_sd3.category"
_CHANNELS_LAST = "_nchwc"
_WITH_ACTIVATION = "fused "


@dataclass(frozen=True, slots=True)
class OperationPart:
    """A node of a split operation: `operation` is the name of the split node, `moves` whether this
    one only passes data to the parts or gathers their results."""

    operation: str
    layer: str
    command_index: int
    moves: bool

    @property
    def path(self) -> str:
        """The module path of its layer, "" if the layer is named after the operation."""
        return "" if self.layer == self.operation else self.layer


@dataclass(frozen=True, slots=True)
class OperationParts:
    """The parts in a model, by the names of their nodes and of the tensors that they write."""

    by_node: Mapping[str, OperationPart] = field(default_factory=dict)
    by_output: Mapping[str, OperationPart] = field(default_factory=dict)

    def find(self, node: str) -> OperationPart | None:
        """The part that `node` is, or that ONNX Runtime made it of; None if there is none."""
        if not self.by_node:
            return None
        if node.endswith(_CHANNELS_LAST):
            return self.by_output.get(node.removesuffix(_CHANNELS_LAST))
        return self.by_node.get(_known_name(node.removeprefix(_WITH_ACTIVATION), self.by_node))

    def operation_of(self, node: str) -> str:
        """The name of the split operation that `node` is a part of, else its own name."""
        part = self.find(node)
        return part.operation if part is not None else node


def _known_name(name: str, known: Collection[str]) -> str:
    """A known name: `name`, or what a fusion has appended to; "" if neither is known."""
    while name and name not in known:
        name = name.rpartition("/")[0]
    return name


def operation_parts(nodes: Iterable[Node]) -> OperationParts:
    """The parts among the nodes of the original model: those with a layer and a command index."""
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


# --- Layers of ONNX nodes without a known name or tensor, from the nodes around them.


_CASTS = ("InsertedPrecisionFreeCast_", "InsertedCast_")
_INLINED = "_inlfunc_"


def node_key(node: Node) -> str:
    """The key of a node in layer maps: its name, or its first output if it has none."""
    return node.name or next(filter(None, node.outputs), "")


def original_value(name: str) -> str:
    """The original tensor if ONNX Runtime's tensor `name` holds it in another precision, else
    `name`."""
    for prefix in _CASTS:
        name = name.removeprefix(prefix)
    return name


def add_layers_of_inlined(nodes: Sequence[Node], layers: dict[str, str]) -> None:
    """Set the layers of nodes of operations that ONNX Runtime has inlined to the operation's layer.

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
    """Set the layers of operations without one to the path that their neighbours share, until
    nothing changes.

    The path of neighbours that share none is that of the model itself: `root`. The parts of a split
    operation count as one.
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
            after = (readers.get(v, ()) for node in members for v in node.outputs)
            known = [layers[other] for other in (*before, *chain(*after)) if other in layers]
            if known:
                found[name] = _shared(known) or root or known[0]
        if not found:
            return
        layers.update(found)
        missing = {name: members for name, members in missing.items() if name not in found}


def _shared(paths: Sequence[str]) -> str:
    """The longest module path that all `paths` lie in, "" if there is none."""
    levels = zip(*(path.split(".") for path in paths), strict=False)
    return ".".join(level[0] for level in takewhile(lambda names: len(set(names)) == 1, levels))


# --- Nodes without a name, identified in a profile by the order of execution.
#
# ONNX Runtime names such a node after its type and an internal number (`Sub_538`). It writes the
# optimized graph in the order of execution, so the events of a run are that graph's nodes one by
# one.


@dataclass(frozen=True, slots=True)
class ExecutionOrder:
    """The nodes of an optimized graph in order of execution: name, type and `node_key` of each.

    `inner` are the names of the nodes in subgraphs, whose events are between those of others.
    """

    nodes: tuple[tuple[str, str, str], ...] = ()
    inner: frozenset[str] = field(default_factory=frozenset)

    def keys_of(self, events: Iterable[NodeKind]) -> dict[str, str]:
        """The keys of nodes without a name in one run, by their names in its profile.

        Empty if the run's events do not match these nodes in order. A failed run may end early.
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


# --- Names of executed ONNX nodes: those of the original model's operations.
#
# The names that ONNX Runtime gives to the nodes it makes depend on its version and optimizations
# (`node_MatMul_3/MatMulAddFusion`, `fused conv`, `conv2d_12_nchwc`, `GPT2Gelu`), and some on the
# session (`ReorderOutput_token_120`). The operation of such a node is the one of the original model
# whose name it contains, else the one whose tensor it writes. A node without one, and any but the
# first node of an operation, is named after the operation whose tensor it writes or reads and its
# own type (`node_conv2d_12/ReorderOutput`), else after its type.


_LAYOUTS = ("ReorderInput", "ReorderOutput")  # they write tensors of other nodes in another layout


def operations_of(given: Iterable[Node], executed: Sequence[Node]) -> dict[str, str]:
    """The names of those `executed` nodes, in order of execution, that are not in the `given`
    model, by `node_key`."""
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
    """The key of the original operation that a node made by ONNX Runtime executes, "" if
    unknown."""
    if node.op_type in _LAYOUTS:
        return ""
    name = _known_name(key.removeprefix(_WITH_ACTIVATION), known)
    if name:
        return name
    tensors = (*map(original_value, node.outputs), key.removesuffix(_CHANNELS_LAST))
    return next((writer[tensor] for tensor in tensors if tensor in writer), "")


def _beside(node: Node, writer: Mapping[str, str]) -> str:
    tensors = map(original_value, (*node.outputs, *node.inputs))
    beside = next((writer[tensor] for tensor in tensors if tensor in writer), "")
    return f"{beside}/{node.op_type}" if beside else node.op_type


def path_of(operation: str, module: str) -> str:
    """The path of an operation in its module: its name, if that is a path itself."""
    return operation if operation.startswith("/") else f"{module}/{operation}"


# --- The module and layer of an executed ONNX node: the module path that the exporter wrote on the
# node, and the node's name in that module (`operations_of`).
#
# torch's exporter writes on each node `pkg.torch.onnx.name_scopes`, the module paths from the root
# to the innermost module and last the traced operation's own name. Its older exporter, by
# TorchScript (`dynamo=False`, as optimum-onnx 0.1.0 exports), names nodes after their module
# instead: `/text_model/encoder/layers.0/mlp/fc1/MatMul_1`. A node that ONNX Runtime executes is
# looked up, in this order,
#
# 1. by its own name;
# 2. by its name without what fusions append (`node_MatMul_3/MatMulAddFusion`);
# 3. by the tensors it writes, as produced in the exported graph, or is named after, whatever their
#    precision; the nodes of an operation that was inlined, by what that operation writes;
# 4. by its neighbours in the optimized graph: the module path that all of them share.
#
# Where `profile-sd3 graph optimize` had no such metadata to keep, it writes `profile_sd3.layer`,
# which counts as the exporter's. A node that none of these reaches has its own name alone. Parts of
# a split operation are looked up as that operation.


_NAME_SCOPES = "pkg.torch.onnx.name_scopes"
_CLASS_HIERARCHY = "pkg.torch.onnx.class_hierarchy"
_NO_MODULE = "_empty_nn_module_stack"  # torch's mark on nodes that its export passes inserted
_TO_CHANNELS_LAST = "ReorderInput"


@dataclass(frozen=True, slots=True)
class LayerMap:
    """The layers of one model's nodes. `modules` maps a node's key to its module path, `classes` a
    module path ("": the model itself) to its class; `parts` are those of split operations,
    `operations` the original names of nodes that ONNX Runtime made. `order` is the execution order
    of nodes without a name, `keys` their keys by their names in a run's profile."""

    modules: Mapping[str, str]
    classes: Mapping[str, str] = field(default_factory=dict)
    parts: OperationParts = field(default_factory=OperationParts)
    operations: Mapping[str, str] = field(default_factory=dict)
    order: ExecutionOrder = field(default_factory=ExecutionOrder)
    keys: Mapping[str, str] = field(default_factory=dict)

    def knowing(self, run: Iterable[NodeKind]) -> LayerMap:
        """This map, extended by the names that a run's profile gives to nodes without one."""
        found = self.order.keys_of(run)
        if found.items() <= self.keys.items():
            return self
        return replace(self, keys={**self.keys, **found})

    def layer_of(self, node: str, op_type: str) -> tuple[str, str]:
        """The layer of an executed node, which is the path of its operation, and the path of its
        module, "" if unknown."""
        place, known = self.place_of(node, op_type)
        if not known:
            return place, ""
        key = self.keys.get(node, node)
        part = self.parts.find(key)
        operation = self.operations.get(key, key) if part is None else part.operation
        return path_of(operation or op_type, place), place

    def place_of(self, node: str, op_type: str) -> tuple[str, bool]:
        """The module path of an executed node and True, or the node's own layer name and False; by
        its name or key."""
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
        """The part of a split operation that an executed node belongs to, or None."""
        return self.parts.find(self.keys.get(node, node))


class ExportedModel:
    """A model whose layers are looked up after the run. Its file is kept open until then, since it
    may be deleted: optimum exports to a folder that is removed before the process ends."""

    def __init__(self, model: Path | bytes) -> None:
        self.class_name = _model_class(model)
        self._model = model
        self._file = -1
        if isinstance(model, bytes) or os.name != "posix":
            return
        try:
            self._file = os.open(model, os.O_RDONLY | os.O_CLOEXEC)
            weakref.finalize(self, os.close, self._file).atexit = False  # the recording ends later
        except OSError as error:
            let_pass(error)

    def graph(self) -> Graph:
        """The model's graph. Raises InputError if it cannot be read."""
        if self._file < 0:
            return read_graph(self._model)
        with os.fdopen(os.dup(self._file), "rb") as file:
            return read_graph(file, str(self._model))


def build_layer_map(exported: ExportedModel, optimized: Path | None) -> LayerMap:
    """Map the nodes of the model `exported`, and those that ONNX Runtime made of them, to layers.

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
            found = producers.get(read)  # these come only from the split
        if found:
            layers[node_key(node)] = found
    add_layers_of_inlined(nodes, layers)
    add_layers_of_neighbours(nodes, layers, root, parts)
    order = execution_order(optimized_graph, nodes)
    return LayerMap(layers, classes, parts, operations_of(given, nodes), order)


def node_count(model: Path) -> tuple[int, bool]:
    """The number of nodes of the model, including subgraphs, and whether it has loops."""
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
    """The class name of the model itself, "" if the node does not have it."""
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
        for path, name in zip(paths[:-1], classes[:-1], strict=True):  # last: the operation
            found.setdefault(path, name.rsplit(".", 1)[-1])
    return found


def _root_of(graph: Graph, class_name: str) -> str:
    """The path of the model itself: its class from a node or config.json, else the graph's name if
    nodes are named after modules, else ""."""
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
    """Parse a Python list of strings as the exporter prints it; empty for anything else."""
    try:
        value = ast.literal_eval(text) if len(text) < 1 << 16 else ()
    except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
        let_pass(error)
        return []
    return [v for v in value if isinstance(v, str)] if isinstance(value, (list, tuple)) else []


def _exported_layers(
    graph: Graph, root: str, parts: OperationParts
) -> tuple[dict[str, str], dict[str, str]]:
    """Layers by node name and by written tensor, for nodes with a module path from the exporter."""
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
    written = (*node.outputs, *map(original_value, node.outputs))
    names = (*written, node.name.removesuffix(_CHANNELS_LAST))
    found = (producers[name] for name in names if name in producers)
    return _by_name(node.name, layers) or next(found, None)


def _by_name(name: str, layers: Mapping[str, str]) -> str | None:
    """The layer of a node with that name, or of the node that a fusion has named it after."""
    known = _known_name(name, layers)
    return layers[known] if known else None
