"""Roles by the names of kernels: those that torch.compile wrote, and those of libraries."""

from __future__ import annotations

from profiler.analysis.roles.evidence import Decision, Evidence
from profiler.analysis.roles.kernels import FusedKernel, kernel_operation
from profiler.analysis.roles.norms import fused_norm
from profiler.analysis.roles.operations import Sort
from profiler.analysis.roles.tensors import only_vectors, projection_of

__all__ = ["of_fused", "of_kernel"]

_BY_SORT = {  # in the order in which a fused kernel is asked
    Sort.ATTENTION: "attention",
    Sort.CONVOLUTION: "convolution",
    Sort.RESAMPLE: "resample",
    Sort.EMBEDDING: "embedding",
    Sort.ROPE: "rope",
}
_LIBRARY = _BY_SORT | {
    Sort.LAYOUT: "data_movement",
    Sort.NORM: "norm",
    Sort.ACTIVATION: "mlp",
}


def of_fused(found: Evidence, fused: FusedKernel) -> Decision:
    """A kernel that torch.compile wrote: by the rarest of the operations in it. A norm keeps the
    residual, gate and modulation that were fused with it."""
    words = fused.words
    if Sort.NORM in fused.sorts or (words & {"rsqrt", "sqrt"} and "mean" in words):
        return Decision("norm", "kernel", fused_norm(found, fused))
    role = next((role for sort, role in _BY_SORT.items() if sort in fused.sorts), "")
    if not role and Sort.ACTIVATION in fused.sorts:
        role = _of_activation(found, words)
    role = role or _of_arithmetic(fused)
    return Decision(role, "kernel") if role else Decision("other", "")


def _of_arithmetic(fused: FusedKernel) -> str:
    words = fused.words
    if {"cos", "sin"} <= words:
        return "embedding" if words & {"arange", "exp"} else "rope"
    if words & {"view_as_complex", "neg"}:
        return "rope"
    if fused.sorts <= {Sort.LAYOUT, Sort.IDENTITY}:
        return "data_movement"
    if "mul" in words:
        return "modulation"
    return "residual" if "add" in words else ""


def _of_activation(found: Evidence, words: frozenset[str]) -> str:
    """SiLU of a vector prepares a modulation; other activations stand between products."""
    if "silu" in words and only_vectors(found.shapes):
        return "modulation"
    images = found.shapes is not None and any(len(t.dims) == 4 for t in found.shapes.inputs)
    return "convolution" if images else "mlp"


def of_kernel(found: Evidence) -> Decision | None:
    """A library's kernel, where its name is all that is known."""
    if found.operation.sort is not Sort.UNKNOWN:
        return None
    operation = kernel_operation(found.op_type)
    role = _LIBRARY.get(operation.sort, "")
    if operation.sort is Sort.MATMUL and found.shapes is not None:
        role = projection_of(found.shapes)
    return Decision(role, "kernel", operation.norm_kind) if role else None
