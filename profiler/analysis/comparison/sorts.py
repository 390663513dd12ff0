"""What commands do, told by their kernels or op types alone: the words in which runs are compared
whose producers know different things about the model."""

from __future__ import annotations

from functools import lru_cache

from profiler.analysis.roles.kernel_rules import role_of_name
from profiler.analysis.roles.operations import Sort, operation_of

__all__ = ["sort_by_kernel", "sort_by_operator"]

_OTHER = "other"
_MOVES = ("dma", "copy")  # categories
_BY_SORT = {
    Sort.MATMUL: "matmul",
    Sort.CONVOLUTION: "convolution",
    Sort.ATTENTION: "attention",
    Sort.NORM: "norm",
    Sort.EMBEDDING: "embedding",
    Sort.RESAMPLE: "resample",
    Sort.ROPE: "rope",
    Sort.ACTIVATION: "elementwise",
    Sort.ARITHMETIC: "elementwise",
    Sort.LAYOUT: "data_movement",
    Sort.REORDER: "data_movement",
    Sort.IDENTITY: "data_movement",
}
_OF_PLACES = {  # roles that a place in the model gives, of kernels that torch.compile fused
    "mlp": "elementwise",
    "modulation": "elementwise",
    "residual": "elementwise",
    "qkv_projection": "matmul",
    "adapter": "matmul",
}


@lru_cache(maxsize=1 << 16)
def sort_by_kernel(kernel: str, category: str) -> str:
    """`matmul`, `elementwise`, …; "" where there is no kernel and the category does not tell."""
    if category == "collective":
        return "collective"
    if category in _MOVES:
        return "data_movement"
    role = role_of_name(kernel) if kernel else ""
    return _OF_PLACES.get(role, role)


@lru_cache(maxsize=1 << 16)
def sort_by_operator(op_type: str, category: str) -> str:
    """The same by the type of the operation, which is the kernel's name where nobody knows it."""
    found = _BY_SORT.get(operation_of(op_type).sort) if op_type else None
    return found or sort_by_kernel(op_type, category) or _OTHER
