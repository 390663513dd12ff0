"""What guidance costs, and what is computed again although its inputs are the same."""

from __future__ import annotations

from profiler.analysis.denoise.columns import GUIDANCE, INVARIANTS
from profiler.analysis.result import Analysis
from profiler.messages import joined, said, sentence
from profiler.report.model import Part, ReportInput, SectionKind
from profiler.report.units import duration, percent
from profiler.report.views import table

__all__ = ["SECTION"]

_HELD = 100  # rows of a table
_HALF_OF_BATCH = said(
    "estimated: what batched calls would save with half the batch, by their operators where these "
    "were traced, else half of them"
)
_BY_RULES = said("by rules about names and shapes, not by values: a trace holds none")
_UPPER = said(
    "at most: of what is known ahead all but one execution, were it computed as one batch"
)
_GUIDANCE = (
    "what",
    "submodule",
    "branch",
    "calls",
    "wall_ns",
    "calibrated_ns",
    "busy_ns",
    "share",
    "estimated",
    "evidence",
)
_INVARIANTS = (
    "layer",
    "submodule",
    "rule",
    "same_over",
    "calls",
    "needed",
    "busy_ns",
    "saved_ns",
    "estimated",
    "evidence",
)


def _parts(of: ReportInput) -> tuple[Part, ...]:
    guidance, again = of.analysis.guidance, of.analysis.invariants
    return (
        Part(
            said("What guidance costs"),
            table=table("guidance", "guidance", _GUIDANCE, GUIDANCE, guidance, shown=of.rows(10)),
            notes=(sentence(_HALF_OF_BATCH),) * bool(guidance["estimated"].any()),
        ),
        Part(
            said("Computed again, by what hoisting would save"),
            sentence(_savings(of.analysis)),
            table=table(
                "again",
                "computed again",
                _INVARIANTS,
                INVARIANTS,
                again,
                shown=of.rows(10),
                held=_HELD,
            ),
            notes=(sentence(_UPPER),) * bool(again["estimated"].any()),
        ),
    )


def _savings(analysis: Analysis) -> str:
    """What hoisting all that is computed again would save."""
    again = analysis.invariants
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
    contents=said("Guidance"),
    tables=("guidance", "invariants"),
)
