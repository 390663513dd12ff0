"""What happened when in a run: the input of the analyses that say who waited for whom."""

from __future__ import annotations

from dataclasses import dataclass

from profiler.analysis.arrays import CommandArrays
from profiler.analysis.pipelines import PipelineCalls
from profiler.analysis.waiting.call_extents import CallExtents
from profiler.analysis.waiting.launches import Launches, launches_of
from profiler.table.run import Run

__all__ = ["RunTimeline"]


@dataclass(frozen=True, slots=True, eq=False)
class RunTimeline:
    """A whole run whose calls are sorted by `call`: its commands as arrays, when its calls were
    under way, what launched which command, and its pipeline calls."""

    run: Run
    commands: CommandArrays
    calls: CallExtents
    launches: Launches
    pipelines: PipelineCalls

    @classmethod
    def of(
        cls, run: Run, commands: CommandArrays | None = None, pipelines: PipelineCalls | None = None
    ) -> RunTimeline:
        """The timeline of `run`; `commands` and `pipelines` are its own, if the caller has them."""
        if commands is None:
            commands = CommandArrays.of(run.commands, run.calls)
        return cls(
            run=run,
            commands=commands,
            calls=CallExtents.of(run.calls, commands),
            launches=launches_of(run, commands),
            pipelines=PipelineCalls.of(run) if pipelines is None else pipelines,
        )
