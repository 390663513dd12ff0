"""From `Inputs` to an `Analysis` of some of its tables."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from profiler.analysis.accounting.tables import accounting
from profiler.analysis.annotation import AnnotatedCommands
from profiler.analysis.findings.finding import Finding
from profiler.analysis.inputs import Inputs
from profiler.analysis.partials import Partials
from profiler.analysis.registry import table_named
from profiler.analysis.result import Analysis, RunSummary
from profiler.analysis.roles.tables import kind_roles
from profiler.analysis.roofline.tables import profiles
from profiler.analysis.run_settings import run_settings
from profiler.analysis.steps.tables import summary
from profiler.run.run import Run

__all__ = ["assembled", "partials_of"]

_TIME_OF_DAY = 946_684_800_000_000_000  # 2000-01-01: clocks that count from boot stay below


def assembled(of: Inputs, names: Iterable[str], findings: tuple[Finding, ...] = ()) -> Analysis:
    """The analysis with the tables of these `names`, and no others."""
    frames = {name: of.table(name) for name in names}
    return Analysis(
        run=_summary(of),
        accounting=accounting(of),
        step_summary=summary(of),
        device_profiles=profiles(of),
        kinds=of.kinds,
        kind_roles=kind_roles(of),
        drops=of.run.drops,
        findings=findings,
        annotated=AnnotatedCommands(of.frame, of.kinds, kind_roles(of)),
        inputs=of,
        frames=frames,
    )


def partials_of(analysis: Analysis) -> dict[str, tuple[Partials, ...]]:
    """What the tables of `analysis` are combined from, by table; tables that a selection does not
    combine are left out."""
    known = [table_named(name) for name in analysis.frames]
    of = analysis.inputs
    return {table.name: table.partials(of) for table in known if table.partials is not None}


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
        submodule_settings=info.submodule_settings,
        generations=info.generations,
        recording=info.recording,
        overhead=info.overhead,
        coverage=info.coverage,
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
