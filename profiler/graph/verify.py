"""Verify an ONNX model against another or torch's module, and list what ONNX Runtime executes.

    with optimized_graph(path) as optimized:
        nodes = executed_nodes(optimized, layer_of)

Both models run on the CPU provider with ONNX Runtime's optimizations off, so only the models'
differences show. `TOLERANCES` has the limit per type.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from profiler.errors import InputError, OutputError, needing
from profiler.graph.export_torch import PartGraph, Trial
from profiler.graph.model import nodes, read_graph, read_model, save_model

# --- ONNX Runtime's version of a model: the nodes that it executes, and those they represent.
#
# ONNX Runtime folds constants, fuses, and inserts nodes of its own, and keeps no metadata. It
# writes its optimized graph in order of execution.


_CHANNELS_LAST = "_nchwc"  # suffix of values in ONNX Runtime's own layout
_CASTS = ("InsertedPrecisionFreeCast_", "InsertedCast_")  # prefixes of values in another precision
_WITH_ACTIVATION = "fused "


@dataclass(frozen=True, slots=True)
class ExecutedNode:
    """A node that ONNX Runtime executes: its layer as capture names it, the values it writes."""

    name: str
    op_type: str
    layer: str
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Origins:
    """The nodes of the model that an executed node represents: its time is written on `counted_at`
    (None if it was inserted); `others` were fused into it."""

    counted_at: ir.Node | None
    others: tuple[ir.Node, ...] = ()


@contextmanager
def optimized_graph(model: Path) -> Iterator[Path]:
    """Yield the graph that ONNX Runtime's CPU provider executes for `model`, as a file that is
    removed after the block; its weights are not written. Raises InputError if ONNX Runtime rejects
    the model."""
    with needing("graph", "profiler.graph", "onnxruntime"):
        import onnxruntime

    with tempfile.TemporaryDirectory(prefix="profile-sd3-") as folder:
        optimized = Path(folder) / "optimized.onnx"
        weights = "weights.bin"
        (Path(folder) / weights).symlink_to("/dev/null")  # never read
        options = onnxruntime.SessionOptions()
        options.optimized_model_filepath = str(optimized)
        options.log_severity_level = 4
        options.add_session_config_entry(
            "session.optimized_model_external_initializers_file_name", weights
        )
        options.add_session_config_entry("session.disable_prepacking", "1")
        try:
            onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # its errors have no common base
            reason = " ".join(str(error).split())[:300]
            raise InputError(f"ONNX Runtime cannot open {model} ({reason})") from error
        yield optimized


def executed_nodes(
    optimized: Path, layer_of: Callable[[str, str], str]
) -> tuple[list[ExecutedNode], frozenset[str]]:
    """Return the nodes of an optimized graph in order of execution, and all values in it.

    `layer_of` gives the layer of a node by its name (or the first value it writes, if it has none)
    and its op type.
    """
    graph = read_graph(optimized).graph
    values = {value.name or "" for value in graph.inputs} | set(graph.initializers)
    found = []
    for node in graph.all_nodes():
        outputs = tuple(value.name or "" for value in node.outputs)
        name = node.name or ""
        layer = layer_of(name or next(filter(None, outputs), ""), node.op_type)
        found.append(ExecutedNode(name, node.op_type, layer, outputs))
        values.update(outputs)
    for inner in graph.subgraphs():
        values |= {str(name) for name in inner.initializers}
    return found, frozenset(values)


def origins_of(
    model: ir.Model, executed: Sequence[ExecutedNode], values: frozenset[str]
) -> list[Origins]:
    """Return the nodes of `model` that each executed node represents.

    It is identified by its name, also without suffixes of fusions, else by the values it writes. It
    represents all nodes that lead to these values from values of the optimized graph (`values`),
    except nodes that are executed themselves.
    """
    by_name = {node.name: node for node in model.graph.all_nodes() if node.name}
    writer = {
        value.name: node for node in model.graph.all_nodes() for value in node.outputs if value.name
    }
    anchors = [_counted_at(node, by_name, writer) for node in executed]
    taken = {node for node in anchors if node is not None}
    found = []
    for node, anchor in zip(executed, anchors, strict=True):
        others: list[ir.Node] = []
        if anchor is not None:
            others = _fused(node, anchor, writer, values, taken)
            taken.update(others)
        found.append(Origins(anchor, tuple(others)))
    return found


def _counted_at(
    node: ExecutedNode, by_name: dict[str, ir.Node], writer: dict[str, ir.Node]
) -> ir.Node | None:
    name = node.name.removeprefix(_WITH_ACTIVATION)
    while name:
        if name in by_name:
            return by_name[name]
        name = name.rpartition("/")[0]
    written = (*node.outputs, *map(_original, node.outputs))
    for value in (*written, node.name.removesuffix(_CHANNELS_LAST)):
        if value in writer:
            return writer[value]
    return None


def _original(value: str) -> str:
    """Return the value that one of ONNX Runtime's has in another layout or precision."""
    for prefix in _CASTS:
        value = value.removeprefix(prefix)
    return value.removesuffix(_CHANNELS_LAST)


