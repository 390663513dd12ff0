"""Module paths as a tree: exclusive times of operators, and equal blocks folded into one.

A number in a path belongs to the part before it, so `transformer_blocks.7` is one module. Equal
blocks are shown as `transformer_blocks.*`. Each moment of a call belongs to exactly one
command, so the times of a call's operators add up to its device time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct, field

from profiler.analysis.commands import CommandArrays
from profiler.analysis.role_kernel_names import class_in, module_path
from profiler.analysis.table_text import Node
from profiler.run.intervals import Codes, Times, batches, is_sorted, reaches

# --- Measures of kinds of commands, which add up from operators to their modules.


Sums = npt.NDArray[np.float64]

BOUNDS = ("compute_bound_ns", "memory_bound_ns", "launch_bound_ns")
MEASURES = (
    *("own_ns", "total_ns", "commands", "executions"),
    *("rated_ns", "blamed_ns", "graph_ns", "cpu_ns"),
    *("flops", "flops_ns", "compute_ns", "computed_ns", "known_ns"),
    *BOUNDS,
)
"""Columns of sums: exclusive time in tiles, durations, numbers. Of work with a roofline: its time,
FLOPs with the time of commands that have them, min time by the device's peak with the time of
commands whose peak is known or which compute nothing, and roofline time by bound with the time of
commands that have it."""


def sums_of(
    own: Times, commands: Times, totals: Times, once: Codes, roofline: pl.DataFrame
) -> Sums:
    """The measures by stage and kind, float64 [stages, kinds, measures], exact to 2^53.

    `own`, `commands` and `totals` are int64 [stages, kinds], `once` how often a command of each
    kind counts as an execution, `roofline` what `kind_roofline` makes: of kinds in several stages
    each has its part by time.
    """
    kinds = own.shape[1]
    of_kind = np.zeros((kinds, len(MEASURES)))
    for at, column in enumerate(_rated(roofline, kinds).iter_columns(), MEASURES.index("rated_ns")):
        of_kind[:, at] = column.to_numpy()
    by_time = totals.sum(axis=0) > 0
    weight = np.where(by_time, totals, commands)
    whole = weight.sum(axis=0)
    part = weight / np.where(whole > 0, whole, 1)
    found: Sums = part[:, :, None] * of_kind
    for at, values in enumerate((own, totals, commands, commands * once)):
        found[:, :, at] = values
    return found


def _rated(roofline: pl.DataFrame, kinds: int) -> pl.DataFrame:
    """Return the sums of the roofline over devices, one row per kind, 0 if nothing is known."""
    total, at_roofline = pl.col("total_ns"), pl.col("roofline_ns")
    computed = pl.col("compute_ns") > 0
    peaked = computed | (pl.col("flops") == 0)  # none to compute: at any peak
    sums = roofline.group_by("kind").agg(
        rated_ns=total.sum(),
        blamed_ns=pl.col("blamed_ns").sum(),
        graph_ns=pl.col("graph_ns").sum(),
        cpu_ns=pl.col("cpu_ns").sum(),
        flops=pl.col("flops").sum(),
        flops_ns=total.filter(pl.col("flops").is_not_null()).sum(),
        compute_ns=pl.col("compute_ns").filter(computed).sum(),
        computed_ns=total.filter(peaked).sum(),
        known_ns=total.filter(at_roofline.is_not_null()).sum(),
        **{
            name: at_roofline.filter(pl.col("bound") == number).sum()
            for number, name in enumerate(BOUNDS)
        },
    )
    every = pl.DataFrame({"kind": pl.int_range(kinds, dtype=pl.Int32, eager=True)})
    found = every.join(sums, on="kind", how="left", maintain_order="left")
    return found.drop("kind").fill_null(0)


# --- Exclusive time of commands in the tiles of their calls.
#
# Each moment of a tile belongs to the command that started first of those that ran, of those that
# started together to the one that ended first, so that the commands of a call have the union of
# their times in its tile, however many ran side by side and in whatever order they stand.


_Tiles = tuple[Times, Times, Times]  # starts, lengths, what lies before, of the tiles of calls


def own_times(
    commands: CommandArrays,
    kind: Codes,
    kept: npt.NDArray[np.bool_],
    tiles: tuple[Times, Times],
    stage: Codes,
    stages: int,
) -> Times:
    """Return the exclusive time of commands in the tiles of their calls, by stage and kind, int64
    [stages, kinds] in ns.

    `kind` is the kind of each command, `kept` are the kinds that work on a device; `tiles` are
    starts and lengths, `stage` the stages, of the calls.
    """
    begin, length = tiles
    found = np.zeros(stages * len(kept), dtype=np.int64)
    # Tiles are laid one behind the other: a single running maximum serves all of them.
    offset = np.cumsum(length) - length
    tiles_of = (begin, length, offset)
    which = np.empty(len(kind), dtype=np.bool_)
    for batch in batches(len(kind)):
        np.logical_and(kept[kind[batch]], commands.call[batch] >= 0, out=which[batch])
    order, first = _in_order(commands, kind, np.flatnonzero(which), tiles_of)
    until = 0
    for batch in batches(len(order)):
        rows = order[batch]
        call = commands.call[rows]
        last = _in_tiles(call, commands.end[rows], tiles_of)
        before, reach = reaches(last, until)
        own = np.maximum(last - np.maximum(first[batch], before), 0)
        code = stage[call] * np.int64(len(kept)) + kind[rows]
        found += np.bincount(code, own, len(found)).astype(np.int64)  # exact to 2^53
        until = int(reach[-1])
    return found.reshape(stages, -1)


def _in_order(
    commands: CommandArrays, kind: Codes, rows: Times, tiles: _Tiles
) -> tuple[Times, Times]:
    """The rows by when they started in their tiles, and these starts. Rows that started together
    are by end and kind."""
    begun = np.empty(len(rows), dtype=np.int64)
    for batch in batches(len(rows)):
        some = rows[batch]
        begun[batch] = _in_tiles(commands.call[some], commands.start[some], tiles)
    if not is_sorted(begun):
        order = np.argsort(begun, kind="stable")
        rows, begun = rows[order], begun[order]
    same = begun[1:] == begun[:-1]
    if same.any():
        at = np.flatnonzero(np.append(same, [False]) | np.append([False], same))
        tied = rows[at]
        keys = (kind[tied], commands.end[tied], commands.start[tied], begun[at])
        rows[at] = tied[np.lexsort(keys)]
    return rows, begun


def _in_tiles(call: Codes, time: Times, tiles: _Tiles) -> Times:
    """Times as offsets into the tiles of their calls, which are laid one after another."""
    begin, length, offset = tiles
    found: Times = np.clip(time - begin[call], 0, length[call]) + offset[call]
    return found


# --- The modules and operators of a run as a tree, each by itself.
#
# A part of a path that is a number belongs to the part before it: `transformer_blocks.7` is one
# module. An operator is what its module does, by op type, else by the name of its layer.


class Kind(NamedTuple):
    """The columns of a kind of commands that the tree uses."""

    kind: int
    submodule: str
    layer: str
    module: str | None
    place: str
    op_type: str | None
    shapes: str | None
    role: str | None


class Paths(Struct):
    """The nodes of the tree in lists, parents before their children. The first ones are submodules,
    whose parent is -1. `leaf` is the operator of each kind of commands, `own` are the op types and
    shapes of each node's operators."""

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
        """Make the tree of `kinds`; `classes` are the classes of modules by path, of each
        submodule."""
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
        """Add the nodes of one submodule: by module if a path is known, or by role, which is a
        guess, if none of its paths is."""
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
    """The path of a command's module, "" if it has none: the one that was recorded, else what
    the name of its layer says, if that is more than a word or a module that capture saw."""
    root = classes.get("", "")
    if one.module is not None:
        path = one.place if one.place != one.layer else module_path(one.place, root)
        return "" if path == root else path
    path = module_path(one.place, root)
    return path if "." in path or path in classes else ""


