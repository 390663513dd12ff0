"""Every call, what the host did between them, and the time around the nodes of a device."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from profiler.analysis.commands import is_accelerator, times_recorded
from profiler.analysis.compilation import COMPILATIONS
from profiler.analysis.document import Opens, Part, SectionGroup, SectionKind
from profiler.analysis.finding_text import Rule, Words, calls_of, end_to_end_ns, share
from profiler.analysis.operators import OPERATORS
from profiler.analysis.result import Analysis, Finding, ReportInput
from profiler.analysis.submodules import CALLS, are_hidden, hidden_notes
from profiler.analysis.table_text import (
    Sentences,
    by_pattern,
    renamed,
    table,
    with_known_idle,
    with_known_work,
)
from profiler.analysis.timeline import calls_on_axis
from profiler.run.columns import NS, col
from profiler.run.intervals import Stretches
from profiler.text import Note, NoteCode, Said, said
from profiler.trace.events import RUN_STAGE, device_kind

_BEGIN = col(
    "drawn_ns",
    NS,
    "start on its device, from the start of the run, where the timeline draws it; the host's start "
    "if it is not known when its device worked for it",
    label="start",
    importance=3,
)
_HOST_BEGIN = renamed(
    CALLS,
    "start_ns",
    label="host start",
    meaning="begin of its range on the host, from the start of the run",
    importance=16,
)
_CALLS = (
    "call",
    "pipeline",
    "submodule",
    "stage",
    "branch",
    "step",
    "iteration",
    "rank",
    "device",
    _BEGIN,
    _HOST_BEGIN,
    "start_ns",
    "elapsed_ns",
    "span_ns",
    "share",
    "busy_ns",
    "idle_inside_ns",
    "launch_bound_ns",
    "before_kernel_ns",
    "hidden_ns",
    "unrecorded_ns",
    "queue_lead_ns",
    "duration_ns",
    "commands",
    "operators",
    "first",
    "ops_traced",
)
_COMPILATIONS = (
    "compilation call submodule step function start_ns duration_ns recompile_reason",
    "graph_breaks graph_break_reason failure",
)
_OF_HOST = (
    renamed(OPERATORS, "layer", label="what"),
    "submodule",
    renamed(OPERATORS, "commands", label="times"),
    renamed(OPERATORS, "self_ns", importance=0),
    renamed(OPERATORS, "share", label="share of host time"),
    renamed(OPERATORS, "waited_ns", importance=0),
    renamed(OPERATORS, "total_ns", label="total", importance=2),
)
_SELF = said(
    "Self excludes other host work, runtime calls and waits within it. Waited is the part of self "
    "in which the host waited for a device, in synchronizations and copies. Runtime calls are "
    "those that launched work or waited."
)


def _parts(of: ReportInput) -> Iterator[Part]:
    """Yield tables of calls (in order of return), compilations and the host's work. Start times
    count from the start of the run."""
    analysis = of.analysis
    drawn = calls_on_axis(analysis.inputs.run).select("call", drawn_ns="start_ns")
    calls = analysis.calls.join(drawn, on="call", how="left", maintain_order="left")
    calls = calls.with_columns(pl.col("start_ns", "drawn_ns") - of.begin_ns)
    behind = not calls["start_ns"].equals(calls["drawn_ns"])
    by_column = {
        _BEGIN: behind,
        _HOST_BEGIN: behind,
        "start_ns": not behind,
        "pipeline": len(analysis.pipelines) > 1,
        "iteration": (calls["iteration"] >= 0).any(),
        "rank": calls["rank"].n_unique() > 1,
        "span_ns": are_hidden(calls),
        "stage": (calls["stage"] != RUN_STAGE).any(),
    }
    hidden = renamed(CALLS, "hidden_ns", importance=0 if by_column["span_ns"] else 16)
    shown = [
        hidden if column == "hidden_ns" else column
        for column in _CALLS
        if by_column.get(column, True)
    ]
    yield Part(
        table=table(
            "calls",
            "calls",
            shown,
            CALLS,
            with_known_idle(with_known_work(calls, calls, "call"), analysis.inputs.run.info),
            shown=15,
            search=True,
            opens=Opens.CALL,
        ),
        notes=hidden_notes(calls),
    )
    compilations = analysis.compilations
    yield Part(
        said("Compilations"),
        table=table(
            "compilations",
            "compilations",
            _COMPILATIONS,
            COMPILATIONS,
            compilations.with_columns(pl.col("start_ns") - of.begin_ns),
            shown=of.rows(10),
            search=True,
        ),
    )
    yield Part(
        said("The host's work, runtime calls and waits"),
        table=table(
            "host",
            "rows of the host",
            _OF_HOST,
            OPERATORS,
            by_pattern(analysis.operators.filter("host")),
            shown=of.rows(10),
            search=True,
            sort="self_ns",
            opens=Opens.HOST_LAYERS,
        ),
        notes=(_SELF,),
    )


SECTION = SectionKind(
    "calls",
    45,
    said("Calls"),
    _parts,
    tables=("calls", "compilations", "operators"),
    group=SectionGroup.MODEL,
)


# --- The rule about time around a device's nodes, if nobody recorded when these ran.
#
# Where that is recorded, the idle time of the device says it.


class AroundNodes(NoteCode):
    """What of a call's time lies outside of its nodes."""

    PART = "part"


