"""MatMul and Gemm in parts: columns, rows or batches of their output, or terms of their sums.

With a constant on the right, parts have columns of it; with one on the left, rows. Where those
are too few, parts have portions of the inner dimension, and their outputs are added up. Between
two activations, parts have portions of a batch axis (heads) where both may have one, else columns,
else rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from profiler.graph.split.epilogue import join
from profiler.graph.split.operands import dims_of, is_weight
from profiler.graph.split.operation_parts import Parts
from profiler.graph.split.portions import CannotSplitError, Way
from profiler.graph.split.rewriter import Rewriter

__all__ = ["ways_of_gemm", "ways_of_matmul"]


def ways_of_matmul(rewriter: Rewriter, node: ir.Node) -> list[Way]:
    """The ways to split a MatMul of any ranks; its operands broadcast as numpy's do."""
    return _MatMul(rewriter, node).ways()


class _MatMul:
    def __init__(self, rewriter: Rewriter, node: ir.Node) -> None:
        a, b = node.inputs[0], node.inputs[1]
        dims_a, dims_b = dims_of(a), dims_of(b)
        if a is None or b is None or dims_a is None or dims_b is None:
            raise CannotSplitError("the ranks of its operands are not known")
        if not dims_a or not dims_b:
            raise CannotSplitError("one of its operands has no axis, which no MatMul takes")
        self._rewriter, self._node = rewriter, node
        self._a, self._b, self._dims_a, self._dims_b = a, b, dims_a, dims_b
        self._rank = max(len(dims_a), len(dims_b)) - (len(dims_a) == 1) - (len(dims_b) == 1)

    def ways(self) -> list[Way]:
        rewriter, a, b = self._rewriter, self._a, self._b
        output = rewriter.largest([self._node.outputs[0]])
        if is_weight(b):
            weight = rewriter.largest([b])
            return [*self._columns(weight, 0), *self._terms(weight)]
        if is_weight(a):
            weight = rewriter.largest([a])
            return [*self._rows(weight, 0), *self._terms(weight)]
        first, second = rewriter.largest([a]), rewriter.largest([b])
        found = [
            *self._columns(_larger(second, output), first),
            *self._rows(_larger(first, output), second),
        ]
        batches = list(self._batches())
        return [*batches, *found] if len(self._dims_b) > 2 else [*found, *batches]

    def _columns(self, cut: int | None, kept: int | None) -> Iterator[Way]:
        def make(lengths: list[int]) -> None:
            parts = Parts(self._rewriter, self._node)
            axis = self._rank - 1
            outputs = [
                parts.add([self._a, b], length=(axis, length))
                for b, length in zip(parts.portions_of(self._b, -1, lengths), lengths, strict=True)
            ]
            join(parts, outputs, axis, lengths)

        if len(self._dims_b) > 1:
            yield Way("columns", self._dims_b[-1], cut, kept, make)

    def _rows(self, cut: int | None, kept: int | None) -> Iterator[Way]:
        def make(lengths: list[int]) -> None:
            parts = Parts(self._rewriter, self._node)
            axis = self._rank - (1 if len(self._dims_b) == 1 else 2)
            outputs = [
                parts.add([a, self._b], length=(axis, length))
                for a, length in zip(parts.portions_of(self._a, -2, lengths), lengths, strict=True)
            ]
            join(parts, outputs, axis, lengths)

        if len(self._dims_a) > 1:
            yield Way("rows", self._dims_a[-2], cut, kept, make)

    def _terms(self, cut: int | None) -> Iterator[Way]:
        def make(lengths: list[int]) -> None:
            parts = Parts(self._rewriter, self._node)
            of_a = parts.portions_of(self._a, -1, lengths)
            of_b = parts.portions_of(self._b, inner, lengths)
            parts.replace(parts.sum([parts.add(pair) for pair in zip(of_a, of_b, strict=True)]))

        inner = -2 if len(self._dims_b) > 1 else -1
        yield Way("terms", self._dims_b[inner] or self._dims_a[-1], cut, 0, make)

    def _batches(self) -> Iterator[Way]:
        """Batch axes that both have, or one has and the other broadcasts; heads come first."""
        for back in range(3, max(len(self._dims_a), len(self._dims_b)) + 1):
            sizes = [
                dims[-back] if len(dims) >= back else 1 for dims in (self._dims_a, self._dims_b)
            ]
            if None not in sizes and max(size or 0 for size in sizes) > 1:
                yield self._batch(back, sizes)

    def _batch(self, back: int, sizes: list[int | None]) -> Way:
        operands = (self._a, self._b)
        is_cut = [size != 1 for size in sizes]
        axis = self._rank - back

        def make(lengths: list[int]) -> None:
            parts = Parts(self._rewriter, self._node)
            given = [
                parts.portions_of(operand, -back, lengths) if cut else [operand] * len(lengths)
                for operand, cut in zip(operands, is_cut, strict=True)
            ]
            outputs = [
                parts.add(pair, length=(axis, length))
                for *pair, length in zip(*given, lengths, strict=True)
            ]
            join(parts, outputs, axis, lengths)

        cut = [operand for operand, cut in zip(operands, is_cut, strict=True) if cut]
        kept = [operand for operand, cut in zip(operands, is_cut, strict=True) if not cut]
        largest = self._rewriter.largest
        size = max(size or 1 for size in sizes)
        return Way("batches", size, largest([*cut, *self._node.outputs]), largest(kept), make)


