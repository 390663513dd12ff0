"""The cost of classifier-free guidance, and redundant work."""

from __future__ import annotations

import polars as pl

from profiler.analysis.denoise.codes import GuidanceEvidence
from profiler.analysis.denoise.columns import GUIDANCE, REDUNDANT_WORK
from profiler.analysis.result import Analysis
from profiler.report.model import Part, ReportInput, SectionKind
from profiler.report.views import table
from profiler.text import duration, joined, percent, said, sentence

__all__ = ["SECTION"]

_HELD = 100  # rows of a table
_LAUNCH_BOUND = 0.05  # of the elapsed time: with less, half a batch is as much faster as computed
_HALF_OF_BATCH = said(
    "estimated: what batched calls would save with half the batch, by their operators where these "
    "were traced, else half of them"
)
_BY_RULES = said("inferred from names and shapes, not from values, which a trace does not have")
_UPPER = said(
    "at most: of what is known ahead all but one execution, were it computed as one batch"
)
_GUIDANCE = (
    "what",
    "submodule",
    "branch",
    "calls",
    "elapsed_ns",
    "corrected_ns",
    "busy_ns",
    "share",
    "estimated",
    "evidence",
)
_REDUNDANT_WORK = (
    "layer",
    "submodule",
    "rule",
    "same_over",
    "calls",
    "minimum_executions",
    "total_ns",
    "saved_ns",
    "estimated",
    "evidence",
)


def _parts(of: ReportInput) -> tuple[Part, ...]:
    guidance, again = of.analysis.guidance, of.analysis.redundant_work
    return (
        Part(
            said("Cost of classifier-free guidance"),
            table=table("guidance", "guidance", _GUIDANCE, GUIDANCE, guidance, shown=of.rows(10)),
            notes=_estimated(of.analysis),
        ),
        Part(
            said("Redundant work, by what hoisting would save"),
            sentence(_savings(of.analysis)),
            table=table(
                "again",
                "redundant work",
                _REDUNDANT_WORK,
                REDUNDANT_WORK,
                again,
                shown=of.rows(10),
                held=_HELD,
            ),
            notes=(sentence(_UPPER),) * bool(again["estimated"].any()),
        ),
    )


def _estimated(analysis: Analysis) -> tuple[str, ...]:
    """How half a batch was estimated, and of what the estimate knows nothing."""
    estimated = analysis.guidance.filter("estimated")
    if estimated.is_empty():
        return ()
    by_replay = pl.col("evidence").str.contains(GuidanceEvidence.REPLAYED_LAUNCHES.value)
    replayed, rows = estimated.filter(by_replay), estimated.filter(~by_replay)
    of_submodules = analysis.submodules.filter(
        pl.col("submodule").is_in(rows["submodule"].implode())
    )
    late = of_submodules.filter(pl.col("launch_bound_ns") > _LAUNCH_BOUND * pl.col("elapsed_ns"))
    return (
        sentence(_HALF_OF_BATCH),
        *(
            sentence(
                said(
                    "half the batch has as many launches: of {less} less work on the device of "
                    "{submodule} {gained} are gained, by a replay of its launches; a CUDA graph "
                    "(`profile-sd3 predict --cuda-graph`) removes the waiting for launches",
                    less=duration(less),
                    submodule=submodule,
                    gained=duration(gained),
                )
            )
            for submodule, less, gained in replayed.select(
                "submodule", "busy_ns", "elapsed_ns"
            ).iter_rows()
        ),
        *(
            sentence(
                said(
                    "{share} of {submodule} is launch-bound: half the batch takes as many "
                    "launches, so it saves less than the estimate, or nothing",
                    share=percent(bound / elapsed),
                    submodule=submodule,
                )
            )
            for submodule, bound, elapsed in late.select(
                "submodule", "launch_bound_ns", "elapsed_ns"
            ).iter_rows()
        ),
    )


def _savings(analysis: Analysis) -> str:
    """What hoisting all redundant work would save."""
    again = analysis.redundant_work
    measured = int(again.filter(~again["estimated"])["saved_ns"].sum())
    ahead = int(again.filter("estimated")["saved_ns"].sum())
    busy = int(analysis.submodules["busy_ns"].sum())
    share = f" ({percent(measured / busy)})" if busy else ""
    sums = []
    if measured:
        sums.append(said("{time} of device time{share}", time=duration(measured), share=share))
    if ahead:
        sums.append(said("at most {time} of what is known ahead", time=duration(ahead)))
    if len(sums) > 1:
        sums = [said("{one}, and {other}", one=sums[0], other=sums[1])]
    return joined("; ", [*sums, _BY_RULES])


SECTION = SectionKind(
    "guidance",
    90,
    said("Guidance and redundancy"),
    _parts,
    tables=("guidance", "redundant_work"),
)
