"""`graph check` rules on nodes that can be rewritten: constants, casts, decomposed ops."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from profiler.graph.check import CheckedModel, Fault, opset, place, rule
from profiler.graph.model import (
    DATA_ERRORS,
    Kind,
    constant,
    is_constant,
    is_settled,
    kinds,
    nodes,
    only_node,
    producer,
    scalar,
)

# --- Computations that never change, and weights that are stored twice.


_STORED_BYTES = 1024  # of an initializer: smaller duplicates cost nothing
_SAMPLE_BYTES = 4096
_COMPARED_BYTES = 1 << 28  # of all tensors: above, samples are compared
_NO_NUMBERS = (ir.DataType.UNDEFINED, ir.DataType.STRING)
_GROWN_BYTES = 1 << 20  # that folding may add even if inputs are smaller
_READ_BYTES = 1 << 28
_FOLLOWED = 1 << 20  # nodes followed back in total: shared chains would be quadratic
_STORED_AS_ONE = {"DequantizeLinear"}  # computed on purpose, because its input is smaller


@rule("warning")
def constant_subgraph(checked: CheckedModel) -> Iterator[Fault]:
    """Nodes compute only from initializers."""
    for node, before in foldable_nodes(checked.model):
        count = len(before)
        fits = folded_fits(node, before)
        yield Fault(
            place(node),
            f"{node.op_type} is computed at each run from initializers alone, by {count} "
            f"node{'s' * (count > 1)}",
            "fold it to an initializer" if fits else "fold it where its size allows",
            fix=fits,
            severity="warning" if fits else "note",
        )


def last_constant_nodes(model: ir.Model, found: Mapping[ir.Value, Kind]) -> Iterator[ir.Node]:
    """Yield the last nodes of constant computations: other nodes or outputs read them."""
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
    """Yield each of `last_constant_nodes` with the nodes that compute it, in any order; stops after
    2²⁰ of these. The model may change in between."""
    left = _FOLLOWED
    for node in list(last_constant_nodes(model, kinds(model))):
        before = _foldable(node, left)
        left -= len(before)
        if left < 0:
            return
        yield node, before


def _foldable(node: ir.Node, most: int) -> list[ir.Node]:
    """`node` and the nodes before it, one more than `most` if there are more."""
    pending, seen = [node], {node: None}
    while pending and len(seen) <= most:
        for value in pending.pop().inputs:
            before = None if value is None else value.producer()
            if before is not None and before not in seen and before.op_type != "Constant":
                seen[before] = None
                pending.append(before)
    return list(seen)


def folded_fits(node: ir.Node, before: list[ir.Node]) -> bool:
    """Whether `node` may be folded: it writes no output of the model, and its result is not much
    larger than its inputs."""
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
    """The size of a value, in bytes; 0 if it is not known."""
    if value.shape is None or value.dtype is None:
        return 0
    sizes = [size for size in value.shape if isinstance(size, int)]
    return math.ceil(math.prod(sizes) * value.dtype.itemsize) * (len(sizes) == len(value.shape))


@rule("warning")
def duplicate_initializer(checked: CheckedModel) -> Iterator[Fault]:
    """An initializer has the same content as another one."""
    for value, first, proven in duplicates(checked.model):
        tensor = value.const_value
        assert tensor is not None
        how = "the same" if proven else "in samples the same"
        yield Fault(
            value.name or "",
            f"holds {how} {tensor.nbytes:,} bytes as {first.name!r}",
            "let its readers read that one" if proven else "compare them whole",
            fix=proven,
            severity="warning" if proven else "note",
        )


def duplicates(model: ir.Model) -> Iterator[tuple[ir.Value, ir.Value, bool]]:
    """Initializers of the main graph that hold what an earlier one holds: it, the earlier one, and
    whether all of their bytes were compared: up to `_COMPARED_BYTES` in all are. Smaller than 1 KiB
    are not looked at; tensors that share their place in a file are stored once."""
    left = _COMPARED_BYTES
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
                compared = data.nbytes <= left
                left -= data.nbytes if compared else 0
                if not compared or np.array_equal(data, other):
                    yield value, first, compared
                    break
            else:
                known.append((value, data))


def _data(value: ir.Value) -> Any:
    """The bytes of an initializer, mapped if external; None if they are missing."""
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
    """Return where the data of an initializer is stored."""
    tensor = value.const_value
    if isinstance(tensor, ir.ExternalTensor):
        return str(tensor.path), tensor.offset or 0
    return id(tensor)


# --- Types that accelerators lack or compute slowly: int64 and float64 in computations.


_ARITHMETIC = {
    *("Add", "Sub", "Mul", "Div", "Mod", "Pow", "Abs", "Neg", "Sign", "Max", "Min", "Sum", "Mean"),
    *("MatMul", "Gemm", "CumSum"),
    *("ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceMean"),
}
_WIDE = (ir.DataType.DOUBLE, ir.DataType.COMPLEX128)


@rule("warning")
def int64_compute(checked: CheckedModel) -> Iterator[Fault]:
    """Arithmetic on data, or an input, is int64; sizes and shapes are int64 in ONNX."""
    found = kinds(checked.model)
    for node in checked.model.graph:
        computes = node.op_type in _ARITHMETIC and not node.domain
        if computes and any(
            output.dtype == ir.DataType.INT64 and found[output] is Kind.DATA
            for output in node.outputs
        ):
            yield Fault(
                place(node),
                f"{node.op_type} computes in int64, which accelerators emulate or refuse",
                "cast to int32 before it where the values allow it",
            )
    for value in checked.model.graph.inputs:
        if value.dtype == ir.DataType.INT64 and value.name not in checked.model.graph.initializers:
            yield Fault(
                value.name or "",
                "the input is int64, which some compilers take only as int32",
                "export it with an int32 input where the compiler asks for that",
                severity="note",
            )


@rule("warning")
def float64_tensor(checked: CheckedModel) -> Iterator[Fault]:
    """A node, an input or an initializer is float64."""
    for node in nodes(checked.model):
        wide = [output for output in node.outputs if output.dtype in _WIDE]
        if wide:
            yield _float64(place(node), f"{node.op_type} writes {wide[0].name!r} in float64")
    graph = checked.model.graph
    for value in graph.inputs:
        if value.dtype in _WIDE:
            yield _float64(value.name or "", "the input is float64")
    for value in graph.initializers.values():
        if value.dtype in _WIDE:
            yield _float64(value.name or "", "the initializer is float64")


def _float64(name: str, evidence: str) -> Fault:
    recommendation = (
        "compute in float32: a Python number or numpy array of the module brought float64 in"
    )
    return Fault(name, evidence, recommendation)


# --- Inputs of nodes: empty names of required inputs, or names that nothing writes.


# Optional inputs whose empty name converters mistake for a tensor's: (operation, index) → meaning.
OPTIONAL_INPUTS = {
    ("LayerNormalization", 2): "bias",
    ("Conv", 2): "bias",
    ("ConvTranspose", 2): "bias",
    ("Gemm", 2): "C",
}


@rule("error")
def empty_input(checked: CheckedModel) -> Iterator[Fault]:
    """An input that has a meaning has the empty name."""
    version = opset(checked.model)
    for node in nodes(checked.model):
        for index, meaning in meaningful_inputs(node, version):
            yield Fault(
                place(node),
                f"{node.op_type}: input {index} ({meaning}) has the empty name",
                _recommendation(node, meaning),
                fix=_can_fill(node, index),
            )


def meaningful_inputs(node: ir.Node, version: int) -> list[tuple[int, str]]:
    """Return index and meaning of the inputs of `node` that have a meaning but are named ""."""
    if node.domain:
        return []
    empty = [index for index, value in enumerate(node.inputs) if value is None]
    if not empty:
        return []
    required = _required(node.op_type, version)
    named = {
        index: required.get(index) or OPTIONAL_INPUTS.get((node.op_type, index)) for index in empty
    }
    return [(index, meaning) for index, meaning in named.items() if meaning]


def _required(op_type: str, version: int) -> dict[int, str]:
    """Names of the required inputs of an operation, by index; empty for one without a schema."""
    if not onnx.defs.has(op_type, max_inclusive_version=max(version, 1)):
        return {}
    schema = onnx.defs.get_schema(op_type, max_inclusive_version=max(version, 1))
    single = onnx.defs.OpSchema.FormalParameterOption.Single
    return {i: entry.name for i, entry in enumerate(schema.inputs) if entry.option == single}


def _can_fill(node: ir.Node, index: int) -> bool:
    last = index == len(node.inputs) - 1
    return (last and (node.op_type, index) in OPTIONAL_INPUTS) or neutral_value(
        node, index
    ) is not None


def neutral_value(node: ir.Node, index: int) -> Any:
    """Return the scale of ones or bias of zeros for input `index` of a normalization, which changes
    nothing; None if its shape or type is not known, or the input means something else."""
    value = node.inputs[0]
    if index not in (1, 2) or value is None or value.shape is None or value.dtype is None:
        return None
    if not is_settled(node):
        return None
    if node.op_type in ("LayerNormalization", "RMSNormalization"):
        axis = node.attributes["axis"].as_int() if "axis" in node.attributes else -1
        sizes = list(value.shape)[axis:]
    elif node.op_type == "InstanceNormalization":
        sizes = list(value.shape)[1:2]
    else:
        return None
    if not sizes or not all(isinstance(size, int) for size in sizes):
        return None
    fill = np.ones if index == 1 else np.zeros
    return fill(sizes, dtype=value.dtype.numpy())


def _recommendation(node: ir.Node, meaning: str) -> str:
    if "Normalization" in node.op_type:
        neutral = "bias of zeros" if meaning.lower() in ("b", "bias") else f"{meaning} of ones"
        return (
            f"give it a {neutral.lower()}, which changes nothing, or give the norms of the "
            "module weights and biases before export"
        )
    return f"give it a {meaning}, or leave the input out; export with a newer exporter"


@rule("error")
def dangling_input(checked: CheckedModel) -> Iterator[Fault]:
    """An input of a node, or output of the model, is named, but nothing writes it."""
    known = set(checked.model.graph.inputs)
    for graph in checked.model.graphs():
        known |= {*graph.inputs, *graph.initializers.values()}
    for function in checked.model.functions.values():
        known |= set(function.inputs)
    for node in nodes(checked.model):
        for value in node.inputs:
            if value is not None and value not in known and value.producer() is None:
                yield Fault(
                    place(node),
                    f"{node.op_type} reads {value.name!r}, which no node writes",
                    "export the model again, or add the tensor as an input or initializer",
                )
    for value in checked.model.graph.outputs:
        if value.producer() is None and value not in known:
            yield Fault(
                value.name or "",
                f"the model gives {value.name!r}, which no node writes",
                "export the model again",
            )


# --- Redundant pairs of Cast, Transpose, Reshape or Squeeze, and nodes without an effect.


@rule("warning")
def redundant_pair(checked: CheckedModel) -> Iterator[Fault]:
    """Two consecutive nodes could be one or none, or a node has no effect."""
    for node in nodes(checked.model):
        first = redundant_first(node)
        if first is not None:
            yield Fault(
                place(node),
                f"{node.op_type} of what {first.op_type} {place(first)!r} writes: one node or none "
                "gives the same",
                "let it read what the first one reads",
                fix=True,
            )
        elif does_nothing(node):
            yield Fault(
                place(node),
                f"{node.op_type} writes what it reads",
                "remove it",
                fix=not node.outputs[0].is_graph_output(),
            )


def redundant_first(node: ir.Node) -> ir.Node | None:
    """Return the node before `node` that `node` makes redundant, None if there is none."""
    if node.op_type not in _NEEDLESS or node.domain or not is_settled(node):
        return None
    op_type, needless = _NEEDLESS[node.op_type]
    first = producer(node.inputs[0], op_type)
    if first is None or not is_settled(first):
        return None
    return first if needless(first, node) else None


def does_nothing(node: ir.Node) -> bool:
    """Whether the output of `node` equals its input."""
    if node.domain or not node.inputs or node.inputs[0] is None or not is_settled(node):
        return False
    if node.op_type == "Identity":
        return not node.inputs[0].is_initializer()
    if node.op_type == "Cast":
        return node.inputs[0].dtype is not None and node.inputs[0].dtype == _to(node)
    if node.op_type == "Transpose":
        perm = permutation(node)
        return bool(perm) and perm == list(range(len(perm)))
    return False


def permutation(node: ir.Node) -> list[int]:
    """The permutation of a Transpose, empty if neither it nor the rank is known."""
    if "perm" in node.attributes:
        return list(node.attributes["perm"].as_ints())
    shape = node.inputs[0].shape if node.inputs[0] is not None else None
    return [] if shape is None else list(range(len(shape)))[::-1]


def _to(cast: ir.Node) -> ir.DataType:
    return ir.DataType(cast.attributes["to"].as_int())


def _keeps(cast: ir.Node) -> bool:
    """Whether a Cast preserves every value."""
    before = cast.inputs[0].dtype if cast.inputs[0] is not None else None
    after = _to(cast)
    if before is None or ir.DataType.STRING in (before, after):
        return False
    try:
        old, new = np.dtype(before.numpy()), np.dtype(after.numpy())
    except TypeError:
        return False
    rounding = old.kind in "iu" and new.kind in "fc" and old.itemsize >= new.itemsize
    return not rounding and np.can_cast(old, new, casting="safe")


def _both_known(first: ir.Node, second: ir.Node) -> bool:
    """Whether both Transposes have a known permutation, so that they can be merged."""
    return bool(permutation(first)) and bool(permutation(second))


def _sizes_alone(_first: ir.Node, second: ir.Node) -> bool:
    """Whether the second Reshape depends only on its own sizes: 0 would copy one of its input's."""
    sizes = constant(second.inputs[1])
    return sizes is not None and 0 not in sizes


