"""Parse recorded tensor shapes, and register FLOP formulas by operation type.

    float[2,77,64] float[64] -> float[2,77,64]        ONNX Runtime: inputs and outputs
    in: bfloat16[2,16,128,128] bfloat16[2432,16,2,2]  Kineto imports: inputs
    float[1,77,32] int64[]                            torch capture: inputs, with packed weights

A multiply-add counts as two FLOPs; exp, erf, tanh, sqrt and a division as one. Conversions and
integer arithmetic count as none, except in matrix products. Bytes are each input and each
output once, which is the minimum that must be moved. A formula raises `DoesNotFit` if the
shapes are not those of its operation, and the work is then unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from math import prod

from msgspec import Struct

# --- Parse the text in the column `shapes`: the tensors that a command read and wrote.
#
# `[]` is a tensor of one element. `tensor[…]` is a member of a list of tensors, whose type is not
# recorded; `bits16[…]` one of which only the width is known. ` causal` behind the tensors:
# attention whose scores lie below the diagonal; ` over 3072,6`: how many elements a generated
# kernel goes over, and of a reduction how many for each. A text may end in ` part 2/5`: the
# operator launched five commands, and the text is that of the whole operator.


_WIDTHS = {  # bytes of an element
    16: "complex128 bits128",
    8: "float64 complex64 int64 uint64 bits64",
    4: "float32 int32 uint32 bits32",
    2: "float16 bfloat16 int16 uint16 bits16",
    1: "float8e4m3fn float8e4m3fnuz float8e5m2 float8e5m2fnuz int8 uint8 qint8 quint8 bool bits8",
    0.5: "int4 uint4",
}
_BYTES = {dtype: width for width, dtypes in _WIDTHS.items() for dtype in dtypes.split()}
_NAMES = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "long": "int64",
    "int": "int32",
    "float8_e4m3fn": "float8e4m3fn",
    "float8_e5m2": "float8e5m2",
    "complex<float>": "complex64",
    "complex<double>": "complex128",
}
_TENSOR = re.compile(r"([A-Za-z][\w<>():.]*)\[((?:\d+(?:,\d+)*)?)\]")
_CAUSAL = " causal"
_OVER = re.compile(r" over ([1-9]\d{0,12}(?:,[1-9]\d{0,12}){0,3})$")
_PART = re.compile(r" part (\d+)/(\d+)$")
_LONGEST = 1 << 16  # characters; dims of a tensor are bounded too, so that products stay cheap
_SHORT = 1 << 9  # characters of a text that is worth remembering
_LARGEST = 1 << 62


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor's type, under one name whatever the producer calls it (`float32`), and its dims."""

    dtype: str
    dims: tuple[int, ...]
    width: float | None = field(init=False, repr=False, compare=False)
    """Bytes of an element, None if not known."""
    size: int = field(init=False, repr=False, compare=False)
    """Number of elements."""
    nbytes: int | None = field(init=False, repr=False, compare=False)
    """Bytes of its elements, None if the type's size is not known."""

    def __post_init__(self) -> None:
        width, size = _BYTES.get(self.dtype), prod(self.dims)  # once: they are asked for often
        object.__setattr__(self, "width", width)
        object.__setattr__(self, "size", size)
        nbytes = None if width is None else -int(-size * width // 1)
        object.__setattr__(self, "nbytes", nbytes)

    @property
    def floating(self) -> bool:
        """Whether arithmetic on it is floating-point arithmetic; assumed of unknown types."""
        return not self.dtype.startswith(("int", "uint", "qint", "quint", "bool"))

    def may_be(self, other: Tensor) -> bool:
        """Whether the types may be the same: of members of tensor lists only the width is known."""
        if self.dtype == other.dtype:
            return True
        opaque = self.dtype.startswith("bits") or other.dtype.startswith("bits")
        return opaque and self.width == other.width

    def like(self, *dims: int) -> Tensor:
        """A tensor of the same type with other dims."""
        return Tensor(self.dtype, dims)


class Shapes(Struct, frozen=True):
    """Inputs and outputs in order; `outputs` is None if the text has inputs alone. The command
    is the `part`-th of `parts` that share this text, from 1. `causal`: attention that is known to
    mask what follows each query. `over`: the sizes of what a generated kernel goes over."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...] | None
    part: int = 1
    parts: int = 1
    causal: bool = False
    over: tuple[int, ...] = ()


def parse_shapes(text: str | None) -> Shapes | None:
    """Parse a text of the column `shapes`; None if there is none or it is not of the grammar
    above."""
    if not text or len(text) > _LONGEST:
        return None
    return _remembered(text) if len(text) <= _SHORT else _parsed(text)


def whole_text(text: str) -> str:
    """A text without the ` part 2/5` that says which command of its operator it is of."""
    return _PART.sub("", text)


def _parsed(text: str) -> Shapes | None:
    part = _PART.search(text)
    number, parts = (int(part[1]), int(part[2])) if part and len(part[0]) < 24 else (1, 1)
    tensors = text[: part.start() if part else None]
    causal, over = tensors.endswith(_CAUSAL), _OVER.search(tensors)
    sizes = tuple(map(int, over[1].split(","))) if over else ()
    tensors = tensors[: over.start() if over else None]
    left, arrow, right = tensors.removesuffix(_CAUSAL).partition("->")
    inputs = _tensors(left.strip().removeprefix("in:"))
    outputs = _tensors(right) if arrow else None
    if inputs is None or (arrow and outputs is None) or not 0 < number <= parts:
        return None
    return Shapes(inputs, outputs, number, parts, causal, sizes)


_remembered = lru_cache(4096)(_parsed)  # calls of a submodule, and analyses, see the same texts


def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...] | None:
    """The dims that these dims broadcast to by NumPy's rules, None if they do not."""
    rank = max(map(len, shapes), default=0)
    padded = [(1,) * (rank - len(dims)) + dims for dims in shapes]
    dims = []
    for sizes in zip(*padded, strict=True):
        different = {size for size in sizes if size != 1}
        if len(different) > 1:
            return None
        dims.append(different.pop() if different else 1)
    return tuple(dims)


_RANKS = {"complex": 3, "float": 2, "bfloat": 2, "int": 1, "uint": 1, "bool": 0}


def together(inputs: tuple[Tensor, ...]) -> Tensor:
    """Return what `inputs` broadcast to by NumPy's rules, in torch's promoted type.

    Raises DoesNotFit if they do not broadcast.
    """
    dims = broadcast(*(tensor.dims for tensor in inputs))
    if dims is None or not inputs:
        raise DoesNotFit
    strongest = max(inputs, key=lambda t: (_rank(t), bool(t.dims), t.width or 0))
    return Tensor(strongest.dtype, dims)


def _rank(tensor: Tensor) -> int:
    return _RANKS.get(tensor.dtype.rstrip("0123456789emfnuz"), 2)


def _tensors(text: str) -> tuple[Tensor, ...] | None:
    found = []
    for word in text.split():
        match = _TENSOR.fullmatch(word)
        if match is None:
            return None
        dims = tuple(int(size) for size in match[2].split(",") if len(size) < 20 and size)
        if prod(dims) > _LARGEST or len(dims) > 64:
            return None
        found.append(Tensor(_NAMES.get(match[1], match[1]), dims))
    return tuple(found)


# --- Formulas by operation type: what an operation computes and moves, from the shapes it was
# given.
#
# A formula is registered under the names of its operation types and takes an `Operation`. It raises
# `DoesNotFit` if the shapes are not those of the operation, and then the work is unknown.
#
# FLOPs are the floating-point operations of the definition: a multiply-add counts as two (as in
# `torch.utils.flop_counter`), exp, erf, tanh, sqrt and a division count as one, conversions and
# integer arithmetic as none but in matrix products, if devices rate integers like floats. Bytes are
# each input once and each output once: what must pass through memory when nothing of it stays in a
# cache. If an operation takes a part of an input (a slice, rows by index, a pool of keys and
# values), only that part counts: bytes are what must be moved at least.


class Family(StrEnum):
    """Kind of a computation, which decides what it could be fused with."""

    MATMUL = "matmul"
    CONVOLUTION = "convolution"
    ATTENTION = "attention"
    NORM = "norm"
    SOFTMAX = "softmax"
    ELEMENTWISE = "elementwise"
    REDUCTION = "reduction"
    MOVEMENT = "movement"
    VIEW = "view"
    KERNEL = "kernel"


class DoesNotFit(Exception):  # noqa: N818 (not an error of anybody's: the work stays unknown)
    """The shapes are not those that the operation takes."""


class Operation(Struct, frozen=True):
    """An operation type and its tensors, whether it is attention with a causal mask, and the sizes
    of what a generated kernel goes over. Fetching an input that is not there raises DoesNotFit."""

    op_type: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...] | None
    causal: bool = False
    over: tuple[int, ...] = ()

    def input(self, index: int) -> Tensor:
        """The input at `index`."""
        if index >= len(self.inputs):
            raise DoesNotFit
        return self.inputs[index]

    @property
    def output(self) -> Tensor:
        """The first output; raises DoesNotFit if the trace has none."""
        if not self.outputs:
            raise DoesNotFit
        return self.outputs[0]