@dataclass(frozen=True, slots=True)
class _Gemm:
    """A Gemm: `axis_*` is where its output's rows or columns, or its inner dimension, lie."""

    rewriter: Rewriter
    node: ir.Node
    a: ir.Value
    b: ir.Value
    c: ir.Value | None
    rows_axis: int  # of a
    columns_axis: int  # of b


def ways_of_gemm(rewriter: Rewriter, node: ir.Node) -> list[Way]:
    """The ways to split a Gemm, transposed operands and a bias that broadcasts included."""
    a, b = node.inputs[0], node.inputs[1]
    dims_a, dims_b = dims_of(a) or [None, None], dims_of(b) or [None, None]
    if a is None or b is None or len(dims_a) != 2 or len(dims_b) != 2:
        raise CannotSplitError("its operands are no matrices")
    c = node.inputs[2] if len(node.inputs) > 2 else None
    rows_axis = int(node.attributes.get_int("transA", 0) != 0)
    columns_axis = 1 - int(node.attributes.get_int("transB", 0) != 0)
    gemm = _Gemm(rewriter, node, a, b, c, rows_axis, columns_axis)
    rows, columns = dims_a[rows_axis], dims_b[columns_axis]
    inner = dims_b[1 - columns_axis] or dims_a[1 - rows_axis]
    first, second = rewriter.largest([a]), rewriter.largest([b])
    output = rewriter.largest(node.outputs)
    if is_weight(b):
        by_columns = Way("columns", columns, second, 0, lambda lengths: _columns(gemm, lengths))
        return [by_columns, Way("terms", inner, second, 0, lambda lengths: _terms(gemm, lengths))]
    if is_weight(a):
        by_rows = Way("rows", rows, first, 0, lambda lengths: _rows(gemm, lengths))
        return [by_rows, Way("terms", inner, first, 0, lambda lengths: _terms(gemm, lengths))]
    return [
        Way("columns", columns, _larger(second, output), first, lambda n: _columns(gemm, n)),
        Way("rows", rows, _larger(first, output), second, lambda n: _rows(gemm, n)),
    ]


def _columns(gemm: _Gemm, lengths: list[int]) -> None:
    parts = Parts(gemm.rewriter, gemm.node)
    of_c = parts.broadcast_portions(gemm.c, -1, lengths)
    of_b = parts.portions_of(gemm.b, gemm.columns_axis, lengths)
    outputs = [
        parts.add([gemm.a, b, c], length=(1, length))
        for b, c, length in zip(of_b, of_c, lengths, strict=True)
    ]
    join(parts, outputs, 1, lengths)


def _rows(gemm: _Gemm, lengths: list[int]) -> None:
    parts = Parts(gemm.rewriter, gemm.node)
    of_c = parts.broadcast_portions(gemm.c, -2, lengths)
    of_a = parts.portions_of(gemm.a, gemm.rows_axis, lengths)
    outputs = [
        parts.add([a, gemm.b, c], length=(0, length))
        for a, c, length in zip(of_a, of_c, lengths, strict=True)
    ]
    join(parts, outputs, 0, lengths)


def _terms(gemm: _Gemm, lengths: list[int]) -> None:
    """The bias goes to the first part: added once."""
    parts = Parts(gemm.rewriter, gemm.node)
    of_a = parts.portions_of(gemm.a, 1 - gemm.rows_axis, lengths)
    of_b = parts.portions_of(gemm.b, 1 - gemm.columns_axis, lengths)
    outputs = [
        parts.add([a, b, None if number else gemm.c])
        for number, (a, b) in enumerate(zip(of_a, of_b, strict=True))
    ]
    parts.replace(parts.sum(outputs))


def _larger(first: int | None, second: int | None) -> int | None:
    return None if first is None or second is None else max(first, second)
