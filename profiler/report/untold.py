"""What a foreign trace cannot tell, said once in the section that lacks it."""

from __future__ import annotations

from collections.abc import Iterator

from profiler.analysis.findings.measures import accelerators
from profiler.analysis.result import Analysis
from profiler.messages import joined
from profiler.report.model import Part
from profiler.report.sentences.capabilities import ADVICE, CONSEQUENCES

__all__ = ["untold_parts"]


def untold_parts(section: str, analysis: Analysis) -> Iterator[Part]:
    """A line for each capability that the run's producer lacks and the section needs. Nothing for
    runs that were captured here, whose producer states none."""
    info = analysis.inputs.run.info
    if not info.capabilities:
        return
    for code, (where, sentence) in CONSEQUENCES.items():
        if where != section or code in info.capabilities or not _applies(code, analysis):
            continue
        yield Part(
            lead=joined(" ", filter(None, (sentence, ADVICE.get((code, info.producer))))),
            always=True,
        )


def _applies(code: str, analysis: Analysis) -> bool:
    """Launches and allocators are of devices apart from the host."""
    return code == "shapes" or not accelerators(analysis).is_empty()
