"""When calls were under way, and on which devices: what both idle times and paths start from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from profiler.analysis.arrays import HOST, CommandArrays
from profiler.run.intervals import Times, batches, ends, group_heads, text_codes

__all__ = ["CallExtents"]


@dataclass(frozen=True, slots=True, eq=False)
class CallExtents:
    """n calls: `start` and `end` as their caller saw them, `done` when their last command had
    ended, where that was later: devices that work through a queue return to the caller before.
    `uses` tells on which of `devices` each was placed or ran anything but host work,
    bool [n, devices]."""

    start: Times
    end: Times
    done: Times
    devices: tuple[str, ...]
    uses: npt.NDArray[np.bool_]
    placed: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, calls: pl.DataFrame, commands: CommandArrays) -> CallExtents:
        """The extents of `calls`; `commands` are theirs and those of no call."""
        codes, names = text_codes(calls["device"])
        devices = tuple(sorted({*names, *commands.devices}))
        of_name = {name: number for number, name in enumerate(devices)}
        placed = np.zeros((len(calls), len(devices)), dtype=np.bool_)
        column = np.array([*(of_name[name] for name in names), 0], dtype=np.int64)[codes]
        placed[np.arange(len(calls)), column] = True
        column = np.array([*(of_name[name] for name in commands.devices), -1], dtype=np.int64)
        end = ends(calls)
        return cls(
            start=calls["start_ns"].to_numpy(),
            end=end,
            done=np.maximum(end, _last_ends(commands, end)),
            devices=devices,
            uses=placed | _used(commands, column, placed.shape),
            placed=placed,
        )


def _last_ends(commands: CommandArrays, end: Times) -> Times:
    """When the last command of each call had ended; `end` where it has none."""
    done = end.copy()
    if len(commands.call):
        heads = group_heads(commands.call)  # commands are in order of their calls, mostly
        last = np.maximum.reduceat(commands.end, heads)
        of_call = commands.call[heads]
        np.maximum.at(done, of_call[of_call >= 0], last[of_call >= 0])
    return done


def _used(commands: CommandArrays, column: Times, shape: tuple[int, int]) -> npt.NDArray[np.bool_]:
    """Which call ran something but host work on which device."""
    used = np.zeros(shape[0] * shape[1], dtype=np.bool_)
    for rows in batches(len(commands.call)):
        call, device = commands.call[rows], column[commands.device[rows]]
        kept = (commands.category[rows] != HOST) & (call >= 0) & (device >= 0)
        used[(call * np.int64(shape[1]) + device)[kept]] = True
    return used.reshape(shape)
