"""What our node metadata is called, and the layer that a node's metadata or name tells.

What `graph split` writes:

`profile_sd3.layer`          module path of the operation that a node is a part of, else its name
`profile_sd3.command_index`  which of its operation's commands it is, from 0
`profile_sd3.operation`      name of the node that was split
`profile_sd3.category`       `copy` on nodes that only hand data to parts or gather theirs

`graph annotate` adds what was measured: the keys in `MEASURED`, `docs/graph-annotate.md` explains
them.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = [
    "CATEGORY",
    "COMMAND_INDEX",
    "LAYER",
    "MEASURED",
    "OPERATION",
    "PREFIX",
    "layer_of",
    "module_scopes",
    "operation_of",
    "path_of",
    "write_path",
]

PREFIX = "profile_sd3."
LAYER = f"{PREFIX}layer"
COMMAND_INDEX = f"{PREFIX}command_index"
OPERATION = f"{PREFIX}operation"
CATEGORY = f"{PREFIX}category"
MEASURED = tuple(
    f"{PREFIX}{name}"
    for name in (
        *("time", "share", "calls", "bytes_read", "bytes_written", "role"),
        *("executed_as", "stands_for", "counted_at", "executed", "layer_time"),
    )
)

_NAME_SCOPES = "pkg.torch.onnx.name_scopes"
_CLASS_HIERARCHY = "pkg.torch.onnx.class_hierarchy"
_NO_MODULE = "_empty_nn_module_stack"  # torch's mark on nodes that its export passes inserted


def layer_of(node: ir.Node) -> str:
    """The layer of a node: the one written on it, else its module path, else its name, else, where
    it has none, its op type."""
    return path_of(node) or node.name or node.op_type


def path_of(node: ir.Node) -> str:
    """The layer written on a node, else its module path; "" where neither is known."""
    return node.metadata_props.get(LAYER) or _module_path(node) or _path_in_name(node)


def operation_of(node: ir.Node) -> str:
    """The name of the operation that a node is, or is a part of; "" where it has no name."""
    return node.metadata_props.get(OPERATION) or node.name or ""


def _module_path(node: ir.Node) -> str:
    """The path that torch's exporter has left; the class of the model stands for an empty one."""
    scopes = _strings(node.metadata_props.get(_NAME_SCOPES, ""))
    if len(scopes) < 2 or scopes[0].startswith(_NO_MODULE) or scopes[-2].startswith(_NO_MODULE):
        return ""
    classes = _strings(node.metadata_props.get(_CLASS_HIERARCHY, ""))
    root = classes[0].rsplit(".", 1)[-1] if classes and scopes[0] == "" else ""
    return scopes[-2] or root


def _path_in_name(node: ir.Node) -> str:
    """The path in `/encoder/layers.0/mlp/fc1/MatMul_1`, as the exporter by TorchScript names."""
    path, slash, operation = (node.name or "").rpartition("/")
    if not slash or not path.startswith("/"):
        return ""
    fits = re.fullmatch(rf"{re.escape(node.op_type)}(_\d+)?", operation)
    return path[1:].replace("/", ".") if fits else ""


def _strings(text: str) -> list[str]:
    """A Python list of strings as the exporter prints it; anything else is no list."""
    try:
        value = ast.literal_eval(text) if len(text) < 1 << 16 else ()
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return []
    return [v for v in value if isinstance(v, str)] if isinstance(value, (list, tuple)) else []


def module_scopes(node: ir.Node) -> list[tuple[str, str]]:
    """Path and class of the modules around a node, from the model itself ("") to the innermost, as
    torch's exporter has left them; empty where it has not."""
    scopes = _strings(node.metadata_props.get(_NAME_SCOPES, ""))
    classes = _strings(node.metadata_props.get(_CLASS_HIERARCHY, ""))
    if not scopes or scopes[0] != "" or len(scopes) != len(classes):
        return []
    return list(zip(scopes[:-1], classes[:-1], strict=True))


def write_path(node: ir.Node, scopes: list[tuple[str, str]]) -> None:
    """Leave the modules `scopes` (see `module_scopes`) on a node, as torch's exporter does."""
    paths = [*(path for path, _ in scopes), node.name or ""]
    classes = [*(name for _, name in scopes), node.op_type]
    node.metadata_props[_NAME_SCOPES] = repr(paths)
    node.metadata_props[_CLASS_HIERARCHY] = repr(classes)
