"""What is known of the kinds of one submodule: each from its names and shapes, and from what runs
before and after it in a representative call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from profiler.analysis.roles.chains import (
    after_negation,
    chained_kinds,
    concluding_softmaxes,
)
from profiler.analysis.roles.evidence import Evidence
from profiler.analysis.roles.kernel_rules import role_of_name
from profiler.analysis.roles.kernels import fused_kernel
from profiler.analysis.roles.operations import Operation, Sort, operation_of
from profiler.analysis.roles.places import Place, Places, Purpose
from profiler.analysis.roles.tensors import (
    expands_weight,
    only_integers,
    rotated_dims,
    turns,
    two_activations,
    weighs,
)
from profiler.analysis.work.shapes import Shapes, parse_shapes
from profiler.grammars.names import parse_name

__all__ = ["KindRow", "SubmoduleKinds"]

_PRODUCTS = (Sort.MATMUL, Sort.CONVOLUTION)
_OPTIMIZER = "optimizer"  # what importers call that pass of a training step
_MARKS = frozenset(("neg", "view_as_complex"))


class KindRow(NamedTuple):
    """What decides about a kind: columns of `Kinds.table`."""

    submodule: str | None
    layer: str
    place: str
    op_type: str | None
    category: str
    shapes: str | None
    kernel: str | None
    total_ns: int


class SubmoduleKinds:
    """The kinds of one submodule and what its representative call says of them."""

    def __init__(
        self, rows: Mapping[int, KindRow], classes: Mapping[str, str], order: list[int]
    ) -> None:
        self._rows = rows
        self._named = next(iter(rows.values())).submodule is not None  # the scheduler is no model
        places = Places({row.place for row in rows.values()}, classes)
        self._places: dict[int, Place] = {n: places.of(row.place) for n, row in rows.items()}
        self._operations: dict[int, Operation] = {
            n: operation_of(row.op_type or _named_operation(row.layer)) for n, row in rows.items()
        }
        self._negated = after_negation(order, self._operations)
        attention = {n: _attention_path(place) for n, place in self._places.items()}
        self._attention = attention
        softmaxes = {n: self._softmax(n) for n in rows}
        gates = {n for n, shapes in softmaxes.items() if shapes and self._is_gate(shapes)}
        counting = {n for n, row in rows.items() if only_integers(row.shapes)}  # shapes and masks
        chained = [n for n in order if n not in counting and n not in gates]
        self._chained = chained_kinds(chained, self._operations)
        self._rotating = frozenset(
            path for n, path in attention.items() if path and self._marks_rotation(n)
        )
        self._rotated = {dims for n in rows if (dims := self._rotated_by(n)) is not None}
        self._projected = self._after_projection(order)
        concluding = concluding_softmaxes(order, self._operations)
        self._concluding = {n for n in concluding if not attention[n]} | gates
        attending = [softmaxes[n] for n in rows if self._attention_in(n)]
        self._weighing = self._products_of([*filter(None, attending)])
        sizeless = any(shapes is None for shapes in attending)
        self._attends = bool(self._weighing) or sizeless
        if sizeless:  # of a fused attention, or of a softmax whose size nobody knows
            self._weighing = self._products_of(None)

    def evidence(self, number: int) -> Evidence:
        """What is known of a kind."""
        row = self._rows[number]
        shapes = parse_shapes(row.shapes) if self._named else None
        rotated = shapes is not None and any(t.dims in self._rotated for t in shapes.inputs[:2])
        return Evidence(
            op_type=row.op_type or "",
            category=row.category,
            operation=self._operations[number],
            place=self._places[number],
            shapes=shapes,
            rotated=rotated and self._attends,
            negated=number in self._negated,
            chained=self._chained.get(number),
            rotates=self._attention[number] in self._rotating,
            projected=number in self._projected,
            attends=self._attends,
            concludes=number in self._concluding,
            weighs=number in self._weighing,
            updates=_OPTIMIZER in (row.submodule, row.place.partition(".")[0]),
            kernel=row.kernel or "",
        )

    def _attention_in(self, number: int) -> bool:
        """Whether a kind shows that the submodule attends: a fused attention or the softmax of one,
        by its name, by what torch.compile fused it with, or by its place."""
        operation = self._operations[number]
        if number in self._concluding:
            return False
        if operation.sort is Sort.ATTENTION or self._attention[number]:
            return True
        if operation.sort is not Sort.UNKNOWN:
            return False
        name = self._rows[number].op_type or ""
        fused = fused_kernel(name)
        if fused is not None:
            return Sort.ATTENTION in fused.sorts | fused.after
        return role_of_name(name) == "attention"

    def _softmax(self, number: int) -> Shapes | None:
        """The shapes of a softmax outside of attention modules, None for anything else."""
        plain = "softmax" in (self._rows[number].op_type or "").lower()
        if not plain or self._attention[number] or fused_kernel(self._rows[number].op_type or ""):
            return None
        shapes = parse_shapes(self._rows[number].shapes)
        return shapes if shapes is not None and shapes.inputs else None

    def _is_gate(self, softmax: Shapes) -> bool:
        """Whether a softmax is of vectors that no product made, as a router's or a gate's."""
        vectors = all(len(tensor.dims) <= 2 for tensor in softmax.inputs)
        return vectors and not self._products_of([softmax])

    def _products_of(self, softmaxes: Sequence[Shapes] | None) -> frozenset[int]:
        """The products of two batches of matrices that one of the softmaxes may be of, all of them
        where these are not given."""
        found = set()
        for number, operation in self._operations.items():
            if operation.sort is not Sort.MATMUL:
                continue
            shapes = parse_shapes(self._rows[number].shapes)
            if shapes is None or not two_activations(shapes) or expands_weight(shapes):
                continue
            if softmaxes is None or any(weighs(shapes, softmax) for softmax in softmaxes):
                found.add(number)
        return frozenset(found)

    def _marks_rotation(self, number: int) -> bool:
        """Operations that, in an attention, only rotary positions have."""
        word = self._operations[number].word
        return word in _MARKS or (word == "sub" and turns(parse_shapes(self._rows[number].shapes)))

    def _rotated_by(self, number: int) -> tuple[int, ...] | None:
        """The dims of what a product with positions rotates, outside of attention modules."""
        if self._operations[number].word != "mul" or self._attention[number]:
            return None
        return rotated_dims(parse_shapes(self._rows[number].shapes))

    def _after_projection(self, order: list[int]) -> frozenset[int]:
        """Kinds of an attention module's own that run only after its output projection: the
        last of its projections, if that follows the attention itself."""
        core: dict[str, int] = {}
        output: dict[str, int] = {}
        for at, number in enumerate(order):
            path, sort = self._attention[number], self._operations[number].sort
            if path and sort is Sort.ATTENTION:
                core[path] = at
                output.pop(path, None)
            elif path in core and self._places[number].child and sort in _PRODUCTS:
                output[path] = at
        after: set[int] = set()
        before: set[int] = set()
        for at, number in enumerate(order):
            path = self._attention[number]
            if path and not self._places[number].child:
                (after if at > output.get(path, len(order)) else before).add(number)
        return frozenset(after - before)


def _named_operation(layer: str) -> str:
    """The op type that a layer's name begins with, the layer itself where it has none."""
    parsed = parse_name(layer)
    return parsed.op_types[0] if parsed is not None and parsed.op_types else layer


def _attention_path(place: Place) -> str:
    """The path of the attention module that a command lies in, "" for none."""
    if place.purpose is not Purpose.ATTENTION:
        return ""
    return place.path
