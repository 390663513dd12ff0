"""What ONNX Runtime makes of a model: the nodes that it executes, and those they stand for.

    with optimized_graph(path) as optimized:
        nodes = executed_nodes(optimized, layer_of)

ONNX Runtime folds constants, fuses, and inserts nodes of its own, and keeps no metadata. It writes
the graph that it executes in the order in which it executes it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from profiler.errors import InputError, needing
from profiler.graph.model_file import read_graph

__all__ = ["ExecutedNode", "Origins", "executed_nodes", "optimized_graph", "origins_of"]

_CHANNELS_LAST = "_nchwc"  # ONNX Runtime names what has its own layout after the value
_CASTS = ("InsertedPrecisionFreeCast_", "InsertedCast_")  # and what has another precision
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
    """The nodes of the model that an executed node stands for: `counted_at` the one that its time
    is written on, None where it was inserted; `others` what was fused into it."""

    counted_at: ir.Node | None
    others: tuple[ir.Node, ...] = ()


@contextmanager
def optimized_graph(model: Path) -> Iterator[Path]:
    """The graph that ONNX Runtime's CPU provider executes for `model`, as a file that goes with the
    block; its weights are not written. Raises InputError where ONNX Runtime refuses the model."""
    with needing("graph", "profiler.graph", "onnxruntime"):
        import onnxruntime

    with tempfile.TemporaryDirectory(prefix="profile-sd3-") as folder:
        optimized = Path(folder) / "optimized.onnx"
        weights = "weights.bin"
        (Path(folder) / weights).symlink_to("/dev/null")  # nobody reads them
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
    """The nodes of an optimized graph in order of execution, and every value that exists in it.

    `layer_of` gives the layer of a node by its name, of one without by the first value it writes,
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
    """For each executed node the nodes of `model` that it stands for.

    It is known by its name, or by that without what fusions append; else by the values it writes.
    It stands for all that leads to these values from those that exist in the optimized graph
    (`values`), other than nodes that are executed themselves.
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
    """The value that one of ONNX Runtime's holds in another layout or precision."""
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
    """What leads to the outputs of an executed node, back to values that exist without it and to
    nodes that are `taken`."""
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
