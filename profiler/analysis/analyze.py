"""`analyze`: one run → everything its reports show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import polars as pl

from profiler.analysis.accounting import account
from profiler.analysis.arrays import CommandArrays
from profiler.analysis.denoise.call_kinds import CallKinds
from profiler.analysis.denoise.guidance import guidance_table
from profiler.analysis.denoise.invariants import find_invariants
from profiler.analysis.denoise.outlier_causes import outlier_table
from profiler.analysis.denoise.step_matrix import step_matrix
from profiler.analysis.devices import device_table
from profiler.analysis.kinds import kinds_of
from profiler.analysis.memory.usage import find_memory
from profiler.analysis.memory.weights import device_weights
from profiler.analysis.operators.folds import fold
from profiler.analysis.operators.geometry import geometry_table
from profiler.analysis.operators.table import operator_table
from profiler.analysis.pipelines import PipelineCalls
from profiler.analysis.result import Analysis, RunSummary
from profiler.analysis.roles.of_kinds import roles_of
from profiler.analysis.roles.tables import block_table, role_table
from profiler.analysis.roofline.device_profiles import DeviceProfile, profiles_of
from profiler.analysis.roofline.fusion import fusion_table
from profiler.analysis.roofline.verdicts import kind_roof, operator_roofline, role_roofline
from profiler.analysis.run_settings import run_settings
from profiler.analysis.selection import Selection, select, steps_of
from profiler.analysis.steps import step_summary, step_table
from profiler.analysis.submodules import (
    branch_table,
    call_table,
    first_calls,
    submodule_table,
)
from profiler.analysis.waiting.boundaries import boundary_tables
from profiler.analysis.waiting.critical_path import critical_path_table
from profiler.analysis.waiting.idle import idle_table
from profiler.analysis.waiting.run_timeline import RunTimeline
from profiler.analysis.work.of_kinds import kind_work
from profiler.table.run import Run

__all__ = ["analyze"]

_TIME_OF_DAY = 946_684_800_000_000_000  # 2000-01-01: clocks that count from boot stay below


def analyze(
    run: Run,
    selection: Selection = Selection(),  # noqa: B008 (frozen)
    measured: Sequence[DeviceProfile] = (),
    device_memory: Mapping[str, int] = MappingProxyType({}),
) -> Analysis:
    """Analyze `run`, its tables limited to `selection`.

    The accounting and the stages stay those of the whole run. `measured` are the profiles of its
    devices, where there are any beside the published ones; `device_memory` is bytes of memory by
    device, "" for all others. Raises InputError where the selection
    names what the run does not have.
    """
    if not run.calls["call"].is_sorted():
        run = replace(run, calls=run.calls.sort("call"))
    calls, frame = select(run, selection)
    everything = CommandArrays.of(run.commands, run.calls)
    commands = CommandArrays.of(frame, calls) if selection else everything
    pipelines = PipelineCalls.of(run)
    accounting, stages, pipeline_calls = account(run, pipelines)
    folds = fold(calls, frame, commands)
    call_rows = call_table(calls, commands, folds.call, first_calls(run.calls))
    operators = pl.DataFrame({"submodule": folds.submodules}, schema={"submodule": pl.String})
    submodules = submodule_table(
        call_rows, operators, accounting.end_to_end_ns, _calibrations(run.info.submodules)
    )
    steps = _selected_steps(run, step_table(run, everything, pipelines), selection)
    kinds = kinds_of(calls, frame, commands.call)
    kind_roles = roles_of(run.info.submodules, kinds, commands.call, frame["role"])
    calibration = submodules.select("submodule", "calibration")
    work = kind_work(kinds, frame)
    profiles = profiles_of(dict.fromkeys(commands.devices) | dict(run.info.devices), measured)
    roof = kind_roof(kinds, work, commands, profiles)
    ran = CallKinds.of(kinds, commands, len(calls))
    matrix = step_matrix(calls, kinds, kind_roles, ran, steps, pipelines)
    of_pipeline = pipelines.number_of(calls)
    again = find_invariants(calls, kinds, kind_roles, ran, of_pipeline, run.info.submodules)
    timeline = RunTimeline.of(run, everything, pipelines)
    boundaries, stranded = boundary_tables(calls, frame, commands)
    memory = find_memory(run, device_memory)
    from_spans = bool((run.spans["kind"] == "step").any())
    return Analysis(
        run=_summary(run, selection, calls, frame),
        accounting=accounting,
        pipelines=pipeline_calls,
        stages=stages,
        devices=device_table(
            calls, commands, run.info.devices, device_weights(run.info.submodules, run.info.devices)
        ),
        submodules=submodules,
        branches=branch_table(call_rows, accounting.end_to_end_ns),
        calls=call_rows,
        steps=steps,
        step_summary=step_summary(steps, from_spans=from_spans),
        operators=operator_table(folds, frame, commands, calibration),
        geometry=geometry_table(folds, calls, frame, commands),
        roles=role_table(kinds, kind_roles, calibration),
        blocks=block_table(kinds, kind_roles),
        roofline=operator_roofline(roof, kinds),
        roofline_roles=role_roofline(roof, kinds, kind_roles["role"]),
        fusions=fusion_table(calls, kinds, work, commands, profiles, kind_roles["role"]),
        step_operators=matrix.table(again.over_steps),
        step_times=matrix.cells(),
        step_outliers=outlier_table(matrix, run, everything, calls, frame, commands, kinds),
        guidance=guidance_table(call_rows, calibration, accounting.end_to_end_ns),
        invariants=again.table,
        memory_devices=memory.devices,
        memory=memory.holders,
        memory_timeline=memory.timeline,
        idle=idle_table(timeline),
        critical_path=critical_path_table(timeline),
        boundaries=boundaries,
        stranded=stranded,
        device_profiles=profiles,
        kinds=kinds,
        kind_roles=kind_roles,
        losses=run.losses,
    )


def _calibrations(submodules: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """What capture measured: untraced over traced time by submodule."""
    found = {}
    for name, known in submodules.items():
        calibration = known.get("calibration")
        factor = calibration.get("factor") if isinstance(calibration, Mapping) else None
        if isinstance(factor, (int, float)) and 0 < factor < float("inf"):
            found[name] = float(factor)
    return found


def _selected_steps(run: Run, steps: pl.DataFrame, selection: Selection) -> pl.DataFrame:
    """The steps that the selection of steps and stages keeps, as they were in the whole run."""
    if selection.stage and "denoise" not in selection.stage:
        return steps.clear()
    if selection.step:
        return steps.filter(pl.col("step").is_in(sorted(steps_of(run, selection.step))))
    return steps


def _summary(
    run: Run, selection: Selection, calls: pl.DataFrame, commands: pl.DataFrame
) -> RunSummary:
    info = run.info
    return RunSummary(
        run_id=run.run_id,
        model=info.model,
        pipeline=info.pipeline,
        producer=info.producer,
        started=_started(run),
        command_line=info.command_line,
        versions=info.versions,
        hardware=info.hardware,
        devices=info.devices,
        submodules=info.submodules,
        settings=run_settings(info.settings, info.pipeline_settings),
        overhead=info.overhead,
        warmup=info.warmup,
        attribution=info.attribution,
        calls=len(run.calls),
        traced_calls=int(run.calls["ops_traced"].sum()),
        commands=len(run.commands),
        selection=selection,
        selected_calls=len(calls),
        selected_commands=len(commands),
    )


def _started(run: Run) -> str:
    frames = (run.spans, run.calls, run.commands)
    firsts = [frame["start_ns"].min() for frame in frames if len(frame)]
    first = min((int(ns) for ns in firsts if isinstance(ns, int)), default=0)
    if first < _TIME_OF_DAY:
        return ""
    moment = datetime.fromtimestamp(first // 1_000_000_000, UTC)
    return moment.isoformat(timespec="seconds")
