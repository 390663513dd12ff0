"""What an executed ONNX node is called: after the operation of the model as it was given.

ONNX Runtime names what it makes in ways that depend on its version and optimizations
(`node_MatMul_3/MatMulAddFusion`, `fused conv`, `conv2d_12_nchwc`, `GPT2Gelu`), and some of it in
each session anew (`ReorderOutput_token_120`). The operation that such a node stands for is the one
of the given model whose name it keeps, else the one whose tensor it writes. What stands for none,
and all but the first that stand for one, are called after the operation whose tensor they write or
read and their own type (`node_conv2d_12/ReorderOutput`), else after their type.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from profiler.capture.onnxruntime.layer_inference import node_key, original_value
from profiler.capture.onnxruntime.model_graph import Node

__all__ = ["operations_of", "path_of"]

_WITH_ACTIVATION = "fused "
_CHANNELS_LAST = "_nchwc"
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
    """The key of the operation that a node with another key stands for, "" where none is told."""
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
    """The path of an operation in its module: its name, where that is a path itself."""
    return operation if operation.startswith("/") else f"{module}/{operation}"
