"""Rules about submodules as wholes: encoders, prompts, branches."""

from __future__ import annotations

import polars as pl

from profiler.analysis.denoise.codes import GuidanceKind
from profiler.analysis.findings.finding import Effect, Finding
from profiler.analysis.findings.measures import calls_of, end_to_end_ns, share
from profiler.analysis.findings.stalls import stalls_of
from profiler.analysis.result import Analysis
from profiler.analysis.roofline.codes import Bound
from profiler.text import Value

__all__ = ["encoder_dominates", "negative_prompt", "separate_guidance"]

_ENCODER = 0.20  # of end to end: an encoder runs once where the denoiser runs every step
_NEGATIVE = 0.02
_SEPARATE = 0.05
_BATCHABLE = 0.3  # of the denoiser's time bound by something else than computation


def encoder_dominates(analysis: Analysis) -> Finding | None:
    """A text encoder (T5 in a short run) takes a large part of the run, without what the host did
    once in its calls."""
    total = end_to_end_ns(analysis)
    encoders = analysis.submodules.filter(pl.col("stage") == "encode")["submodule"].to_list()
    times = {p.submodule: p.wall_ns for p in analysis.accounting.submodules}
    known = {name: times[name] - _stalled(analysis, name) for name in encoders if name in times}
    if not known or not analysis.accounting.steps:
        return None
    longest = max(known, key=lambda name: known[name])
    wall = known[longest]
    if share(wall, total) < _ENCODER:
        return None
    step_ns = analysis.step_summary.median_ns
    evidence: dict[str, Value] = {
        "encoder_ns": wall,
        "encoder_share": share(wall, total),
        "all_encoders_share": share(sum(known.values()), total),
        "steps": analysis.accounting.steps,
    }
    if step_ns:
        evidence["median_step_ns"] = step_ns
        evidence["worth_steps"] = round(wall / step_ns, 1)
    return Finding(
        rule="encoder_dominates",
        evidence=evidence,
        where=calls_of(analysis, longest),
        severity="medium",
    )


def _stalled(analysis: Analysis, submodule: str) -> int:
    stalls = stalls_of(analysis, submodule=submodule)
    return stalls.length_ns if stalls else 0


def negative_prompt(analysis: Analysis) -> Finding | None:
    """Encoding the negative prompt takes its own calls."""
    rows = analysis.guidance.filter(pl.col("what") == GuidanceKind.NEGATIVE_PROMPT.value)
    total, wall = end_to_end_ns(analysis), int(rows["elapsed_ns"].sum())
    if rows.is_empty() or share(wall, total) < _NEGATIVE:
        return None
    longest = rows.sort("elapsed_ns")["submodule"][-1]
    return Finding(
        rule="negative_prompt",
        evidence={
            "wall_ns": wall,
            "wall_share": share(wall, total),
            "calls": int(rows["calls"].sum()),
            "encoders": ", ".join(rows["submodule"]),
        },
        where=calls_of(analysis, longest),
        cost_ns=wall,
        effect=Effect(tuple(rows["submodule"]), without_branch="negative_prompt"),
    )


def separate_guidance(analysis: Analysis) -> tuple[Finding, ...]:
    """Guidance calls the denoiser twice a step, where one batch would load weights and launch
    once."""
    rows = analysis.guidance.filter(pl.col("branch") == "uncond")
    total = end_to_end_ns(analysis)
    found = []
    for row in rows.to_dicts():
        bound = _not_compute_bound(analysis, row["submodule"])
        if bound is None or bound < _BATCHABLE or share(row["elapsed_ns"], total) < _SEPARATE:
            continue
        found.append(
            Finding(
                rule="separate_guidance",
                evidence={
                    "uncond_calls": row["calls"],
                    "uncond_ns": row["elapsed_ns"],
                    "uncond_share": share(row["elapsed_ns"], total),
                    "not_compute_bound_share": bound,
                },
                where=calls_of(analysis, row["submodule"]),
                cost_ns=round(row["elapsed_ns"] * bound),
                effect=Effect((row["submodule"],), without_branch="uncond", grown=2.0 - bound),
            )
        )
    return tuple(found)


def _not_compute_bound(analysis: Analysis, submodule: str) -> float | None:
    """Share of a submodule's device time that something else bounds; None where less than half of
    it has a bound."""
    rows = analysis.roofline_roles.filter(pl.col("submodule") == submodule)
    known = rows.drop_nulls("bound")
    busy = int(known["total_ns"].sum())
    if share(busy, int(rows["total_ns"].sum())) < 0.5:
        return None
    other = known.filter(pl.col("bound") != Bound.COMPUTE.value)
    return share(int(other["total_ns"].sum()), busy)
