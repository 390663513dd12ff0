"""The parts of a split operation: operands, slices of weights, gathering of outputs.

`Parts.portions_of` gives each part its operands, and `Parts.add` makes a part. `Parts.concat`
or `Parts.sum` gathers the outputs, and `Parts.replace` puts them into the graph. Elementwise
operations that follow are done in each part, as compilers do.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import onnx_ir as ir

from profiler.graph.model import (
    CATEGORY,
    COMMAND_INDEX,
    LAYER,
    OPERATION,
    add_initializer,
    constant_tensor,
    infer_shapes,
    is_constant,
    layer_of,
    operation_of,
)

# --- Properties of an operand: its constant, its dimensions, slices of it.


_ON_WEIGHTS = frozenset(
    ("Transpose", "Cast", "DequantizeLinear", "Reshape", "Squeeze", "Unsqueeze", "Identity")
)
_MOST_ON_WEIGHTS = 8
Ranges: TypeAlias = "tuple[tuple[int, int], ...]"


def is_weight(value: ir.Value | None) -> bool:
    """Whether a value is a constant, or computed from constants by operations that exporters leave
    on weights."""
    for _ in range(_MOST_ON_WEIGHTS):
        if value is None or is_constant(value):
            return value is not None
        producer = value.producer()
        if producer is None or producer.op_type not in _ON_WEIGHTS or not producer.inputs:
            return False
        if any(other is not None and not is_constant(other) for other in producer.inputs[1:]):
            return False
        value = producer.inputs[0]
    return False


def dims_of(value: ir.Value | None) -> list[int | None] | None:
    """Return the dimensions of a tensor, None for each that is known only at runtime; None if its
    rank is not known."""
    if value is None or value.shape is None:
        return None
    return [dim if isinstance(dim, int) else None for dim in value.shape]


def ranges_of(lengths: Sequence[int], unit: int = 1, begin: int = 0) -> list[tuple[int, int]]:
    """Return start and end of consecutive portions of `lengths`, `unit` indices each, from
    `begin`."""
    ends = (begin + np.cumsum(lengths) * unit).tolist()
    return list(zip([begin, *ends[:-1]], ends, strict=True))


def slice_of(tensor: ir.TensorProtocol, axis: int, ranges: Ranges, name: str) -> ir.TensorProtocol:
    """Return the indices in `ranges` of an axis, concatenated; reads `tensor` only on demand."""
    indices = [(*(slice(None),) * axis, slice(begin, end)) for begin, end in ranges]
    dims = list(tensor.shape.numpy())
    dims[axis] = sum(end - begin for begin, end in ranges)

    def read() -> ir.TensorProtocol:
        array = tensor.numpy()
        found = [array[index] for index in indices]
        whole = found[0] if len(found) == 1 else np.concatenate(found, axis)
        return ir.Tensor(np.ascontiguousarray(whole), dtype=tensor.dtype, name=name)

    return ir.LazyTensor(read, dtype=tensor.dtype, shape=ir.Shape(dims), name=name)


# --- The ways to split an operation, and the number of parts, by count or by bytes.


class CannotSplitError(Exception):
    """An operation cannot be split; the message is the reason, without the operation's name."""


class SmallEnough(Exception):  # noqa: N818  # nothing is wrong
    """An operation is within the byte limit and stays unchanged."""


@dataclass(frozen=True, slots=True)
class Way:
    """One axis by which an operation can be cut.

    `what` names the items on the axis (`columns`, `heads`), `size` is their number, None if known
    only at runtime. `cut_bytes` is the size of the largest tensor that is cut, `kept_bytes` of the
    largest that every part takes whole; None if not known. `make` gets the lengths of the portions
    and rewrites the graph; it raises CannotSplitError before it has changed anything.
    """

    what: str
    size: int | None
    cut_bytes: int | None
    kept_bytes: int | None
    make: Callable[[list[int]], Any]


