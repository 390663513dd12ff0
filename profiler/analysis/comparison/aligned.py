"""Two timelines, call by call: which call of one is which of the other, and where both begin when
the calls stand below each other.

    base   | encode |  step 0  |      | step 1 |
    new    | encode |  step 0         | step 1    |
                                      ^ at_ns

A call is found by its submodule, branch and step, and by its place among those that share all
three; by step and place alone where the sides have no submodule in common.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from profiler.analysis.comparison.columns import PAIRED_CALLS
from profiler.analysis.comparison.timeline import Timeline
from profiler.run.columns import schema

__all__ = ["aligned_calls"]

_KEYS = ("submodule", "branch", "step", "nth")


def aligned_calls(base: Timeline, new: Timeline) -> pl.DataFrame:
    """The calls of both sides (`columns.PAIRED_CALLS`), in their order. `base_call` and `new_call`
    are rows of the timelines' calls, null where a side has none."""
    common = {*base.calls["submodule"]} & {*new.calls["submodule"]}
    by = _KEYS if common else ("step", "nth")
    sides = [_keyed(side.calls, by) for side in (base, new)]
    of_base, of_new = ({key: at for at, key in enumerate(keys)} for keys in sides)
    rows, at, begins = [], 0, (base.calls["start_ns"], new.calls["start_ns"])
    starts: dict[str, tuple[int, int]] = {}  # of the last call of a side: where it begins, and is
    for key in _merged(*sides):
        found = {"base": of_base.get(key), "new": of_new.get(key)}
        for (name, call), begin in zip(found.items(), begins, strict=True):
            if call is not None and name in starts:
                before, stood = starts[name]
                at = max(at, stood + begin[call] - before)
            elif call is not None:
                at = max(at, begin[call])
        for (name, call), begin in zip(found.items(), begins, strict=True):
            if call is not None:
                starts[name] = (begin[call], at)
        rows.append(_row(base, new, found["base"], found["new"], at))
    return pl.DataFrame(rows, schema=schema(PAIRED_CALLS), orient="row")


def _keyed(calls: pl.DataFrame, by: tuple[str, ...]) -> list[tuple[object, ...]]:
    """What each call is found by, in order."""
    alike = [name for name in by if name != "nth"]
    numbered = calls.with_columns(nth=pl.int_range(pl.len()).over(*alike))
    return [*numbered.select(by).iter_rows()]


def _merged(
    base: list[tuple[object, ...]], new: list[tuple[object, ...]]
) -> Iterator[tuple[object, ...]]:
    """The keys of both in the order of the base; those that only the new side has before the next
    common one."""
    known, passed = {*base}, set[object]()
    left = iter(base)
    for key in new:
        if key not in known:
            yield key
        if key not in known or key in passed:  # or the sides execute it in another order
            continue
        for other in left:
            passed.add(other)
            yield other
            if other == key:
                break
    yield from left


def _row(
    base: Timeline, new: Timeline, left: int | None, right: int | None, at: int
) -> tuple[object, ...]:
    sides = ((base.calls, left), (new.calls, right))
    calls, row = next((calls, row) for calls, row in sides if row is not None)
    times = [
        (None, None) if row is None else (calls["start_ns"][row], calls["elapsed_ns"][row])
        for calls, row in sides
    ]
    (base_start, base_ns), (new_start, new_ns) = times
    difference = None if base_ns is None or new_ns is None else new_ns - base_ns
    names = (calls[name][row] for name in ("stage", "submodule", "branch", "step"))
    return (*names, left, right, base_start, base_ns, new_start, new_ns, difference, at)
