"""What the tables of one run are made from: each value made once, when it is first asked for.

    inputs = Inputs(run, selection, (), {})
    inputs.table("roles")

`Inputs` knows the run and what was selected of it. What several tables share beyond that is a
function of the analysis that it belongs to:

    @shared
    def folds(of: Inputs) -> Folds: ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import polars as pl

from profiler.analysis.arrays import CommandArrays
from profiler.analysis.axis import Axis
from profiler.analysis.call_kinds import CallKinds
from profiler.analysis.distinct_commands import Kinds, kinds_of
from profiler.analysis.host_side import has_accelerators
from profiler.analysis.host_times import HostTimes, host_times
from profiler.analysis.pipelines import PipelineCalls
from profiler.analysis.registry import table_named
from profiler.analysis.selection import Selection, select
from profiler.run.device_timeline import Axes
from profiler.run.run import Run

if TYPE_CHECKING:
    from profiler.analysis.roofline.device_profile import DeviceProfile

__all__ = ["Inputs", "command_kinds", "device_axes", "shared"]

_Value = TypeVar("_Value")


def shared(make: Callable[[Inputs], _Value]) -> Callable[[Inputs], _Value]:
    """`make`, whose value is made once for each `Inputs`."""

    @wraps(make)
    def once(of: Inputs) -> _Value:
        return of.once(make)

    return once


@shared
def command_kinds(of: Inputs) -> Kinds:
    """The kinds of the selected commands."""
    accelerated = has_accelerators(of.run.commands["device"].unique())
    return kinds_of(of.calls, of.frame, of.commands.call, accelerated=accelerated)


@shared
def device_axes(of: Inputs) -> Axes:
    """The axes of the run's devices: up to 60 bytes a command, until they are forgotten."""
    return of.run.axes_of(of.everything)


class Inputs:
    """A run, what of it was selected, and what analyses share.

    `calls` and `frame` are the calls and commands that the selection keeps, `commands` their
    arrays; `everything` are the arrays of the whole run.
    """

    def __init__(
        self,
        run: Run,
        selection: Selection,
        measured: Sequence[DeviceProfile],
        device_memory: Mapping[str, int],
    ) -> None:
        """Raises InputError where the selection names what the run does not have."""
        self.run = run
        if not run.calls["call"].is_sorted():
            self.run = replace(run, calls=run.calls.sort("call"))
        self.selection = selection
        self.measured = measured
        self.device_memory = device_memory
        self.calls, self.frame = select(self.run, selection)
        self._made: dict[Callable[[Inputs], Any], Any] = {}
        self._order: dict[Callable[[Inputs], Any], None] = {}

    def once(self, make: Callable[[Inputs], _Value]) -> _Value:
        """What `make` makes of these inputs; asked again, the same."""
        if make not in self._made:
            self._made[make] = make(self)
            self._order.setdefault(make)
        value: _Value = self._made[make]
        return value

    def forget(self, *made: Callable[[Inputs], object]) -> None:
        """Give up what these, each `shared`, have made: asked again, they make it anew."""
        for make in made:
            self._made.pop(getattr(make, "__wrapped__", make), None)

    def table(self, name: str) -> pl.DataFrame:
        """A table of the registry, in its order. Raises InputError where there is none."""
        return self.once(table_named(name).frame)

    @property
    def made(self) -> tuple[Callable[[Inputs], object], ...]:
        """What was made so far, each behind what it was made from: for timing one by one."""
        return tuple(self._order)

    @property
    @shared
    def everything(self) -> CommandArrays:
        return CommandArrays.of(self.run.commands, self.run.calls)

    @property
    @shared
    def commands(self) -> CommandArrays:
        return CommandArrays.of(self.frame, self.calls) if self.selection else self.everything

    @property
    @shared
    def pipelines(self) -> PipelineCalls:
        return PipelineCalls.of(self.run)

    @property
    @shared
    def axis(self) -> Axis:
        device_axes(self)  # of which the tiles of the run are made
        return Axis.of(self.run, self.pipelines)

    @property
    def kinds(self) -> Kinds:
        return command_kinds(self)

    @property
    @shared
    def host_times(self) -> HostTimes:
        return host_times(self.frame, self.commands, self.kinds, self.axis.waits)

    @property
    @shared
    def call_kinds(self) -> CallKinds:
        return CallKinds.of(self.kinds, self.commands, len(self.calls))