_OUTSIDE = 0.20  # of end to end
_WORTH = 0.005  # of end to end, for a part that is named


def outside_nodes(analysis: Analysis) -> Iterator[Finding]:
    """Calls take longer than the nodes that a device ran in them, and what the host recorded around
    these says for what. Silent if it was recorded when nodes ran, if the nodes of some calls
    were not, and if nothing names the rest."""
    run, total = analysis.inputs.run, end_to_end_ns(analysis)
    if times_recorded(run.info) or not run.calls["ops_traced"].all():
        return
    placed = run.calls.group_by(pl.col("device").cast(pl.String), maintain_order=True)
    for (device,), calls in placed:
        if is_accelerator(str(device)):
            yield from _outside_nodes_of_device(analysis, str(device), calls, total)


def _outside_nodes_of_device(
    analysis: Analysis, device: str, calls: pl.DataFrame, total: int
) -> Iterator[Finding]:
    commands = analysis.inputs.run.commands.filter(pl.col("call").is_in(calls["call"].implode()))
    waits = pl.col("category").is_in(["host", "sync"])
    nodes = _cover(commands.filter(~waits))
    whole = _cover(calls)
    outside = whole.minus(nodes).length
    parts = [
        part for part in _around_nodes(commands.filter(waits), nodes) if part[1] >= _WORTH * total
    ]
    if share(outside, total) < _OUTSIDE or not parts:
        return
    parts.sort(key=lambda part: -part[1])
    yield Finding(
        "outside_nodes",
        {
            "before_after_ns": outside,
            "outside_share": share(outside, total),
            "nodes_ns": nodes.both(whole).length,
            "parts": tuple(Note.of(AroundNodes.PART, name=n, time_ns=ns) for n, ns in parts),
        },
        where=calls_of(analysis, device=device),
        cost_ns=outside,
    )


def _around_nodes(around: pl.DataFrame, nodes: Stretches) -> Iterator[tuple[str, int]]:
    """What was recorded around the nodes, by name, the innermost first: how long nothing further in
    did, in ns."""
    covers = [(str(name), _cover(rows)) for (name,), rows in around.group_by("layer")]
    covers.sort(key=lambda part: (part[1].length, part[0]))
    within = nodes
    for name, cover in covers:
        yield name, cover.minus(within).length
        within = Stretches.of_all((within, cover))


def _cover(rows: pl.DataFrame) -> Stretches:
    start = rows["start_ns"]
    return Stretches.union(start.to_numpy(), (start + rows["duration_ns"]).to_numpy())


_RECOMMENDATION = said(
    "Look at the largest part: copies of inputs and outputs, queues, power states. Keep buffers "
    "that host and device share, send several inputs a call, keep the device awake between calls."
)
_OF_QNN = said(
    "Of ONNX Runtime's QNN provider: htp_performance_mode=burst and rpc_control_latency keep the "
    "accelerator awake and answer sooner, enable_htp_shared_memory_allocator=1 spares copies of "
    "inputs and outputs. Send several inputs a call."
)
_CAVEAT = said("The finer the profile, the longer the time around its nodes.")
_CAVEAT_OF_QNN = said(
    "Profiling each node lengthens the time around the nodes: profiling_level=basic measures "
    "calls with less of this effect."
)


def _outside_nodes(found: Finding) -> Words:
    return Words(
        title="{outside_share} of the time, {before_after_ns}, lies outside of the nodes that "
        "{device} ran: {parts}",
        caveat=_CAVEAT_OF_QNN if is_qnn(found) else _CAVEAT,
        recommendation=_OF_QNN if is_qnn(found) else _RECOMMENDATION,
    )


def is_qnn(found: Finding) -> bool:
    """Whether the device is one of Qualcomm's QNN."""
    return device_kind(found.where.device or "") == "qnn"


def _outside_nodes_change(found: Finding) -> Said:
    if is_qnn(found):
        return said("htp_performance_mode=burst, rpc_control_latency; shared memory for tensors")
    return said("Share buffers with the device; send several inputs a call")


RULES = (Rule(outside_nodes, _outside_nodes, _outside_nodes_change, section="calls"),)
SENTENCES: Sentences = {AroundNodes: {AroundNodes.PART: "{name} {time_ns}"}}
