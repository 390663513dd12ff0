"""What a comparison needs of one run: its spans and calls, and the work of each call by role and
module. Small, whatever the size of the run, so that many runs can be read one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from profiler.analysis.accounting.account import stage_times
from profiler.analysis.arrays import CommandArrays, dense_codes
from profiler.analysis.axis import Axis
from profiler.analysis.comparison.details import Details, details_of
from profiler.analysis.comparison.inferences import (
    AVERAGED,
    are_inferences,
    whole_calls,
    with_layers,
)
from profiler.analysis.comparison.sorts import sort_by_kernel, sort_by_operator
from profiler.analysis.comparison.timeline import Timeline, timeline_of
from profiler.analysis.distinct_commands import Kinds, kinds_of
from profiler.analysis.first_calls import unsteady_calls
from profiler.analysis.pipelines import PipelineCalls
from profiler.analysis.roles.of_kinds import roles_of
from profiler.analysis.roles.places import module_path
from profiler.analysis.steps.step_table import step_table
from profiler.analysis.submodules.calls import MEASURING_CALLS, overhead_ratios
from profiler.run.intervals import Codes, Times, batches, positions
from profiler.run.run import Run
from profiler.trace.events import NO_PIPELINE, NO_STEP
from profiler.trace.manifest import RunInfo
from profiler.trace.manifest_fields import Submodule

__all__ = ["CALL", "SPAN", "WORK", "Measurement", "measure"]

_PLACE = {"pipeline": pl.Int64(), "step": pl.Int32()}
SPAN = pl.Schema(
    {
        "level": pl.String(),  # end_to_end, stage or step
        "part": pl.String(),  # "" for all of it; of steps also host, idle and between
        "stage": pl.String(),
        **_PLACE,
        "value_ns": pl.Int64(),
    }
)
_OF_STEPS = (
    ("", "elapsed_ns"),
    ("host", "host_ns"),
    ("idle", "idle_ns"),
    ("between", "between_ns"),
)
CALL = pl.Schema(
    {
        "call": pl.Int32(),
        "stage": pl.String(),
        "submodule": pl.String(),
        "branch": pl.String(),
        **_PLACE,
        "value_ns": pl.Int64(),
        "first": pl.Boolean(),
        "traced": pl.Boolean(),
        "total_ns": pl.Float64(),  # sum over its device commands
    }
)
WORK = pl.Schema(
    {
        "submodule": pl.String(),
        "role": pl.String(),
        "module": pl.String(),
        "by_kernel": pl.String(),  # what it does (`sorts`), "" where no kernel tells
        "by_operator": pl.String(),
        **_PLACE,
        "total_ns": pl.Float64(),
    }
)
_KEYS = ("role", "module", "by_kernel", "by_operator")


@dataclass(frozen=True, slots=True, eq=False)
class Measurement:
    """One run, as far as it is compared.

    `pipeline` and `step` in the frames say which sample a row is of: `step` a denoising step, -1
    elsewhere; `pipeline` a pipeline call, below 0 a call that lies in none and is a sample by
    itself. `devices` are those that its calls are placed on; `overhead_ratio` is untraced over
    traced time by submodule, 1 where noise hides it, `modules` the class by module path of each
    submodule, where they are known. `details` sums its layers and operations,
    `timeline` is what is drawn of it.
    """

    run_id: str
    info: RunInfo
    devices: tuple[str, ...]
    spans: pl.DataFrame
    calls: pl.DataFrame
    work: pl.DataFrame
    overhead_ratio: Mapping[str, float]
    modules: Mapping[str, Mapping[str, str]]
    details: Details
    timeline: Timeline | None = None


def measure(run: Run, *, timeline: bool = False) -> Measurement:
    """What a comparison needs of `run`; with `timeline` also what is drawn of it."""
    if not run.calls["call"].is_sorted():
        run = replace(run, calls=run.calls.sort("call"))
    calls = run.calls
    pipelines = PipelineCalls.of(run)
    modules = {name: known.modules for name, known in run.info.submodules.items()}
    apart = are_inferences(run.info.producer, calls)
    places = -1 - np.arange(len(calls)) if apart else _places(calls, pipelines)
    rows = positions(run.commands["call"].to_numpy(), calls["call"].to_numpy())
    kinds = kinds_of(calls, run.commands, rows)
    roles = roles_of(run.info.submodules, kinds, rows, run.commands["role"])["role"]
    work, busy = _work(run, kinds, roles, rows, modules)
    placed = calls.select(
        "call",
        "step",
        pl.col("stage", "submodule", "branch").cast(pl.String),
        value_ns=run.tiles.calls["elapsed_ns"],
        traced="ops_traced",
        pipeline=pl.Series(places),
        total_ns=pl.Series(busy),
        first=pl.col("call").is_in(unsteady_calls(run).to_list()),
    )
    found = _of_schema(placed, CALL)
    summed = _of_schema(
        work.with_columns(found[name].gather(work["row"]) for name in ("submodule", *_PLACE))
        .group_by("submodule", *_KEYS, *_PLACE)
        .agg(pl.col("total_ns").sum()),
        WORK,
    )
    details = details_of(found, run.commands, kinds, rows)
    timed, spans = found, _spans(run, calls, pipelines)
    if run.info.producer == AVERAGED:
        timed, summed, details = with_layers(found, summed, details)
    if apart:
        spans = whole_calls(timed, spans)
    return Measurement(
        run_id=run.run_id,
        info=run.info,
        devices=tuple(calls["device"].cast(pl.String).unique().sort()),
        spans=spans,
        calls=timed,
        work=summed,
        overhead_ratio=_overhead_ratio(run.info.submodules, found),
        modules=modules,
        details=details,
        timeline=timeline_of(run, found, kinds, roles, rows) if timeline else None,
    )


def _of_schema(frame: pl.DataFrame, wanted: pl.Schema) -> pl.DataFrame:
    return frame.select(pl.col(name).cast(dtype) for name, dtype in wanted.items())


def _places(calls: pl.DataFrame, pipelines: PipelineCalls) -> Times:
    """The number of each call's pipeline call, a number of its own below 0 where it is in none."""
    numbers = pipelines.number_of(calls).astype(np.int64)
    if not pipelines.known and pipelines.spans.is_empty():
        in_steps = bool((calls["step"] > NO_STEP).any())
        numbers[:] = 0 if in_steps else NO_PIPELINE
    return np.where(numbers < 0, -1 - np.arange(len(numbers)), numbers)


