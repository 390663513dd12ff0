"""What is computed though it never changes, and weights that are stored twice."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from profiler.graph.checks.finding import CheckedModel, GraphFinding, place, rule
from profiler.graph.values import DATA_ERRORS, Kind, kinds

__all__ = [
    "constant_subgraph",
    "duplicate_initializer",
    "duplicates",
    "foldable_nodes",
    "folded_fits",
    "last_constant_nodes",
]

_STORED_BYTES = 1024  # of an initializer: smaller ones cost nothing twice
_SAMPLE_BYTES = 4096
_COMPARED_BYTES = 1 << 28  # of all tensors: more is compared by samples
_NO_NUMBERS = (ir.DataType.UNDEFINED, ir.DataType.STRING)
_GROWN_BYTES = 1 << 20  # what folding may add to a model where its inputs are smaller
_READ_BYTES = 1 << 28
_FOLLOWED = 1 << 20  # nodes in all that are followed back: chains that many read would be squares
_STORED_AS_ONE = {"DequantizeLinear"}  # computed on purpose: its input is the smaller one


@rule
def constant_subgraph(checked: CheckedModel) -> Iterator[GraphFinding]:
    """Nodes that compute from initializers alone."""
    for node, before in foldable_nodes(checked.model):
        count = len(before)
        fits = folded_fits(node, before)
        yield GraphFinding(
            "constant_subgraph",
            "warning" if fits else "note",
            place(node),
            f"{node.op_type} is computed at each run from initializers alone, by {count} "
            f"node{'s' * (count > 1)}",
            "fold it to an initializer" if fits else "fold it where its size allows",
            fix=fits,
        )


def last_constant_nodes(model: ir.Model, found: Mapping[ir.Value, Kind]) -> Iterator[ir.Node]:
    """The nodes of the main graph that are computed from initializers alone, and read by others."""
    for node in model.graph:
        if not _is_constant(node, found):
            continue
        readers = [use.node for output in node.outputs for use in output.uses()]
        shown = any(output.is_graph_output() for output in node.outputs)
        if shown or any(not _is_constant(reader, found) for reader in readers):
            yield node


def _is_constant(node: ir.Node, found: Mapping[ir.Value, Kind]) -> bool:
    if node.op_type == "Constant" or node.op_type in _STORED_AS_ONE or not node.outputs:
        return False
    return all(found.get(output) is Kind.CONSTANT for output in node.outputs)


def foldable_nodes(model: ir.Model) -> Iterator[tuple[ir.Node, list[ir.Node]]]:
    """Each of `last_constant_nodes` with the nodes that compute what it writes, in any order;
    those behind the first 2²⁰ of these nodes are left out. The model may change in between."""
    left = _FOLLOWED
    for node in list(last_constant_nodes(model, kinds(model))):
        before = _foldable(node, left)
        left -= len(before)
        if left < 0:
            return
        yield node, before


def _foldable(node: ir.Node, most: int) -> list[ir.Node]:
    """`node` and the nodes before it, one more than `most` where there are more."""
    pending, seen = [node], {node: None}
    while pending and len(seen) <= most:
        for value in pending.pop().inputs:
            before = None if value is None else value.producer()
            if before is not None and before not in seen and before.op_type != "Constant":
                seen[before] = None
                pending.append(before)
    return list(seen)


def folded_fits(node: ir.Node, before: list[ir.Node]) -> bool:
    """Whether `node` may be folded: what it writes is no output of the model, and not much larger
    than what it is computed from."""
    values = {value for part in before for value in part.inputs if value is not None}
    tensors = [ir.convenience.get_const_tensor(value) for value in values]
    types = {tensor.dtype for tensor in tensors if tensor is not None}
    if not types.isdisjoint(_NO_NUMBERS) or any(out.dtype in _NO_NUMBERS for out in node.outputs):
        return False
    read = sum(tensor.nbytes for tensor in tensors if tensor is not None)
    written = sum(_bytes(output) for output in node.outputs)
    shown = any(output.is_graph_output() for output in node.outputs)
    return not shown and read <= _READ_BYTES and written <= max(read, _GROWN_BYTES)


def _bytes(value: ir.Value) -> int:
    """The size of a value, in bytes; 0 where it is not known."""
    if value.shape is None or value.dtype is None:
        return 0
    sizes = [size for size in value.shape if isinstance(size, int)]
    return math.ceil(math.prod(sizes) * value.dtype.itemsize) * (len(sizes) == len(value.shape))


@rule
def duplicate_initializer(checked: CheckedModel) -> Iterator[GraphFinding]:
    """An initializer that holds the same as another one."""
    for value, first, proven in duplicates(checked.model):
        tensor = value.const_value
        assert tensor is not None
        how = "the same" if proven else "in samples the same"
        yield GraphFinding(
            "duplicate_initializer",
            "warning" if proven else "note",
            value.name or "",
            f"holds {how} {tensor.nbytes:,} bytes as {first.name!r}",
            "let its readers read that one" if proven else "compare them whole",
            fix=proven,
        )


def duplicates(
    model: ir.Model, most_bytes: int = _COMPARED_BYTES
) -> Iterator[tuple[ir.Value, ir.Value, bool]]:
    """Initializers of the main graph that hold what an earlier one holds: it, the earlier one, and
    whether all of their bytes were compared: up to `most_bytes` in all are. Smaller than 1 KiB are
    not looked at; tensors that share their place in a file are stored once."""
    groups: dict[tuple[Any, ...], list[ir.Value]] = {}
    for value in model.graph.initializers.values():
        tensor = value.const_value
        if tensor is None or tensor.dtype in _NO_NUMBERS or value.is_graph_input():
            continue
        if tensor.dtype.bitwidth >= 8 and tensor.nbytes >= _STORED_BYTES:
            key = (tensor.dtype, tuple(tensor.shape))
            groups.setdefault(key, []).append(value)
    for group in groups.values():
        firsts: dict[bytes, list[tuple[ir.Value, Any]]] = {}
        for value in group if len(group) > 1 else ():
            data = _data(value)
            if data is None:
                continue
            known = firsts.setdefault(_samples(data), [])
            for first, other in known:
                if _place(value) == _place(first):
                    break
                compared = data.nbytes <= most_bytes
                most_bytes -= data.nbytes if compared else 0
                if not compared or np.array_equal(data, other):
                    yield value, first, compared
                    break
            else:
                known.append((value, data))


def _data(value: ir.Value) -> Any:
    """The bytes of an initializer, mapped where external; None where they are missing."""
    assert value.const_value is not None
    try:
        array = value.const_value.numpy()
        return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    except DATA_ERRORS:
        return None


def _samples(data: Any) -> bytes:
    """The first, middle and last bytes."""
    middle = len(data) // 2
    parts = (data[:_SAMPLE_BYTES], data[middle : middle + _SAMPLE_BYTES], data[-_SAMPLE_BYTES:])
    return b"".join(part.tobytes() for part in parts)


def _place(value: ir.Value) -> object:
    """Where the data of an initializer is stored."""
    tensor = value.const_value
    if isinstance(tensor, ir.ExternalTensor):
        return str(tensor.path), tensor.offset or 0
    return id(tensor)
