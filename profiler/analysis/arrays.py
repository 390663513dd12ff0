"""Commands as NumPy arrays: what the interval arithmetic of this package works on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from profiler.analysis.intervals import Codes, Times
from profiler.events import CATEGORIES

__all__ = ["HOST", "CommandArrays", "dense_codes", "ends", "positions", "text_codes"]

HOST = CATEGORIES.index("host")


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

    def where(self, rows: npt.NDArray[np.bool_]) -> CommandArrays:
        """Only the commands that `rows`, bool [n], keeps."""
        if rows.all():
            return self
        return CommandArrays(
            self.call[rows],
            self.step[rows],
            self.start[rows],
            self.end[rows],
            self.device[rows],
            self.devices,
            self.category[rows],
        )


def ends(frame: pl.DataFrame) -> Times:
    """`start_ns + duration_ns`, int64 [n]; a negative duration counts as none."""
    end: Times = (
        frame.select(pl.col("start_ns") + pl.col("duration_ns").clip(0)).to_series().to_numpy()
    )
    return end


def text_codes(column: pl.Series) -> tuple[Codes, list[str]]:
    """Codes from 0 for a text column and what they stand for; null has the code behind the last."""
    physical = column.to_physical()
    present = column.unique().drop_nulls()
    names = present.cast(pl.String).to_list()
    order = sorted(range(len(names)), key=names.__getitem__)
    found = present.to_physical().to_numpy()
    null = int(found.max(initial=0)) + 1
    table = np.full(null + 1, len(names), dtype=np.int32)
    table[found[order]] = np.arange(len(names))
    codes = table[physical.fill_null(null).to_numpy()]
    return codes, [names[i] for i in order]


def positions(keys: Codes, values: Codes) -> Codes:
    """Where each key stands in the sorted, distinct `values`, -1 where it does not."""
    if not len(values):
        return np.full(len(keys), -1, dtype=np.int32)
    found = np.searchsorted(values, keys).astype(np.int32)
    np.minimum(found, len(values) - 1, out=found)
    found[values[found] != keys] = -1
    return found


def dense_codes(codes: Codes, limit: int) -> tuple[Codes, Codes]:
    """`(values, inverse)` as `np.unique` gives them, for codes from 0 to `limit - 1`."""
    if limit > 4 * len(codes) + (1 << 16):
        values, inverse = np.unique(codes, return_inverse=True)
        return values, inverse
    table = np.zeros(limit, dtype=np.int32)
    table[codes] = 1
    values = np.flatnonzero(table)
    table[values] = np.arange(len(values))
    return values, table[codes]
