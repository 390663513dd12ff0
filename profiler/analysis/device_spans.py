"""From when to when each device had anything to do: its commands and the tiles of its calls."""

from __future__ import annotations

import numpy as np
import polars as pl

from profiler.analysis.arrays import CommandArrays
from profiler.run.intervals import Codes, Times, batches, group_heads, text_codes
from profiler.run.run import Run

__all__ = ["device_spans", "extent"]


def device_spans(run: Run, commands: CommandArrays) -> dict[str, tuple[int, int]]:
    """By device, the first begin and the last end of its commands and of the tiles on it, in ns;
    `commands` are those of `run`, devices without either are left out."""
    tiles = run.tiles.calls
    codes, names = text_codes(tiles["tile_device"].cast(pl.Categorical()))
    found: dict[str, tuple[int, int]] = {}
    for of, start, end, device in (
        (commands.devices, commands.start, commands.end, commands.device),
        (names, tiles["begin_ns"].to_numpy(), tiles["end_ns"].to_numpy(), codes),
    ):
        there = np.where(device < len(of), device, -1)
        for name, first, last in zip(of, *extent(start, end, there, len(of)), strict=True):
            if first <= last:
                before = found.get(name, (first, last))
                found[name] = (min(int(first), before[0]), max(int(last), before[1]))
    return found


def extent(start: Times, end: Times, codes: Codes, groups: int) -> tuple[Times, Times]:
    """First start and last end of each group, int64 [groups], the latter before the former where
    it has none; codes below 0 are of none."""
    first = np.full(groups + 1, np.iinfo(np.int64).max)
    last = np.full(groups + 1, np.iinfo(np.int64).min)
    for rows in batches(len(codes)):
        heads = group_heads(codes[rows])
        group = codes[rows][heads]  # -1 takes the last
        np.minimum.at(first, group, np.minimum.reduceat(start[rows], heads))
        np.maximum.at(last, group, np.maximum.reduceat(end[rows], heads))
    return first[:-1], last[:-1]
