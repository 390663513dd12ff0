"""What stands above the sections, and what closes the page: subject, notices, key figures,
provenance. All of it is HTML, and every text in it is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from profiler.analysis.comparison.compare import Comparison
from profiler.analysis.result import Analysis
from profiler.messages import joined, said
from profiler.report.diff_text import headline
from profiler.report.facts import Group, details, key_facts, loss_kind
from profiler.report.language import spoken
from profiler.report.sections.time import accounting
from profiler.report.provenance import TraceFile, trace_files
from profiler.report.units import count, counted, size

__all__ = [
    "against_html",
    "around_html",
    "facts_html",
    "losses_html",
    "provenance_html",
    "selection_html",
    "subject",
]

_ROW = 7  # key figures that stand side by side


def around_html(
    analysis: Analysis, span_ns: int, against: Comparison | None, source: Path | None
) -> dict[str, str]:
    """All of it by its place in `templates/report.html`; `span_ns` as for `headline`, `source` the
    bundle or file of the run."""
    return {
        "subject": subject(analysis),
        "selection": selection_html(analysis),
        "losses": losses_html(analysis),
        "against": against_html(against),
        "facts": facts_html(analysis, span_ns),
        "details": provenance_html(analysis, trace_files(source) if source else ()),
    }


def subject(analysis: Analysis) -> str:
    """Model, pipeline, devices, time and name of the run."""
    run = analysis.run
    started = run.started.replace("T", " ").replace("+00:00", " UTC")
    names = [*run.devices] or analysis.devices["device"].to_list()
    devices = joined(", ", (_device(name, run.devices.get(name)) for name in names))
    parts = (run.model, run.pipeline, devices, started, run.run_id)
    return " · ".join(f"<bdi>{spoken(part)}</bdi>" for part in parts if part)


def _device(name: str, described: Any) -> str:
    """`rbln:0 (RBLN-CA22)`, `cpu:0 (AMD EPYC 9554, 4 cores)`, or its name."""
    if not isinstance(described, dict):
        return name
    cores = described.get("cores")
    number = len(cores) if isinstance(cores, (list, tuple)) else cores
    known = [str(described.get("hardware") or "")]
    if isinstance(number, int) and number:
        known.append(counted(number, "core"))
    found = [part for part in known if part]
    return said("{name} ({parts})", name=name, parts=joined(", ", found)) if found else name


def selection_html(analysis: Analysis) -> str:
    """That tables and figures show a part of the run; "" where they show all of it."""
    run = analysis.run
    if not run.selection:
        return ""
    kept = [
        said("{name} {values}", name=said(name), values=", ".join(values))
        for name in ("stage", "submodule", "device", "step")
        if (values := getattr(run.selection, name))
    ]
    text = said(
        "The tables and the figures show {kept}: {calls} of {all_calls} calls and {commands} of "
        "{all_commands} commands. The timeline, the stages and the accounting are those of the "
        "whole run.",
        kept=joined(", ", kept),
        calls=count(run.selected_calls),
        all_calls=count(run.calls),
        commands=count(run.selected_commands),
        all_commands=count(run.commands),
    )
    return f'<p class="notice">{spoken(text)}</p>'


def losses_html(analysis: Analysis) -> str:
    """What was executed but is not in the trace; "" where that is nothing."""
    if not analysis.losses:
        return ""
    opening = said("This report does not hold everything that was executed.")
    lines = "".join(f"<li>{spoken(line)}</li>" for line in _losses(analysis))
    return (
        f'<div class="notice losses" role="alert"><strong>{spoken(opening)}</strong>'
        f"<ul>{lines}</ul></div>"
    )


def _losses(analysis: Analysis) -> Iterable[str]:
    for loss in analysis.losses:
        number = count(loss.count) if loss.count >= 0 else said("unknown")
        yield said(
            "{kind} in {where}: {number} {unit}. {detail}",
            kind=loss_kind(loss.kind),
            where=loss.where,
            number=number,
            unit=loss.unit,
            detail=loss.detail,
        )


def against_html(comparison: Comparison | None) -> str:
    """How the run compares with its baseline in one sentence, which leads to the section."""
    if comparison is None:
        return ""
    base = comparison.runs.filter(comparison.runs["side"] == "base")["run_id"]
    named = base[0] if len(base) == 1 else counted(len(base), "run")
    text = said("Against {base}: {headline}.", base=named, headline=headline(comparison))
    return f'<p class="against"><a href="#comparison">{spoken(text)}</a></p>'


def facts_html(analysis: Analysis, span_ns: int) -> str:
    """The key figures in one row, or in two of the same length, and the accounting below them."""
    facts = key_facts(analysis, span_ns)
    columns = len(facts) if len(facts) <= _ROW else -(-len(facts) // 2)
    cards = "".join(
        f"<div{' class=alert' if fact.alert else ''}><dt>{spoken(fact.label)}</dt>"
        f'<dd class="value">{spoken(fact.value)}</dd>'
        f'<dd class="note">{spoken(fact.note)}</dd></div>'
        for fact in facts
    )
    return (
        f'<dl class="facts" style="--columns:{columns}">{cards}</dl>'
        f'<p class="accounting">{spoken(accounting(analysis))}</p>'
    )


def provenance_html(analysis: Analysis, files: Sequence[TraceFile]) -> str:
    """What ran, on what, with which versions and settings, its files, and what was lost."""
    lost = tuple((loss_kind(loss.kind), text) for loss, text in _with_text(analysis))
    nothing = ((said("nothing"), said("all that was executed is in this report")),)
    groups = (
        *details(analysis),
        *([Group(said("Files"), tuple(map(_file, files)))] if files else []),
        Group(said("Lost"), lost or nothing),
    )
    return "".join(
        f"<div><h3>{spoken(group.title)}</h3><dl>{_definitions(group.rows)}</dl></div>"
        for group in groups
    )


def _with_text(analysis: Analysis) -> Iterable[tuple[Any, str]]:
    return zip(analysis.losses, _losses(analysis), strict=True)


def _file(file: TraceFile) -> tuple[str, str]:
    name = file.name
    if file.count > 1 or name == "*.pb":
        return said("call files"), said("{number}, {size}", number=file.count, size=size(file.size))
    if not file.sha256:
        return name, said("{size}, not hashed", size=size(file.size))
    return name, said("{size}, SHA-256 {hash}", size=size(file.size), hash=file.sha256)


def _definitions(rows: Iterable[tuple[str, str]]) -> str:
    return "".join(
        f"<div><dt>{spoken(name)}</dt><dd>{spoken(value)}</dd></div>" for name, value in rows
    )
