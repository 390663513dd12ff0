"""Rules about operators that compute the same again."""

from __future__ import annotations

import polars as pl

from profiler.analysis.denoise.codes import InvariantEvidence, InvariantKind
from profiler.analysis.findings.finding import Evidence, Finding
from profiler.analysis.findings.measures import (
    MATERIAL,
    as_percent,
    calls_of,
    scaled,
    share,
    total_ns,
)
from profiler.analysis.notes import notes_from
from profiler.analysis.result import Analysis
from profiler.messages import Said, said

__all__ = ["known_ahead", "recomputed"]

_AHEAD = 2 * MATERIAL  # its saving is an upper bound


def recomputed(analysis: Analysis) -> tuple[Finding, ...]:
    """Operators compute in every step, or for both branches, what they had computed already."""
    return _of_invariants(
        analysis,
        "recomputed",
        said("{submodule} computes the same again: {part} of the run"),
        estimated=False,
        least=MATERIAL,
        hazard=said(
            "Rules about names, classes and shapes decide, not values: hold the outputs of two "
            "steps against each other before hoisting them."
        ),
        remedy=said(
            "Compute it once before the loop and pass it in (projected text, rotary tables, keys "
            "and values of the text); export with fixed shapes, so that arithmetic on shapes folds "
            "away."
        ),
    )


def known_ahead(analysis: Analysis) -> tuple[Finding, ...]:
    """Modulation and embeddings of the timestep could be computed for all steps at once."""
    return _of_invariants(
        analysis,
        "known_ahead",
        said(
            "{submodule} projects each timestep in its step, all are known before: at most {part} "
            "of the run"
        ),
        estimated=True,
        least=_AHEAD,
        hazard=said(
            "An upper bound: one batch of all steps takes longer than one step. The tables take "
            "memory, and hold for one schedule, and pooled text where it is added."
        ),
        remedy=said(
            "Compute shift, scale and gate of all steps as one batch before the loop, and index "
            "them by step."
        ),
    )


def _of_invariants(
    analysis: Analysis,
    rule: str,
    title: Said,
    *,
    estimated: bool,
    least: float,
    hazard: str,
    remedy: str,
) -> tuple[Finding, ...]:
    """A finding for each submodule that would save at least that share of the run. `title` has
    places for the `{submodule}` and the `{part}` of the run."""
    total = total_ns(analysis)
    rows = analysis.invariants.filter(pl.col("estimated") == estimated)
    rows = scaled(analysis, rows, "saved_ns")
    found = []
    for (submodule,), some in rows.group_by("submodule", maintain_order=True):
        saved = float(some["saved_ns"].sum())
        part = share(saved, total)
        if part < least:
            continue
        most_first = some.sort("saved_ns", descending=True)
        found.append(
            Finding(
                rule=rule,
                title=said(title.template, submodule=submodule, part=as_percent(part)),
                evidence=_evidence(most_first, saved, part),
                hazard=hazard,
                remedy=remedy,
                where=calls_of(analysis, str(submodule), layer=most_first["layer"][0]),
                cost_ns=round(saved),
            )
        )
    return tuple(found)


def _evidence(rows: pl.DataFrame, saved: float, part: float) -> Evidence:
    return {
        "saved_ns": round(saved),
        "saved_share": part,
        "operators": int(rows["layers"].sum()),
        "what": tuple(map(InvariantKind, rows["rule"].unique(maintain_order=True))),
        "most": rows["layer"][0],
        "most_is": InvariantKind(rows["rule"][0]),
        "speaks_for_it": notes_from(rows["evidence"][0], InvariantEvidence),
    }