def _undone(first: ir.Node, second: ir.Node) -> bool:
    """Whether Squeeze and Unsqueeze have the same axes, and both can be removed."""
    axes = _axes(first)
    return axes is not None and axes == _axes(second) and not second.outputs[0].is_graph_output()


def _axes(node: ir.Node) -> list[int] | None:
    """The axes of a Squeeze or Unsqueeze, None if they are computed or left out."""
    if "axes" in node.attributes:
        return list(node.attributes["axes"].as_ints())
    array = constant(node.inputs[1]) if len(node.inputs) > 1 else None
    return None if array is None else [int(axis) for axis in array.reshape(-1)]


# The second operation → the first, and whether the second makes the first redundant.
_NEEDLESS: Mapping[str, tuple[str, Callable[[ir.Node, ir.Node], bool]]] = {
    "Cast": ("Cast", lambda first, _second: _keeps(first)),
    "Transpose": ("Transpose", _both_known),
    "Reshape": ("Reshape", _sizes_alone),
    "Squeeze": ("Unsqueeze", _undone),
    "Unsqueeze": ("Squeeze", _undone),
}


# --- Operations that the exporter wrote as many small nodes, though ONNX has an operator for them.


_CUBIC = 0.044715  # the factor of x³ in GELU's approximation by tanh
_SCORES = {"Add", "Mul", "Div", "Sub", "Cast", "Where", "Reshape", "Clip"}
_WEIGHTS = {"Cast", "Where", "Dropout", "Reshape", "Identity"}
_FAR = 8  # nodes followed before a pattern is abandoned


