"""What the splits of all operations of a model share: names, numbers, bytes, slices of weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from profiler.graph.metadata import COMMAND_INDEX, operation_of
from profiler.graph.split.operands import Ranges, slice_of
from profiler.graph.split.shapes import shape_for, shapes_for
from profiler.graph.values import constant_tensor

__all__ = ["Rewriter"]


class Rewriter:
    """One split of `model`; `sizes` are those of symbolic dimensions, and tell bytes only."""

    def __init__(self, model: ir.Model, sizes: Mapping[str, int]) -> None:
        self.opset = model.opset_imports.get("", 1)
        self._sizes = sizes
        self._shapes = shapes_for(model, sizes)
        self._taken: set[str] = set()
        self._numbers: Counter[str] = Counter()  # the last that `unique` gave each name
        self._next_index: Counter[str] = Counter()
        self._slices: dict[tuple[ir.Value, int, Ranges], ir.Value] = {}
        self._made: list[ir.Value] = []
        self.placed: list[ir.Node] = []
        for node in model.graph.all_nodes():
            self._taken |= {node.name or "", *(value.name or "" for value in node.outputs)}
            index = node.metadata_props.get(COMMAND_INDEX, "")
            if index.isdecimal() and len(index) < 9:  # of an earlier split
                operation = operation_of(node)
                self._next_index[operation] = max(self._next_index[operation], int(index) + 1)
        for graph in (model.graph, *model.graph.subgraphs()):
            self._taken |= {str(name) for name in graph.initializers}
            self._taken |= {value.name or "" for value in graph.inputs}

    def unique(self, name: str) -> str:
        """`name`, or that with a number where a node or tensor is called so."""
        found = name
        while found in self._taken:
            self._numbers[name] = max(self._numbers[name], 1) + 1
            found = f"{name}_{self._numbers[name]}"
        self._taken.add(found)
        return found

    def release(self, node: ir.Node) -> None:
        """Take the name of a node that is about to go, for another to have it."""
        self._taken.discard(node.name or "")
        node.name = None

    def bytes_of(self, value: ir.Value | None) -> int | None:
        """The bytes of a tensor, None where its shape or dtype is not known."""
        if value is None or value.shape is None or value.dtype is None:
            return None
        shape = self._shapes.get(value.name or "") or shape_for(value.shape, self._sizes)
        dims = [dim for dim in shape if isinstance(dim, int)]
        if len(dims) < len(shape):
            return None
        return int(np.prod(dims, dtype=object) * value.dtype.bitwidth + 7) // 8

    def largest(self, values: Sequence[ir.Value | None]) -> int | None:
        """The bytes of the largest of these tensors, 0 without any, None where one's are not
        known."""
        found = [self.bytes_of(value) for value in values if value is not None]
        return None if None in found else max((size or 0 for size in found), default=0)

    def sliced(self, value: ir.Value, axis: int, ranges: Ranges) -> ir.Value:
        """An initializer with the indices in `ranges` of an axis of the constant `value`, read
        only when it is written."""
        key = value, axis, ranges
        if key not in self._slices:
            tensor = constant_tensor(value)
            assert tensor is not None
            name = self.unique(f"{value.name}/{'_'.join(f'{a}_{b}' for a, b in ranges)}")
            self._slices[key] = self._register(value, slice_of(tensor, axis, ranges, name))
        return self._slices[key]

    def lengths(self, value: ir.Value, lengths: Sequence[int]) -> ir.Value:
        """An initializer with the lengths of the portions of a Split of `value`."""
        name = self.unique("lengths_" + "_".join(map(str, lengths)))
        made = ir.tensor(np.array(lengths, dtype=np.int64), name=name)
        self._made.append(self._register(value, made))
        return self._made[-1]

    def _register(self, beside: ir.Value, tensor: ir.TensorProtocol) -> ir.Value:
        """A new initializer, in the graph that holds `beside`."""
        made = ir.Value(name=tensor.name, type=ir.TensorType(tensor.dtype), const_value=tensor)
        made.shape = ir.Shape(tensor.shape.numpy())
        graph = beside.graph
        assert isinstance(graph, ir.Graph)
        graph.register_initializer(made)
        return made

    def finish(self) -> None:
        """Number the commands of each operation, and remove the weights of which only slices are
        used, and slices that nobody uses."""
        for node in self.placed:
            if node.graph is not None:
                operation = operation_of(node)
                node.metadata_props[COMMAND_INDEX] = str(self._next_index[operation])
                self._next_index[operation] += 1
        sources = (key[0] for key in self._slices)
        for value in dict.fromkeys((*sources, *self._slices.values(), *self._made)):
            graph, producer = value.graph, value.producer()
            if value.uses() or value.is_graph_output() or not isinstance(graph, ir.Graph):
                continue
            if producer is not None:
                graph.remove(producer, safe=True)
            elif value.name and value.name in graph.initializers:
                del graph.initializers[value.name]
