"""What happened when in a run: the input of the analyses that say who waited for whom."""

from __future__ import annotations

from msgspec import Struct

from profiler.analysis.arrays import CommandArrays
from profiler.analysis.axis import Axis
from profiler.analysis.pipelines import PipelineCalls
from profiler.analysis.waiting.launches import Launches, launches_of
from profiler.run.run import Run

__all__ = ["RunTimeline"]


class RunTimeline(Struct, frozen=True, eq=False):
    """A whole run whose calls are sorted by `call`: its commands as arrays, its axis, what launched
    which command, and its pipeline calls."""

    run: Run
    commands: CommandArrays
    axis: Axis
    launches: Launches
    pipelines: PipelineCalls

    @classmethod
    def of(
        cls,
        run: Run,
        commands: CommandArrays | None = None,
        pipelines: PipelineCalls | None = None,
        axis: Axis | None = None,
    ) -> RunTimeline:
        """The timeline of `run`; `commands`, `pipelines` and `axis` are its own, if the caller has
        them."""
        if commands is None:
            commands = CommandArrays.of(run.commands, run.calls)
        if pipelines is None:
            pipelines = PipelineCalls.of(run)
        return cls(
            run=run,
            commands=commands,
            axis=Axis.of(run, pipelines) if axis is None else axis,
            launches=launches_of(run, commands),
            pipelines=pipelines,
        )
