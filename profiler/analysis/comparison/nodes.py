"""Layers of two runs of one ONNX model, brought together by the nodes that they run.

    TensorRT   Conv_0 + Relu_1                      0.11 ms
    ONNX Rt.   Conv_0, Relu_1                       0.95 ms + 0.21 ms

A layer of TensorRT names the nodes that it fused. ONNX Runtime runs nodes under their own names, or
under those that its fusions made of them. Layers that have a node in common are one group, of
either side any number. What TensorRT does for a node's tensors (copies into another layout) is part
of the node's group.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from profiler.analysis.comparison.inferences import AVERAGED
from profiler.grammars.names import EngineLayer, engine_layer

__all__ = ["Group", "TimedLayer", "converted_name", "node_groups", "nodes_of"]

_FUSED = re.compile(
    r"(?:/\w*Fusion\w*/?|/WithoutBiases|_(?:nchwc|nhwc|quant|quantized|token_\d+))$"
)
_NO_WORD = re.compile(r"[^A-Za-z0-9_]")
_OUTPUT = re.compile(r"(?:_output_\d+|:\d+)$")
_MODULE = "/"  # what our own capture puts between a module and a node's name


@dataclass(frozen=True, slots=True)
class TimedLayer:
    """A layer and its time; layers are in the order in which they ran."""

    name: str
    ns: float


@dataclass(slots=True)
class Group:
    """What both sides call these nodes, and how long they took there."""

    base: list[TimedLayer] = field(default_factory=list)
    new: list[TimedLayer] = field(default_factory=list)


def node_groups(
    base: Sequence[TimedLayer], new: Sequence[TimedLayer], producers: tuple[str, str]
) -> list[Group]:
    """The layers of both sides by the nodes that they have in common, in the order of execution; a
    layer without any is a group by itself."""
    sides = (base, new)
    read = [
        [_read(layer.name, producer) for layer in side]
        for side, producer in zip(sides, producers, strict=True)
    ]
    names = [_by_name(side) for side in read]
    joined = _Joined()
    for at in (0, 1):
        for number, layer in enumerate(read[at]):
            joined.find((at, number))
            for node in layer.nodes:
                for other in (0, 1):
                    for found in names[other].get(node, ()):
                        joined.join((at, number), (other, found))
    for at in (0, 1):
        for number, inside in _inside(read, names, at):
            joined.join((at, number), (1 - at, inside))
    groups: dict[tuple[int, int], Group] = {}
    for at, side in enumerate(sides):
        for number, timed in enumerate(side):
            group = groups.setdefault(joined.find((at, number)), Group())
            (group.new if at else group.base).append(timed)
    return [*groups.values()]


def nodes_of(layer: str, producer: str) -> tuple[str, ...]:
    """What the nodes that a layer runs may be called in the model."""
    return _read(layer, producer).nodes


def converted_name(node: str) -> str:
    """What Qualcomm's converter calls a node: `/a/MatMul_3` → `_a_MatMul_3`."""
    return _NO_WORD.sub("_", node)


def _read(name: str, producer: str) -> EngineLayer:
    if producer == AVERAGED:
        return engine_layer(name)
    return EngineLayer(tuple(dict.fromkeys(_node_names(name))))


def _node_names(name: str) -> Iterator[str]:
    """What a node of ONNX Runtime may have been called in the model: by its name, without what
    fusions and layouts appended, by the node whose output it writes, as Qualcomm's converter calls
    it, behind the path of its module."""
    yield name
    bare = _FUSED.sub("", name)
    yield bare
    yield _OUTPUT.sub("", bare)
    if bare.startswith(_MODULE):
        yield converted_name(bare)
    module, _, last = bare.rpartition(_MODULE)
    if module and not bare.startswith(_MODULE):
        yield last


def _by_name(layers: Sequence[EngineLayer]) -> dict[str, list[int]]:
    """The layers that run a node, or where none does, those that prepare its tensors."""
    found: dict[str, list[int]] = {}
    for number, layer in enumerate(layers):
        for node in (*layer.nodes, *filter(None, (layer.last,))):
            found.setdefault(node, []).append(number)
    return found


def _inside(
    read: Sequence[Sequence[EngineLayer]], names: Sequence[Mapping[str, list[int]]], at: int
) -> Iterator[tuple[int, int]]:
    """Of each layer that stands for all nodes from one to another, the layers between them on the
    other side, but for those that another layer names. An end that the other side does not run (a
    constant) is where the layers before and behind it end and begin."""
    others, own = read[1 - at], names[1 - at]
    named = [_places(layer.nodes, own) for layer in read[at]]
    for number, layer in enumerate(read[at]):
        if not layer.last:
            continue
        before = [place for places in named[:number] for place in places]
        behind = [place for places in named[number + 1 :] for place in places]
        first = min(_places(layer.nodes, own), default=max(before, default=-1) + 1)
        last = max(_places((layer.last,), own), default=min(behind, default=len(others)) - 1)
        apart = {*before, *behind}
        yield from ((number, place) for place in range(first, last + 1) if place not in apart)


def _places(nodes: Iterable[str], names: Mapping[str, list[int]]) -> list[int]:
    return [place for node in nodes for place in names.get(node, ())]


class _Joined:
    """Sets of layers, each known by its first one."""

    def __init__(self) -> None:
        self._of: dict[tuple[int, int], tuple[int, int]] = {}

    def find(self, one: tuple[int, int]) -> tuple[int, int]:
        above = self._of.setdefault(one, one)
        while above != self._of[above]:
            above = self._of[above] = self._of[self._of[above]]
        self._of[one] = above
        return above

    def join(self, one: tuple[int, int], other: tuple[int, int]) -> None:
        first, second = sorted((self.find(one), self.find(other)))
        self._of[second] = first
