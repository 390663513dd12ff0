"""What an analysis knows of every command: its role, FLOPs and bytes."""

from __future__ import annotations

import polars as pl

from profiler.analysis.arrays import positions
from profiler.analysis.distinct_commands import kinds_of
from profiler.analysis.roles.of_commands import with_roles
from profiler.analysis.roles.of_kinds import roles_of
from profiler.analysis.work.of_kinds import kind_work
from profiler.table.run import Run

__all__ = ["annotated_commands"]

_WORK = ("flops", "bytes_read", "bytes_written")


def annotated_commands(run: Run) -> pl.DataFrame:
    """`run.commands` with `role`, `flops`, `bytes_read`, `bytes_written` (int64, bytes) of commands
    whose producer told none: what a formula of `profiler.analysis.work` gives for one command, a
    share of its operator's where that launched several kernels. Null where none fits."""
    calls = run.calls.sort("call")
    rows = positions(run.commands["call"].to_numpy(), calls["call"].to_numpy())
    kinds = kinds_of(calls, run.commands, rows)
    roles = roles_of(run.info.submodules, kinds, rows, run.commands["role"])
    commands = with_roles(run, kinds, roles).commands
    works = kind_work(kinds, run.commands).works
    for name in _WORK:
        values = [getattr(work, name) if work else None for work in works]
        each = [
            None if value is None or work is None else min(value // work.parts, (1 << 63) - 1)
            for value, work in zip(values, works, strict=True)
        ]
        found = kinds.spread(pl.Series(each, dtype=pl.Int64))
        commands = commands.with_columns(pl.coalesce(name, found).alias(name))
    return commands
