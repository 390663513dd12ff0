"""When the commands of a run ran, where, and in which call: arrays that everything is made from
that asks what devices did."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import polars as pl

from profiler.table.batches import Codes, Times, batches

__all__ = [
    "CommandTimes",
    "codes_of_text",
    "ends",
    "physical_codes",
    "positions",
    "rows_of_calls",
    "text_codes",
]

_FEW = 1 << 10  # rows


@dataclass(frozen=True, slots=True, eq=False)
class CommandTimes:
    """n commands. `call` is a row of the frame of calls, -1 for none; `device` indexes `devices`
    (a command on no device has the code behind the last), `category` indexes `CATEGORIES`. A
    command that never closed ends where it starts."""

    call: Codes
    start: Times
    end: Times
    device: Codes
    devices: tuple[str, ...]
    category: Codes

    @classmethod
    def of(cls, commands: pl.DataFrame, calls: pl.DataFrame) -> CommandTimes:
        """Those of a frame of commands; `calls` holds their calls, in any order."""
        device, devices = text_codes(commands["device"])
        start = commands["start_ns"].to_numpy()
        return cls(
            call=rows_of_calls(commands["call"], calls["call"]),
            start=start,
            end=_ends(commands, start),
            device=device,
            devices=tuple(devices),
            category=commands["category"].to_physical().to_numpy(),
        )


def ends(frame: pl.DataFrame) -> Times:
    """`start_ns + duration_ns`, int64 [n]; a negative duration counts as none."""
    return _ends(frame, frame["start_ns"].to_numpy())


def _ends(frame: pl.DataFrame, start: Times) -> Times:
    duration, end = frame["duration_ns"], np.empty(len(frame), dtype=np.int64)
    for rows in batches(len(frame)):
        np.maximum(duration[rows].to_numpy(), 0, out=end[rows])
        end[rows] += start[rows]
    return end


def text_codes(column: pl.Series) -> tuple[Codes, list[str]]:
    """Codes from 0 for a text column and what they stand for; null has the code behind the last."""
    if len(column) <= _FEW:
        return _few_text_codes(column)
    of_rows, names = codes_of_text(column)
    codes = np.empty(len(column), dtype=np.int32)
    for rows in batches(len(column)):
        codes[rows] = of_rows(rows)
    return codes, names


def codes_of_text(column: pl.Series) -> tuple[Callable[[slice], Codes], list[str]]:
    """The same, a batch of rows at a time."""
    if len(column) <= _FEW:
        codes, texts = _few_text_codes(column)
        return codes.__getitem__, texts
    present = column.unique().drop_nulls()
    names = present.cast(pl.String).to_list()
    order = sorted(range(len(names)), key=names.__getitem__)
    found = present.to_physical().to_numpy()
    null = int(found.max(initial=0)) + 1
    table = np.full(null + 1, len(names), dtype=np.int32)
    table[found[order]] = np.arange(len(names))
    in_order = [names[i] for i in order]
    if not names:  # a column without a text
        return lambda rows: np.zeros(len(column[rows]), dtype=np.int32), in_order
    return lambda rows: table[physical_codes(column, rows, null)], in_order


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


def rows_of_calls(of_command: pl.Series, calls: pl.Series) -> Codes:
    """For each command the row of its call in `calls`, whose numbers may be in any order, -1 for
    none; int32."""
    wanted, numbers = of_command.to_numpy(), calls.to_numpy()
    if bool((numbers == np.arange(len(numbers))).all()):
        if int(wanted.max(initial=-1)) < len(numbers) and int(wanted.min(initial=-1)) >= -1:
            return wanted
        there = (wanted >= 0) & (wanted < len(numbers))
        return np.where(there, wanted, np.int32(-1))
    order = np.argsort(numbers, kind="stable")
    place = positions(wanted, numbers[order])
    found: Codes = np.append(order, -1).astype(np.int32)[place]  # -1 takes the last
    return found