def _fused(
    node: ExecutedNode,
    anchor: ir.Node,
    writer: dict[str, ir.Node],
    values: frozenset[str],
    taken: set[ir.Node],
) -> list[ir.Node]:
    """Return the nodes that lead to the outputs of an executed node, back to values of the
    optimized graph and to nodes that are `taken`."""
    pending = [_original(value) for value in node.outputs]
    own, seen = set(pending), set(pending)
    found: list[ir.Node] = []
    while pending:
        name = pending.pop()
        origin = writer.get(name)
        if origin is None or (name in values and name not in own):
            continue
        if origin is not anchor:
            if origin in taken:
                continue
            if origin not in found:
                found.append(origin)
        fresh = [value.name for value in origin.inputs if value is not None and value.name]
        pending += [value for value in fresh if value not in seen]
        seen.update(fresh)
    return found


# --- Compare two models on the same inputs, with a tolerance per type.
#
# Both are run by ONNX Runtime on its CPU provider, one after the other, without its own
# optimizations, so that only differences of the models show.


_BFLOAT16 = "tensor(bfloat16)"
_MOST_LETTERS = 400  # of ONNX Runtime's own sentence
_BFLOAT16_CODE = 16  # onnx.TensorProto.BFLOAT16
# Largest allowed difference by dtype, relative to the output's largest magnitude; 0 for others.
TOLERANCES = {"float64": 1e-7, "float32": 1e-4, "float16": 1e-2, "bfloat16": 1e-2}


@dataclass(frozen=True, slots=True)
class OutputDifference:
    """The difference of one output of two models: `absolute` in its own unit, `relative` to the
    largest magnitude in the first model; infinite if shapes or types differ, or only one has an
    infinity or NaN."""

    output: str
    dtype: str
    absolute: float
    relative: float
    tolerance: float
    compared: bool = True  # False if all values are infinite or NaN: proves nothing

    @property
    def within(self) -> bool:
        """Whether the difference stays within the tolerance of the output's type."""
        return self.relative <= self.tolerance

    def __str__(self) -> str:
        return (
            f"{self.output} ({self.dtype}): largest difference {self.absolute:.3g}, "
            f"{self.relative:.3g} of its largest magnitude; at most {self.tolerance:g}"
        )


def verify(
    before: Path, after: Path, inputs: Mapping[str, Any], *, what: str = "the new model"
) -> list[OutputDifference]:
    """Compare as `compare_models`; raise OutputError if an output differs by more than its
    tolerance."""
    differences = compare_models(before, after, inputs)
    for found in differences:
        if not found.within:
            raise OutputError(f"{what} was not written, for it computes something else: {found}")
    empty = next((found.output for found in differences if not found.compared), "")
    if empty:
        raise OutputError(
            f"{what} was not written, for nothing is proven: output {empty} has no finite value on "
            "random inputs"
        )
    return differences


def compare_models(before: Path, after: Path, inputs: Mapping[str, Any]) -> list[OutputDifference]:
    """Return how much each output of the model in `after` differs from that in `before`.

    `inputs` are arrays by name. Raises InputError if a model cannot be run, OutputError if the
    models have other outputs.
    """
    return compare_outputs(run_model(before, inputs), run_model(after, inputs))