def _decomposed(model: ir.Model, node: ir.Node, evidence: str, since: int) -> Fault:
    version = opset(model)
    late = f"opset {since} has it as one operator, the model is of opset {version}: " * (
        version < since
    )
    return Fault(
        place(node),
        evidence,
        f"{late}export it as one operator, or fuse it with an optimizer, where the compiler does "
        "not do so itself",
    )


@rule("note")
def decomposed_layernorm(checked: CheckedModel) -> Iterator[Fault]:
    """A LayerNorm is written as ReduceMean, Sub, Pow, ReduceMean, Add, Sqrt, Div."""
    for node, centered in _norms(checked.model):
        if centered:
            evidence = (
                "a LayerNorm stands there as ReduceMean, Sub, Pow, ReduceMean, Add, Sqrt, Div"
            )
            yield _decomposed(checked.model, node, evidence, 17)


@rule("note")
def decomposed_rmsnorm(checked: CheckedModel) -> Iterator[Fault]:
    """An RMSNorm is written as Pow, ReduceMean, Add, Sqrt, Div."""
    for node, centered in _norms(checked.model):
        if not centered:
            evidence = "an RMSNorm stands there as Pow, ReduceMean, Add, Sqrt and Div or Mul"
            yield _decomposed(checked.model, node, evidence, 23)


