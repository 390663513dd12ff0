"""Static shapes and random inputs of an ONNX graph for given sizes.

Shapes are inferred node by node, without a run of the model. Small integer tensors (sizes,
axes) are computed, so shapes are known behind Reshapes with computed sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from profiler.errors import InputError
from profiler.graph.model import (
    constant,
    read_graph,
)

# --- Infer the shape of every value for given sizes of the inputs, without running the model.
#
# Node by node, in the graph's order: ONNX's own inference of one operator, and the values of small
# integer tensors (sizes, axes), which it needs, by ONNX's reference implementation. So shapes
# are known behind Reshapes with computed sizes, where inference of a whole graph gives up.


_SMALL = 64  # elements of an integer tensor whose values are computed
_AS_FIRST_INPUT = {  # operators of ONNX Runtime whose first output is like the first input
    *("FastGelu", "QuickGelu", "BiasGelu", "Gelu", "BiasAdd", "MultiHeadAttention"),
    *("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", "SimplifiedLayerNormalization"),
}
_Types = dict[str, Any]  # onnx.TypeProto by value


def static_shapes(
    model: ir.Model, inputs: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the values of the main graph, by name, as far as they follow from the
    shapes of the `inputs`."""
    types: _Types = {}
    data: dict[str, Any] = {}
    for value in model.graph.inputs:
        if value.name in inputs and value.dtype is not None:
            types[str(value.name)] = _type(value.dtype, inputs[str(value.name)])
    for name, value in model.graph.initializers.items():
        tensor = value.const_value
        if tensor is not None and tensor.dtype != ir.DataType.STRING:
            types[name] = _type(tensor.dtype, tuple(tensor.shape.numpy()))
            _keep_small(data, name, constant(value, _SMALL * 8))
    for node in model.graph:
        _follow(node, model.opset_imports, types, data)
    found = {name: _static(proto) for name, proto in types.items()}
    return {name: shape for name, shape in found.items() if shape is not None}


def _follow(node: ir.Node, opsets: Mapping[str, int], types: _Types, data: dict[str, Any]) -> None:
    """Add the known types and data of a node's outputs."""
    given = [value for value in node.inputs if value is not None]
    _compute(node, given, types, data)
    unknown = [o for o in node.outputs if o.name and o.name not in types]
    if unknown and node.domain == "com.microsoft" and node.op_type in _AS_FIRST_INPUT and given:
        first = types.get(str(given[0].name))
        if first is not None:
            types[str(node.outputs[0].name)] = first
    elif unknown and not node.domain:
        _infer(node, given, opsets, types, data)
    for output in node.outputs:
        name, dtype, shape = output.name, output.dtype, output.shape
        if name and name not in types and dtype and shape is not None and shape.is_static():
            types[name] = _type(dtype, tuple(shape.numpy()))


def _compute(node: ir.Node, given: list[ir.Value], types: _Types, data: dict[str, Any]) -> None:
    """The values of small integers: sizes, and what is computed from them."""
    if node.domain or any(output.is_graph_output() for output in node.outputs):
        return
    name = str(node.outputs[0].name) if node.outputs else ""
    if node.op_type == "Constant":
        _learn(name, constant(node.outputs[0], _SMALL * 8), types, data)
        return
    if node.op_type == "Shape":
        shape = _static(types.get(str(given[0].name))) if given else None
        if shape is not None:
            start = node.attributes.get_int("start", 0)
            end = node.attributes.get_int("end", len(shape))
            _learn(name, np.array(shape[start:end], dtype=np.int64), types, data)
        return
    if not given or any(str(value.name) not in data for value in given):
        return
    if len(given) < len(node.inputs) and node.inputs[-1] is None:
        return
    for output, array in zip(node.outputs, _evaluated(node, given, data), strict=False):
        _learn(str(output.name), array, types, data)


def _evaluated(node: ir.Node, given: list[ir.Value], data: Mapping[str, Any]) -> list[Any]:
    """Run the node in ONNX's reference implementation; empty if that fails."""
    from onnx.reference import ReferenceEvaluator

    try:
        evaluator = ReferenceEvaluator(ir.serde.serialize_node(node))
        with np.errstate(all="ignore"):  # masks contain -inf
            found: list[Any] = evaluator.run(None, {str(v.name): data[str(v.name)] for v in given})
    except Exception:  # noqa: BLE001 - a file of another format must not end in a traceback
        return []
    return found


def _learn(name: str, array: Any, types: _Types, data: dict[str, Any]) -> None:
    if not isinstance(array, (np.ndarray, np.generic)):
        return
    array = np.asarray(array)
    try:
        types[name] = _type(ir.DataType.from_numpy(array.dtype), array.shape)
    except TypeError:
        return
    _keep_small(data, name, array)


