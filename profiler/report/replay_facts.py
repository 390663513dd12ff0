"""What the report says of graphs that were replayed: where operators of their kernels come from."""

from __future__ import annotations

from collections.abc import Iterator

from profiler.analysis.result import Analysis
from profiler.report.model import Fact
from profiler.text import Said, count, counted, percent, said
from profiler.trace.events import GRAPH_CAPTURE
from profiler.trace.manifest_fields import Graphs

__all__ = ["replay_facts"]


def replay_facts(analysis: Analysis) -> Iterator[Fact]:
    """What is known of replayed graphs, and that launches were captured where the headline does not
    say so already; nothing without any."""
    recording = analysis.run.recording
    graphs = recording.graphs if recording else None
    if graphs is None:
        return
    if graphs.captured and not graphs.replays:
        note = said("launches that were captured and not run: the trace of a graph's capture")
        if GRAPH_CAPTURE not in analysis.inputs.run.info.capabilities:
            yield Fact(said("Graphs"), count(graphs.captured), note)
        return
    note = _operators_from(graphs)
    if graphs.uncompared:
        note = said(
            "{what}; replays not compared with all captures, which would take too long: {replays} "
            "(give fewer by --capture)",
            what=note,
            replays=count(graphs.uncompared),
        )
    yield Fact(said("Graphs"), counted(graphs.replays, "replay"), note)


def _operators_from(graphs: Graphs) -> Said:
    """How many kernels have operators, and of what they need where none has."""
    if graphs.joined:
        return said(
            "{joined} of {kernels} kernels have operators, from the trace of the capture",
            joined=count(graphs.joined),
            kernels=count(graphs.kernels),
        )
    if graphs.captures:
        return said(
            "{kernels} kernels without operators: of the captures that are there the best has "
            "{share} of a replay's kernels in order, and 98 % are needed",
            kernels=count(graphs.kernels),
            share=percent(graphs.best or 0.0),
        )
    return said(
        "{kernels} kernels without operators: these ran when the graph was captured, and a trace "
        "of that (--capture, or the folder capture_traces) tells them",
        kernels=count(graphs.kernels),
    )
