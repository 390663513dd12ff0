"""Devices: how busy each was, with what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from profiler.analysis.arrays import HOST, CommandArrays, ends, text_codes
from profiler.analysis.batches import Codes, Times, counts
from profiler.analysis.devices.columns import DEVICES
from profiler.analysis.intervals import union_by
from profiler.events import CATEGORIES
from profiler.table.columns import schema
from profiler.trace.manifest_fields import Device

__all__ = ["device_table"]


def device_table(
    calls: pl.DataFrame,
    commands: CommandArrays,
    known: Mapping[str, Device],
    weights: Mapping[str, int],
) -> pl.DataFrame:
    """One row a device that has calls or commands (`DEVICES`), by name.

    `known` is `RunInfo.devices`, `weights` are bytes by device (`device_weights`). Commands on no
    device are left out. How idle a device was is known where it executed something but host work,
    and every call placed there (of a device without any: every call) was traced: else `idle_ns`
    and `utilization` are null.
    """
    codes, placed = text_codes(calls["device"])
    names = sorted({*commands.devices, *placed})
    groups = len(names)
    call_device = _renumbered(codes, placed, names)
    device = _renumbered(commands.device, commands.devices, names)
    call_start, call_end = calls["start_ns"].to_numpy(), ends(calls)
    by_category = _by_category(commands, device, groups)
    of_commands = _extent(commands.start, commands.end, device, groups)
    of_calls = _extent(call_start, call_end, call_device, groups)
    span = np.maximum(of_commands[1], of_calls[1]) - np.minimum(of_commands[0], of_calls[0])
    busy = _busy(commands, device, groups)
    known_idle = (busy > 0) & (span > 0) & ~_has_untraced(calls, call_device, groups)
    table = pl.DataFrame(
        {
            "device": names,
            "hardware": [known[name].hardware or None if name in known else None for name in names],
            "calls": np.bincount(call_device, minlength=groups),
            "commands": counts(device, groups),
            "calls_ns": union_by(call_start, call_end, call_device, groups),
            "busy_ns": busy,
            **{f"{name}_ns": by_category[:, i] for i, name in enumerate(CATEGORIES)},
            "span_ns": span,
            "idle_ns": span - busy,
            "utilization": busy / np.maximum(span, 1),
            "weight_bytes": pl.Series([weights.get(name) for name in names], dtype=pl.Int64),
        },
    )
    idle = [
        pl.when(pl.Series(known_idle)).then(name).alias(name) for name in ("idle_ns", "utilization")
    ]
    return table.with_columns(idle).select(pl.col(n).cast(t) for n, t in schema(DEVICES).items())


def _renumbered(codes: Codes, of: list[str] | tuple[str, ...], names: list[str]) -> Codes:
    """Codes into `names` from codes into `of`; -1 for the code behind the last."""
    position = {name: number for number, name in enumerate(names)}
    return np.array([*(position[name] for name in of), -1], dtype=np.int32)[codes]


def _by_category(commands: CommandArrays, device: Codes, groups: int) -> Times:
    """Wall union by device and category, int64 [groups, categories]."""
    kinds = len(CATEGORIES)
    codes = device * np.int32(kinds) + commands.category
    codes[device < 0] = -1
    return union_by(commands.start, commands.end, codes, groups * kinds).reshape(groups, kinds)


def _busy(commands: CommandArrays, device: Codes, groups: int) -> Times:
    working = np.where(commands.category == HOST, np.int32(-1), device)
    return union_by(commands.start, commands.end, working, groups)


def _has_untraced(
    calls: pl.DataFrame, call_device: Codes, groups: int
) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Whether calls that may have used a device were not traced, bool [groups]."""
    untraced = ~calls["ops_traced"].to_numpy()
    placed = np.bincount(call_device, minlength=groups) > 0
    here = np.bincount(call_device[untraced], minlength=groups) > 0
    return np.where(placed, here, untraced.any())


def _extent(start: Times, end: Times, codes: Codes, groups: int) -> tuple[Times, Times]:
    """First start and last end of each group; codes below 0 are of none."""
    first = np.full(groups, np.iinfo(np.int64).max)
    last = np.full(groups, np.iinfo(np.int64).min)
    frame = pl.DataFrame({"code": codes, "start": start, "end": end})
    found = frame.group_by("code").agg(pl.col("start").min(), pl.col("end").max())
    found = found.filter(pl.col("code") >= 0)
    first[found["code"].to_numpy()] = found["start"].to_numpy()
    last[found["code"].to_numpy()] = found["end"].to_numpy()
    return first, last
