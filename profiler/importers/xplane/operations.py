"""What the name and the statistics of an XLA operation say: its module, tensors, work, category.

Source of the statistics: openxla/xla, xla/tsl/profiler/utils/xplane_schema.h.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from profiler.events import UNKNOWN, Category
from profiler.importers.xplane.space import Event
from profiler.kineto.names import queue

__all__ = ["Operation", "on_gpu", "on_tpu"]

_TYPES = {  # name → as `shapes` has it, bits
    "f64": ("double", 64),
    "f32": ("float", 32),
    "f16": ("half", 16),
    "bf16": ("bfloat16", 16),
    "s64": ("int64", 64),
    "s32": ("int32", 32),
    "s16": ("int16", 16),
    "s8": ("int8", 8),
    "u64": ("uint64", 64),
    "u32": ("uint32", 32),
    "u16": ("uint16", 16),
    "u8": ("uint8", 8),
    "s4": ("int4", 4),
    "u4": ("uint4", 4),
    "pred": ("bool", 8),
    "f8e4m3fn": ("float8e4m3fn", 8),
    "f8e5m2": ("float8e5m2", 8),
    "c64": ("complex64", 64),
    "c128": ("complex128", 128),
}
_TENSOR = re.compile(r"\b([a-z]+\d*[a-z\d]*)\[([\d,]*)\]")
_HLO = re.compile(r"%?\S+ = (.*)", re.DOTALL)
_OPCODE = re.compile(r"(?<=[\s)}\]])[a-z][\w-]*\(")
_WRAPPER = re.compile(r"^(?:\w+\()+|\)+$")
_FUNCTIONS = re.compile(
    r"^(?:p?jit|xla_call|pmap|shard_map)\(|^(?:while|body|cond|branch_\d+_fun)$"
)
_COLLECTIVES = (
    *("all-reduce", "all-gather", "all-to-all", "reduce-scatter", "collective-permute"),
    *("collective-broadcast", "send", "recv", "ragged-all-to-all"),
)
_CONTAINERS = frozenset({"while", "conditional", "call"})
_SIZE = re.compile(r"\bsize:(\d+)")
_LINE_KIND = re.compile(r"\((Memcpy|Memset)(\w*)\)")
_KERNEL_DESCRIPTOR = ".kd"  # of the code object of an AMD GPU
_LARGEST = 1 << 60
_LONGEST_HLO = 1 << 14
_DIGITS = 18


@dataclass(frozen=True, slots=True)
class Operation:
    """What a command is called and does; `suffix` is what follows the name of its line in that of
    its track. `contains` is whether it only holds others of its line."""

    layer: str
    op_type: str
    module: str
    kernel: str
    category: Category
    suffix: str
    shapes: str = ""
    flops: int = UNKNOWN
    bytes_read: int = UNKNOWN
    bytes_written: int = UNKNOWN
    contains: bool = False


def on_tpu(event: Event) -> Operation:
    """An event of `XLA Ops`: `copy-done` and its like wait for what another operation started."""
    stats = event.stats
    return _tpu_operation(
        event.name,
        event.text,
        str(stats.get("hlo_category", "")),
        str(stats.get("tf_op", "")),
        _count(stats.get("flops")),
        _count(stats.get("bytes_accessed")),
    )


@lru_cache(maxsize=4096)
def _tpu_operation(name: str, text: str, told: str, path: str, flops: int, moved: int) -> Operation:
    module, op = _path(path)
    category, suffix = _category(told or name)
    layer, op_type = name or told or "operation", op or told or name
    if category == "sync" or told == "copy-start":  # what that begins moves behind it
        return Operation(layer, op_type, module, "", category, suffix)
    shapes, result = _shapes(text)
    written = result if 0 <= result <= moved else UNKNOWN
    return Operation(
        layer,
        op_type,
        module,
        "",
        category,
        suffix,
        shapes=shapes,
        flops=flops,
        bytes_read=moved - written if written >= 0 else moved,
        bytes_written=written,
        contains=told in _CONTAINERS,
    )


def on_gpu(event: Event, line: str) -> Operation:
    """An event of a stream: a kernel, under the operation that launched it, or a copy."""
    kernel = event.name.removesuffix(_KERNEL_DESCRIPTOR)
    module, op = _path(str(event.stats.get("tf_op", "")))
    copied = _LINE_KIND.search(line)
    size = _SIZE.search(str(event.stats.get("memcpy_details", "")))
    moved = _count(int(size[1][:18])) if size else UNKNOWN
    if copied or event.stats.get("memcpy_details") or kernel.startswith(("Memcpy", "Memset")):
        kind = "gpu_memset" if "emset" in (copied[1] if copied else kernel) else "gpu_memcpy"
        ends = copied[2].replace("2", "to") if copied else kernel.rpartition(" ")[2]
        suffix, category = queue(kind, f"Memcpy {ends.replace('2', 'to')}")
        return Operation(
            kernel, kernel, module, kernel, category, suffix, bytes_read=moved, bytes_written=moved
        )
    suffix, category = queue("kernel", kernel)
    layer = str(event.stats.get("hlo_op", "")) or kernel
    op_type = op or (_opcode_of(layer) if layer != kernel else kernel)
    return Operation(layer, op_type, module, kernel, category, suffix)


def _opcode_of(layer: str) -> str:
    """`input_transpose_fusion` of `input_transpose_fusion.1`."""
    return re.sub(r"[._]\d+$", "", layer)


def _path(tf_op: str) -> tuple[str, str]:
    """The module and the operation of a path such as `jit(f)/jit(main)/Encoder/layers_0/dot:`: what
    is between the functions that were compiled and the primitive."""
    if "/" not in tf_op:
        return "", ""
    *parts, op = tf_op.rstrip(":").partition(":")[0].split("/")
    named = [part for part in parts if part and not _FUNCTIONS.match(part)]
    modules = [_WRAPPER.sub("", part) for part in named]
    return ".".join(filter(None, modules)), op


def _category(told: str) -> tuple[Category, str]:
    if told.endswith("-done"):
        return "sync", " sync"
    kind = told.removesuffix("-start").removesuffix(" fusion")
    if kind.startswith(_COLLECTIVES):
        return "collective", " collectives"
    if kind in ("infeed", "outfeed", "host-send", "host-recv"):
        return "dma", " memcpy"
    if told == "copy-start":
        return "other", ""
    if kind == "copy":
        return "copy", " copy"
    return "compute", ""


def _shapes(hlo: str) -> tuple[str, int]:
    """Operands and results of an instruction, as `shapes` has them, and bytes of the results; ""
    and `UNKNOWN` where a type is not known."""
    found = _HLO.match(hlo[:_LONGEST_HLO])
    opcode = _OPCODE.search(found[1]) if found is not None else None
    if found is None or opcode is None:
        return "", UNKNOWN
    results = _TENSOR.findall(found[1][: opcode.start()])
    operands = _TENSOR.findall(_within(found[1][opcode.end() :]))
    if not results or not operands or not {name for name, _ in results + operands} <= set(_TYPES):
        return "", UNKNOWN
    return f"{_texts(operands)} -> {_texts(results)}", sum(map(_bytes, results))


def _texts(tensors: Sequence[tuple[str, str]]) -> str:
    return " ".join(f"{_TYPES[name][0]}[{dims}]" for name, dims in tensors)


def _bytes(tensor: tuple[str, str]) -> int:
    name, dims = tensor
    size = prod(int(dim[:_DIGITS]) for dim in dims.split(",") if dim)
    return size * _TYPES[name][1] // 8


def _within(text: str) -> str:
    """Up to the parenthesis that closes."""
    depth = 0
    for at, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth < 0:
            return text[:at]
    return text


def _count(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value < _LARGEST else UNKNOWN
