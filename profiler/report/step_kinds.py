"""Full steps and those in which a step cache skipped blocks, in words."""

from __future__ import annotations

from profiler.analysis.steps.summary import StepSummary
from profiler.text import Said, count, duration, joined, said

__all__ = ["by_cache"]


def by_cache(steps: StepSummary) -> Said | None:
    """How many steps of either kind there are, and their medians: `"2 full, median 1.20 s; 6 with
    skipped blocks, median 0.31 s"`; None where no step cache was on, or skipped nothing."""
    if not steps.skipping_steps:
        return None
    parts = []
    if steps.full_steps and steps.full_median_ns is not None:
        full = duration(steps.full_median_ns)
        parts.append(
            said("{number} full, median {time}", number=count(steps.full_steps), time=full)
        )
    if steps.skipping_median_ns is not None:
        number, time = count(steps.skipping_steps), duration(steps.skipping_median_ns)
        parts.append(said("{number} with skipped blocks, median {time}", number=number, time=time))
    return joined("; ", parts)
