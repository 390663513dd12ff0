"""The rule about time around a device's nodes, where nobody recorded when these ran.

Where that is recorded, the idle time of the device says it.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from profiler.analysis.findings.codes import AroundNodes
from profiler.analysis.findings.finding import Finding
from profiler.analysis.findings.measures import calls_of, end_to_end_ns, share
from profiler.analysis.host_side import is_accelerator
from profiler.analysis.recorded_times import times_recorded
from profiler.analysis.result import Analysis
from profiler.run.intervals import Stretches
from profiler.text import Note

__all__ = ["outside_nodes"]

_OUTSIDE = 0.20  # of end to end
_WORTH = 0.005  # of end to end, for a part that is named


def outside_nodes(analysis: Analysis) -> tuple[Finding, ...]:
    """Calls take longer than the nodes that a device ran in them, and what the host recorded around
    these says for what. Silent where it was recorded when nodes ran, where the nodes of some calls
    were not, and where nothing names the rest."""
    run, total = analysis.inputs.run, end_to_end_ns(analysis)
    if times_recorded(run.info) or not run.calls["ops_traced"].all():
        return ()
    placed = run.calls.group_by(pl.col("device").cast(pl.String), maintain_order=True)
    found = (
        _of_device(analysis, str(device), calls, total)
        for (device,), calls in placed
        if is_accelerator(str(device))
    )
    return tuple(finding for finding in found if finding is not None)


def _of_device(analysis: Analysis, device: str, calls: pl.DataFrame, total: int) -> Finding | None:
    commands = analysis.inputs.run.commands.filter(pl.col("call").is_in(calls["call"].implode()))
    waits = pl.col("category").is_in(["host", "sync"])
    nodes = _cover(commands.filter(~waits))
    whole = Stretches.union(
        calls["start_ns"].to_numpy(), (calls["start_ns"] + calls["duration_ns"]).to_numpy()
    )
    outside = whole.minus(nodes).length
    parts = [part for part in _parts(commands.filter(waits), nodes) if part[1] >= _WORTH * total]
    if share(outside, total) < _OUTSIDE or not parts:
        return None
    parts.sort(key=lambda part: -part[1])
    return Finding(
        rule="outside_nodes",
        evidence={
            "outside_ns": outside,
            "outside_share": share(outside, total),
            "nodes_ns": nodes.both(whole).length,
            "parts": tuple(Note.of(AroundNodes.PART, name=n, time_ns=ns) for n, ns in parts),
        },
        where=calls_of(analysis, device=device),
        cost_ns=outside,
    )


def _parts(around: pl.DataFrame, nodes: Stretches) -> Iterator[tuple[str, int]]:
    """What was recorded around the nodes, by name, the innermost first: how long nothing further in
    did, in ns."""
    covers = [(str(name), _cover(rows)) for (name,), rows in around.group_by("layer")]
    covers.sort(key=lambda part: (part[1].length, part[0]))
    within = nodes
    for name, cover in covers:
        yield name, cover.minus(within).length
        within = Stretches.of_all((within, cover))


def _cover(commands: pl.DataFrame) -> Stretches:
    start = commands["start_ns"]
    return Stretches.union(start.to_numpy(), (start + commands["duration_ns"]).to_numpy())
