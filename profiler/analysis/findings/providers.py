"""Rules about ONNX Runtime sessions on several execution providers."""

from __future__ import annotations

import polars as pl

from profiler.analysis.findings.finding import Finding
from profiler.analysis.findings.measures import (
    MATERIAL,
    calls_of,
    end_to_end_ns,
    scaled,
    share,
)
from profiler.analysis.result import Analysis
from profiler.text import Value

__all__ = ["cpu_fallback", "provider_switches"]

_SWITCHES = 8  # a call: in and out of the host once or twice is usual at either end of a graph
_NAMED = 3


def cpu_fallback(analysis: Analysis) -> tuple[Finding, ...]:
    """Nodes ran on the host between copies, while the session has a device."""
    if analysis.cpu_fallback.is_empty():
        return ()
    total = end_to_end_ns(analysis)
    crossings = scaled(analysis, _crossings(analysis), "cost_ns")
    found = []
    rows = scaled(analysis, analysis.cpu_fallback, "total_ns")
    for (submodule,), nodes in rows.group_by("submodule", maintain_order=True):
        of_submodule = crossings.filter(pl.col("submodule") == submodule)
        crossing = float(of_submodule["cost_ns"].sum())
        cost = float(nodes["total_ns"].sum()) + crossing
        if share(cost, total) < MATERIAL:
            continue
        types = nodes["op_type"].drop_nulls().unique(maintain_order=True)
        found.append(
            Finding(
                rule="cpu_fallback",
                evidence={
                    "layers": len(nodes),
                    "nodes": int(nodes["nodes"].sum()),
                    "nodes_ns": int(nodes["total_ns"].sum()),
                    "copies_and_gaps_ns": round(crossing),
                    "op_types": ", ".join(types.head(_NAMED)),
                    "longest_layer": nodes["layer"][0],
                },
                where=calls_of(analysis, str(submodule), layer=nodes["layer"][0]),
                cost_ns=round(cost),
            )
        )
    return tuple(found)


def provider_switches(analysis: Analysis) -> tuple[Finding, ...]:
    """Execution goes back and forth between providers."""
    if analysis.device_transitions.is_empty():
        return ()
    total = end_to_end_ns(analysis)
    found = []
    for row in scaled(analysis, _crossings(analysis), "cost_ns").to_dicts():
        each = row["switches"] / max(row["calls"], 1)
        if each < _SWITCHES or share(row["cost_ns"], total) < MATERIAL:
            continue
        evidence: dict[str, Value] = {
            "switches": row["switches"],
            "switches_per_call": round(each, 1),
            "copies": row["copies"],
            "copy_ns": row["copy_ns"],
            "gap_ns": row["gap_ns"],
            "providers": row["providers"],
        }
        if row["bytes"]:
            evidence["copied_bytes"] = row["bytes"]
        found.append(
            Finding(
                rule="provider_switches",
                evidence=evidence,
                where=calls_of(analysis, row["submodule"]),
                cost_ns=round(row["cost_ns"]),
            )
        )
    return tuple(found)


def _crossings(analysis: Analysis) -> pl.DataFrame:
    """One row a submodule: its switches in both directions, and what they cost."""
    return (
        analysis.device_transitions.group_by("submodule", maintain_order=True)
        .agg(
            pl.col("switches", "copies", "copy_ns", "gap_ns", "bytes").sum(),
            calls=pl.col("calls").max(),
            providers=pl.col("source").unique().sort().str.join(", "),
        )
        .with_columns(cost_ns=pl.col("copy_ns") + pl.col("gap_ns"))
    )
