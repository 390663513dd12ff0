"""Formulas by operation type: what an operation computes and moves, from the shapes it was given.

A formula is registered under the names of its operation types and takes an `Operation`. It raises
`DoesNotFit` where the shapes are not those of the operation, and then the work is unknown.

FLOPs are the floating-point operations of the definition: a multiply-add counts as two (as in
`torch.utils.flop_counter`), exp, erf, tanh, sqrt and a division count as one, conversions and
integer arithmetic as none but in matrix products, where devices rate integers like floats.
Bytes are each input once and each output once: what must pass through memory when nothing of it
stays in a cache. Of an input of which an operation takes a part (a slice, rows by index, a pool
of keys and values) that part counts alone: bytes are what must be moved at least.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from msgspec import Struct

from profiler.analysis.work.shapes import Tensor

__all__ = ["DoesNotFit", "Family", "Formula", "Operation", "Work", "formula", "formula_of"]


class Family(StrEnum):
    """What kind of computation it is: which of its neighbours it could be fused with."""

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


class DoesNotFit(Exception):
    """The shapes are not those that the operation takes."""


class Operation(Struct, frozen=True):
    """An operation type and its tensors, and whether it is attention with a causal mask. Fetching
    an input that is not there raises DoesNotFit."""

    op_type: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...] | None
    causal: bool = False

    def input(self, index: int) -> Tensor:
        """The input at `index`."""
        if index >= len(self.inputs):
            raise DoesNotFit
        return self.inputs[index]

    @property
    def output(self) -> Tensor:
        """The first output; raises DoesNotFit where the trace has none."""
        if not self.outputs:
            raise DoesNotFit
        return self.outputs[0]


class Work(Struct, frozen=True):
    """What one operation computes and moves; None is not known.

    `reads` and `writes` are the tensors that pass through memory, `writes` None where the outputs
    are not known: `least_written` is what is written at least then. `read_override` stands in for
    the sizes where less or more than whole tensors is read. `dtype` is that of the arithmetic.
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
        return self.read_override if self.read_override is not None else _sum(self.reads)

    @property
    def bytes_written(self) -> int | None:
        """Bytes that the operation writes; at least, where its outputs are not known."""
        return self.least_written if self.writes is None else _sum(self.writes)


def _sum(tensors: tuple[Tensor, ...]) -> int | None:
    sizes = [tensor.nbytes for tensor in tensors]
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None


Formula = Callable[[Operation], Work]
_FORMULAS: dict[str, Formula] = {}
_PREFIXES: dict[str, Formula] = {}


def formula(*op_types: str, prefixes: tuple[str, ...] = ()) -> Callable[[Formula], Formula]:
    """Register a formula for `op_types` and for every op type that begins with one of `prefixes`.

    `aten::add` also stands for `aten::add_`.
    """

    def register(function: Formula) -> Formula:
        for table, names in ((_FORMULAS, op_types), (_PREFIXES, prefixes)):
            for name in names:
                if name in table:
                    raise ValueError(f"{name} has a formula already")
                table[name] = function
        return function

    return register


def formula_of(op_type: str) -> Formula | None:
    """The formula of an operation type, None where none is registered."""
    found = _FORMULAS.get(op_type)
    if found is None and op_type.startswith("aten::"):
        found = _FORMULAS.get(op_type.removesuffix("_"))
    if found is None:
        found = next((f for name, f in _PREFIXES.items() if op_type.startswith(name)), None)
    return found