def _spans(run: Run, calls: pl.DataFrame, pipelines: PipelineCalls) -> pl.DataFrame:
    """Pipeline calls, their stages and steps (`SPAN`)."""
    none = CommandArrays.of(run.commands.clear(), calls)
    axis = Axis.of(run, pipelines)
    steps = step_table(run, none, pipelines, axis)
    of_steps = [
        steps.select(
            "pipeline",
            "step",
            level=pl.lit("step"),
            part=pl.lit(part),
            stage=pl.lit("denoise"),
            value_ns=pl.col(column),
        )
        for part, column in _OF_STEPS
    ]
    stages = stage_times(run, pipelines, axis)
    whole = stages.group_by("pipeline", maintain_order=True).agg(pl.col("elapsed_ns").sum())
    of_pipelines = [
        times.select(
            "pipeline",
            level=pl.lit(level),
            part=pl.lit(""),
            stage=pl.col("stage") if level == "stage" else pl.lit(None, pl.String),
            step=pl.lit(NO_STEP),
            value_ns=pl.col("elapsed_ns"),
        )
        for level, times in (("end_to_end", whole), ("stage", stages))
    ]
    found = pl.concat([_of_schema(frame, SPAN) for frame in (*of_pipelines, *of_steps)])
    found = found.drop_nulls("value_ns")
    keys = [name for name in SPAN if name != "value_ns"]
    return found.group_by(keys, maintain_order=True).agg(pl.col("value_ns").sum())