@dataclass(frozen=True, slots=True)
class Target:
    """The requested split: `parts` per operation, or at most `max_bytes` per part."""

    parts: int | None = None
    max_bytes: int | None = None

    def lengths(self, way: Way) -> list[int]:
        """Return the portions of the way's axis, as even as possible.

        Raises CannotSplitError and SmallEnough.
        """
        if way.size is None:
            raise CannotSplitError(f"how many {way.what} it has is only known when it runs")
        count = self._count(way, way.size) if self.parts is None else min(self.parts, way.size)
        if count < 2:
            raise CannotSplitError(f"it has too few {way.what}: {way.size}")
        least, longer = divmod(way.size, count)
        return [least + (position < longer) for position in range(count)]

    def _count(self, way: Way, size: int) -> int:
        """Return the number of portions of at most `max_bytes` each."""
        assert self.max_bytes is not None
        if way.cut_bytes is None or way.kept_bytes is None:
            raise CannotSplitError(
                "its bytes are only known when it runs: give --size for its symbolic dimensions, "
                "or --parts"
            )
        if max(way.cut_bytes, way.kept_bytes) <= self.max_bytes:
            raise SmallEnough
        if way.kept_bytes > self.max_bytes:
            raise CannotSplitError(
                f"each part by {way.what} would need an operand of {way.kept_bytes} bytes whole"
            )
        fitting = self.max_bytes * size // way.cut_bytes
        if not fitting:
            each = -(-way.cut_bytes // max(size, 1))
            raise CannotSplitError(f"a part by {way.what} has at least {each} bytes")
        return -(-size // fitting)


def ways_in_order(target: Target, ways: Sequence[Way]) -> list[tuple[Way, list[int]]]:
    """Return the possible ways with their portions: first those with the requested number of parts,
    in order, then those with most parts. Raises CannotSplitError with the reasons if there is none,
    and SmallEnough."""
    possible, reasons = [], []
    for way in ways:
        try:
            possible.append((way, target.lengths(way)))
        except CannotSplitError as reason:
            reasons.append(str(reason))
    if not possible:
        raise CannotSplitError("; ".join(dict.fromkeys(reasons)))
    if target.parts is not None:
        possible.sort(key=lambda found: -len(found[1]))  # stable
    return possible


# --- Shapes as far as ONNX infers them: of any run, and of one with given sizes.


# Names, numbers and + - * / % ( ) as in expressions of torch's exporter; no powers, which may take
# forever.
_EXPRESSION = re.compile(r"(?!.*(?:\*\*|\d{10}))[A-Za-z0-9_+\-*/%(), .]{1,400}")


def shape_for(shape: ir.Shape, sizes: Mapping[str, int]) -> ir.Shape:
    """Return `shape` with these sizes of symbolic dimensions, also in expressions; others stay
    open."""
    return ir.Shape([dim if isinstance(dim, int) else _size(dim, sizes) for dim in shape])


def _size(dim: ir.SymbolicDim, sizes: Mapping[str, int]) -> int | ir.SymbolicDim:
    text = dim.value or ""
    if text in sizes:
        return sizes[text]
    if not sizes or not _EXPRESSION.fullmatch(text):
        return dim
    try:
        found = dim.evaluate(sizes)
    except (ArithmeticError, RecursionError, TypeError, ValueError):  # a name such as "batch size"
        return dim
    return found if isinstance(found, int) and found >= 0 else dim


def shapes_for(model: ir.Model, sizes: Mapping[str, int]) -> dict[str, ir.Shape]:
    """Return the known shapes of the main graph's values, by name, in a run with these sizes of
    symbolic dimensions."""
    if not sizes:
        return {}
    try:
        run = model.clone()
    except (RuntimeError, ValueError):  # nodes out of order, say, which ONNX Runtime rejects later
        return {}
    for value in run.graph.inputs:
        value.shape = shape_for(value.shape, sizes) if value.shape is not None else None
    for node in run.graph:
        for output in node.outputs:
            output.shape = None
    infer_shapes(run)
    values = [output for node in run.graph for output in node.outputs]
    return {
        value.name: value.shape
        for value in (*run.graph.inputs, *values)
        if value.name and value.shape is not None and value.shape.is_static()
    }


# --- State shared by the splits of all operations of a model: names, numbers, bytes, slices.


class Rewriter:
    """One split of `model`; `sizes` are those of symbolic dimensions, used only for bytes."""

    def __init__(self, model: ir.Model, sizes: Mapping[str, int]) -> None:
        self.opset = model.opset_imports.get("", 1)
        self._sizes = sizes
        self._shapes = shapes_for(model, sizes)
        self._taken: set[str] = set()
        self._numbers: Counter[str] = Counter()  # the last number for each name
        self._next_index: Counter[str] = Counter()
        self._slices: dict[tuple[ir.Value, int, Ranges], ir.Value] = {}
        self._made: list[ir.Value] = []
        self.placed: list[ir.Node] = []
        for node in model.graph.all_nodes():
            self._taken |= {node.name or "", *(value.name or "" for value in node.outputs)}
            index = node.metadata_props.get(COMMAND_INDEX, "")
            if index.isdecimal() and len(index) < 9:  # from an earlier split
                operation = operation_of(node)
                self._next_index[operation] = max(self._next_index[operation], int(index) + 1)
        for graph in (model.graph, *model.graph.subgraphs()):
            self._taken |= {str(name) for name in graph.initializers}
            self._taken |= {value.name or "" for value in graph.inputs}

    def unique(self, name: str) -> str:
        """Return `name`, with a number if a node or tensor has that name."""
        found = name
        while found in self._taken:
            self._numbers[name] = max(self._numbers[name], 1) + 1
            found = f"{name}_{self._numbers[name]}"
        self._taken.add(found)
        return found

    def release(self, node: ir.Node) -> None:
        """Remove the name of a node that will be removed, so that another can have it."""
        self._taken.discard(node.name or "")
        node.name = None

    def bytes_of(self, value: ir.Value | None) -> int | None:
        """The bytes of a tensor, None if its shape or dtype is not known."""
        if value is None or value.shape is None or value.dtype is None:
            return None
        shape = self._shapes.get(value.name or "") or shape_for(value.shape, self._sizes)
        dims = [dim for dim in shape if isinstance(dim, int)]
        if len(dims) < len(shape):
            return None
        return int(np.prod(dims, dtype=object) * value.dtype.bitwidth + 7) // 8

    def largest(self, values: Sequence[ir.Value | None]) -> int | None:
        """The bytes of the largest of these tensors, 0 without any, None if one's are not
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
        """Register an initializer in the graph that contains `beside`."""
        assert isinstance(beside.graph, ir.Graph)
        return add_initializer(beside.graph, tensor)

    def finish(self) -> None:
        """Number the commands of each operation, and remove weights of which only slices are used,
        and unused slices."""
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


# --- The parts of one operation.
#
# An operation distributes each operand to its parts (`Parts.portions_of`), makes them (`Parts.add`)
# and gathers their outputs (`Parts.concat`, `Parts.sum`); `Parts.replace` puts all of it into the
# graph.


class Parts:
    """The parts of the operation `node`, and the nodes that distribute and gather their data."""

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
        """Return each part's portion of `value` on `axis`, which may be negative: slices of a
        constant, else the outputs of a Split; None for an omitted operand."""
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
        """Return portions as `portions_of`, for an operand that broadcasts: the whole for each part
        if it has no such axis or one of length 1; `axis` is negative."""
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

    def add(  # one argument per property of a part
        self,
        inputs: Sequence[ir.Value | None],
        changed: Mapping[str, Any] | None = None,
        length: tuple[int, int] | None = None,
    ) -> ir.Value:
        """Make the next part: the operation on these `inputs`, with `changed` attributes. `length`
        is an axis of its output and its length there. Returns that output."""
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

    def add_each(
        self, operands: Sequence[Sequence[ir.Value | None]], axis: int, lengths: Sequence[int]
    ) -> list[ir.Value]:
        """Make a part of each portion, with its own of each of the `operands`; `lengths` are those
        of that axis of their outputs, which are given."""
        return [
            self.add(given, length=(axis, length))
            for *given, length in zip(*operands, lengths, strict=True)
        ]

    def replace_by_sum(self, *operands: Sequence[ir.Value | None]) -> None:
        """Make a part of each portion likewise, and put what they add up to in place."""
        self.replace(self.sum([self.add(given) for given in zip(*operands, strict=True)]))

    def concat(self, values: Sequence[ir.Value], axis: int, owner: Parts | None = None) -> ir.Value:
        """Concatenate the parts' outputs, as a copy that belongs to this operation, or to
        `owner`."""
        shape = self._output.shape
        if axis < 0 and shape is not None:
            axis += len(shape)
        made = self._made("Concat", values, {"axis": axis}, "concat", owner=owner)
        self._copies.append(made)
        if owner is not None:
            self._owners[made] = owner
        return made.outputs[0]

    def sum(self, values: Sequence[ir.Value]) -> ir.Value:
        """Add up the parts' outputs, as a command of the operation."""
        dtype = self._output.dtype
        if dtype is not None and not dtype.is_floating_point():
            raise CannotSplitError(f"Sum does not add up {dtype.name}")
        made = self._made("Sum", values, {}, "sum")
        self._parts.append(made)
        return made.outputs[0]

    def place(self) -> None:
        """Insert all new nodes before the operation, which the caller must remove."""
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
        """Replace the operation by all new nodes. `result` takes over its output's name and uses,
        and is returned."""
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


# --- Continue elementwise operations behind an operation in its parts.
#
# Compilers add the bias and apply the activation to each part before parts are concatenated, and so
# does this: ONNX Runtime then fuses into the parts what it would fuse into the whole operation.


_ACTIVATIONS = frozenset(("Relu", "LeakyRelu", "Sigmoid", "Tanh", "HardSigmoid", "Clip", "Gelu"))
_WITH_CONSTANT = frozenset(("Add", "Mul", "Div"))


def join(parts: Parts, outputs: list[ir.Value], axis: int, lengths: list[int]) -> None:
    """Replace the operation by `parts`; their `outputs`, portions of `axis` with these `lengths`,
    are concatenated behind the elementwise operations that can be done in parts.

    Such an operation is the only reader of the result, and is an activation, or adds or multiplies
    a constant. The Concat belongs to the operation after which ONNX Runtime names the fused one:
    the MatMul or Gemm that takes in a constant, else the last one.
    """
    joined = parts.replace(parts.concat(outputs, axis))
    owner = parts
    while True:
        following = _following(joined)
        concat = joined.producer()
        if following is None or concat is None:
            return
        node, position = following
        parts = Parts(parts.rewriter, node)
        back = axis - len(dims_of(joined) or ())
        try:
            operands = [
                list(concat.inputs)
                if number == position
                else parts.broadcast_portions(value, back, lengths)
                for number, value in enumerate(node.inputs)
            ]
        except CannotSplitError:  # what follows does not fit: the model is at fault
            return
        outputs = parts.add_each(operands, axis, lengths)
        if node.op_type in _ACTIVATIONS or owner.node.op_type not in ("MatMul", "Gemm"):
            owner = parts
        parts.rewriter.release(concat)
        joined = parts.replace(parts.concat(outputs, axis, owner))
        assert concat.graph is not None
        concat.graph.remove(concat, safe=True)


def _following(joined: ir.Value) -> tuple[ir.Node, int] | None:
    """Return the next operation that can be done in parts, with the input's index; None if there is
    none."""
    uses, rank = joined.uses(), len(dims_of(joined) or ())
    if joined.is_graph_output() or len(uses) != 1 or not rank:
        return None
    node, position = next(iter(uses))
    producer = joined.producer()
    if producer is None or node.graph is not producer.graph or node.domain:
        return None
    others = [value for number, value in enumerate(node.inputs) if number != position]
    if node.op_type in _ACTIVATIONS:
        fits = all(v is None or (is_constant(v) and dims_of(v) in ([], [1])) for v in others)
    else:
        fits = node.op_type in _WITH_CONSTANT and all(_is_small(other, rank) for other in others)
    return (node, position) if fits else None


def _is_small(value: ir.Value | None, rank: int) -> bool:
    """Whether a value is a constant that broadcasts along all axes but one."""
    dims = dims_of(value)
    if not is_constant(value) or dims is None or len(dims) > rank:
        return False
    return sum(dim != 1 for dim in dims) <= 1
