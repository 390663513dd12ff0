"""Where in the model the difference lies: submodules, the modules in them, and roles of work.

Times are means over the samples of a side, as in the waterfall, and a node's is that of all that
lies in it, so that what a node consists of adds up to it. Equal blocks are one node, `*`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import polars as pl

from profiler.analysis.comparison.align import REST
from profiler.analysis.comparison.codes import Step, TreeNode
from profiler.analysis.comparison.columns import TREE
from profiler.analysis.comparison.paths import pattern
from profiler.run.columns import schema

__all__ = ["difference_tree"]

_Times = tuple[float, float]  # base, new


@dataclass(slots=True)
class _Node:
    """A module: the times of its own work by role, and the modules in it by name."""

    roles: dict[str, _Times] = field(default_factory=dict)
    inner: dict[str, _Node] = field(default_factory=dict)

    @property
    def times(self) -> _Times:
        found = [*self.roles.values(), *(node.times for node in self.inner.values())]
        return sum(base for base, _ in found), sum(new for _, new in found)


def difference_tree(waterfall: pl.DataFrame, base: pl.DataFrame, new: pl.DataFrame) -> pl.DataFrame:
    """The tree (`columns.TREE`), depth first, of the submodules of the `waterfall` and the samples
    of both sides (`samples.SAMPLE`). Roles without modules are nodes of their submodule."""
    sides = [dict(_modules(samples)) for samples in (base, new)]
    rows: list[tuple[object, ...]] = []
    submodules = waterfall.filter(pl.col("level") == Step.SUBMODULE.value)
    for whole in submodules.iter_rows(named=True):
        name = whole["submodule"]
        own = waterfall.filter(pl.col("submodule") == name)
        root = _rooted(name, own.filter(pl.col("level") == Step.ROLE.value), sides)
        times = (whole["base_ns"], whole["new_ns"])
        rows.append(_row(0, TreeNode.SUBMODULE, name, name, None, None, times))
        rows += _below(root, name, "", 1)
        idle = own.filter(pl.col("level") == Step.IDLE.value)
        for base_ns, new_ns in idle.select("base_ns", "new_ns").iter_rows():
            rows.append(_row(1, TreeNode.IDLE, "", name, None, None, (base_ns, new_ns)))
    return pl.DataFrame(rows, schema=schema(TREE), orient="row")


def _rooted(
    submodule: str, parts: pl.DataFrame, sides: list[dict[tuple[str, str, str], float]]
) -> _Node:
    """The modules of a submodule; each role's are scaled to its time in the waterfall, which they
    make up."""
    root = _Node()
    for part in parts.iter_rows(named=True):
        role, whole = part["role"], (part["base_ns"], part["new_ns"])
        keys = {key for side in sides for key in side if key[:2] == (submodule, role)}
        sums = [sum(side.get(key, 0.0) for key in keys) for side in sides]
        if not any(sums):
            root.roles[role] = whole
            continue
        for key in sorted(keys):
            times = [
                side.get(key, 0.0) / total * time if total else 0.0
                for side, total, time in zip(sides, sums, whole, strict=True)
            ]
            node = root
            for segment in key[2].split(".") if key[2] else ():
                node = node.inner.setdefault(segment, _Node())
            before = node.roles.get(role, (0.0, 0.0))
            node.roles[role] = (before[0] + times[0], before[1] + times[1])
        for at, total in enumerate(sums):
            if not total and whole[at]:  # the other side alone has modules of the role
                before = root.roles.get(role, (0.0, 0.0))
                root.roles[role] = (before[0] + whole[0] * (not at), before[1] + whole[1] * at)
    return root


def _modules(samples: pl.DataFrame) -> Iterator[tuple[tuple[str, str, str], float]]:
    """The mean time of each submodule, role and module, equal blocks together."""
    rows = samples.filter(pl.col("level") == "module")
    means = rows.group_by("submodule", "role", "module", maintain_order=True).agg(
        pl.col("value_ns").mean()
    )
    found: dict[tuple[str, str, str], float] = {}
    for submodule, role, module, value in means.iter_rows():
        key = (submodule, role, "" if module == REST else pattern(module))
        found[key] = found.get(key, 0.0) + value
    yield from found.items()


def _below(node: _Node, submodule: str, path: str, depth: int) -> Iterator[tuple[object, ...]]:
    """What lies in a node, the largest difference first; roles where there are several, or beside
    modules."""
    found: list[tuple[_Times, TreeNode, str]] = [
        *((inner.times, TreeNode.MODULE, name) for name, inner in node.inner.items()),
        *((times, TreeNode.ROLE, role) for role, times in node.roles.items()),
    ]
    if len(found) == 1 and found[0][1] is TreeNode.ROLE and path:
        return
    found.sort(key=lambda one: (-abs(one[0][1] - one[0][0]), one[2]))
    for times, kind, name in found:
        inner = node.inner[name] if kind is TreeNode.MODULE else None
        if inner is None:
            yield _row(depth, kind, name, submodule, path or None, name, times)
            continue
        own = f"{path}.{name}" if path else name
        role = next(iter(inner.roles)) if len(inner.roles) == 1 and not inner.inner else None
        yield _row(depth, kind, name, submodule, own, role, times)
        yield from _below(inner, submodule, own, depth + 1)


def _row(
    depth: int,
    kind: TreeNode,
    name: str,
    submodule: str,
    module: str | None,
    role: str | None,
    times: _Times,
) -> tuple[object, ...]:
    base, new = round(times[0]), round(times[1])
    change = (new - base) / base if base else None
    return (depth, kind.value, name, submodule, module, role, base, new, new - base, change)
