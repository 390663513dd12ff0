"""What an analysis knows of every command: its role, FLOPs and bytes."""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl

from profiler.analysis.distinct_commands import Kinds, kinds_of
from profiler.analysis.roles.of_commands import roles_of_commands
from profiler.analysis.roles.of_kinds import roles_of
from profiler.analysis.work.of_kinds import kind_work
from profiler.run.intervals import positions
from profiler.run.run import Run

__all__ = ["AnnotatedCommands", "annotated_commands"]

_WORK = ("flops", "bytes_read", "bytes_written")


@dataclass(slots=True, eq=False)
class AnnotatedCommands:
    """Commands as recorded, their kinds, a role a kind; `frame` is made when first asked for."""

    commands: pl.DataFrame
    kinds: Kinds
    roles: pl.DataFrame
    _made: pl.DataFrame | None = field(default=None, init=False, repr=False)

    @property
    def frame(self) -> pl.DataFrame:
        """The commands, same rows and columns, with `role`, `flops`, `bytes_read`, `bytes_written`
        (int64, bytes) of those whose producer told none: what a formula of `profiler.analysis.work`
        gives for one command, a share of its operator's where that launched several kernels. Null
        where none fits."""
        if self._made is None:
            role = roles_of_commands(self.commands["role"], self.kinds, self.roles)
            works = _works(self.kinds, self.commands)
            self._made = self.commands.with_columns(role=role).with_columns(works)
        return self._made


def _works(kinds: Kinds, commands: pl.DataFrame) -> list[pl.Series]:
    """FLOPs and bytes of each command, as recorded, else by formula."""
    works = kind_work(kinds, commands).works
    found = []
    for name in _WORK:
        values = [getattr(work, name) if work else None for work in works]
        each = [
            None if value is None or work is None else min(value // work.parts, (1 << 63) - 1)
            for value, work in zip(values, works, strict=True)
        ]
        derived = kinds.spread(pl.Series(each, dtype=pl.Int64))
        recorded = commands[name]
        found.append(recorded.zip_with(recorded.is_not_null(), derived).alias(name))
    return found


def annotated_commands(run: Run) -> pl.DataFrame:
    """`run.commands` with what an analysis knows of them (`AnnotatedCommands.frame`)."""
    calls = run.calls.sort("call")
    rows = positions(run.commands["call"].to_numpy(), calls["call"].to_numpy())
    kinds = kinds_of(calls, run.commands, rows)
    roles = roles_of(run.info.submodules, kinds, rows, run.commands["role"])
    return AnnotatedCommands(run.commands, kinds, roles).frame
