"""Casts that ONNX Runtime inserts where its CPU has no kernel of a type, out of a graph again.

What it writes as its optimized graph is what it would run here: a model in float16 has casts to
float32 around nearly every node. With all of them gone each value has the type that it had.
"""

from __future__ import annotations

import onnx_ir as ir

__all__ = ["remove_inserted_casts"]

_INSERTED = "InsertedPrecisionFreeCast_"


def remove_inserted_casts(model: ir.Model) -> int:
    """Remove them from `model`, in place; returns how many there were."""
    count = 0
    for graph in model.graphs():
        casts = [n for n in graph if n.op_type == "Cast" and (n.name or "").startswith(_INSERTED)]
        for cast in casts:
            _remove(graph, cast)
        if casts:
            for node in graph:
                for output in node.outputs:
                    output.type = output.shape = None  # that was what lies between the casts
        count += len(casts)
    return count


def _remove(graph: ir.Graph | ir.Function, cast: ir.Node) -> None:
    given, written = cast.inputs[0], cast.outputs[0]
    assert given is not None
    name, producer = written.name, given.producer()
    is_output = written.is_graph_output()
    own_name = (given.name or "").startswith(_INSERTED)
    ir.convenience.replace_all_uses_with(written, given, replace_graph_outputs=is_output)
    graph.remove(cast, safe=True)
    if producer is not None and (own_name or is_output) and not (name or "").startswith(_INSERTED):
        given.name = name
