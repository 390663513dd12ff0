"""Module paths of two sides: read from layers, translated to each other, matched at the nearest
module that both have."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

__all__ = ["class_paths", "nearest_common", "pattern"]

_NUMBER = re.compile(r"(?<![0-9A-Za-z])[0-9]+(?![0-9A-Za-z])")
_NOT_CALLED = frozenset(("ModuleList", "ModuleDict", "ParameterList", "ParameterDict"))


def class_paths(modules: Mapping[str, str]) -> dict[str, str]:
    """Paths of classes, as importers of torch traces write them, by module path.

    `modules` has the class of each module by its path, in the order of `named_modules`. A class
    that a parent has several times is numbered: `T5Stack.T5Block_0.T5LayerFF`. Lists of modules
    are never called and have no part in the path.
    """
    called = {path: name for path, name in modules.items() if path and name not in _NOT_CALLED}
    parents = {path: _called_parent(path, called) for path in called}
    siblings: dict[tuple[str, str], list[str]] = {}
    for path, name in called.items():
        siblings.setdefault((parents[path], name), []).append(path)
    labels: dict[str, str] = {}
    for (_, name), paths in siblings.items():
        several = len(paths) > 1
        labels |= {path: f"{name}_{i}" if several else name for i, path in enumerate(paths)}
    found = {"": ""}
    for path in sorted(called, key=lambda path: path.count(".")):
        above = found[parents[path]]
        found[path] = f"{above}.{labels[path]}" if above else labels[path]
    return found


def _called_parent(path: str, called: Mapping[str, str]) -> str:
    return next((above for above in _above(path) if above in called), "")


def nearest_common(base: Iterable[str], new: Iterable[str]) -> dict[str, str]:
    """For each path of either side the deepest module around it, or itself, that both know: one
    that is on a path of both. "" is on every path."""
    sides = [set(base), set(new)]
    known = [{part for path in paths for part in (path, *_above(path))} for paths in sides]
    common = (known[0] & known[1]) | {""}
    return {
        path: next(part for part in (path, *_above(path)) if part in common)
        for paths in sides
        for path in paths
    }


def pattern(path: str) -> str:
    """`path` with every number that stands alone replaced by `*`; `conv1` stays."""
    return _NUMBER.sub("*", path)


def _above(path: str) -> Iterator[str]:
    """The paths of the modules around a path, from the inside out, "" last."""
    while path:
        path = path.rpartition(".")[0]
        yield path
