"""Rules about operators that compute the same again."""

from __future__ import annotations

import polars as pl

from profiler.analysis.denoise.codes import RedundancyEvidence, RedundancyKind
from profiler.analysis.findings.finding import Effect, Evidence, Finding
from profiler.analysis.findings.measures import (
    MATERIAL,
    calls_of,
    end_to_end_ns,
    scaled,
    share,
)
from profiler.analysis.result import Analysis
from profiler.text import notes_from

__all__ = ["known_ahead", "recomputed"]

_AHEAD = 2 * MATERIAL  # its saving is an upper bound


def recomputed(analysis: Analysis) -> tuple[Finding, ...]:
    """Operators compute in every step, or for both branches, what they had computed already."""
    return _of_redundant_work(
        analysis,
        "recomputed",
        estimated=False,
        least=MATERIAL,
    )


def known_ahead(analysis: Analysis) -> tuple[Finding, ...]:
    """Modulation and embeddings of the timestep could be computed for all steps at once."""
    return _of_redundant_work(
        analysis,
        "known_ahead",
        estimated=True,
        least=_AHEAD,
    )


def _of_redundant_work(
    analysis: Analysis,
    rule: str,
    *,
    estimated: bool,
    least: float,
) -> tuple[Finding, ...]:
    """A finding for each submodule that would save at least that share of the run."""
    total = end_to_end_ns(analysis)
    rows = analysis.redundant_work.filter(pl.col("estimated") == estimated)
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
                evidence=_evidence(most_first, saved, part),
                where=calls_of(analysis, str(submodule), layer=most_first["layer"][0]),
                cost_ns=round(saved),
                effect=Effect((str(submodule),), saved, _launches(some)),
            )
        )
    return tuple(found)


def _launches(rows: pl.DataFrame) -> float:
    """How many executions less there are, each one launch."""
    less = rows["layers"] * (rows["calls"] - rows["minimum_executions"])
    return float(less.sum())


def _evidence(rows: pl.DataFrame, saved: float, part: float) -> Evidence:
    return {
        "saved_ns": round(saved),
        "saved_share": part,
        "operators": int(rows["layers"].sum()),
        "what": tuple(map(RedundancyKind, rows["rule"].unique(maintain_order=True))),
        "most": rows["layer"][0],
        "most_is": RedundancyKind(rows["rule"][0]),
        "speaks_for_it": notes_from(rows["evidence"][0], RedundancyEvidence),
    }
