"""The rule about ranks of a job: one keeps the others waiting."""

from __future__ import annotations

import polars as pl

from profiler.analysis.findings.finding import Finding, Where
from profiler.analysis.findings.measures import MATERIAL, end_to_end_ns, share
from profiler.analysis.result import Analysis

__all__ = ["straggler"]

_FEWEST = 5  # collectives that have a last rank: fewer tell nothing of a habit


def straggler(analysis: Analysis) -> Finding | None:
    """One rank is the last to begin most of its collectives, and the others wait for it.

    Of n ranks each is the last in 1/n of them by chance: it must be so in half of what is between
    that and all (0.75 of two ranks, 0.56 of eight), and late by 1 % of end to end in all.
    """
    rows = analysis.ranks
    compared = rows.filter(pl.col("compared") >= _FEWEST)
    if len(rows) < 2 or compared.is_empty():
        return None
    worst = compared.sort("late_ns", "rank", descending=[True, False]).row(0, named=True)
    often = (1 + 1 / len(rows)) / 2
    total = end_to_end_ns(analysis)
    if worst["last_share"] < often or share(worst["late_ns"], total) < MATERIAL:
        return None
    waited = int(rows.filter(pl.col("rank") != worst["rank"])["waited_ns"].sum())
    return Finding(
        rule="straggler",
        evidence={
            "rank": worst["rank"],
            "ranks": len(rows),
            "last": worst["last"],
            "compared": worst["compared"],
            "last_share": worst["last_share"],
            "late_ns": worst["late_ns"],
            "others_waited_ns": waited,
        },
        where=Where(device=worst["devices"].partition(", ")[0] or None),
        cost_ns=worst["late_ns"],
    )
