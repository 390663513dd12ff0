"""Module paths and other node metadata of a model → onto the nodes that an optimizer made of it.

Optimizers lose metadata, rename nodes and write new ones. What they hardly ever change is the name
of a value that survives. So a node is, in this order,

1. the node that wrote one of its values before, where it is still of that type: all metadata stay;
2. what stands for the nodes between that value and the values that are still there: it gets the
   longest module path that all of these lie in;
3. the node of its name and type that wrote what is no longer there;
4. a piece of what its values go into: it gets the module path of that.

Nodes that compute sizes or constants alone decide only where nothing else was replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from profiler.graph.metadata import (
    CATEGORY,
    COMMAND_INDEX,
    LAYER,
    OPERATION,
    module_scopes,
    path_of,
    write_path,
)
from profiler.graph.values import Kind, kinds

__all__ = ["KeptPaths", "keep_paths"]

_MOST_REPLACED = 512  # nodes that one is taken to stand for
_OF_PARTS = (LAYER, COMMAND_INDEX, OPERATION, CATEGORY)


@dataclass(frozen=True, slots=True)
class KeptPaths:
    """Nodes of the optimized model by where their module path comes from: those that `survived`,
    those that stand for others (`fused`), and those `without` one; `had` and `before` count nodes
    with a path, and all nodes, of the model before."""

    survived: int
    fused: int
    without: int
    had: int
    before: int


def keep_paths(before: ir.Model, after: ir.Model) -> KeptPaths:
    """Write the metadata of the nodes of `before` on those of `after`, in place."""
    sources = _Sources(before, after)
    nodes = list(after.graph.all_nodes())
    found = {node: sources.of(node) for node in nodes}
    _from_readers(nodes, found)
    survived = fused = without = 0
    for node in nodes:
        replaced = found[node]
        if len(replaced) == 1 and _alike(node, replaced[0]):
            node.metadata_props.update(replaced[0].metadata_props)
            node.doc_string = node.doc_string or replaced[0].doc_string
        else:
            _write_common(node, sources.deciding(replaced))
        if not path_of(node):
            without += 1
        elif len(replaced) == 1 and _alike(node, replaced[0]):
            survived += 1
        else:
            fused += 1
    _number_once(nodes)
    earlier = list(before.graph.all_nodes())
    return KeptPaths(survived, fused, without, sum(map(bool, map(path_of, earlier))), len(earlier))


class _Sources:
    """Finds the nodes of `before` that a node of `after` stands for."""

    def __init__(self, before: ir.Model, after: ir.Model) -> None:
        self._writers = {
            output.name: node
            for node in before.graph.all_nodes()
            for output in node.outputs
            if output.name
        }
        self._named = {node.name: node for node in before.graph.all_nodes() if node.name}
        self._there = {value.name for graph in after.graphs() for value in graph.inputs}
        self._there |= {name for graph in after.graphs() for name in graph.initializers}
        self._there |= {o.name for node in after.graph.all_nodes() for o in node.outputs}
        self._kinds = kinds(before)

    def of(self, node: ir.Node) -> tuple[ir.Node, ...]:
        """The nodes that `node` stands for; none where its values are all new."""
        anchors = [self._writers[o.name] for o in node.outputs if o.name in self._writers]
        for anchor in anchors:
            if _alike(node, anchor):
                return (anchor,)
        if anchors:
            return self._replaced(anchors)
        namesake = self._named.get(node.name or "")
        if namesake is None or not _alike(node, namesake):
            return ()
        gone = all(output.name not in self._there for output in namesake.outputs)
        return (namesake,) if gone else ()

    def _replaced(self, anchors: Iterable[ir.Node]) -> tuple[ir.Node, ...]:
        """The anchors, and what wrote values for them that are no longer there."""
        found = dict.fromkeys(anchors)
        pending = list(found)
        while pending and len(found) < _MOST_REPLACED:
            for value in pending.pop().inputs:
                writer = None if value is None or value.name in self._there else value.producer()
                if writer is not None and writer not in found:
                    found[writer] = None
                    pending.append(writer)
        return tuple(found)

    def deciding(self, replaced: tuple[ir.Node, ...]) -> list[ir.Node]:
        """Those of `replaced` that compute data; all of them where none does."""
        data = [
            node
            for node in replaced
            if any(self._kinds.get(output, Kind.DATA) == Kind.DATA for output in node.outputs)
        ]
        return data or list(replaced)


def _alike(node: ir.Node, other: ir.Node) -> bool:
    return node.op_type == other.op_type and node.domain == other.domain


def _from_readers(nodes: list[ir.Node], found: dict[ir.Node, tuple[ir.Node, ...]]) -> None:
    """Give nodes of which nothing is known what the nodes that read their values stand for."""
    for node in reversed(nodes):
        if found[node]:
            continue
        readers = (use.node for output in node.outputs for use in output.uses())
        known = (other for reader in readers for other in found.get(reader, ()))
        found[node] = tuple(dict.fromkeys(known))[:_MOST_REPLACED]


def _write_common(node: ir.Node, replaced: list[ir.Node]) -> None:
    """Leave the longest module path that all `replaced` lie in, and which part of a split
    operation they were, where they were parts of one layer."""
    known = [other for other in replaced if path_of(other)]
    if not known:
        return
    chains = [module_scopes(other) for other in known]
    if all(chains):
        shared = [pair for pair in chains[0] if all(pair in chain for chain in chains)]
        if shared:
            write_path(node, shared)
    else:
        path = _common(path_of(other) for other in known)
        if path:
            node.metadata_props[LAYER] = path
    _write_part(node, [other.metadata_props for other in replaced])


def _write_part(node: ir.Node, metadata: list[Mapping[str, str]]) -> None:
    parts = [one for one in metadata if one.get(COMMAND_INDEX, "").isdecimal()]
    if not parts or len({one.get(LAYER) for one in metadata}) > 1:
        return
    computing = [one for one in parts if CATEGORY not in one]
    first = min(computing or parts, key=lambda one: int(one[COMMAND_INDEX]))
    for key in _OF_PARTS:
        if key in first:
            node.metadata_props[key] = first[key]


def _common(paths: Iterable[str]) -> str:
    """The longest dotted path that all lie in, "" for none."""
    shared, *others = [path.split(".") for path in paths]
    for other in others:
        same = [one == two for one, two in zip(shared, other, strict=False)]
        shared = shared[: same.index(False) if False in same else len(same)]
    return ".".join(shared)


def _number_once(nodes: list[ir.Node]) -> None:
    """Leave a command's number on the last of the nodes that it has become; the others keep the
    layer."""
    seen: set[tuple[str, str]] = set()
    for node in reversed(nodes):
        index = node.metadata_props.get(COMMAND_INDEX)
        if index is None:
            continue
        key = (node.metadata_props.get(LAYER, ""), index)
        if key in seen:
            del node.metadata_props[COMMAND_INDEX]
        seen.add(key)
