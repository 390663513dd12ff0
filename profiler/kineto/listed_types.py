"""The type of the tensors of a list, which torch's events do not have: from the kernel that copied
them.

    listed_type("void at::native::(…)::CatArrayBatchedCopy<at::native::(…)::OpaqueType<2u>, …")
    → "bits16"

`cat` copies what has the same type without asking which: of its kernel the width alone is known,
and the type is torch's of bits (`torch.bits16`). Older kernels name the type, and so does a copy an
input, by an elementwise kernel that converts nothing. Source: `Shape.cu` and `Copy.cu` of torch's
`aten/src/ATen/native/cuda`.
"""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["is_list_copy", "listed_type"]

_OPERATORS = frozenset(("aten::cat", "aten::_cat", "aten::concat", "aten::stack"))
_OPAQUE = re.compile(r"OpaqueType<(\d{1,2})u?>")
_TYPED = re.compile(r"CatArrayBatchedCopy\w{0,40}<([A-Za-z][\w:]*), ")
_COPY = "direct_copy_kernel_cuda("
_NAMED = re.compile(r"\{lambda\(([A-Za-z][\w:<>]*)\)#1\}")
_CONVERTS = ("gpu_kernel_impl<", "WithCast")
_LONGEST = 1 << 14  # characters of a name


def is_list_copy(operator: str) -> bool:
    """Whether an operator's kernel copies the tensors of a list as they are."""
    return operator in _OPERATORS


@lru_cache(maxsize=1 << 10)
def listed_type(kernel: str) -> str:
    """`bits16`, or `BFloat16` where the name of the kernel says so; "" where it does not."""
    if len(kernel) > _LONGEST:
        return ""
    opaque = _OPAQUE.search(kernel) if "CatArray" in kernel else None
    if opaque is not None:
        return f"bits{8 * int(opaque[1])}"
    typed = _TYPED.search(kernel)
    if typed is not None:
        return typed[1].removeprefix("c10::")
    _, copies, rest = kernel.partition(_COPY)
    if not copies or any(word in kernel for word in _CONVERTS):
        return ""
    named = _NAMED.search(rest)
    return named[1].removeprefix("c10::") if named else ""
