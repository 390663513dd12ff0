"""A model → arrays of its inputs, in ranges that their types and uses ask for, from a seed.

An integer that selects rows of a table (Gather and the like) stays below the table's size; other
integers are 0 or 1, as masks are; floats are normally distributed, positive where a root or a
logarithm takes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from profiler.errors import InputError
from profiler.graph.model_file import read_graph

__all__ = ["input_shape", "random_inputs", "refuse_unknown_sizes"]

_BATCH = 2  # of symbolic dimensions named after a batch: two, so that broadcasting shows
_SIZE = 8  # of the other symbolic dimensions: even, as patches need, and small
_MOST_ELEMENTS = 1 << 31
_NAMED = 12  # symbolic dimensions that a sentence names
_MOST_LETTERS = 80  # of each
_PASSING = {  # operations whose output holds the values of their first input
    *("Cast", "Reshape", "Unsqueeze", "Squeeze", "Identity", "Flatten", "Transpose", "Expand"),
    *("Slice", "Tile", "Clip", "Split", "Concat"),
}
_SELECTING = {"Gather": 1, "GatherElements": 1}  # which input holds indices
_POSITIVE = {"Sqrt", "Log", "Reciprocal"}


def random_inputs(
    model: ir.Model, sizes: Mapping[str, int] | None = None, seed: int = 0
) -> dict[str, Any]:
    """Arrays for the inputs of `model`, by name, the same for the same seed.

    `sizes` are those of symbolic dimensions, 2 for a batch and 8 for others where it says nothing.
    Inputs that have an initializer are left to it. Raises InputError for an input that is no
    tensor, has no shape, or would have more than 2³¹ elements.
    """
    random = np.random.default_rng(seed)
    arrays = {}
    for value in model.graph.inputs:
        name = value.name or ""
        if name in model.graph.initializers:
            continue
        shape = input_shape(value, sizes or {})
        arrays[name] = _array(value, shape, random)
    return arrays


def refuse_unknown_sizes(models: Iterable[Path], sizes: Mapping[str, int]) -> None:
    """Raise InputError where none of the models has a symbolic dimension of one of these names."""
    if not sizes:
        return
    names = {name for path in models for name in _symbols(read_graph(path))}
    for name in sizes:
        if name not in names:
            own = sorted(known for known in names if known.isidentifier()) or sorted(names)
            more = f" and {len(own) - _NAMED} more" if len(own) > _NAMED else ""
            listed = ", ".join(known[:_MOST_LETTERS] for known in own[:_NAMED])
            raise InputError(
                f"--size {name}: no dimension is called so: "
                + (f"give one of {listed}{more}" if own else "all are fixed, so leave it out")
            )


def _symbols(model: ir.Model) -> Iterator[str]:
    """The names of symbolic dimensions, of inputs and of all that the graph says a shape of."""
    outputs = (value for node in model.graph for value in node.outputs)
    for value in (*model.graph.inputs, *outputs):
        for dim in value.shape or ():
            if not isinstance(dim, int) and dim.value:
                yield dim.value


def input_shape(value: ir.Value, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of an input with `sizes` for its symbolic dimensions, defaults for the others.

    Raises InputError as `random_inputs`.
    """
    name = (value.name or "")[:_MOST_LETTERS]
    if not isinstance(value.type, ir.TensorType) or value.shape is None:
        raise InputError(f"input {name!r} is no tensor with a shape: export it as one")
    shape = tuple(_size(dim, sizes) for dim in value.shape)
    elements = int(np.prod(shape, dtype=np.float64)) if shape else 1
    if min(shape, default=0) < 0 or elements > _MOST_ELEMENTS:
        advice = (
            "give smaller ones by --size"
            if any(not isinstance(dim, int) for dim in value.shape) and min(shape) >= 0
            else "export it with sizes from 0 on, of at most 2³¹ elements in all"
        )
        raise InputError(f"input {name!r} has the impossible shape {list(shape)}: {advice}")
    return shape


def _size(dim: Any, sizes: Mapping[str, int]) -> int:
    if isinstance(dim, int):
        return dim
    name = dim.value or ""
    if name in sizes:
        return sizes[name]
    return _BATCH if "batch" in name.lower() or name in ("b", "B") else _SIZE


def _array(value: ir.Value, shape: tuple[int, ...], random: np.random.Generator) -> Any:
    dtype = value.dtype
    if dtype is None or dtype in (ir.DataType.UNDEFINED, ir.DataType.STRING):
        raise InputError(
            f"input {value.name!r} is of type {dtype}, and random inputs are numbers: export the "
            "model without it"
        )
    if dtype.is_floating_point():
        array = np.asarray(random.standard_normal(shape, dtype=np.float32))
        if any(node.op_type in _POSITIVE for node, _ in _uses(value)):
            array = np.asarray(np.abs(array) + np.float32(0.1))
        return array.astype(dtype.numpy())
    if dtype == ir.DataType.BOOL:
        return np.asarray(random.random(shape) < 0.5)
    if dtype in (ir.DataType.COMPLEX64, ir.DataType.COMPLEX128):
        pair = random.standard_normal((2, *shape))
        return np.asarray(pair[0] + 1j * pair[1]).astype(dtype.numpy())
    return np.asarray(random.integers(0, _rows(value), size=shape)).astype(dtype.numpy())


def _rows(value: ir.Value) -> int:
    """The rows of the smallest table that the integers of `value` select from; 2 where of none."""
    found = []
    for node, index in _uses(value):
        if _SELECTING.get(node.op_type) != index or node.inputs[0] is None:
            continue
        table = node.inputs[0].shape
        axis = node.attributes["axis"].as_int() if "axis" in node.attributes else 0
        rows = table[axis] if table is not None and -len(table) <= axis < len(table) else None
        if isinstance(rows, int):
            found.append(max(rows, 1))
    return min(found, default=2)


def _uses(value: ir.Value) -> Iterator[tuple[ir.Node, int]]:
    """The nodes that take the values of `value`, and as which input."""
    pending, seen = [value], {value}
    while pending:
        for node, index in pending.pop().uses():
            yield node, index
            if node.op_type in _PASSING and (index == 0 or node.op_type == "Concat"):
                fresh = [output for output in node.outputs if output not in seen]
                pending += fresh
                seen.update(fresh)
