"""Findings of `graph check` beside a run of the model: how long each node that they name took.

measured(results, load("qnn_profile.csv"))
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from profiler.compare.operations import converted_name, nodes_of
from profiler.graph.check import CheckResult
from profiler.graph.checks.finding import GraphFinding
from profiler.run.run import Run

__all__ = ["MeasuredFinding", "measured"]

_NO_WORK = ("host", "sync")


@dataclass(frozen=True, slots=True)
class MeasuredFinding:
    """A finding with the time of its node: mean ns in a call that has it, its share of all that was
    measured, and the layer that ran it; None where no layer of the run names the node."""

    finding: GraphFinding
    ns: int | None
    share: float | None
    layer: str | None

    def to_json(self) -> dict[str, Any]:
        """The finding as a JSON object, with what was measured."""
        return {
            **self.finding.to_json(),
            "measured_ns": self.ns,
            "measured_share": self.share,
            "measured_layer": self.layer,
        }


def measured(result: CheckResult, run: Run) -> tuple[MeasuredFinding, ...]:
    """The findings of one model in the order of `result`, those of a rule by their time; joined by
    the names of nodes, as the run's producer calls them."""
    times = _by_node(run)
    total = sum(ns for ns, _ in {layer: (ns, layer) for ns, layer in times.values()}.values())
    found = [_measured(finding, times, total) for finding in result.findings]
    return tuple(_ordered(found))


def _by_node(run: Run) -> dict[str, tuple[int, str]]:
    """By name of a node the mean time of the layer that ran it, in a call, and the layer."""
    layers = (
        run.commands.lazy()
        .filter(~pl.col("category").cast(pl.String).is_in(_NO_WORK))
        .filter(pl.col("call") >= 0)
        .group_by(pl.col("layer").cast(pl.String))
        .agg(total=pl.col("duration_ns").clip(0).sum(), calls=pl.col("call").n_unique())
        .collect()
    )
    found: dict[str, tuple[int, str]] = {}
    for layer, total, calls in layers.sort("layer").iter_rows():
        mean = round(total / calls)
        for node in nodes_of(layer, run.info.producer):
            known = found.get(node)
            if known is None or known[0] < mean:
                found[node] = (mean, layer)
    return found


def _measured(
    finding: GraphFinding, times: dict[str, tuple[int, str]], total: int
) -> MeasuredFinding:
    names = (finding.node, converted_name(finding.node))
    ns, layer = next((times[name] for name in names if name in times), (None, None))
    share = ns / total if ns is not None and total else None
    return MeasuredFinding(finding, ns, share, layer)


def _ordered(found: Sequence[MeasuredFinding]) -> Iterable[MeasuredFinding]:
    place = {
        (one.finding.severity, one.finding.rule): n for n, one in reversed([*enumerate(found)])
    }
    return sorted(
        found, key=lambda one: (place[one.finding.severity, one.finding.rule], -(one.ns or 0))
    )
