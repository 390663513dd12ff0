"""Nodes that are no use of their operator: inputs, outputs or attributes that it does not have."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
import onnx_ir as ir

from profiler.graph.checks.finding import CheckedModel, GraphFinding, opset, place, rule
from profiler.graph.values import nodes

__all__ = ["invalid_node"]

_TYPES = frozenset(entry.value for entry in ir.DataType if entry != ir.DataType.UNDEFINED)


@rule
def invalid_node(checked: CheckedModel) -> Iterator[GraphFinding]:
    """A node has fewer or more inputs or outputs than its operator, or lacks an attribute."""
    version = opset(checked.model)
    for node in nodes(checked.model):
        wrong = _wrong(node, version)
        if wrong:
            yield GraphFinding(
                "invalid_node",
                "error",
                place(node),
                f"{node.op_type} of opset {version} {wrong}",
                "export the model again; other rules are looked at once this is repaired",
            )


def _wrong(node: ir.Node, version: int) -> str:
    """What is wrong with a node of ONNX, "" where nothing is, or it has no schema."""
    version = max(version, 1)
    if node.domain or not onnx.defs.has(node.op_type, max_inclusive_version=version):
        return ""
    schema = onnx.defs.get_schema(node.op_type, max_inclusive_version=version)
    inputs, outputs = len(node.inputs), len(node.outputs)
    if not schema.min_input <= inputs <= schema.max_input:
        return f"takes {schema.min_input} to {schema.max_input} inputs, not {inputs}"
    if not schema.min_output <= outputs <= schema.max_output:
        return f"gives {schema.min_output} to {schema.max_output} outputs, not {outputs}"
    wrong = (_wrong_attribute(node, *entry) for entry in schema.attributes.items())
    return next(filter(None, wrong), "")


def _wrong_attribute(node: ir.Node, name: str, attribute: onnx.defs.OpSchema.Attribute) -> str:
    given = node.attributes.get(name)
    if given is not None and given.is_ref():
        return ""
    if given is None:
        return f"lacks its attribute {name!r}" if attribute.required else ""
    if given.type.value != int(attribute.type.value):
        return f"has a {given.type.name} as its attribute {name!r}"
    if name == "to" and given.value not in _TYPES:
        return f"has the unknown type {given.value} as its attribute 'to'"
    return ""
