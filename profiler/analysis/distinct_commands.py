"""Kinds of commands: the distinct tuples of what decides what a command is for and computes.

A run of 10 M commands has a few thousand kinds. Whatever follows from submodule, layer, op type,
category and shapes (roles, FLOPs, bytes) is found once a kind, in plain Python, and reaches the
commands through `of_command`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from profiler.analysis.host_side import has_accelerators, host_waits
from profiler.run.columns import CATEGORY
from profiler.run.intervals import (
    Codes,
    Times,
    batches,
    counts,
    physical_codes,
    positions,
    text_codes,
)
from profiler.run.load import place_of

__all__ = ["KIND", "Kinds", "kinds_of"]

KIND = pl.Schema(
    {
        "kind": pl.Int32(),
        "submodule": pl.String(),
        "layer": pl.String(),
        "module": pl.String(),
        "place": pl.String(),
        "op_type": pl.String(),
        "category": CATEGORY,
        "shapes": pl.String(),
        "kernel": pl.String(),
        "host": pl.Boolean(),
        "commands": pl.Int64(),
        "total_ns": pl.Int64(),
    }
)
"""The columns of `Kinds.table`. Null: `submodule` for work of no call, `module`, `op_type`,
`shapes` and `kernel` where the trace has none; `kernel` is that of its first command. `place` says
where in the model the layer lies (`table.places`). `host` says whether its commands are the host's,
no device's (`host_side`). `total_ns` sums durations; a command that never closed counts as 0."""

_OWN = ("layer", "op_type", "category", "shapes")  # columns of commands
_NAMED = ("submodule", *_OWN, "host")
_KEYS = 1 << 63  # keys are below
_MULTIPLIER = np.int64(-7046029254386353131)  # of Fibonacci hashing: 2^64 / golden ratio


class Kinds(Struct, frozen=True, eq=False):
    """The k kinds of n commands.

    `table` has the columns of `KIND`, one row a kind, in order of submodule, layer, op type,
    category, shapes and host; `kind` is the row's number. `of_command` is the row of each command,
    int32 [n].
    """

    table: pl.DataFrame
    of_command: Codes

    def __len__(self) -> int:
        return len(self.table)

    def spread(self, values: pl.Series) -> pl.Series:
        """`values`, one a kind, as one a command."""
        return values.gather(pl.Series(self.of_command.view(np.uint32)))


def kinds_of(
    calls: pl.DataFrame,
    commands: pl.DataFrame,
    rows: Codes | None = None,
    *,
    accelerated: bool | None = None,
) -> Kinds:
    """The kinds of `commands`, whose calls are in `calls`, sorted by `call`.

    `rows` is the row in `calls` of each command, -1 for none, where the caller has it
    (`CommandArrays.call`). `accelerated` says whether the run has accelerators; without it
    `commands` are all of the run's.
    """
    if rows is None:
        rows = positions(commands["call"].to_numpy(), calls["call"].to_numpy())
    if accelerated is None:
        accelerated = has_accelerators(commands["device"].unique())
    waits = host_waits(commands, accelerated=accelerated)
    numbers = _Numbers()
    codes: Codes = np.empty(len(commands), dtype=np.int32)
    duration = commands["duration_ns"].to_numpy()
    for batch, keys in _keys(calls, commands, rows, waits):
        codes[batch] = numbers.of(keys, batch.start)
    first = np.array(numbers.first, dtype=np.int64)
    submodule = calls["submodule"].cast(pl.String)
    row = pl.Series(rows[first])
    first_waits = np.zeros(len(first), np.bool_) if waits is None else waits[first]
    found = (
        commands.select(*_OWN, "module", "kernel")[first]
        .with_columns(pl.col("layer", "module", "op_type", "shapes", "kernel").cast(pl.String))
        .with_columns(
            place=place_of(pl.col("layer"), pl.col("module")),
            submodule=submodule.gather(row.set(row < 0, None)),
            host=(pl.col("category") == "host") | pl.Series(first_waits),
            kind=pl.int_range(pl.len(), dtype=pl.Int32),
            commands=counts(codes, len(first)),
            total_ns=_busy(codes, duration, len(first)),
        )
        .sort(_NAMED, nulls_last=True)
    )
    renumbered = np.empty(len(first), dtype=np.int32)
    renumbered[found["kind"].to_numpy()] = np.arange(len(first))
    for batch in batches(len(codes)):
        codes[batch] = renumbered[codes[batch]]
    table = found.with_columns(kind=pl.int_range(pl.len(), dtype=pl.Int32))
    return Kinds(table.select(pl.col(name).cast(dtype) for name, dtype in KIND.items()), codes)


