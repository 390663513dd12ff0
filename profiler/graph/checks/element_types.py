"""Types that accelerators lack or compute slowly: int64 and float64 where tensors are computed."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from profiler.graph.checks.finding import CheckedModel, GraphFinding, place, rule
from profiler.graph.values import Kind, kinds, nodes

__all__ = ["float64_tensor", "int64_compute"]

_ARITHMETIC = {
    *("Add", "Sub", "Mul", "Div", "Mod", "Pow", "Abs", "Neg", "Sign", "Max", "Min", "Sum", "Mean"),
    *(
        "MatMul",
        "Gemm",
        "CumSum",
        "ReduceSum",
        "ReduceMax",
        "ReduceMin",
        "ReduceProd",
        "ReduceMean",
    ),
}
_WIDE = (ir.DataType.DOUBLE, ir.DataType.COMPLEX128)


@rule
def int64_compute(checked: CheckedModel) -> Iterator[GraphFinding]:
    """Arithmetic in int64 on data, and inputs of int64; sizes and shapes are int64 by ONNX."""
    found = kinds(checked.model)
    for node in checked.model.graph:
        computes = node.op_type in _ARITHMETIC and not node.domain
        if computes and any(
            output.dtype == ir.DataType.INT64 and found[output] is Kind.DATA
            for output in node.outputs
        ):
            yield GraphFinding(
                "int64_compute",
                "warning",
                place(node),
                f"{node.op_type} computes in int64, which accelerators emulate or refuse",
                "cast to int32 before it where the values allow it",
            )
    for value in checked.model.graph.inputs:
        if value.dtype == ir.DataType.INT64 and value.name not in checked.model.graph.initializers:
            yield GraphFinding(
                "int64_compute",
                "note",
                value.name or "",
                "the input is int64, which some compilers take only as int32",
                "export it with an int32 input where the compiler asks for that",
            )


@rule
def float64_tensor(checked: CheckedModel) -> Iterator[GraphFinding]:
    """A float64 left-over: a node, an input or an initializer in double precision."""
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


def _float64(name: str, evidence: str) -> GraphFinding:
    recommendation = (
        "compute in float32: a Python number or numpy array of the module brought float64 in"
    )
    return GraphFinding("float64_tensor", "warning", name, evidence, recommendation)
