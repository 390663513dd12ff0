"""Roles by the names of kernels: those that torch.compile wrote, and those of libraries."""

from __future__ import annotations

from profiler.analysis.roles.evidence import Decision, Evidence
from profiler.analysis.roles.kernels import FusedKernel, fused_kernel
from profiler.analysis.roles.library_kernels import library_kernel
from profiler.analysis.roles.norms import fused_norm
from profiler.analysis.roles.operations import Sort
from profiler.analysis.roles.tensors import of_images, only_vectors, projection_of

__all__ = ["of_fused", "of_kernel", "role_of_name"]

_BY_SORT = {  # in the order in which a fused kernel is asked
    Sort.ATTENTION: "attention",
    Sort.CONVOLUTION: "convolution",
    Sort.RESAMPLE: "resample",
    Sort.EMBEDDING: "embedding",
    Sort.ROPE: "rope",
}
_SAMPLING = frozenset(("argmax", "argmin", "topk", "multinomial", "sort", "exponential"))
_PARTS = frozenset(("split", "split_with_sizes", "chunk", "unbind", "unsqueeze", "select", "slice"))
_SUMS = frozenset(("add",))
_TURNED = frozenset(("mul", "cat", "stack", "neg", "view_as_complex"))


def role_of_name(name: str) -> str:
    """The role of a kernel by its name alone, whole or cut: `matmul` and `elementwise` where the
    name tells what it computes and not for what, `other` where it does not tell."""
    fused = fused_kernel(name)
    if fused is not None:
        return _alone(fused)
    found = library_kernel(name)
    return found.role if found is not None else "other"


def of_fused(found: Evidence, fused: FusedKernel) -> Decision:
    """A kernel that torch.compile wrote: by the rarest of the operations in it. A norm keeps the
    residual, gate and modulation that were fused with it. Shapes tell more than the name."""
    if _is_norm(fused):
        return Decision("norm", "kernel", fused_norm(found, fused))
    if found.shapes is None:
        return Decision(_alone(fused), "kernel")
    role = _by_sort(fused)
    if role == "matmul" and found.attends:
        role = projection_of(found.shapes) or role
    if not role and Sort.ACTIVATION in fused.sorts:
        role = _of_activation(found, fused.words)
    return Decision(role or _of_arithmetic(fused) or "elementwise", "kernel")


def _is_norm(fused: FusedKernel) -> bool:
    words = fused.words
    return Sort.NORM in fused.sorts or bool(words & {"rsqrt", "sqrt"} and "mean" in words)


def _by_sort(fused: FusedKernel) -> str:
    """By an operation that can be nothing else, "" where there is none."""
    role = next((role for sort, role in _BY_SORT.items() if sort in fused.sorts), "")
    if not role and Sort.MATMUL in fused.sorts:  # torch.compile's own product
        return "mlp" if Sort.ACTIVATION in fused.sorts else "matmul"
    return role


def _of_arithmetic(fused: FusedKernel) -> str:
    words = fused.words
    if {"cos", "sin"} <= words and words & {"arange", "exp"}:
        return "embedding"
    if {"cos", "sin"} <= words and words & _TURNED:  # a rotation multiplies, a table is joined
        return "rope"
    if words & {"view_as_complex", "neg"}:
        return "rope"
    if not fused.arithmetic:
        return "data_movement"
    if "mul" in words:
        return "modulation"
    return "residual" if "add" in words and not words & {"cos", "sin"} else ""


def _of_activation(found: Evidence, words: frozenset[str]) -> str:
    """SiLU of a vector prepares a modulation; other activations stand between products."""
    if "silu" in words and only_vectors(found.shapes):
        return "modulation"
    return "convolution" if of_images(found.shapes) else "mlp"


def _alone(fused: FusedKernel) -> str:
    """By the words of the name alone: what several parts of a model have is `elementwise`."""
    if fused.foreach:
        return "optimizer"
    if _is_norm(fused):
        return "norm"
    if fused.words & _SAMPLING:
        return "sampling"
    role = _by_sort(fused)
    if not role and Sort.ACTIVATION in fused.sorts:
        role = _activation_alone(fused)
    elif not role and fused.words and not fused.arithmetic:
        role = "data_movement"
    return role or _arithmetic_alone(fused)


def _activation_alone(fused: FusedKernel) -> str:
    """Beside the product or convolution that it follows, or times a gate; else of no place."""
    if Sort.CONVOLUTION in fused.after:
        return "convolution"
    gated = fused.words & {"silu", "gelu"} and "mul" in fused.words
    return "mlp" if gated or Sort.MATMUL in fused.after else "elementwise"


def _arithmetic_alone(fused: FusedKernel) -> str:
    """Rotary positions turn by cosine and sine, modulation scales and shifts by parts of a
    vector, a residual adds and does nothing else."""
    words, arithmetic = fused.words, fused.arithmetic
    if {"cos", "sin"} <= words and words & {"arange", "exp"}:
        return "embedding"
    turns = {"cos", "sin"} <= words or words & {"view_as_complex", "neg"}
    if turns and "mul" in words:
        return "rope"
    if {"add", "mul"} <= words and words & _PARTS and arithmetic <= {"add", "mul"}:
        return "modulation"
    return "residual" if arithmetic == _SUMS else "elementwise"


def of_kernel(found: Evidence) -> Decision | None:
    """A library's kernel, where its name is all that is known, or what launched it says nothing;
    sizes of a product tell more."""
    if found.operation.sort is not Sort.UNKNOWN:
        return None
    kernel = library_kernel(found.op_type)
    if kernel is None and found.kernel:
        kernel = library_kernel(found.kernel)
    if kernel is None or kernel.role == "other":
        return None
    role = kernel.role
    if role == "matmul" and found.shapes is not None and found.attends:
        role = projection_of(found.shapes) or role
    return Decision(role, "kernel", kernel.norm_kind)
