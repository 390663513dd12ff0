"""Operator sets and operators: what a named target takes, and what nobody defines."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
import onnx_ir as ir

from profiler.graph.checks.finding import CheckedModel, GraphFinding, opset, place, rule
from profiler.graph.values import nodes
from profiler.onnx_targets import find_target

__all__ = ["unknown_operator", "unsupported_opset"]

_RUNTIME_DOMAINS = ("com.microsoft", "ai.onnx.contrib", "com.ms.internal")


@rule
def unsupported_opset(checked: CheckedModel) -> Iterator[GraphFinding]:
    """The model says no opset, or one that there is not; with a target: it does not take the
    model's opset, or a domain of its operators."""
    version = opset(checked.model)
    latest = onnx.defs.onnx_opset_version()
    if not 1 <= version <= latest and any(not node.domain for node in nodes(checked.model)):
        yield GraphFinding(
            "unsupported_opset",
            "error",
            "",
            f"the model is of opset {version}, the latest of ONNX {onnx.__version__} is {latest}"
            if version
            else "the model imports no opset of ONNX, which tells what its operators are",
            f"export it again, with an opset of 1 to {latest}",
        )
    if not checked.target:
        return
    target = find_target(checked.target)
    if not target.lowest <= version <= target.highest:
        nearest = min(max(version, target.lowest), target.highest)
        yield GraphFinding(
            "unsupported_opset",
            "error",
            "",
            f"the model is of opset {version}, {target.title} takes {target.lowest} to "
            f"{target.highest} ({target.source})",
            f"export with opset {nearest}, or convert with onnx.version_converter",
        )
    own = {(function.domain, function.name) for function in checked.model.functions.values()}
    for node in nodes(checked.model):
        foreign = node.domain and not node.domain.startswith(target.domains or ("ai.onnx.ml",))
        if foreign and (node.domain, node.op_type) not in own:
            yield GraphFinding(
                "unsupported_opset",
                "error",
                place(node),
                f"{node.domain}.{node.op_type} is no ONNX operator, and {target.title} takes those",
                "export without it, or without the optimization that put it in",
            )


@rule
def unknown_operator(checked: CheckedModel) -> Iterator[GraphFinding]:
    """An operator that neither ONNX nor the model defines."""
    own = {(function.domain, function.name) for function in checked.model.functions.values()}
    for node in nodes(checked.model):
        if (node.domain, node.op_type) in own or node.domain.startswith(_RUNTIME_DOMAINS):
            continue
        version = checked.model.opset_imports.get(node.domain, 0) or opset(checked.model)
        if not _has(node, version):
            where = f"domain {node.domain!r}" if node.domain else f"opset {version} of ONNX"
            yield GraphFinding(
                "unknown_operator",
                "error",
                place(node),
                f"{node.op_type} of {where} has no schema, and the model no function of that name",
                "export without it, with the opset that has it, or with a function that defines it",
            )


def _has(node: ir.Node, version: int) -> bool:
    return bool(
        onnx.defs.has(node.op_type, domain=node.domain, max_inclusive_version=max(version, 1))
    )
