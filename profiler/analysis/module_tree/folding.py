"""Equal blocks of a model as one: `transformer_blocks.*` for all 24 of them.

Modules beside one another whose names differ by a number are equal where they are of one class,
hold modules, and at least four fifths of the operations of the one with fewer are operations of
the other: in the same module below it, of the same type and shapes. The last block of SD3 has no
output for the text, and is a block like the others; up-sampling blocks of a VAE, each of another
resolution, are none.
"""

from __future__ import annotations

import re

from msgspec import Struct, field

from profiler.analysis.module_tree.codes import Node
from profiler.analysis.module_tree.paths import Paths

__all__ = ["Folded", "folded", "ranges"]

_ALIKE = 0.8
_NUMBERED = re.compile(r"(.*?)([0-9]+)", re.DOTALL)

_Operation = tuple[str, str | None, str | None]


class Folded(Struct):
    """Nodes in lists, parents before what is in them; `members` are those of `Paths` that each
    stands for, `of` is the reverse."""

    parent: list[int] = field(default_factory=list)
    name: list[str] = field(default_factory=list)
    path: list[str] = field(default_factory=list)
    members: list[list[int]] = field(default_factory=list)
    of: list[int] = field(default_factory=list)


def folded(paths: Paths) -> Folded:
    """The nodes of `paths`, equal blocks as one."""
    found = Folded(of=[-1] * len(paths.parent))
    signatures = _Signatures(paths)
    pending: list[tuple[int, str, str, list[int]]] = [
        (-1, paths.name[node], "", [node]) for node, parent in enumerate(paths.parent) if parent < 0
    ]
    while pending:
        parent, name, path, members = pending.pop()
        node = len(found.parent)
        found.parent.append(parent)
        found.name.append(name)
        found.path.append(path)
        found.members.append(members)
        for member in members:
            found.of[member] = node
        groups: dict[tuple[Node, str], list[int]] = {}
        for member in members:
            for key, node_of in _labelled(paths, signatures, paths.children[member]):
                groups.setdefault(key, []).append(node_of)
        for (kind, label), inside in groups.items():
            below = f"{path}.{label}" if path else label
            own = below if kind is Node.MODULE else path
            pending.append((node, label, own, inside))
    return found


def ranges(numbers: list[int]) -> str:
    """`[0-22,24]` of sorted numbers."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return "[" + ",".join(f"{a}-{b}" if b > a else f"{a}" for a, b in runs) + "]"


def _labelled(
    paths: Paths, signatures: _Signatures, children: list[int]
) -> list[tuple[tuple[Node, str], int]]:
    """Each child with its kind and label, which equal blocks share."""
    stems: dict[str, list[tuple[int, int]]] = {}
    for child in children:
        numbered = _NUMBERED.fullmatch(paths.name[child])
        if numbered and paths.kind[child] is Node.MODULE:
            stems.setdefault(numbered[1], []).append((int(numbered[2]), child))
    labels: dict[int, str] = {}
    for stem, siblings in stems.items():
        if len(siblings) > 1:
            labels |= _labels(signatures, stem, sorted(siblings))
    return [
        ((paths.kind[child], labels.get(child, paths.name[child])), child) for child in children
    ]


def _labels(signatures: _Signatures, stem: str, siblings: list[tuple[int, int]]) -> dict[int, str]:
    """Labels of the siblings that others are equal to."""
    groups: list[list[tuple[int, int]]] = []
    for number, child in siblings:
        for group in groups:
            if signatures.equal(group[0][1], child):
                group.append((number, child))
                break
        else:
            groups.append([(number, child)])
    labels: dict[int, str] = {}
    for group in groups:
        if len(group) > 1:
            numbers = [number for number, _ in group]
            label = stem + ("*" if len(groups) == 1 else ranges(numbers))
            labels |= {child: label for _, child in group}
    return labels


class _Signatures:
    """What modules do, each made once."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._made: dict[int, frozenset[_Operation]] = {}

    def equal(self, one: int, other: int) -> bool:
        """Whether two numbered siblings are equal blocks."""
        paths = self._paths
        if paths.class_name[one] != paths.class_name[other]:
            return False
        first, second = self._of(one), self._of(other)
        fewest = min(len(first), len(second))
        return fewest > 0 and len(first & second) >= _ALIKE * fewest

    def _of(self, node: int) -> frozenset[_Operation]:
        """Its operations, by their place in it; none where it holds no modules."""
        if node not in self._made:
            paths = self._paths
            holds = any(paths.kind[child] is Node.MODULE for child in paths.children[node])
            self._made[node] = frozenset(self._below(node, "")) if holds else frozenset()
        return self._made[node]

    def _below(self, node: int, inside: str) -> list[_Operation]:
        paths = self._paths
        found: list[_Operation] = []
        for child in paths.children[node]:
            if paths.kind[child] is Node.MODULE:
                found += self._below(child, f"{inside}.{paths.name[child]}")
            else:
                found += [(inside, *own) for own in paths.own[child]]
        return found
