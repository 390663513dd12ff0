"""What a shape is called: `mm 8192×2432×9728 bf16`, `attention B2 H38 S4429 D64 bf16`.

A matrix product is M×K×N, with its batch before where each of the batch has matrices of its own.
Attention tells batch, heads, sequence and width, whatever order its operator takes them in; a
second number is that of keys and values where it differs, and `causal` a mask that is known. A
convolution is its input, then the channels and the kernel of its result. All others are the dims of
their different inputs.
"""

from __future__ import annotations

from profiler.analysis.work.attention import heads_first, sequence_first
from profiler.analysis.work.registry import Family, Work, formula_of
from profiler.analysis.work.shapes import Shapes, Tensor

__all__ = ["dtype_of", "label_of", "short_type", "untyped_label"]

_SHOWN = 3  # inputs of an operator that no other rule names
_SHORT = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "float32": "fp32",
    "float64": "fp64",
    "complex64": "c64",
    "complex128": "c128",
}
_MEMBERS = ("tensor", "bits")  # types of tensors of a list, which nobody tells


def dtype_of(shapes: Shapes | None, work: Work | None) -> str | None:
    """The type of the arithmetic, else of the first input; None where not known."""
    known = [work.dtype] if work else [tensor.dtype for tensor in shapes.inputs] if shapes else []
    return next((dtype for dtype in known if not dtype.startswith(_MEMBERS)), None)


def label_of(op_type: str, shapes: Shapes | None, work: Work | None) -> str:
    """What an operation of that type and these shapes is called."""
    words = untyped_label(op_type, shapes, work)
    return " ".join(filter(None, (words, short_type(dtype_of(shapes, work)))))


def untyped_label(op_type: str, shapes: Shapes | None, work: Work | None) -> str:
    """The same without the type of its arithmetic."""
    named = {Family.MATMUL: _product, Family.ATTENTION: _attention, Family.CONVOLUTION: _conv}
    special = named.get(work.family) if work else None
    words = special(op_type, shapes, work) if special and shapes and work else None
    if words is None:
        words = (op_type.removeprefix("aten::"), _inputs(shapes))
    causal = "causal" if shapes and shapes.causal else ""
    return " ".join(filter(None, (*words, causal)))


def _product(op_type: str, shapes: Shapes, work: Work) -> tuple[str, ...] | None:
    """`mm M×K×N`, from what it computes: 2·M·K·N operations for a result `[…,M,N]`."""
    out = work.writes[0] if work.writes else None
    if out is None or not out.size or not work.flops:
        return None
    columns = out.dims[-1] if out.dims else 1
    rows = out.size // max(columns, 1)
    batched = sum(len(tensor.dims) > 2 for tensor in shapes.inputs[-2:]) > 1
    batch = rows // out.dims[-2] if batched and len(out.dims) > 2 and out.dims[-2] else 1
    depth = work.flops // (2 * out.size)
    sizes = (batch, rows // batch, depth, columns) if batch > 1 else (rows, depth, columns)
    return op_type.removeprefix("aten::"), _times(sizes)


def _attention(op_type: str, shapes: Shapes, _work: Work) -> tuple[str, ...] | None:
    """`attention B H S D` of torch's operators, whose formulas know their order."""
    found = formula_of(op_type)
    if found not in (heads_first, sequence_first) or len(shapes.inputs) < 2:
        return None
    (q, k), swapped = shapes.inputs[:2], found is sequence_first
    if len(q.dims) != 4 or len(k.dims) != 4:
        return None
    heads, sequence = (2, 1) if swapped else (1, 2)
    both = (("H", heads), ("S", sequence))
    sizes = (f"{letter}{_pair(q.dims[at], k.dims[at])}" for letter, at in both)
    return "attention", f"B{q.dims[0]}", *sizes, f"D{q.dims[3]}"


def _pair(of_queries: int, of_keys: int) -> str:
    return f"{of_queries}" if of_queries == of_keys else f"{of_queries}/{of_keys}"


def _conv(op_type: str, shapes: Shapes, work: Work) -> tuple[str, ...] | None:
    """`conv 1×128×1024×1024 → 128 3×3`."""
    x, weight = shapes.inputs[:2]
    channels = work.writes[0].dims[1:2] if work.writes else ()
    if not channels:
        return None
    name = "conv transposed" if "transpose" in op_type.lower() else "conv"
    return name, _times(x.dims), "→", str(channels[0]), _times(weight.dims[2:])


def _inputs(shapes: Shapes | None) -> str:
    """The dims of different inputs, in their order; those of one element are left out."""
    tensors = [tensor for tensor in shapes.inputs if tensor.dims] if shapes else []
    larger: list[Tensor] = [tensor for tensor in tensors if tensor.size != 1] or tensors
    texts = list(dict.fromkeys(_times(tensor.dims) for tensor in larger))
    more = ", …" if len(texts) > _SHOWN else ""
    return ", ".join(texts[:_SHOWN]) + more


def _times(sizes: tuple[int, ...]) -> str:
    return "×".join(map(str, sizes))


def short_type(dtype: str | None) -> str:
    """`bf16`, `fp32`, `i8`; the type itself where it has no short name."""
    if not dtype:
        return ""
    if dtype.startswith("float8"):
        return "fp8"
    whole = dtype.removeprefix("uint").removeprefix("int")
    if whole.isdecimal():
        return f"{'u' if dtype.startswith('u') else 'i'}{whole}"
    return _SHORT.get(dtype, dtype)
