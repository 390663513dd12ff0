"""What a foreign trace cannot tell, said once in the section that lacks it."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from profiler.analysis.host_side import is_accelerator
from profiler.analysis.result import Analysis
from profiler.report.model import Part
from profiler.report.sentences.capabilities import ADVICE, CONSEQUENCES, FINDINGS
from profiler.text import joined, said

__all__ = ["untold_parts"]

_FINDINGS = "findings"
_OF_ALL = ("timeline", "shapes")


def untold_parts(section: str, analysis: Analysis) -> Iterator[Part]:
    """A line for each capability that the run's producer lacks and the section needs, one of all
    where rules look for findings. Nothing for runs that were captured here, whose producer states
    none."""
    producer = analysis.inputs.run.info.producer
    lacking = _lacking(analysis)
    for code in lacking:
        where, sentence = CONSEQUENCES[code]
        if where == section:
            lead = joined(" ", filter(None, (sentence, ADVICE.get((code, producer)))))
            yield Part(lead=lead, always=True)
    if section == _FINDINGS and lacking:
        what = joined(", ", [FINDINGS[code] for code in lacking])
        yield Part(
            lead=said(
                "Some rules could not be checked, because the trace lacks: {what}.", what=what
            ),
            always=True,
        )


def _lacking(analysis: Analysis) -> list[str]:
    """What sections need and the run's producer does not tell."""
    told = analysis.inputs.run.info.capabilities
    if not told:
        return []
    lacking = [code for code in CONSEQUENCES if code not in told and _applies(code, analysis)]
    if "timeline" in lacking and "launches" in lacking:
        lacking.remove("launches")  # nobody knows either why devices waited
    return lacking


def _applies(code: str, analysis: Analysis) -> bool:
    """Launches and allocators are of devices apart from the host."""
    if code in _OF_ALL:
        return True
    devices = analysis.inputs.run.calls["device"].cast(pl.String).unique()
    return any(is_accelerator(device) for device in devices)
