"""What ran, on what, with which versions and settings, from which files, and what is missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from profiler.analysis.recorded_settings import generation_pairs, setting_pairs
from profiler.analysis.result import RunSummary
from profiler.report.facts import missing_rows
from profiler.report.model import Group, Part, ReportInput, SectionKind
from profiler.report.named_values import grouped, grouped_by_name
from profiler.report.nouns import all_events, noun_of
from profiler.report.provenance import TraceFile, trace_files
from profiler.report.recorders import part_rows
from profiler.text import Noun, count, counted, said, size
from profiler.trace.manifest_fields import stated

__all__ = ["SECTION"]


def _parts(of: ReportInput) -> tuple[Part, ...]:
    groups = (group for group in _groups(of) if group.rows)
    return (Part(groups=tuple(groups)),)


def _groups(of: ReportInput) -> Iterator[Group]:
    run = of.analysis.run
    yield _run(run, noun_of(of.analysis))
    yield grouped(said("Settings"), {**stated(run.recording), **run.settings})
    parts = of.analysis.inputs.run.info.parts
    yield Group(said("Recorded by"), tuple(part_rows(parts)) if parts is not None else ())
    yield grouped(said("Set-up"), _set_up(run))
    yield grouped_by_name(said("Devices"), run.devices)
    yield grouped_by_name(said("Submodules"), run.submodules)
    yield grouped(said("Hardware"), stated(run.hardware))
    yield grouped(said("Versions"), run.versions)
    yield Group(said("Files"), tuple(map(_file, trace_files(of.source) if of.source else ())))
    drops = of.analysis.drops
    nothing = ((said("nothing"), said("everything that was executed is in this report")),)
    yield Group(said("Dropped"), tuple(missing_rows(drops)) or nothing)


def _run(run: RunSummary, noun: Noun) -> Group:
    rows = (
        (said("run"), run.run_id),
        (said("model"), run.model),
        (said("pipeline"), run.pipeline),
        (said("producer"), run.producer),
        (said("started"), run.started.replace("T", " ").replace("+00:00", " UTC")),
        (said("traced"), _traced(run, noun)),
        (said("command line"), " ".join(run.command_line)),
    )
    return Group(said("Run"), tuple(row for row in rows if row[1]))


def _set_up(run: RunSummary) -> Mapping[str, str]:
    """What the objects said that ran: of pipeline calls, then of submodules."""
    return {**generation_pairs(run.generations), **setting_pairs(run.submodule_settings)}


def _traced(run: RunSummary, noun: Noun) -> str:
    """How many calls there are, and how many of them with operators."""
    traced = said("all") if run.traced_calls == run.calls else count(run.traced_calls)
    return said(
        "{calls}, {traced} with operators: {number} {events}",
        calls=counted(run.calls, "call"),
        traced=traced,
        number=count(run.commands),
        events=all_events(noun),
    )


def _file(file: TraceFile) -> tuple[str, str]:
    name = file.name
    if file.count > 1 or name == "*.pb":
        return said("call files"), said("{number}, {size}", number=file.count, size=size(file.size))
    if not file.sha256:
        return name, said("{size}, not hashed", size=size(file.size))
    return name, said("{size}, SHA-256 {hash}", size=size(file.size), hash=file.sha256)


SECTION = SectionKind(
    "provenance",
    130,
    said("Provenance"),
    _parts,
    tables=("drops",),
)
