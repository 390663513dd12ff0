"""The parts of one operation.

An operation hands each operand to its parts (`Parts.portions_of`), makes them (`Parts.add`) and
gathers what they write (`Parts.concat`, `Parts.sum`); `Parts.replace` puts all of it in its place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir

from profiler.graph.metadata import CATEGORY, LAYER, OPERATION, layer_of, operation_of
from profiler.graph.split.operands import dims_of, ranges_of
from profiler.graph.split.portions import CannotSplitError
from profiler.graph.split.rewriter import Rewriter
from profiler.graph.values import is_constant

__all__ = ["Parts"]


class Parts:
    """The parts of the operation `node`, and what hands data to them and gathers theirs."""

    def __init__(self, rewriter: Rewriter, node: ir.Node) -> None:
        self.rewriter = rewriter
        self.node = node
        self._owners: dict[ir.Node, Parts] = {}
        self._output = node.outputs[0]
        self.layer = layer_of(node)
        self.name = node.name or rewriter.unique(f"{node.op_type}_{self._output.name}")
        self.operation = operation_of(node) or self.name
        self._parts: list[ir.Node] = []
        self._copies: list[ir.Node] = []
        self._nodes: list[ir.Node] = []

    def portions_of(
        self, value: ir.Value | None, axis: int, lengths: Sequence[int]
    ) -> list[ir.Value | None]:
        """What each part gets of `value`: portions of that `axis`, which may be negative; slices
        of a constant, else the outputs of a Split. None stands for an operand that is left out."""
        if value is None:
            return [None] * len(lengths)
        if axis < 0:
            if value.shape is None:
                raise CannotSplitError(f"the rank of its operand {value.name} is not known")
            axis += len(value.shape)
        dims = dims_of(value)
        if dims is not None and (
            not 0 <= axis < len(dims) or dims[axis] not in (None, sum(lengths))
        ):
            raise CannotSplitError(f"its operand {value.name} does not fit: its shape is {dims}")
        if is_constant(value):
            return [self.rewriter.sliced(value, axis, (found,)) for found in ranges_of(lengths)]
        return list(self._split(value, axis, lengths))

    def broadcast_portions(
        self, value: ir.Value | None, axis: int, lengths: Sequence[int]
    ) -> list[ir.Value | None]:
        """As `portions_of`, for an operand that broadcasts: the whole for each part where it has
        no such axis or one of length 1; `axis` is negative."""
        dims = dims_of(value)
        if value is not None and dims is None:
            raise CannotSplitError(f"the shape of its operand {value.name} is not known")
        size = dims[axis] if dims is not None and len(dims) >= -axis else 1
        if size == 1:
            return [value] * len(lengths)
        if size != sum(lengths):
            name = value.name if value is not None else ""
            raise CannotSplitError(f"the shape of its operand {name} is not known")
        return self.portions_of(value, axis, lengths)

    def add(
        self,
        inputs: Sequence[ir.Value | None],
        changed: Mapping[str, Any] | None = None,
        length: tuple[int, int] | None = None,
    ) -> ir.Value:
        """Make the next part: the operation on these `inputs`, with `changed` attributes. `length`
        is an axis of its output and how long it is. Gives that output."""
        number = len(self._parts)
        given = list(inputs)
        while given and given[-1] is None:
            given.pop()
        attributes = dict(self.node.attributes)
        for name, new in (changed or {}).items():
            attributes[name] = ir.convenience.convert_attribute(name, new)
        made = ir.Node(
            self.node.domain,
            self.node.op_type,
            given,
            attributes,
            outputs=[self._value(f"part_{number}")],
            overload=self.node.overload,
            version=self.node.version,
            name=self.rewriter.unique(f"{self.name}/part_{number}"),
        )
        value = made.outputs[0]
        if length is not None and self._output.shape is not None:
            dims = list(self._output.shape)
            if length[0] >= len(dims):
                raise CannotSplitError(f"its output does not fit its operands: its shape is {dims}")
            dims[length[0]] = length[1]
            value.shape = ir.Shape(dims)
        self._parts.append(made)
        self._nodes.append(made)
        return value

    def concat(self, values: Sequence[ir.Value], axis: int, owner: Parts | None = None) -> ir.Value:
        """The parts' outputs behind each other: a copy of this operation's, or of `owner`'s."""
        shape = self._output.shape
        if axis < 0 and shape is not None:
            axis += len(shape)
        made = self._made("Concat", values, {"axis": axis}, "concat", owner=owner)
        self._copies.append(made)
        if owner is not None:
            self._owners[made] = owner
        return made.outputs[0]

    def sum(self, values: Sequence[ir.Value]) -> ir.Value:
        """The parts' outputs added up: a command of its own of the operation."""
        dtype = self._output.dtype
        if dtype is not None and not dtype.is_floating_point():
            raise CannotSplitError(f"Sum does not add up {dtype.name}")
        made = self._made("Sum", values, {}, "sum")
        self._parts.append(made)
        return made.outputs[0]

    def place(self) -> None:
        """Put all that was made before the operation, which others have to remove."""
        for made in (*self._parts, *self._copies):
            owner = self._owners.get(made, self)
            made.metadata_props.update(owner.node.metadata_props)
            made.metadata_props[LAYER] = owner.layer
            made.metadata_props[OPERATION] = owner.operation
        for made in self._copies:
            made.metadata_props[CATEGORY] = "copy"
        graph = self.node.graph
        assert graph is not None
        graph.insert_before(self.node, self._nodes)
        self.rewriter.placed += [*self._parts, *self._copies]

    def replace(self, result: ir.Value) -> ir.Value:
        """Put all that was made in the operation's place. `result` takes its output's name and
        uses, and is returned."""
        self.place()
        result.name, self._output.name = self._output.name, None
        result.shape, result.type = self._output.shape, self._output.type
        result.metadata_props.update(self._output.metadata_props)
        ir.convenience.replace_all_uses_with(self._output, result, replace_graph_outputs=True)
        graph = self.node.graph
        assert graph is not None
        graph.remove(self.node, safe=True)
        return result

    def _split(self, value: ir.Value, axis: int, lengths: Sequence[int]) -> Sequence[ir.Value]:
        inputs = [value]
        attributes: dict[str, Any] = {"axis": axis}
        if self.rewriter.opset < 13:
            attributes |= {"split": list(lengths)}
        else:
            inputs.append(self.rewriter.lengths(value, lengths))
        made = self._made("Split", inputs, attributes, f"split_{value.name}", len(lengths))
        self._copies.append(made)
        for output in made.outputs:
            output.type = value.type
        return made.outputs

    def _made(
        self,
        op_type: str,
        inputs: Sequence[ir.Value],
        attributes: Mapping[str, Any],
        name: str,
        outputs: int = 1,
        owner: Parts | None = None,
    ) -> ir.Node:
        numbered = [name] if outputs == 1 else [f"{name}/{number}" for number in range(outputs)]
        made = ir.node(
            op_type,
            inputs,
            attributes,
            outputs=[self._value(of) for of in numbered],
            name=self.rewriter.unique(f"{(owner or self).name}/{name}"),
        )
        self._nodes.append(made)
        return made

    def _value(self, name: str) -> ir.Value:
        found = self.rewriter.unique(f"{self._output.name}/{name}")
        return ir.Value(name=found, type=self._output.type)
