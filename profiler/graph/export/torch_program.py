"""A part as a torch module → `onnx_ir.Model`, by torch's dynamo exporter.

Of the exporter's metadata the module path and class of each node stay; what holds source text or
local paths (`pkg.torch.onnx.stack_trace`) goes. Weights stay torch's until they are written: those
that a Transpose turns are turned one by one then, so that memory holds them once.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx_ir as ir

from profiler.errors import InputError
from profiler.graph.export.floor_division import round_divisions_down
from profiler.graph.export.part_graph import PartGraph
from profiler.graph.values import nodes

__all__ = ["KEPT_METADATA", "export_graph", "quiet_libraries"]

KEPT_METADATA = frozenset(
    {
        "namespace",
        "pkg.onnxscript.rewriter.rule_name",
        "pkg.torch.onnx.class_hierarchy",
        "pkg.torch.onnx.name_scopes",
    }
)
"""Node metadata that stays in exported graphs."""

_LOUD = ("torch", "transformers", "diffusers", "onnxscript", "onnx_ir")
_ADVICE = ("- ", "Failed to", "##", "(Refer")  # what torch says of itself, not of the model


def export_graph(graph: PartGraph, tensors: Mapping[str, Any], opset: int, name: str) -> ir.Model:
    """The part as a graph of `opset`, traced with `tensors`; the module is as it was after it.

    Raises InputError where torch cannot export it.
    """
    import torch

    graph.module.forward = graph.forward
    try:
        with torch.no_grad(), quiet_libraries():
            program = torch.onnx.export(
                graph.module,
                kwargs=dict(tensors),
                input_names=list(graph.inputs),
                output_names=list(graph.outputs),
                dynamic_shapes=graph.free_axes(),
                opset_version=opset,
                dynamo=True,
                optimize=False,
                verbose=False,
            )
            assert program is not None
            _turn_weights(program.model)
            program.optimize()
    except Exception as error:  # torch.export raises of every kind
        raise InputError(
            f"torch cannot export {name} with opset {opset} ({_reason(error)}): choose another "
            "opset, or leave it out with --parts"
        ) from error
    finally:
        del graph.module.forward
    model: ir.Model = program.model
    _check_opset(model, opset, name)
    round_divisions_down(model)
    _plain_transposes(model)
    _clean(model)
    return model


@contextmanager
def quiet_libraries() -> Iterator[None]:
    """Without what torch, transformers and diffusers warn of: the caller cannot act on it."""
    loggers = [logging.getLogger(name) for name in _LOUD]
    loggers += [
        logger
        for name, logger in logging.root.manager.loggerDict.items()
        if isinstance(logger, logging.Logger) and name.startswith(tuple(f"{n}." for n in _LOUD))
    ]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), _no_progress_bars():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


@contextmanager
def _no_progress_bars() -> Iterator[None]:
    """Without the bars of libraries that are imported already."""
    bars = [
        sys.modules[f"{name}.utils.logging"]
        for name in ("transformers", "diffusers")
        if f"{name}.utils.logging" in sys.modules
    ]
    shown = [bar for bar in bars if bar.is_progress_bar_enabled()]
    for bar in shown:
        bar.disable_progress_bar()
    try:
        yield
    finally:
        for bar in shown:
            bar.enable_progress_bar()


def _turn_weights(model: ir.Model) -> None:
    """Put weights that are only read through a Transpose into the graph as they are read."""
    for node in list(model.graph):
        source = node.inputs[0] if node.op_type == "Transpose" and not node.domain else None
        tensor = None if source is None else source.const_value
        if source is None or tensor is None or len(source.uses()) != 1 or source.is_graph_input():
            continue
        order = node.attributes["perm"].as_ints() if "perm" in node.attributes else None
        axes = tuple(order or reversed(range(len(tensor.shape))))
        turned = _turned(tensor, axes)
        value = ir.Value(
            name=f"{source.name}_transposed",
            type=ir.TensorType(tensor.dtype),
            shape=turned.shape,
            const_value=turned,
        )
        turned.name = value.name
        node.outputs[0].replace_all_uses_with(value, replace_graph_outputs=True)
        model.graph.remove(node, safe=True)
        del model.graph.initializers[source.name or ""]
        model.graph.register_initializer(value)


def _turned(tensor: Any, axes: tuple[int, ...]) -> ir.LazyTensor:
    """`tensor` with its axes in another order, made each time that it is read."""

    def made() -> ir.Tensor[Any]:
        array = np.ascontiguousarray(tensor.numpy().transpose(axes))
        return ir.Tensor(array, dtype=tensor.dtype, name=tensor.name)

    shape = ir.Shape([tensor.shape[axis] for axis in axes])
    return ir.LazyTensor(made, dtype=tensor.dtype, shape=shape, name=tensor.name)


def _plain_transposes(model: ir.Model) -> None:
    """Write an Einsum that only orders axes as a Transpose: few compilers take Einsum, and ONNX has
    none of bfloat16."""
    for node in nodes(model):
        if node.op_type != "Einsum" or node.domain or len(node.inputs) != 1:
            continue
        before, _, after = node.attributes["equation"].as_string().replace(" ", "").partition("->")
        if before.isalpha() and len(set(before)) == len(before) and sorted(before) == sorted(after):
            node.op_type = "Transpose"
            node.attributes.clear()
            node.attributes["perm"] = ir.AttrInt64s("perm", [before.index(axis) for axis in after])


def _check_opset(model: ir.Model, opset: int, name: str) -> None:
    found = model.opset_imports.get("")
    if found != opset:
        raise InputError(f"torch gives {name} in opset {found}, not {opset}: give --opset {found}")
    other = sorted(domain for domain in model.opset_imports if domain)
    if other:
        raise InputError(
            f"torch gives {name} with operators of {', '.join(other)}, which are not ONNX's: "
            "choose another opset, or leave it out with --parts"
        )


def _clean(model: ir.Model) -> None:
    """Remove metadata that is not in `KEPT_METADATA`, wherever the format allows any."""
    for node in nodes(model):
        kept = {key: node.metadata_props[key] for key in KEPT_METADATA & node.metadata_props.keys()}
        node.metadata_props.clear()
        node.metadata_props.update(sorted(kept.items()))
        node.doc_string = None
        for output in node.outputs:
            output.metadata_props.clear()
    graph = model.graph
    for value in (*graph.inputs, *graph.initializers.values()):
        value.metadata_props.clear()
        value.doc_string = None
    for owner in (graph, model):
        owner.metadata_props.clear()
        owner.doc_string = None


def _reason(error: BaseException) -> str:
    """The first line of what went wrong at the bottom, without torch's advice."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines()]
    said = next((line for line in lines if line and not line.startswith(_ADVICE)), "")
    return (said or type(error).__name__)[:300]
