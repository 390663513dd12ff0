"""The modules and operators of a run as a tree, each by itself.

A part of a path that is a number belongs to the part before it: `transformer_blocks.7` is one
module. An operator is what its module does, by op type, else by the name of its layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec import Struct, field

from profiler.analysis.module_tree.codes import Node
from profiler.analysis.roles.places import class_in, module_path

__all__ = ["Kind", "Paths", "parts_of"]


class Kind(NamedTuple):
    """What the tree asks of a kind of commands."""

    kind: int
    submodule: str
    layer: str
    module: str | None
    place: str
    op_type: str | None
    shapes: str | None
    role: str | None


class Paths(Struct):
    """Nodes in lists, parents before what is in them. The first ones are submodules, whose parent
    is -1. `leaf` is the operator of each kind of commands, `own` are what tells operators of a node
    apart beyond their names: op type and shapes."""

    parent: list[int] = field(default_factory=list)
    kind: list[Node] = field(default_factory=list)
    name: list[str] = field(default_factory=list)
    class_name: list[str] = field(default_factory=list)
    children: list[list[int]] = field(default_factory=list)
    own: list[set[tuple[str | None, str | None]]] = field(default_factory=list)
    leaf: dict[int, int] = field(default_factory=dict)
    _known: dict[tuple[int, Node, str], int] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        submodules: Iterable[str],
        kinds: Iterable[Kind],
        classes: Mapping[str, Mapping[str, str]],
    ) -> Paths:
        """Those of `kinds`; `classes` are the classes of modules by path, of each submodule."""
        made = cls()
        roots = {
            name: made._node(-1, Node.SUBMODULE, name, classes.get(name, {}).get("", ""))
            for name in submodules
        }
        by_submodule: dict[str, list[Kind]] = {}
        for one in kinds:
            by_submodule.setdefault(one.submodule, []).append(one)
        for name, rows in by_submodule.items():
            made._submodule(roots[name], rows, classes.get(name, {}))
        return made

    def _submodule(self, root: int, rows: list[Kind], classes: Mapping[str, str]) -> None:
        """The nodes of one submodule: by module where a path is known, else by role, which is a
        guess, where no path of it is."""
        by_place: dict[tuple[str, bool], str] = {}
        for one in rows:
            key = (one.place, one.module is not None)
            if key not in by_place:
                by_place[key] = _path(one, classes)
        nodes, leaves = {"": root}, dict[tuple[str, str], int]()
        guessed = not any(by_place.values())
        for one in rows:
            path = by_place[one.place, one.module is not None]
            label = one.op_type or one.layer
            inside = one.role if guessed and one.role is not None else path
            self.leaf[one.kind] = leaf = leaves.get((inside, label), -1)
            if leaf >= 0:
                self.own[leaf].add((one.op_type, one.shapes))
                continue
            if path not in nodes:
                nodes[path] = self._module(root, path, classes)
            node = nodes[path]
            if guessed and one.role is not None:
                node = self._node(root, Node.ROLE, one.role)
            leaf = leaves[inside, label] = self._node(node, Node.OPERATOR, label)
            self.own[leaf].add((one.op_type, one.shapes))
            self.leaf[one.kind] = leaf

    def _module(self, root: int, path: str, classes: Mapping[str, str]) -> int:
        node, whole = root, ""
        for part in parts_of(path):
            whole = f"{whole}.{part}" if whole else part
            node = self._node(node, Node.MODULE, part, classes.get(whole, "") or class_in(part))
        return node

    def _node(self, parent: int, kind: Node, name: str, class_name: str = "") -> int:
        key = (parent, kind, name)
        node = self._known.get(key)
        if node is not None:
            return node
        node = self._known[key] = len(self.parent)
        self.parent.append(parent)
        self.kind.append(kind)
        self.name.append(name)
        self.class_name.append(class_name)
        self.children.append([])
        self.own.append(set())
        if parent >= 0:
            self.children[parent].append(node)
        return node


def _path(one: Kind, classes: Mapping[str, str]) -> str:
    """The path of a command's module, "" where it has none: the one that was recorded, else what
    the name of its layer says, where that is more than a word or a module that capture saw."""
    root = classes.get("", "")
    if one.module is not None:
        path = one.place if one.place != one.layer else module_path(one.place, root)
        return "" if path == root else path
    path = module_path(one.place, root)
    return path if "." in path or path in classes else ""


def parts_of(path: str) -> list[str]:
    """The parts of a module's path, numbers with what they number."""
    found: list[str] = []
    for part in path.split("."):
        if part.isdigit() and found and not found[-1].rpartition(".")[2].isdigit():
            found[-1] = f"{found[-1]}.{part}"
        else:
            found.append(part)
    return found
