"""Commands as NumPy arrays: what the interval arithmetic of this package works on."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import polars as pl

from profiler.events import CATEGORIES
from profiler.table.batches import Codes, Times, batches

__all__ = [
    "HOST",
    "SYNC",
    "CommandArrays",
    "dense_codes",
    "ends",
    "physical_codes",
    "positions",
    "queue_codes",
    "text_codes",
]

HOST = CATEGORIES.index("host")
SYNC = CATEGORIES.index("sync")
_FEW = 1 << 10  # rows
_OF_STREAM = r" (memcpy|copy|collectives)$"


@dataclass(frozen=True, slots=True, eq=False)
class CommandArrays:
    """n commands. `call` is a row of the frame of calls, -1 for none; `device` indexes `devices`
    (a command on no device has the code behind the last), `category` indexes `CATEGORIES`. A
    command that never closed ends where it starts."""

    call: Codes
    step: Codes
    start: Times
    end: Times
    device: Codes
    devices: tuple[str, ...]
    category: Codes

    @classmethod
    def of(cls, commands: pl.DataFrame, calls: pl.DataFrame) -> CommandArrays:
        """The arrays of a frame of commands; `calls` holds their calls, sorted by `call`."""
        device, devices = text_codes(commands["device"])
        return cls(
            call=positions(commands["call"].to_numpy(), calls["call"].to_numpy()),
            step=commands["step"].to_numpy(),
            start=commands["start_ns"].to_numpy(),
            end=ends(commands),
            device=device,
            devices=tuple(devices),
            category=commands["category"].to_physical().to_numpy(),
        )


def ends(frame: pl.DataFrame) -> Times:
    """`start_ns + duration_ns`, int64 [n]; a negative duration counts as none."""
    end: Times = np.maximum(frame["duration_ns"].to_numpy(), 0)
    end += frame["start_ns"].to_numpy()
    return end


def text_codes(column: pl.Series) -> tuple[Codes, list[str]]:
    """Codes from 0 for a text column and what they stand for; null has the code behind the last."""
    if len(column) <= _FEW:
        return _few_text_codes(column)
    present = column.unique().drop_nulls()
    names = present.cast(pl.String).to_list()
    order = sorted(range(len(names)), key=names.__getitem__)
    found = present.to_physical().to_numpy()
    null = int(found.max(initial=0)) + 1
    table = np.full(null + 1, len(names), dtype=np.int32)
    table[found[order]] = np.arange(len(names))
    codes = np.empty(len(column), dtype=np.int32)
    for rows in batches(len(column)):
        codes[rows] = table[physical_codes(column, rows, null)]
    return codes, [names[i] for i in order]


def _few_text_codes(column: pl.Series) -> tuple[Codes, list[str]]:
    """The same of a short column, where each expression would take longer than the work."""
    texts = column.to_list()
    names = sorted({text for text in texts if text is not None})
    codes = {text: code for code, text in enumerate(names)} | {None: len(names)}
    return np.array([codes[text] for text in texts], dtype=np.int32), names


def physical_codes(column: pl.Series, rows: slice, null: int) -> Codes:
    """The codes that a categorical column has inside, of some rows; null has the code `null`."""
    codes = column[rows].to_physical()
    return (codes.fill_null(null) if codes.null_count() else codes).to_numpy()


def positions(keys: Codes, values: Codes) -> Codes:
    """Where each key stands in the sorted, distinct `values`, -1 where it does not; int32."""
    found = np.full(len(keys), -1, dtype=np.int32)
    for rows in batches(len(keys) if len(values) else 0):
        place = np.minimum(np.searchsorted(values, keys[rows]), len(values) - 1)
        found[rows] = np.where(values[place] == keys[rows], place, -1)
    return found


def dense_codes(codes: Codes, limit: int) -> tuple[Codes, Codes]:
    """`(values, inverse)` as `np.unique` gives them, for codes from 0 to `limit - 1`.

    The inverse is written over `codes`.
    """
    if limit > 4 * len(codes) + (1 << 16):
        values, codes[:] = np.unique(codes, return_inverse=True)
        return values, codes
    table = np.zeros(limit, dtype=np.int32)
    table[codes] = 1
    values = np.flatnonzero(table)
    table[values] = np.arange(len(values))
    for rows in batches(len(codes)):
        codes[rows] = table[codes[rows]]
    return values, codes


def queue_codes(track: pl.Series) -> tuple[Codes, int]:
    """A number for the queue of each track, and how many numbers there are: kernels of a stream and
    its copies are on tracks of their own, and in one queue."""
    codes, names = text_codes(track)
    queues = [re.sub(_OF_STREAM, "", name) for name in names]
    number = {name: place for place, name in enumerate(dict.fromkeys(queues))}
    table = np.array([*(number[name] for name in queues), len(number)], dtype=np.int32)
    return table[codes], len(number) + 1
