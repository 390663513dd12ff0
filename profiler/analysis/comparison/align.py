"""Under which name a module of either side is compared: that of the nearest module both have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import polars as pl

from profiler.analysis.comparison.measure import Measurement
from profiler.analysis.comparison.paths import class_paths, nearest_common, pattern

__all__ = ["REST", "align_modules"]

REST = "(rest)"  # what lies in no module that both sides have

_ALIGNED = pl.Schema(
    dict.fromkeys(("submodule", "role", "module", "as", "level"), pl.String())  # per row a name
)
_Places = dict[tuple[str, str], set[str]]  # module paths by submodule and role
_Translation = dict[str, dict[str, str]]  # by submodule: its paths in the words of the other side


def align_modules(
    base: Sequence[Measurement], new: Sequence[Measurement]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """For each side `submodule`, `role`, `module`, the name `as` which it is compared and the
    `level` of that name, for `samples_of`.

    Within each role of a submodule a module is compared as the nearest module that lies on a path
    of both sides. Where the other side has nothing there it keeps its own name, and is then only
    in one side. Roles of which only the submodule itself is common have no modules. Modules that
    differ in numbers alone are also compared together, as `modules`.
    """
    sides = (base, new)
    words = _translations(sides)
    places = [_places(side, translated) for side, translated in zip(sides, words, strict=True)]
    names = {key: _names(places[0][key], places[1][key]) for key in places[0].keys() & places[1]}
    tables = []
    for side, translated in zip(sides, words, strict=True):
        rows = [
            (submodule, role, path, name, level)
            for (submodule, role), paths in sorted(_own_places(side).items())
            for path in sorted(paths)
            for level, name in names.get((submodule, role), {}).get(
                translated.get(submodule, {}).get(path, path), ()
            )
        ]
        tables.append(pl.DataFrame(rows, schema=_ALIGNED, orient="row"))
    return tables[0], tables[1]


def _names(base: set[str], new: set[str]) -> dict[str, list[tuple[str, str]]]:
    """Level and name as which each path is compared; none at all where only the submodule itself
    is common."""
    nearest = nearest_common(base, new)
    both = {nearest[path] for path in base} & {nearest[path] for path in new}
    if not both - {""}:
        return {}
    alike = Counter(map(pattern, both))
    found = {}
    for path in base | new:
        name = nearest[path]
        found[path] = [("module", (name or REST) if name in both else path)]
        if name in both and alike[pattern(name)] > 1:
            found[path].append(("modules", pattern(name)))
    return found


def _own_places(side: Sequence[Measurement]) -> _Places:
    """The module paths of each submodule and role, as this side names them."""
    found: _Places = {}
    for measured in side:
        rows = measured.work.select("submodule", "role", "module").unique().iter_rows()
        for submodule, role, path in rows:
            found.setdefault((submodule, role), set()).add(path)
    return found


def _places(side: Sequence[Measurement], translated: _Translation) -> _Places:
    """The same, as they are compared."""
    return {
        (submodule, role): {translated.get(submodule, {}).get(path, path) for path in paths}
        for (submodule, role), paths in _own_places(side).items()
    }


def _translations(
    sides: tuple[Sequence[Measurement], Sequence[Measurement]],
) -> tuple[_Translation, _Translation]:
    """Paths of one side in classes, where the other side names classes.

    Importers of torch traces know modules by their classes. Where a run of one side has the class
    of each module, and more of its paths are then those of the other side, they are translated.
    """
    known = [_by_submodule(side) for side in sides]
    found: tuple[_Translation, _Translation] = ({}, {})
    for submodule in known[0].keys() & known[1].keys():
        paths = [known[0][submodule], known[1][submodule]]
        most = len((paths[0] & paths[1]) - {""})
        for at in (0, 1):
            classes = _classes(sides[at], submodule)
            if not classes:
                continue
            by_class = class_paths(classes)
            translated = {path: _in_classes(path, by_class) for path in paths[at]}
            common = len((set(translated.values()) & paths[1 - at]) - {""})
            if common > most:
                most = common
                found[1 - at].pop(submodule, None)
                found[at][submodule] = translated
    return found


def _by_submodule(side: Sequence[Measurement]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for (submodule, _), paths in _own_places(side).items():
        found.setdefault(submodule, set()).update(paths)
    return found


def _classes(side: Sequence[Measurement], submodule: str) -> dict[str, str]:
    """The classes of the modules of a submodule, of the first run that has them."""
    known = (measured.modules.get(submodule, {}) for measured in side)
    return dict(next((classes for classes in known if classes), {}))


def _in_classes(path: str, by_class: dict[str, str]) -> str:
    """`path` in classes, as deep as these are known."""
    while path not in by_class and path:
        path = path.rpartition(".")[0]
    return by_class.get(path, path)
