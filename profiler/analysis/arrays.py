"""Commands as NumPy arrays: what the interval arithmetic of this package works on."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields

import numpy as np
import polars as pl

from profiler.run.intervals import Codes, CommandTimes, batches, text_codes
from profiler.trace.events import CATEGORIES

__all__ = [
    "HOST",
    "SYNC",
    "CommandArrays",
    "dense_codes",
    "queue_codes",
]

HOST = CATEGORIES.index("host")
SYNC = CATEGORIES.index("sync")
_OF_STREAM = r" (memcpy|copy|collectives)$"


@dataclass(frozen=True, slots=True, eq=False)
class CommandArrays(CommandTimes):
    """The times of n commands, and the `step` of each, int32 [n]."""

    step: Codes

    @classmethod
    def of(cls, commands: pl.DataFrame, calls: pl.DataFrame) -> CommandArrays:
        """The arrays of a frame of commands; `calls` holds their calls."""
        times = CommandTimes.of(commands, calls)
        known = {each.name: getattr(times, each.name) for each in fields(CommandTimes)}
        return cls(**known, step=commands["step"].to_numpy())


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