def compare_outputs(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[OutputDifference]:
    """How much arrays differ, by output. Raises OutputError if the outputs have other names."""
    if list(before) != list(after):
        raise OutputError(
            f"the outputs are {', '.join(after)} where they were {', '.join(before)}: not compared"
        )
    return [_difference(name, before[name], after[name]) for name in before]


def run_model(model: Path | bytes, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Run the model in the file or bytes; return its outputs by name, as arrays.

    Raises InputError if ONNX Runtime rejects the model, fails on the inputs, or returns something
    other than a tensor.
    """
    session = _session(model)
    names = [output.name for output in session.get_outputs()]
    try:
        outputs = _outputs(session, names, inputs)
    except Exception as error:  # ONNX Runtime's errors have no common class
        shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in inputs.items())
        raise InputError(
            f"{_called(model)} does not run on inputs {shapes} ({_first_line(error)}): give sizes "
            "that it takes for its symbolic dimensions"
        ) from error
    for name, array in zip(names, outputs, strict=True):
        if not isinstance(array, np.ndarray):
            raise InputError(f"{_called(model)}: output {name!r} is no tensor: it is not compared")
    return dict(zip(names, outputs, strict=True))


def _outputs(session: Any, names: list[str], inputs: Mapping[str, Any]) -> Sequence[Any]:
    """Run the session; bfloat16, which ONNX Runtime's Python does not accept as arrays, is passed
    as its bits."""
    given: Sequence[Any]
    entries = (*session.get_inputs(), *session.get_outputs())
    if all(entry.type != _BFLOAT16 for entry in entries):
        given = session.run(names, dict(inputs))
        return given
    with needing("graph", "profiler.graph", "onnxruntime"):
        import onnxruntime

    feeds = {
        name: onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(
            array.view(np.uint16), _BFLOAT16_CODE
        )
        if array.dtype.name == "bfloat16"
        else onnxruntime.OrtValue.ortvalue_from_numpy(array)
        for name, array in inputs.items()
    }
    given = session.run_with_ort_values(names, feeds)
    return [_array(value) for value in given]


def _array(value: Any) -> Any:
    """Convert an OrtValue to an array."""
    if value.data_type() != _BFLOAT16:
        return value.numpy()
    import ctypes

    shape = tuple(value.shape())
    count = int(np.prod(shape, dtype=np.int64))
    bits = (ctypes.c_uint16 * count).from_address(value.data_ptr()) if count else ()
    return np.array(bits, dtype=np.uint16).view(ir.DataType.BFLOAT16.numpy()).reshape(shape)


def _called(model: Path | bytes) -> str:
    return str(model) if isinstance(model, Path) else "the model"


def _session(model: Path | bytes) -> Any:
    with needing("graph", "profiler.graph", "onnxruntime"):
        import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return onnxruntime.InferenceSession(
            str(model) if isinstance(model, Path) else model,
            options,
            providers=["CPUExecutionProvider"],
        )
    except Exception as error:
        raise InputError(
            f"ONNX Runtime does not take {_called(model)} ({_first_line(error)}): what it computes "
            "cannot be compared"
        ) from error


def _first_line(error: Exception) -> str:
    lines = str(error).strip()[: _MOST_LETTERS + 1].splitlines()
    line = lines[0] if lines else type(error).__name__
    return line if len(line) <= _MOST_LETTERS else f"{line[:_MOST_LETTERS]}…"


def _difference(name: str, before: Any, after: Any) -> OutputDifference:
    dtype = str(before.dtype)
    tolerance = TOLERANCES.get(dtype, 0.0)
    if before.dtype != after.dtype or before.shape != after.shape:
        return OutputDifference(name, dtype, np.inf, np.inf, tolerance)
    if before.dtype.kind in "biuOSU":
        same = bool(np.array_equal(before, after))
        return OutputDifference(name, dtype, *((0.0, 0.0) if same else (np.inf, np.inf)), tolerance)
    wide = np.complex128 if before.dtype.kind == "c" else np.float64
    old, new = before.astype(wide), after.astype(wide)
    finite = np.isfinite(old)
    if not np.array_equal(finite, np.isfinite(new)) or not np.array_equal(
        old[~finite], new[~finite], equal_nan=True
    ):
        return OutputDifference(name, dtype, np.inf, np.inf, tolerance)
    absolute = float(np.max(np.abs(old[finite] - new[finite]), initial=0.0))
    magnitude = float(np.max(np.abs(old[finite]), initial=0.0))
    relative = absolute / magnitude if magnitude else (np.inf if absolute else 0.0)
    compared = bool(finite.any()) or old.size == 0
    return OutputDifference(name, dtype, absolute, relative, tolerance, compared)


# --- Compare a written graph with its torch module on random inputs.
#
# float32 and float16 are compared directly; torch's float16 kernels on the CPU are slow, so that
# Linear and Conv compute in float32 there, from float16 to float16, as ONNX Runtime does. bfloat16
# has hardly any kernels in ONNX Runtime's CPU provider: both sides are compared in float32 with
# bfloat16 weights. That verifies the graph, not its rounding; constants of the graph are rounded,
# hence the tolerance of bfloat16.


Expected = tuple[Trial, dict[str, Any], dict[str, Any]]
"""Sizes, inputs and expected outputs of one trial, arrays by name."""


def expected_outputs(graph: PartGraph, seed: int, *, widen: bool) -> list[Expected]:
    """Compute torch's outputs for each of the graph's trials; `widen` makes the module float32."""
    import torch

    found: list[Expected] = []
    if widen:
        graph.module.float()
    with torch.no_grad(), _computed_wide(graph.module):
        for sizes in graph.trials:
            tensors = graph.draw(np.random.default_rng(seed), sizes)
            if widen:
                tensors = {name: _wide(tensor) for name, tensor in tensors.items()}
            outputs = graph.computed(sizes, tensors)
            arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
            named = zip(graph.outputs, outputs, strict=True)
            found.append((sizes, arrays, {name: tensor.numpy() for name, tensor in named}))
    return found


@contextmanager
def _computed_wide(module: Any) -> Iterator[None]:
    """Within the block, let float16 Linear and Conv compute in float32 and return float16."""
    import torch

    patched = []
    for layer in module.modules():
        convolution = isinstance(layer, (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d))
        name = "_conv_forward" if convolution else "forward"
        if convolution and layer.weight.dtype == torch.float16:
            setattr(layer, name, _wide_convolution(getattr(layer, name)))
        elif type(layer) is torch.nn.Linear and layer.weight.dtype == torch.float16:
            setattr(layer, name, _wide_linear(layer))
        else:
            continue
        patched.append((layer, name))
    try:
        yield
    finally:
        for layer, name in patched:
            delattr(layer, name)


def _wide_convolution(original: Any) -> Any:
    def forward(states: Any, weight: Any, bias: Any) -> Any:
        wide = None if bias is None else bias.float()
        return original(states.float(), weight.float(), wide).to(states.dtype)

    return forward


def _wide_linear(layer: Any) -> Any:
    import torch

    def forward(states: Any) -> Any:
        bias = None if layer.bias is None else layer.bias.float()
        wide = torch.nn.functional.linear(states.float(), layer.weight.float(), bias)
        return wide.to(states.dtype)

    return forward


def _wide(tensor: Any) -> Any:
    return tensor.float() if tensor.is_floating_point() else tensor


def check_outputs(
    path: Path, expected: Iterable[Expected], *, what: str, widen: bool
) -> list[OutputDifference]:
    """Compare the model's outputs with the expected ones: the largest difference of each over all
    trials.

    Raises OutputError if one exceeds its tolerance, or if the outputs prove nothing.
    """
    if widen:
        with tempfile.TemporaryDirectory(prefix=".float32.", dir=path.parent) as folder:
            image = Path(folder) / "model.onnx"
            save_model(float32_image(read_model(path)), image)
            return _checked(image, expected, what, TOLERANCES["bfloat16"])
    return _checked(path, expected, what)


def _checked(
    path: Path, expected: Iterable[Expected], what: str, tolerance: float | None = None
) -> list[OutputDifference]:
    worst: dict[str, OutputDifference] = {}
    for sizes, inputs, outputs in expected:
        for found in compare_outputs(outputs, _run(path, inputs, what)):
            if tolerance is not None:
                found = replace(found, tolerance=tolerance)  # noqa: PLW2901
            _refuse(found, sizes, what)
            if found.output not in worst or found.relative > worst[found.output].relative:
                worst[found.output] = found
    return list(worst.values())


def _run(path: Path, inputs: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Run the model. Raises InputError if ONNX Runtime cannot run it."""
    try:
        return run_model(path, inputs)
    except InputError as error:
        raise InputError(
            f"{what} was not written, for ONNX Runtime cannot run it to compare it with torch "
            f"({str(error.__cause__ or error).strip()[:400]}): choose another --opset or --dtype"
        ) from error


def _refuse(found: OutputDifference, sizes: Mapping[str, int], what: str) -> None:
    on = ", ".join(f"{name} {size}" for name, size in sizes.items())
    if not found.within:
        raise OutputError(
            f"{what} was not written, for torch computes something else: {found}; on {on}"
        )
    if not found.compared:
        raise OutputError(
            f"{what} was not written, for nothing is proven: torch's {found.output} has no finite "
            f"value on random inputs ({on}): choose another --dtype or --seed"
        )


def float32_image(model: ir.Model) -> ir.Model:
    """Replace bfloat16 by float32 in `model`, in place: same graph, same weights."""
    narrow, wide = ir.DataType.BFLOAT16, ir.DataType.FLOAT
    for graph in model.graphs():
        for value in graph.initializers.values():
            if value.const_value is not None and value.dtype == narrow:
                value.const_value = _wide_tensor(value.const_value)
                value.type = ir.TensorType(wide)
        for value in (*graph.inputs, *(output for node in graph for output in node.outputs)):
            if value.dtype == narrow:
                value.type = ir.TensorType(wide)
    for node in nodes(model):
        for name, attribute in list(node.attributes.items()):
            if attribute.type == ir.AttributeType.TENSOR and attribute.value.dtype == narrow:
                node.attributes[name] = ir.AttrTensor(name, _wide_tensor(attribute.value))
            elif name in ("to", "dtype") and attribute.value == narrow:
                node.attributes[name] = ir.AttrInt64(name, int(wide))
    return model


def _wide_tensor(tensor: Any) -> ir.LazyTensor:
    return ir.LazyTensor(
        lambda: ir.Tensor(tensor.numpy().astype(np.float32), name=tensor.name),
        dtype=ir.DataType.FLOAT,
        shape=tensor.shape,
        name=tensor.name,
    )