def _keep_small(data: dict[str, Any], name: str, array: Any) -> None:
    if array is not None and array.size <= _SMALL and array.dtype.kind in "iubf":
        data[name] = array


def _infer(
    node: ir.Node,
    given: list[ir.Value],
    opsets: Mapping[str, int],
    types: _Types,
    data: Mapping[str, Any],
) -> None:
    """Run ONNX's inference for the node's operator."""
    import onnx

    names = [str(value.name) for value in given]
    if any(name not in types for name in names):
        return
    try:
        schema = onnx.defs.get_schema(node.op_type, opsets.get("", 1), "")
        found = onnx.shape_inference.infer_node_outputs(
            schema,
            ir.serde.serialize_node(node),
            {name: types[name] for name in names},
            {n: onnx.numpy_helper.from_array(np.asarray(data[n])) for n in names if n in data},
            opset_imports=[onnx.helper.make_opsetid("", opsets.get("", 1))],
        )
    except Exception:  # noqa: BLE001 - a file of another format must not end in a traceback
        return
    types.update({name: proto for name, proto in found.items() if _static(proto) is not None})


def _type(dtype: ir.DataType, shape: tuple[int, ...]) -> Any:
    import onnx

    return onnx.helper.make_tensor_type_proto(int(dtype), shape)


def _static(proto: Any) -> tuple[int, ...] | None:
    """Return the shape in a type, None if a dimension is open."""
    if proto is None or not proto.HasField("tensor_type"):
        return None
    tensor = proto.tensor_type
    if not tensor.HasField("shape") or not all(d.HasField("dim_value") for d in tensor.shape.dim):
        return None
    return tuple(d.dim_value for d in tensor.shape.dim)


# --- Random inputs of a model, in ranges that their types and uses require, from a seed.
#
# An integer that selects rows of a table (Gather and the like) is below the table's size; other
# integers are 0 or 1, as in masks; floats are normally distributed, positive if a root or a
# logarithm takes them.


_BATCH = 2  # size of symbolic batch dimensions: two, so that broadcasting shows
_SIZE = 8  # size of the other symbolic dimensions: even, as patches need, and small
_MOST_ELEMENTS = 1 << 31
_NAMED = 12  # symbolic dimensions named in a sentence
_MAX_INPUT_LETTERS = 80  # of each
_PASSING = {  # operations whose output has the values of the first input
    *("Cast", "Reshape", "Unsqueeze", "Squeeze", "Identity", "Flatten", "Transpose", "Expand"),
    *("Slice", "Tile", "Clip", "Split", "Concat"),
}
_SELECTING = {"Gather": 1, "GatherElements": 1}  # the input with indices
_POSITIVE = {"Sqrt", "Log", "Reciprocal"}


def random_inputs(
    model: ir.Model, sizes: Mapping[str, int] | None = None, seed: int = 0
) -> dict[str, Any]:
    """Return random arrays for the inputs of `model`, by name, the same for the same seed.

    `sizes` are those of symbolic dimensions; by default 2 for a batch and 8 for others. Inputs with
    an initializer are left out. Raises InputError for an input that is no tensor, has no shape, or
    would have more than 2³¹ elements.
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
    """Raise InputError if none of the models has a symbolic dimension of one of these names."""
    if not sizes:
        return
    names = {name for path in models for name in _symbols(read_graph(path))}
    for name in sizes:
        if name not in names:
            own = sorted(known for known in names if known.isidentifier()) or sorted(names)
            more = f" and {len(own) - _NAMED} more" if len(own) > _NAMED else ""
            listed = ", ".join(known[:_MAX_INPUT_LETTERS] for known in own[:_NAMED])
            raise InputError(
                f"--size {name}: no dimension is called so: "
                + (f"give one of {listed}{more}" if own else "all are fixed, so leave it out")
            )


def _symbols(model: ir.Model) -> Iterator[str]:
    """Yield the names of symbolic dimensions, of inputs and of all values with a shape."""
    outputs = (value for node in model.graph for value in node.outputs)
    for value in (*model.graph.inputs, *outputs):
        for dim in value.shape or ():
            if not isinstance(dim, int) and dim.value:
                yield dim.value


def input_shape(value: ir.Value, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Return the shape of an input with `sizes` for its symbolic dimensions, and defaults.

    Raises InputError as `random_inputs`.
    """
    name = (value.name or "")[:_MAX_INPUT_LETTERS]
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
    """The number of rows of the smallest table that the integers of `value` index; 2 if none."""
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
    """Yield the nodes that take the values of `value`, with the input's index."""
    pending, seen = [value], {value}
    while pending:
        for node, index in pending.pop().uses():
            yield node, index
            if node.op_type in _PASSING and (index == 0 or node.op_type == "Concat"):
                fresh = [output for output in node.outputs if output not in seen]
                pending += fresh
                seen.update(fresh)
