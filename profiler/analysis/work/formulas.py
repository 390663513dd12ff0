"""How much work: FLOPs and bytes of an operation, from op type, shapes and types.

    work_of("aten::mm", parse_shapes("in: bfloat16[2,2048] bfloat16[2048,2432]")).flops

Formulas are registered by operation type in the modules of this package; what none knows is
unknown and counted, never zero.
"""

from __future__ import annotations

from msgspec.structs import replace

from profiler.analysis.work import (
    attention,
    convolution,
    elementwise,
    kernels,
    matmul,
    movement,
    normalization,
)
from profiler.analysis.work.registry import DoesNotFit, Operation, Work, formula_of
from profiler.analysis.work.shapes import Shapes

__all__ = ["work_of"]

_REGISTERED = (attention, convolution, elementwise, kernels, matmul, movement, normalization)


def work_of(op_type: str | None, shapes: Shapes | None) -> Work | None:
    """The work of an operation; None where no formula is registered or its shapes do not fit."""
    found = formula_of(op_type) if op_type else None
    if found is None or op_type is None:
        return None
    op = (
        Operation(op_type, shapes.inputs, shapes.outputs, shapes.causal)
        if shapes
        else Operation(op_type, (), None)
    )
    try:
        work = found(op)
    except (DoesNotFit, IndexError, ZeroDivisionError):
        return None
    return replace(work, part=shapes.part, parts=shapes.parts) if shapes else work