def _norms(model: ir.Model) -> Iterator[tuple[ir.Node, bool]]:
    """The node that divides by the deviation, and whether the mean is subtracted before."""
    for root in nodes(model):
        if root.op_type != "Sqrt" or root.domain:
            continue
        add = producer(root.inputs[0], "Add")
        mean = None if add is None else _either(add, "ReduceMean")
        square = None if mean is None else producer(mean.inputs[0], "Pow", "Mul")
        if square is None or not _squares(square):
            continue
        divides = only_node(root.outputs[0].uses(), "Div", "Reciprocal")
        if divides is not None:
            yield divides, _centers(square.inputs[0])


def _squares(node: ir.Node) -> bool:
    if node.op_type == "Mul":
        return node.inputs[0] is node.inputs[1]
    return scalar(node.inputs[1]) == 2.0


def _centers(value: ir.Value | None) -> bool:
    """Whether `value` is a value minus its own mean."""
    difference = producer(_uncast(value), "Sub")
    if difference is None:
        return False
    mean = producer(_uncast(difference.inputs[1]), "ReduceMean")
    return mean is not None and _uncast(mean.inputs[0]) is _uncast(difference.inputs[0])


def _uncast(value: ir.Value | None) -> ir.Value | None:
    cast = producer(value, "Cast")
    return value if cast is None else cast.inputs[0]


