"""How long each kind of command ran in each call: few numbers that stand for many commands.

Step times, what is computed twice, and what stays the same from step to step all follow from them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from profiler.analysis.arrays import CommandArrays
from profiler.analysis.distinct_commands import Kinds
from profiler.run.intervals import Codes, Times, counts, is_sorted

__all__ = ["CallKinds", "rows_by_call"]


class CallKinds(Struct, frozen=True, eq=False):
    """One row a call and kind that ran in it, by call, then kind; int64 [n] each.

    `call` is a row of the frame of calls; work of no call is left out. `busy` sums the durations of
    the `commands`.
    """

    call: Times
    kind: Times
    commands: Times
    busy: Times

    @classmethod
    def of(cls, kinds: Kinds, commands: CommandArrays, calls: int) -> CallKinds:
        """Fold `commands`, whose kinds are `kinds`, into those of the `calls` calls."""
        none = np.zeros(0, dtype=np.int64)
        parts: list[tuple[Times, ...]] = [(none,) * 4]
        for call, rows in rows_by_call(commands.call, calls):
            code = kinds.of_command[rows]
            number = np.bincount(code, minlength=len(kinds))
            duration = commands.end[rows] - commands.start[rows]
            busy = np.bincount(code, duration, len(kinds)).astype(np.int64)  # exact to 2^53
            kind = np.flatnonzero(number)
            parts.append((np.full(len(kind), call), kind, number[kind], busy[kind]))
        return cls(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def rows_by_call(call: Codes, calls: int) -> Iterator[tuple[int, slice | Times]]:
    """The rows of each call that has any; `call` is the call of each row, below 0 for none."""
    order = None if is_sorted(call) else np.argsort(call, kind="stable")
    number = counts(call, calls)
    last = len(call) - int(number.sum()) + np.cumsum(number)
    for found in np.flatnonzero(number).tolist():
        rows = slice(int(last[found] - number[found]), int(last[found]))
        yield found, rows if order is None else order[rows]
