"""Rules about operators that compute the same again."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from profiler.analysis.findings.finding import Finding
from profiler.analysis.findings.measures import (
    MATERIAL,
    as_percent,
    calls_of,
    scaled,
    share,
    total_ns,
)
from profiler.analysis.result import Analysis
from profiler.messages import said

__all__ = ["known_ahead", "recomputed"]

_AHEAD = 2 * MATERIAL  # its saving is an upper bound


def recomputed(analysis: Analysis) -> tuple[Finding, ...]:
    """Operators compute in every step, or for both branches, what they had computed already."""
    found = []
    for submodule, rows, saved in _saved(analysis, estimated=False, least=MATERIAL):
        part = share(saved, total_ns(analysis))
        found.append(
            Finding(
                rule="recomputed",
                title=said(
                    "{submodule} computes the same again: {part} of the run",
                    submodule=submodule,
                    part=as_percent(part),
                ),
                evidence=_evidence(rows, saved, part),
                hazard=said(
                    "Rules about names, classes and shapes decide, not values: hold the "
                    "outputs of two steps against each other before hoisting them."
                ),
                remedy=said(
                    "Compute it once before the loop and pass it in (projected text, rotary "
                    "tables, keys and values of the text); export with fixed shapes, so that "
                    "arithmetic on shapes folds away."
                ),
                where=calls_of(analysis, submodule, layer=rows["layer"][0]),
                cost_ns=round(saved),
            )
        )
    return tuple(found)


def known_ahead(analysis: Analysis) -> tuple[Finding, ...]:
    """Modulation and embeddings of the timestep could be computed for all steps at once."""
    found = []
    for submodule, rows, saved in _saved(analysis, estimated=True, least=_AHEAD):
        part = share(saved, total_ns(analysis))
        found.append(
            Finding(
                rule="known_ahead",
                title=said(
                    "{submodule} projects each timestep in its step, all are known before: at "
                    "most {part} of the run",
                    submodule=submodule,
                    part=as_percent(part),
                ),
                evidence=_evidence(rows, saved, part),
                hazard=said(
                    "An upper bound: one batch of all steps takes longer than one step. The "
                    "tables take memory, and hold for one schedule, and pooled text where it "
                    "is added."
                ),
                remedy=said(
                    "Compute shift, scale and gate of all steps as one batch before the loop, "
                    "and index them by step."
                ),
                where=calls_of(analysis, submodule, layer=rows["layer"][0]),
                cost_ns=round(saved),
            )
        )
    return tuple(found)


def _saved(
    analysis: Analysis, *, estimated: bool, least: float
) -> Iterator[tuple[str, pl.DataFrame, float]]:
    """Submodules that would save at least that share of the run, their rows, most saved first, and
    how much in all calls."""
    total = total_ns(analysis)
    rows = scaled(
        analysis, analysis.invariants.filter(pl.col("estimated") == estimated), "saved_ns"
    )
    for (submodule,), some in rows.group_by("submodule", maintain_order=True):
        saved = float(some["saved_ns"].sum())
        if share(saved, total) >= least:
            yield str(submodule), some.sort("saved_ns", descending=True), saved


def _evidence(rows: pl.DataFrame, saved: float, part: float) -> dict[str, int | float | str]:
    return {
        "saved_ns": round(saved),
        "saved_share": part,
        "operators": int(rows["layers"].sum()),
        "what": ", ".join(rows["rule"].unique(maintain_order=True)),
        "most": f"{rows['layer'][0]} ({rows['rule'][0]})",
        "speaks_for_it": rows["evidence"][0],
    }