def _either(node: ir.Node, *op_types: str) -> ir.Node | None:
    """Return the producer of an input whose op type is one of `op_types`."""
    found = (producer(value, *op_types) for value in node.inputs)
    return next((node for node in found if node is not None), None)


@rule("note")
def decomposed_gelu(checked: CheckedModel) -> Iterator[Fault]:
    """A GELU is written as Erf or Tanh and surrounding nodes."""
    for node in nodes(checked.model):
        if node.domain or node.op_type not in ("Erf", "Tanh"):
            continue
        plus = only_node(node.outputs[0].uses(), "Add")
        if plus is None or all(scalar(value) != 1.0 for value in plus.inputs):
            continue
        if only_node(plus.outputs[0].uses(), "Mul") is None:
            continue
        if node.op_type == "Erf" or _is_cubic(node.inputs[0]):
            evidence = f"a GELU stands there as {node.op_type}, Add, Mul and what feeds them"
            yield _decomposed(checked.model, node, evidence, 20)


def _is_cubic(value: ir.Value | None) -> bool:
    """Whether the factor of GELU's approximation is among the inputs of `value`."""
    pending, far = [value], 0
    while pending and far < _FAR:
        node = producer(pending.pop(0), "Mul", "Add", "Pow")
        if node is None:
            continue
        far += 1
        arrays = (constant(entry, 64) for entry in node.inputs)
        if any(
            a is not None and a.size and np.isclose(a.flat[0], _CUBIC, rtol=1e-3) for a in arrays
        ):
            return True
        pending += node.inputs
    return False


@rule("note")
def decomposed_attention(checked: CheckedModel) -> Iterator[Fault]:
    """Attention is written as MatMul, Softmax, MatMul on computed tensors."""
    for node in nodes(checked.model):
        if node.op_type == "Softmax" and not node.domain and _has_scores(node) and _has_sum(node):
            evidence = "attention stands there as MatMul, Softmax, MatMul and what scales and masks"
            yield _decomposed(checked.model, node, evidence, 23)


def _has_scores(softmax: ir.Node) -> bool:
    """Whether the input of `softmax` comes from a MatMul of two computed tensors."""
    pending, far = [softmax.inputs[0]], 0
    while pending and far < _FAR:
        node = producer(pending.pop(0))
        far += 1
        if node is None:
            continue
        if node.op_type == "MatMul":
            return not any(is_constant(value) for value in node.inputs)
        if node.op_type in _SCORES:
            pending += node.inputs
    return False


def _has_sum(softmax: ir.Node) -> bool:
    """Whether a MatMul reads the output of `softmax`."""
    pending, far = [softmax.outputs[0]], 0
    while pending and far < _FAR:
        for use in pending.pop(0).uses():
            far += 1
            if use.node.op_type == "MatMul":
                return True
            if use.node.op_type in _WEIGHTS:
                pending += use.node.outputs
    return False
