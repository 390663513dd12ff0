"""The parts of a kernel's name: the function, and the template arguments that say what it is of.

    void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, …>(int, …)
         function                                  arguments
    _ZN7ck_tile6kentryILi2ENS_38FmhaBatchPrefillWithPagedKVCacheKernelI…

C++ names come demangled or as the compiler wrote them (Itanium ABI, section 5.1); names of other
languages are a function without arguments. Names may have been cut.
"""

from __future__ import annotations

import re

from msgspec import Struct

__all__ = ["KernelName", "parse_kernel"]

_NESTED = re.compile(r"_ZN?K?(?=\d)")
_LENGTH = re.compile(r"\d+")
_SUFFIX = re.compile(r"\s*\[clone [^\]]*\]$|\.kd$|…$")
_ANONYMOUS = "(anonymous namespace)::"
_NO_CODE = re.compile(r"Mem(cpy|set)\b")  # what runtimes do themselves, in words


class KernelName(Struct, frozen=True):
    """`function` with its namespaces, without return type; `arguments` of its template and its
    call as they stand in the name, "" where it has none."""

    function: str
    arguments: str = ""


def parse_kernel(name: str) -> KernelName:
    """Function and arguments of a kernel by its name, whole or cut."""
    text = _SUFFIX.sub("", name.strip()).replace(_ANONYMOUS, "")
    if text.startswith("_Z"):
        return _mangled(text)
    if _NO_CODE.match(text):
        return KernelName(text)
    depth, begin, end = 0, 0, len(text)
    for at, character in enumerate(text):
        if character == "<":
            if depth == 0:
                end = min(end, at)
            depth += 1
        elif character == ">":
            depth = max(depth - 1, 0)
        elif depth == 0 and character == " ":  # what stood before is the type that it returns
            begin, end = at + 1, len(text)
        elif depth == 0 and character == "(" and at > begin:
            end = min(end, at)
            break
    return KernelName(text[begin:end], text[end:])


def _mangled(text: str) -> KernelName:
    """`_ZN5aiter24add_rmsnorm_quant_kernelIDF16b…` → `aiter::add_rmsnorm_quant_kernel`: names
    with their lengths, until template arguments (I) or the end (E) come."""
    opening = _NESTED.match(text)
    if opening is None:
        return KernelName(text)
    at = opening.end()
    parts: list[str] = []
    while (length := _LENGTH.match(text, at)) is not None:
        at = length.end() + int(length[0])
        parts.append(text[length.end() : at])
    return KernelName("::".join(parts), text[at:])
