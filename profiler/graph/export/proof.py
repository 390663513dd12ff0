"""A graph in its file against its torch module on random inputs.

float32 and float16 are compared as they are; torch's float16 kernels of the CPU are slow, so that
Linear and Conv compute in float32 there, from float16 to float16, as ONNX Runtime does. bfloat16
has hardly any kernels on ONNX Runtime's CPU provider: both sides are compared in float32 with
weights of bfloat16. That proves the graph, not its rounding; constants of the graph are rounded,
and so the tolerance is that of bfloat16.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from profiler.errors import InputError, OutputError
from profiler.graph.export.part_graph import PartGraph, Trial
from profiler.graph.model_file import read_model
from profiler.graph.output_file import save_model
from profiler.graph.values import nodes
from profiler.graph.verification import (
    TOLERANCES,
    OutputDifference,
    compare_outputs,
    run_model,
)

__all__ = ["Expected", "check_outputs", "expected_outputs", "float32_image"]

Expected = tuple[Trial, dict[str, Any], dict[str, Any]]
"""Sizes, inputs and outputs by name, as arrays."""


def expected_outputs(graph: PartGraph, seed: int, *, widen: bool) -> list[Expected]:
    """What torch computes for each of the graph's trials; `widen` makes the module float32."""
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
    """Within the block Linear and Conv of float16 compute in float32, and give float16."""
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
    """How far the model's outputs are from the expected ones, the largest of each over all trials.

    Raises OutputError where one differs by more than its tolerance, or nothing is proven.
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
                found = replace(found, tolerance=tolerance)
            _refuse(found, sizes, what)
            if found.output not in worst or found.relative > worst[found.output].relative:
                worst[found.output] = found
    return list(worst.values())


def _run(path: Path, inputs: Mapping[str, Any], what: str) -> dict[str, Any]:
    """The outputs of the model. Raises InputError where ONNX Runtime does not run it."""
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
    """`model` with float32 in the place of bfloat16, in place: same graph, same weights."""
    narrow, wide = ir.DataType.BFLOAT16, ir.DataType.FLOAT
    for graph in model.graphs():
        for value in graph.initializers.values():
            if value.const_value is not None and value.dtype == narrow:
                value.const_value = _wide_tensor(value.const_value)
                value.type = ir.TensorType(wide)
        for value in (*graph.inputs, *_written(graph)):
            if value.dtype == narrow:
                value.type = ir.TensorType(wide)
    for node in nodes(model):
        for name, attribute in list(node.attributes.items()):
            if attribute.type == ir.AttributeType.TENSOR and attribute.value.dtype == narrow:
                node.attributes[name] = ir.AttrTensor(name, _wide_tensor(attribute.value))
            elif name in ("to", "dtype") and attribute.value == narrow:
                node.attributes[name] = ir.AttrInt64(name, int(wide))
    return model


def _written(graph: ir.Graph) -> Sequence[ir.Value]:
    return [output for node in graph for output in node.outputs]


def _wide_tensor(tensor: Any) -> ir.LazyTensor:
    return ir.LazyTensor(
        lambda: ir.Tensor(tensor.numpy().astype(np.float32), name=tensor.name),
        dtype=ir.DataType.FLOAT,
        shape=tensor.shape,
        name=tensor.name,
    )
