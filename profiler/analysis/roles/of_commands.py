"""The role of every command of a run."""

from __future__ import annotations

import numpy as np
import polars as pl

from profiler.analysis.distinct_commands import Kinds, kinds_of
from profiler.analysis.roles.of_kinds import roles_of
from profiler.run.intervals import positions
from profiler.run.run import Run

__all__ = ["roles_of_commands", "with_roles"]


def with_roles(run: Run, kinds: Kinds | None = None, roles: pl.DataFrame | None = None) -> Run:
    """`run` with the role of every command that a producer left without one.

    `kinds` and `roles` are those of all commands of the run, where they are known.
    """
    if kinds is None or roles is None or len(kinds.of_command) != len(run.commands):
        calls = run.calls.sort("call")
        rows = positions(run.commands["call"].to_numpy(), calls["call"].to_numpy())
        kinds = kinds_of(calls, run.commands, rows)
        roles = roles_of(run.info.submodules, kinds, rows, run.commands["role"])
    return run.with_role(roles_of_commands(run.commands["role"], kinds, roles))


def roles_of_commands(given: pl.Series, kinds: Kinds, roles: pl.DataFrame) -> pl.Series:
    """The `given` role of each command, where its producer told none that of its kind."""
    found = kinds.spread(roles["role"])
    if given.null_count() < len(given):
        found = given.zip_with(given.is_not_null(), found)
    return _in_pieces_of(given, found)


def _in_pieces_of(column: pl.Series, values: pl.Series) -> pl.Series:
    """`values` in the pieces of another column of a frame, which else is copied into one."""
    ends = np.cumsum(column.chunk_lengths()).tolist()
    pieces = [values[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    return pl.concat(pieces, rechunk=False) if len(pieces) > 1 else values
