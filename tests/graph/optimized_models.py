"""Graphs before an optimizer and after it, with module paths as torch's exporter writes them."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir

from profiler.graph.model import path_of, write_path

__all__ = ["TINY", "model_of", "node", "paths_by_type", "value"]

TINY = Path(__file__).parents[2] / "profiler" / "pipelines" / "tiny" / "tiny-sd3"


def value(name: str, *dims: int | str) -> ir.Value:
    """A float32 value."""
    return ir.Value(name=name, shape=ir.Shape(dims), type=ir.TensorType(ir.DataType.FLOAT))


def node(
    op_type: str, inputs: list[ir.Value], out: str, path: str | None = None, domain: str = ""
) -> ir.Node:
    """A node named `n_<out>` that writes `out`, in the module `path` of a model `Net`; without
    metadata where `path` is None."""
    made = ir.node(op_type, inputs, domain=domain, name=f"n_{out}")
    made.outputs[0].name = out
    if path is not None:
        parts = path.split(".") if path else []
        scopes = [("", "pkg.Net")]
        scopes += [(".".join(parts[: n + 1]), f"pkg.{part}") for n, part in enumerate(parts)]
        write_path(made, scopes)
    return made


def model_of(inputs: list[ir.Value], nodes: list[ir.Node]) -> ir.Model:
    """A model whose output is that of the last node."""
    graph = ir.Graph(inputs, nodes[-1].outputs[:1], nodes=nodes, opset_imports={"": 18}, name="g")
    return ir.Model(graph, ir_version=10)


def paths_by_type(model: ir.Model) -> dict[str, list[str]]:
    """The module paths of the nodes of each type, in the graph's order."""
    found: dict[str, list[str]] = {}
    for one in model.graph.all_nodes():
        found.setdefault(one.op_type, []).append(path_of(one))
    return found
