"""The operator sources that no attachment opened: those of what a script runs outside pipelines.

A script may make a session for each request and drop it. What the source of one that is gone holds
is written when the next is added. Nothing is kept of it but its summary, joined with those of its
submodule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from profiler.capture.operator_source import OperatorSource, SourceSummary
from profiler.capture.run_info import add_known
from profiler.capture.writing import CallWriter

__all__ = ["StandaloneSources"]


@dataclass(frozen=True, slots=True, eq=False)
class _Standalone:
    submodule: str
    source: OperatorSource
    gone: Callable[[], bool] | None  # None: it stays


class StandaloneSources:
    """Keeps them for a session, which sees to it that one thread at a time changes this; others
    may ask meanwhile."""

    def __init__(self) -> None:
        self._here: list[_Standalone] = []
        self._left: dict[str, SourceSummary] = {}

    def add(
        self, submodule: str, source: OperatorSource, gone: Callable[[], bool] | None = None
    ) -> None:
        """Take one; `gone` tells whether what it traces is no more, None where that stays."""
        self._here.append(_Standalone(submodule, source, gone))

    def write_gone(self, writer: CallWriter) -> None:
        """Have the operators written of the sources whose part is gone, and let go of them."""
        for one in [one for one in self._here if one.gone is not None and one.gone()]:
            one.source.close()
            writer.put_rest(one.source, one.submodule)
            summary, before = one.source.summary(), self._left.get(one.submodule)
            self._left[one.submodule] = _joined(before, summary) if before else summary
            self._here = [other for other in self._here if other is not one]

    def close(self) -> None:
        """Trace no more."""
        for one in self._here:
            one.source.close()

    def traces(self, submodule: str) -> bool:
        """Whether calls of `submodule` may be traced now."""
        return any(one.submodule == submodule for one in self._here)

    def staying(self) -> list[tuple[str, OperatorSource]]:
        """The sources whose part stays, with their submodules."""
        return [(one.submodule, one.source) for one in self._here if one.gone is None]

    def all_here(self) -> list[tuple[str, OperatorSource]]:
        """All sources that have not been let go of, with their submodules."""
        return [(one.submodule, one.source) for one in self._here]

    def let_go(self) -> list[tuple[str, SourceSummary]]:
        """What is left of the others."""
        return list(self._left.items())


def _joined(first: SourceSummary, second: SourceSummary) -> SourceSummary:
    """The summary of two sources of one submodule, as if they were one."""
    return replace(
        second,
        events=first.events + second.events,
        gaps=first.gaps + second.gaps,
        new_sessions=first.new_sessions + second.new_sessions,
        attributed_ns=first.attributed_ns + second.attributed_ns,
        total_ns=first.total_ns + second.total_ns,
        sessions=first.sessions + second.sessions,
        host_events=first.host_events + second.host_events,
        drops=first.drops + second.drops,
        timed=first.timed + second.timed,
        known=add_known(first.known, second.known),
    )
