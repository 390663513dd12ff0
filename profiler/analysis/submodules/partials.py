"""Partial results of calls: what submodules, their branches, devices and calls are made of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from profiler.analysis.accounting.tables import accounting
from profiler.analysis.inputs import Inputs, shared
from profiler.analysis.partials import SEVERAL, Partials
from profiler.analysis.submodules.device_time import work_extents
from profiler.run.intervals import Codes, Times, batches, group_heads, positions, text_codes

__all__ = ["call_parts"]

_ATTRIBUTES = ("call", "submodule", "stage", "branch", "step", "device", "first")
_TIMES = (
    *("elapsed_ns", "duration_ns", "busy_ns", "idle_inside_ns", "launch_bound_ns"),
    *("hidden_ns", "unrecorded_ns"),
)


@shared
def call_parts(of: Inputs) -> Partials:
    """The partials `call_parts`: the selected calls, a part each, in their order.

    Its dictionary `call` has call, submodule, stage, branch, step, the device where it is placed,
    whether it is a first one, and in `devices` all devices that a selection may name it by. Partial
    columns: `calls` and `traced_calls` (1 or 0), the times of the table, `lead_ns` (null where no
    launch is known), `taken_share` (its tile's part of the end-to-end time), and begin and end of
    its tile and of its work on devices, from the first of them on.
    """
    table = of.table("calls")
    rows = positions(of.calls["call"].to_numpy(), of.run.calls["call"].to_numpy())
    work = _work(of)
    begin, end = (table[name].to_numpy() for name in ("begin_ns", "end_ns"))
    instants = {
        "start_ns": table["start_ns"].to_numpy(),
        "begin_ns": begin,
        "end_ns": np.maximum(begin, end),
        "work_begin_ns": work[0][rows],
        "work_end_ns": work[1][rows],
    }
    origin = min((int(values.min()) for values in instants.values() if len(values)), default=0)
    return Partials(
        "call_parts",
        {"entry": table.select(*_ATTRIBUTES).with_columns(devices=_devices(of))},
        pl.DataFrame(
            {
                "entry": np.arange(len(table), dtype=np.uint32),
                "calls": np.ones(len(table), dtype=np.int64),
                "traced_calls": table["ops_traced"].cast(pl.Int64),
                **{name: table[name] for name in _TIMES},
                "lead_ns": table["lead_ns"].cast(pl.Float64),
                "taken_share": _taken(of, rows, begin, end),
                **{name: values - origin for name, values in instants.items()},
            }
        ),
        any_of=frozenset({"devices"}),
    )


def _work(of: Inputs) -> tuple[Times, Times]:
    """From when to when each call of the run worked on devices; where it did not, it ends when it
    begins."""
    first, last = work_extents(of)
    some = last > first
    begin = int(first[some].min()) if some.any() else 0
    return np.where(some, first, begin), np.where(some, last, begin)


def _taken(of: Inputs, rows: Codes, begin: Times, end: Times) -> pl.Series:
    """The share of the end-to-end time that each call's tile takes, null where that is 0."""
    total = accounting(of).end_to_end_ns
    if not total:
        return pl.Series([None] * len(rows), dtype=pl.Float64)
    return pl.Series(of.axis.taken_by_each(rows, begin, end, told=of.pipelines.apart) / total)


def _devices(of: Inputs) -> pl.Series:
    """Of each call the devices that it was placed on or has commands on."""
    placed, names = text_codes(of.calls["device"])
    commands, calls = of.commands, len(of.calls)
    known = sorted({*names, *commands.devices})
    on = np.zeros((calls + 1, len(known) + 1), dtype=np.bool_)  # the last are no call, no device
    on[np.arange(calls), _places(names, known)[placed]] = True
    place = _places(commands.devices, known)
    for rows in batches(len(commands.call)):
        device, call = commands.device[rows], commands.call[rows]
        heads = group_heads(device, call)
        on[call[heads], place[device[heads]]] = True
    texts: list[list[str]] = [[] for _ in range(calls)]
    for row, number in np.argwhere(on[:-1, :-1]).tolist():
        texts[row].append(known[number])
    return pl.Series("devices", [SEVERAL.join(one) for one in texts], dtype=pl.String)


def _places(names: Sequence[str], known: list[str]) -> Times:
    """Where each name stands among the `known`, behind the last for none."""
    return np.array([*map(known.index, names), len(known)], dtype=np.int64)