class Work(Struct, frozen=True):
    """What one operation computes and moves; None is not known.

    `reads` and `writes` are the tensors that pass through memory, `writes` None if the outputs
    are not known: `least_written` is what is written at least then. `read_override` stands in for
    the sizes if less or more than whole tensors is read. `dtype` is that of the arithmetic.
    `parts` commands share it, and this one is the `part`-th of them, from 1. `partly`: how much of
    `reads` is read is not known.
    """

    family: Family
    dtype: str
    flops: int | None
    reads: tuple[Tensor, ...] = ()
    writes: tuple[Tensor, ...] | None = None
    read_override: int | None = None
    part: int = 1
    parts: int = 1
    partly: bool = False
    least_written: int | None = None

    @property
    def bytes_read(self) -> int | None:
        """Bytes that the operation reads."""
        if self.partly:
            return None
        return self.read_override if self.read_override is not None else sum_of_sizes(self.reads)

    @property
    def bytes_written(self) -> int | None:
        """Bytes that the operation writes; at least, if its outputs are not known."""
        return self.least_written if self.writes is None else sum_of_sizes(self.writes)


def sum_of_sizes(tensors: tuple[Tensor, ...]) -> int | None:
    """Bytes of all tensors, None if the size of one is not known."""
    sizes = [tensor.nbytes for tensor in tensors]
    return None if None in sizes else sum(filter(None, sizes))


Formula = Callable[[Operation], Work]
_FORMULAS: dict[str, Formula] = {}
_PREFIXES: dict[str, Formula] = {}


def formula(
    op_types: str = "", *, aten: str = "", prefixes: tuple[str, ...] = ()
) -> Callable[[Formula], Formula]:
    """Register a formula for `op_types`, names with spaces between them, for those of torch
    (`aten::`), and for every op type that starts with one of `prefixes`.

    `aten::add` also stands for `aten::add_`.
    """
    names_given = (*op_types.split(), *(f"aten::{name}" for name in aten.split()))

    def register(function: Formula) -> Formula:
        for table, names in ((_FORMULAS, names_given), (_PREFIXES, prefixes)):
            for name in names:
                if name in table:
                    raise ValueError(f"{name} has a formula already")
                table[name] = function
        return function

    return register


def formula_of(op_type: str) -> Formula | None:
    """The formula of an operation type, None if none is registered."""
    found = _FORMULAS.get(op_type)
    if found is None and op_type.startswith("aten::"):
        found = _FORMULAS.get(op_type.removesuffix("_"))
    if found is None:
        found = next((f for name, f in _PREFIXES.items() if op_type.startswith(name)), None)
    return found