def _keys(
    calls: pl.DataFrame, commands: pl.DataFrame, rows: Codes, waits: npt.NDArray[np.bool_] | None
) -> Iterator[tuple[slice, Times]]:
    """For a batch of commands at a time one number that is the same where the kind is; `waits` are
    those that their category does not tell from others."""
    submodule, submodules = text_codes(calls["submodule"])
    of_call = np.append(submodule, len(submodules)).astype(np.int64)  # a row of -1 takes the last
    columns: list[tuple[Callable[[slice], Codes], int]] = []
    radix = (len(submodules) + 1) * (1 if waits is None else 2)
    for name in _OWN:
        highest = commands[name].to_physical().max()
        null = highest + 1 if isinstance(highest, int) else 0
        columns.append((partial(physical_codes, commands[name], null=null), null + 1))
        radix *= null + 1
    if radix >= _KEYS:  # codes of a process that has seen many texts: number those of this run
        numbered = (text_codes(commands[name]) for name in _OWN)
        columns = [(codes.__getitem__, len(names) + 1) for codes, names in numbered]
    if waits is not None:
        columns.append((waits.view(np.int8).__getitem__, 2))
    for batch in batches(len(commands)):
        keys: Times = of_call[rows[batch]]
        for codes_of, limit in columns:
            keys *= limit
            keys += codes_of(batch)
        yield batch, keys


class _Numbers:
    """Numbers keys (int64, at least 0) from 0 in order of appearance.

    A table by hash holds most of them: one gather a row. A key that another one keeps out of the
    table is looked up in a dictionary.
    """

    def __init__(self) -> None:
        self.first: list[int] = []  # the row of each number's first key
        self._known: dict[int, int] = {}
        self._resize(16)

    def of(self, keys: Times, offset: int) -> npt.NDArray[np.int32]:
        """The number of each key; `offset` is the row of the first."""
        slots = self._slots(keys)
        found = self._values[slots]
        other = np.flatnonzero(self._keys[slots] != keys)
        if len(other):
            distinct, index, inverse = np.unique(
                keys[other], return_index=True, return_inverse=True
            )
            numbers = [
                self._number(key, offset + row)
                for key, row in zip(distinct.tolist(), other[index].tolist(), strict=True)
            ]
            found[other] = np.array(numbers, dtype=np.int32)[inverse]
            if len(self._known) > len(self._keys) // 8:
                self._resize(self._bits + 4)
        return found

    def _number(self, key: int, row: int) -> int:
        number = self._known.get(key)
        if number is None:
            number = self._known[key] = len(self._known)
            self.first.append(row)
            self._enter(np.array([key]), np.array([number]))
        return number

    def _slots(self, keys: Times) -> Times:
        hashed = keys * _MULTIPLIER
        hashed >>= 64 - self._bits
        hashed &= (1 << self._bits) - 1
        return hashed

    def _enter(self, keys: Times, numbers: Times) -> None:
        slots = self._slots(keys)
        free = self._keys[slots] < 0
        self._keys[slots[free]], self._values[slots[free]] = keys[free], numbers[free]

    def _resize(self, bits: int) -> None:
        self._bits = bits
        self._keys = np.full(1 << bits, -1, dtype=np.int64)
        self._values = np.zeros(1 << bits, dtype=np.int32)
        known = np.array([*self._known], dtype=np.int64)
        self._enter(known, np.arange(len(known)))


def _busy(codes: Codes, duration: Times, groups: int) -> Times:
    """The sum of the durations of each group, int64 [groups]."""
    sums = np.zeros(groups, dtype=np.int64)
    for rows in batches(len(codes)):
        part = np.bincount(codes[rows], np.maximum(duration[rows], 0), groups)  # exact to 2^53
        sums += part.astype(np.int64)
    return sums
