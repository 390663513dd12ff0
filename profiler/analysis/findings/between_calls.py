"""Rules about the time between calls: host work and synchronization around the steps."""

from __future__ import annotations

import polars as pl

from profiler.analysis.findings.codes import MostlyBetween
from profiler.analysis.findings.finding import Finding, Where
from profiler.analysis.findings.measures import (
    MATERIAL,
    accelerators,
    end_to_end_ns,
    share,
    unaligned,
    works_behind,
)
from profiler.analysis.result import Analysis
from profiler.text import Value

__all__ = ["host_between_steps", "scheduler_sync"]

_BETWEEN = 0.05  # of the steps' time
_SYNC_STEPS = 0.5  # of the steps: what waits in fewer is not the loop's habit
_SYNC_WAIT = 0.02  # of the device's span
_SYNC = r"(?i)synchronize|^(cuda|hip)Memcpy(WithStream)?$|^aten::(item|_local_scalar_dense)$"


def host_between_steps(analysis: Analysis) -> Finding | None:
    """Between the tiles of the steps' calls the host (scheduler, guidance, callbacks) takes its
    time, and the device waits. Silent where clocks of devices are not aligned: where steps end is
    not known, and where calls on a GPU were captured alone: there the host waits for it."""
    steps = analysis.steps
    if steps.is_empty() or unaligned(analysis) or works_behind(analysis):
        return None
    inside = int((steps["host_ns"] + steps["idle_ns"]).sum())  # between calls of one step
    between = inside + int(steps["between_ns"].sum())
    duration = int(steps["elapsed_ns"].sum()) + int(steps["between_ns"].sum())
    device = _denoiser_device(analysis)
    if device is None:
        return None
    if (
        share(between, duration) < _BETWEEN
        or share(between, end_to_end_ns(analysis)) < 2 * MATERIAL
    ):
        return None
    host_work = int(steps["host_ns"].sum()) + int(steps["between_host_ns"].sum())
    return Finding(
        rule="host_between_steps",
        evidence={
            "between_ns": between,
            "between_share": share(between, duration),
            "host_work_ns": host_work,
            "not_recorded_ns": between - host_work,
            "mostly": _mostly(host_work, between),
            **_longest_host_work(analysis),
        },
        where=Where(device=device),
        cost_ns=between,
    )


def scheduler_sync(analysis: Analysis) -> Finding | None:
    """The host waits for its device between the calls of most steps. Silent where clocks of devices
    are not aligned."""
    steps, waits = len(analysis.steps), accelerators(analysis)
    if waits.is_empty() or unaligned(analysis):
        return None
    often = pl.col("calls") > 1 + _SYNC_STEPS * steps  # what is in no step counts as one
    of_steps = pl.col("submodule").is_null() & often
    named = pl.col("layer").str.contains(_SYNC) | pl.col("op_types").str.contains(_SYNC)
    rows = analysis.operators.filter(of_steps & named).sort("wall_ns", descending=True)
    longest = waits.sort(pl.col("launch_ns") + pl.col("host_ns")).row(-1, named=True)
    wait = longest["launch_ns"] + longest["host_ns"]
    if rows.is_empty() or share(wait, longest["span_ns"]) < _SYNC_WAIT:
        return None
    return Finding(
        rule="scheduler_sync",
        evidence={
            "operation": rows["layer"][0],
            "waits": int(rows["commands"].sum()),
            "host_ns": int(rows["wall_ns"].sum()),
            "device_wait_ns": wait,
            "device_wait_share": share(wait, longest["span_ns"]),
        },
        where=Where(layer=rows["layer"][0], device=longest["device"]),
        cost_ns=longest["host_ns"],
    )


def _mostly(host_work: int, between: int) -> MostlyBetween:
    """What most of the time between calls is."""
    return MostlyBetween.HOST_WORK if host_work >= between / 2 else MostlyBetween.NOT_RECORDED


def _longest_host_work(analysis: Analysis) -> dict[str, Value]:
    """What of no call the host worked on longest in at least half of the steps, waits and what it
    called aside; nothing where no host work was recorded."""
    often = pl.col("calls") >= 0.5 * max(len(analysis.steps), 1)
    rows = analysis.operators.filter("host", pl.col("submodule").is_null(), often)
    rows = rows.with_columns(work_ns=pl.col("self_ns") - pl.col("waited_ns")).sort("work_ns")
    if rows.is_empty() or not rows["work_ns"][-1]:
        return {}
    return {
        "longest_host_work": str(rows["layer"][-1]),
        "longest_host_work_ns": int(rows["work_ns"][-1]),
    }


def _denoiser_device(analysis: Analysis) -> str | None:
    rows = analysis.calls.filter(pl.col("step") >= 0)
    return str(rows["device"][0]) if len(rows) else None
