"""Layers of ONNX nodes whose name and tensors tell none: from the nodes around them."""

from __future__ import annotations

from collections.abc import Sequence

from profiler.capture.onnxruntime.model_graph import Node
from profiler.capture.onnxruntime.split_operations import OperationParts

__all__ = ["add_layers_of_inlined", "add_layers_of_neighbours", "node_key", "original_value"]

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
    """The longest module path that all `paths` lie in, "" where there is none."""
    shared, *others = [path.split(".") for path in paths]
    for path in others:
        length = next(
            (i for i, (a, b) in enumerate(zip(shared, path, strict=False)) if a != b),
            min(len(shared), len(path)),
        )
        shared = shared[:length]
    return ".".join(shared)
