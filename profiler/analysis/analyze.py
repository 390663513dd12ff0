"""`analyze`: one run → everything its reports show."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from types import MappingProxyType

import polars as pl

from profiler.analysis.denoise.guidance import guidance_table
from profiler.analysis.denoise.outlier_causes import outlier_table
from profiler.analysis.devices import device_table
from profiler.analysis.findings.rules import find
from profiler.analysis.inputs import Inputs
from profiler.analysis.operators.geometry import geometry_table
from profiler.analysis.operators.table import operator_table
from profiler.analysis.result import Analysis, RunSummary
from profiler.analysis.roles.tables import block_table, role_table
from profiler.analysis.roofline.device_profiles import DeviceProfile
from profiler.analysis.roofline.fusion import fusion_table
from profiler.analysis.roofline.verdicts import operator_roofline, role_roofline
from profiler.analysis.run_settings import run_settings
from profiler.analysis.selection import Selection
from profiler.analysis.steps import step_summary
from profiler.analysis.submodules import branch_table
from profiler.analysis.waiting.critical_path import critical_path_table
from profiler.analysis.waiting.idle import idle_table
from profiler.table.run import Run

__all__ = ["PARTS", "analyze"]

_TIME_OF_DAY = 946_684_800_000_000_000  # 2000-01-01: clocks that count from boot stay below

PARTS: Mapping[str, Callable[[Inputs], pl.DataFrame]] = MappingProxyType(
    {
        "pipelines": lambda of: of.account[2],
        "stages": lambda of: of.account[1],
        "devices": lambda of: device_table(
            of.calls, of.commands, of.run.info.devices, of.device_weights
        ),
        "submodules": lambda of: of.submodules,
        "branches": lambda of: branch_table(of.call_rows, of.end_to_end_ns),
        "calls": lambda of: of.call_rows,
        "steps": lambda of: of.steps,
        "operators": lambda of: operator_table(of.folds, of.frame, of.commands, of.calibration),
        "geometry": lambda of: geometry_table(of.folds, of.calls, of.frame, of.commands),
        "roles": lambda of: role_table(of.kinds, of.kind_roles, of.calibration),
        "blocks": lambda of: block_table(of.kinds, of.kind_roles),
        "roofline": lambda of: operator_roofline(of.roof, of.kinds),
        "roofline_roles": lambda of: role_roofline(of.roof, of.kinds, of.kind_roles["role"]),
        "fusions": lambda of: fusion_table(
            of.calls, of.kinds, of.work, of.commands, of.profiles, of.kind_roles["role"]
        ),
        "step_operators": lambda of: of.step_matrix.table(of.invariants.over_steps),
        "step_times": lambda of: of.step_matrix.cells(),
        "step_outliers": lambda of: outlier_table(
            of.step_matrix, of.run, of.everything, of.calls, of.frame, of.commands, of.kinds
        ),
        "guidance": lambda of: guidance_table(
            of.calls,
            of.call_rows,
            of.kinds.table,
            of.profiles,
            of.calibration,
            of.end_to_end_ns,
        ),
        "invariants": lambda of: of.invariants.table,
        "memory_devices": lambda of: of.memory.devices,
        "memory": lambda of: of.memory.holders,
        "memory_timeline": lambda of: of.memory.timeline,
        "idle": lambda of: idle_table(of.timeline),
        "critical_path": lambda of: critical_path_table(of.timeline),
        "boundaries": lambda of: of.boundaries[0],
        "stranded": lambda of: of.boundaries[1],
    }
)
"""How each table of an `Analysis` is made of the `Inputs`; a new analysis is one more line."""


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
    inputs = Inputs(run, selection, measured, device_memory)
    tables = {name: make(inputs) for name, make in PARTS.items()}
    from_spans = bool((run.spans["kind"] == "step").any())
    analysis = Analysis(
        run=_summary(inputs),
        accounting=inputs.account[0],
        step_summary=step_summary(inputs.steps, from_spans=from_spans),
        device_profiles=inputs.profiles,
        kinds=inputs.kinds,
        kind_roles=inputs.kind_roles,
        losses=run.losses,
        findings=(),
        **tables,
    )
    return replace(analysis, findings=find(analysis))


def _summary(inputs: Inputs) -> RunSummary:
    run, info = inputs.run, inputs.run.info
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
        recording=info.recording,
        overhead=info.overhead,
        warmup=info.warmup,
        attribution=info.attribution,
        calls=len(run.calls),
        traced_calls=int(run.calls["ops_traced"].sum()),
        commands=len(run.commands),
        selection=inputs.selection,
        selected_calls=len(inputs.calls),
        selected_commands=len(inputs.frame),
    )


def _started(run: Run) -> str:
    frames = (run.spans, run.calls, run.commands)
    firsts = [frame["start_ns"].min() for frame in frames if len(frame)]
    first = min((int(ns) for ns in firsts if isinstance(ns, int)), default=0)
    if first < _TIME_OF_DAY:
        return ""
    moment = datetime.fromtimestamp(first // 1_000_000_000, UTC)
    return moment.isoformat(timespec="seconds")