def parts_of(path: str) -> list[str]:
    """The parts of a module's path, each number joined to the part before it."""
    found: list[str] = []
    for part in path.split("."):
        if part.isdigit() and found and not found[-1].rpartition(".")[2].isdigit():
            found[-1] = f"{found[-1]}.{part}"
        else:
            found.append(part)
    return found


# --- Equal blocks of a model as one: `transformer_blocks.*` for all 24 of them.
#
# Modules beside one another whose names differ by a number are equal if they are of one class, hold
# modules, and at least four fifths of the operations of the one with fewer are operations of the
# other: in the same module below it, of the same type and shapes. The last block of SD3 has no
# output for the text, and is a block like the others; up-sampling blocks of a VAE, each of another
# resolution, are not.


_ALIKE = 0.8
_NUMBERED = re.compile(r"(.*?)([0-9]+)", re.DOTALL)

_Operation = tuple[str, str | None, str | None]


class Folded(Struct):
    """The nodes of the tree with equal blocks as one, in lists, parents before their children;
    `members` are the nodes of `Paths` that each stands for, `of` is the reverse."""

    parent: list[int] = field(default_factory=list)
    name: list[str] = field(default_factory=list)
    path: list[str] = field(default_factory=list)
    members: list[list[int]] = field(default_factory=list)
    of: list[int] = field(default_factory=list)


def folded(paths: Paths) -> Folded:
    """The nodes of `paths`, with equal blocks as one."""
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
        for children in filter(None, (paths.children[member] for member in members)):
            for key, node_of in _labelled(paths, signatures, children):
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
        if paths.kind[child] is not Node.MODULE:
            continue
        if numbered := _NUMBERED.fullmatch(paths.name[child]):
            stems.setdefault(numbered[1], []).append((int(numbered[2]), child))
    labels: dict[int, str] = {}
    for stem, siblings in stems.items():
        if len(siblings) > 1:
            labels |= _labels(signatures, stem, sorted(siblings))
    return [
        ((paths.kind[child], labels.get(child, paths.name[child])), child) for child in children
    ]


def _labels(signatures: _Signatures, stem: str, siblings: list[tuple[int, int]]) -> dict[int, str]:
    """Return the labels of siblings that have an equal one."""
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
    """The operations of modules, by which blocks are compared; each is made once."""

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
        """Return the operations of a module with their place in it; none if it contains no
        modules."""
        if node not in self._made:
            paths = self._paths
            holds = any(paths.kind[child] is Node.MODULE for child in paths.children[node])
            self._made[node] = frozenset(self._below(node, "")) if holds else frozenset()
        return self._made[node]

    def _below(self, node: int, inside: str) -> Iterator[_Operation]:
        paths = self._paths
        for child in paths.children[node]:
            if paths.kind[child] is Node.MODULE:
                yield from self._below(child, f"{inside}.{paths.name[child]}")
            else:
                yield from [(inside, *own) for own in paths.own[child]]
