"""What stands above everything: one sentence, what ran and is missing, key figures, accounting."""

from __future__ import annotations

from collections.abc import Iterator

from profiler.analysis.accounting.identity import Accounting
from profiler.analysis.result import Analysis, RunSummary
from profiler.report.facts import key_facts, missing_lines
from profiler.report.model import ReportInput, SectionKind, Summary
from profiler.report.nouns import all_events, noun_of
from profiler.report.sections.headline import at_once, headline
from profiler.report.sentences.worded import why_not
from profiler.text import Noun, count, counted, duration, joined, percent, said, sentence
from profiler.trace.manifest_fields import Device

__all__ = ["SECTION", "summary_of"]

_RESIDUAL_LIMIT = 0.01  # the accounting identity promises no more
_DEVICES = 12  # that are named


def summary_of(of: ReportInput) -> Summary:
    """The summary of the run, whatever is selected of it."""
    analysis = of.analysis
    return Summary(
        headline=headline(analysis, of.span_ns),
        subject=_subject(analysis),
        facts=key_facts(analysis, of.span_ns),
        accounting=joined(" ", _accounting(analysis.accounting)),
        selection=_selection(analysis.run, noun_of(analysis)),
        missing=tuple(missing_lines(analysis.drops)),
    )


def _subject(analysis: Analysis) -> tuple[str, ...]:
    """Model, pipeline, devices, time and name of the run, as far as they are known."""
    run = analysis.run
    started = run.started.replace("T", " ").replace("+00:00", " UTC")
    names = [*run.devices] or analysis.devices["device"].to_list()
    devices = joined(", ", (_device(name, run.devices.get(name)) for name in names[:_DEVICES]))
    if len(names) > _DEVICES:
        devices = said("{devices} and {more} more", devices=devices, more=len(names) - _DEVICES)
    parts = (run.model, run.pipeline, devices, started, run.run_id)
    return tuple(part for part in parts if part)


def _device(name: str, known: Device | None) -> str:
    """`rbln:0 (RBLN-CA22)`, `cpu:0 (AMD EPYC 9554, 4 cores)`, or its name."""
    if known is None:
        return name
    found = [known.hardware] if known.hardware else []
    if known.cores:
        found.append(counted(len(known.cores), "core"))
    return said("{name} ({parts})", name=name, parts=joined(", ", found)) if found else name


def _selection(run: RunSummary, noun: Noun) -> str:
    """That tables and figures show a part of the run; "" where they show all of it."""
    if not run.selection:
        return ""
    kept = [
        said("{name} {values}", name=said(name), values=", ".join(values))
        for name in ("stage", "submodule", "device", "step")
        if (values := getattr(run.selection, name))
    ]
    return said(
        "The tables and the figures show {kept}: {calls} of {all_calls} calls and {commands} of "
        "{all_commands} {events}. The timeline, the stages and the accounting are those of the "
        "whole run.",
        kept=joined(", ", kept),
        calls=count(run.selected_calls),
        all_calls=count(run.calls),
        commands=count(run.selected_commands),
        all_commands=count(run.commands),
        events=all_events(noun),
    )


def _accounting(account: Accounting) -> Iterator[str]:
    """The accounting identity, its residual with what explains it, and whose time is in it."""
    if not account.possible:
        yield said("No accounting of the whole time: {why}.", why=why_not(account.why_not))
    else:
        yield from _identity(account)
    if account.profiler_ns:
        took = duration(account.profiler_ns)
        yield said("This leaves out {took} spent waiting for the profiler.", took=took)
    if account.overlapping:
        yield sentence(at_once(account))
    if account.calls_outside:
        yield said(
            "Not in it: {calls} in no pipeline call, {took}.",
            calls=counted(account.calls_outside, "call"),
            took=duration(account.calls_outside_ns),
        )


def _identity(account: Accounting) -> Iterator[str]:
    parts = (
        ("calls", sum(stage.calls_ns for stage in account.stages)),
        ("host", sum(stage.host_ns for stage in account.stages)),
        ("idle", sum(stage.idle_ns for stage in account.stages)),
        ("residual", account.residual_ns),
    )
    yield said(
        "End to end {total} = calls {calls} + host work between them {host} + idle {idle} "
        "+ residual {residual} ({share}).",
        total=duration(account.end_to_end_ns),
        share=percent(account.residual_share),
        **{name: duration(ns) for name, ns in parts},
    )
    causes = [
        said(template, time=duration(ns))
        for template, ns in (
            (said("{time} in no stage"), account.residual_ns),
            (said("{time} outside of the pipeline call"), account.outside_ns),
        )
        if ns
    ]
    if causes and account.residual_share > _RESIDUAL_LIMIT:
        yield said(
            "Unaccounted: {parts}, more than {limit} of end to end.",
            parts=joined(", ", causes),
            limit=percent(_RESIDUAL_LIMIT),
        )
    elif causes:
        yield said("Unaccounted: {parts}.", parts=joined(", ", causes))


SECTION = SectionKind("summary", 10, said("Summary"), lambda _: ())
