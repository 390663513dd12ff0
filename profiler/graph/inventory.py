"""A model's file → what is in it, as plain values: nodes with layers and shapes, sizes, weights.

What joins graphs with roles and formulas of work takes these; `graph compare` shows them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from profiler.graph.infer import infer_types
from profiler.graph.metadata import CATEGORY, layer_of, module_scopes
from profiler.graph.model_file import external_files, read_model
from profiler.graph.random_inputs import input_shape
from profiler.graph.static_shapes import static_shapes

__all__ = ["GraphInventory", "GraphNode", "inventory"]


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A node: its type (`domain.type` outside of ONNX's own), `category` (`compute` or `copy`), and
    its `shapes` as ONNX Runtime's profile has them, "" where one is not known:
    `float32[2,77,64] float32[64] -> float32[2,77,64]`."""

    name: str
    layer: str
    op_type: str
    domain: str
    category: str
    shapes: str

    @property
    def type(self) -> str:
        return f"{self.domain}.{self.op_type}" if self.domain else self.op_type


@dataclass(frozen=True, slots=True)
class GraphInventory:
    """A model: nodes in the graph's order, those of subgraphs included; bytes on disk, data files
    included, and of the weights; `classes` by module path, "" the model itself; `inputs` are
    "dtype[d0,d1,…]" by name, with the sizes that its shapes were inferred for."""

    path: Path
    nodes: tuple[GraphNode, ...]
    file_bytes: int
    weight_bytes: int
    classes: Mapping[str, str]
    inputs: Mapping[str, str]


def inventory(path: Path, sizes: Mapping[str, int] | None = None) -> GraphInventory:
    """What is in the model of the file. `sizes` are those of symbolic dimensions, 2 for a batch and
    8 for others where they say nothing. Raises InputError where it cannot be read."""
    model = read_model(path)
    files = [path, *external_files(model)]
    infer_types(model)
    given = {str(value.name): input_shape(value, sizes or {}) for value in model.graph.inputs}
    shapes = static_shapes(model, given)
    weights = [
        value.const_value
        for graph in model.graphs()
        for value in graph.initializers.values()
        if value.const_value is not None and value.const_value.dtype != ir.DataType.STRING
    ]
    return GraphInventory(
        path=path,
        nodes=tuple(_node(node, shapes) for node in model.graph.all_nodes()),
        file_bytes=sum(file.stat().st_size for file in files if file.is_file()),
        weight_bytes=sum(tensor.nbytes for tensor in weights),
        classes=_classes(model),
        inputs={
            str(value.name): _described(value, shapes.get(str(value.name)))
            for value in model.graph.inputs
        },
    )


def _node(node: ir.Node, shapes: Mapping[str, tuple[int, ...]]) -> GraphNode:
    sides = [
        [_described(value, shapes.get(value.name or "")) for value in values if value is not None]
        for values in (node.inputs, node.outputs)
    ]
    known = all(text for side in sides for text in side)
    return GraphNode(
        name=node.name or "",
        layer=layer_of(node),
        op_type=node.op_type,
        domain=node.domain,
        category="copy" if node.metadata_props.get(CATEGORY) == "copy" else "compute",
        shapes=" -> ".join(" ".join(side) for side in sides) if known else "",
    )


def _described(value: ir.Value, shape: tuple[int, ...] | None) -> str:
    """`float32[2,77,64]`, "" where type or shape is not known."""
    dtype = value.dtype or (value.const_value.dtype if value.const_value is not None else None)
    if dtype is None or shape is None:
        return ""
    name = {"FLOAT": "float32", "DOUBLE": "float64"}.get(dtype.name, dtype.name.lower())
    return f"{name}[{','.join(str(dim) for dim in shape)}]"


def _classes(model: ir.Model) -> dict[str, str]:
    """The class of each module path on the nodes, "" for the model itself."""
    found: dict[str, str] = {}
    for node in model.graph.all_nodes():
        for path, name in module_scopes(node):
            found.setdefault(path, name.rpartition(".")[2])
    return found