def _work(
    run: Run,
    kinds: Kinds,
    roles: pl.Series,
    rows: Codes,
    modules: Mapping[str, Mapping[str, str]],
) -> tuple[pl.DataFrame, np.ndarray[tuple[int], np.dtype[np.float64]]]:
    """Sums of durations by row of calls, role, module and what was done (`_KEYS`), of device
    commands; and by call."""
    table = kinds.table.with_columns(
        role=roles.cast(pl.String), kernel=_kernels(kinds, run.commands["kernel"])
    )
    named: dict[tuple[str, ...], int] = {}
    groups = np.full(len(kinds), -1, dtype=np.int64)
    columns = ("kind", "submodule", "place", "role", "kernel", "op_type", "layer", "category")
    for kind, submodule, place, role, kernel, op_type, layer, category in table.select(
        columns
    ).iter_rows():
        if submodule is not None and role is not None:
            path = module_path(place, modules.get(submodule, {}).get("", ""))
            by_kernel = sort_by_kernel(kernel or "", category)
            by_operator = sort_by_operator(op_type or layer, category)
            key = (role, path, by_kernel, by_operator)
            groups[kind] = named.setdefault(key, len(named))
    sums = _sums(rows, kinds, groups, len(named), run.commands["duration_ns"].to_numpy())
    found = pl.DataFrame([*named], schema=dict.fromkeys(_KEYS, pl.String), orient="row")
    work = sums.select(
        pl.col("code") // max(len(named), 1),
        pl.col("total_ns"),
        group=pl.col("code") % max(len(named), 1),
    ).rename({"code": "row"})
    work = work.with_columns(found[name].gather(work["group"]) for name in found.columns)
    busy = np.zeros(len(run.calls))
    np.add.at(busy, work["row"].to_numpy(), work["total_ns"].to_numpy())
    return work, busy


def _kernels(kinds: Kinds, kernel: pl.Series) -> pl.Series:
    """A kernel of each kind."""
    first = np.zeros(len(kinds), dtype=np.int64)
    for batch in reversed([*batches(len(kernel))]):
        codes = kinds.of_command[batch][::-1]
        first[codes] = np.arange(batch.start + len(codes) - 1, batch.start - 1, -1)
    return kernel.gather(first).cast(pl.String) if len(kernel) else pl.Series([], dtype=pl.String)


def _sums(rows: Codes, kinds: Kinds, groups: Times, count: int, duration: Times) -> pl.DataFrame:
    """`total_ns` of each `code`, the row of a call times `count` plus the group of a kind; what has
    no row or no group is left out."""
    parts = [pl.DataFrame(schema={"code": pl.Int64, "total_ns": pl.Float64})]
    for batch in batches(len(rows)):
        row, group = rows[batch], groups[kinds.of_command[batch]]
        kept = np.flatnonzero((row >= 0) & (group >= 0))
        if not len(kept):
            continue
        codes = row[kept].astype(np.int64) * count + group[kept]
        least = int(codes.min())  # commands are in order of calls: a batch is of few
        codes -= least
        values, inverse = dense_codes(codes, int(codes.max()) + 1)
        busy = np.bincount(inverse, np.maximum(duration[batch][kept], 0), len(values))
        parts.append(pl.DataFrame({"code": values.astype(np.int64) + least, "total_ns": busy}))
    return pl.concat(parts).group_by("code").agg(pl.col("total_ns").sum()).sort("code")


def _overhead_ratio(submodules: Mapping[str, Submodule], calls: pl.DataFrame) -> dict[str, float]:
    """Untraced over traced time: what capture measured, else from the steady calls of both
    kinds, where there are enough."""
    steady = calls.filter(~pl.col("first"))
    median = pl.col("value_ns")
    of_each = pl.min_horizontal(pl.col("traced").sum(), (~pl.col("traced")).sum())
    found = {
        name: untraced / traced
        for name, untraced, traced in steady.group_by("submodule")
        .agg(
            untraced=median.filter(~pl.col("traced")).median(),
            traced=median.filter("traced").median(),
            calls=of_each,
        )
        .filter(pl.col("calls") >= MEASURING_CALLS)
        .drop("calls")
        .iter_rows()
        if untraced and traced
    }
    return {**found, **overhead_ratios(submodules)}
