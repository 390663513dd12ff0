"""The context of an analysis: the run, the selected part of it, values that tables share.

    inputs = Inputs(run, selection, (), {})
    inputs.table("roles")

Each value is computed once, when it is first asked for. A value that several tables share is a
function of the analysis that it belongs to:

    @shared
    def folds(of: Inputs) -> Folds: ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

import polars as pl
from msgspec import Struct

from profiler.analysis.commands import (
    CallKinds,
    CommandArrays,
    HostTimes,
    Kinds,
    has_accelerators,
    host_times,
    kinds_of,
    unsteady_calls,
)
from profiler.analysis.question import table_named
from profiler.analysis.timeline import Axis, PipelineCalls
from profiler.errors import InputError
from profiler.run.device_timeline import Axes
from profiler.run.run import Run
from profiler.text import step_range
from profiler.trace.events import NO_CALL

if TYPE_CHECKING:
    from profiler.analysis.device_profiles import DeviceProfile


# --- Which part of a run a report is about: stages, submodules, devices, steps.


class Selection(Struct, frozen=True):
    """Which part of a run to keep: what matches an entry of each field. An empty field keeps
    everything.

    `step` entries are `"7"`, `"0-3"` (both ends included) or `"last"`.
    """

    stage: tuple[str, ...] = ()
    submodule: tuple[str, ...] = ()
    device: tuple[str, ...] = ()
    step: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return any((self.stage, self.submodule, self.device, self.step))


def select(run: Run, selection: Selection) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The calls and commands of `run` that `selection` keeps.

    A command goes with its call; work of no call has its own stage and step and belongs to no
    submodule. A device keeps the commands executed there, and the calls placed there or with
    commands there. Raises InputError, naming what there is, if the run lacks what is asked.
    """
    calls, commands = run.calls, run.commands
    if not selection:
        return calls, commands
    _known("stage", selection.stage, _names(calls["stage"], commands["stage"], run.spans["stage"]))
    _known("submodule", selection.submodule, _names(calls["submodule"]))
    _known("device", selection.device, _names(calls["device"], commands["device"]))
    if selection.stage:
        keeps = pl.col("stage").cast(pl.String).is_in(selection.stage)
        calls, commands = calls.filter(keeps), commands.filter(keeps)
    if selection.step:
        kept_steps = pl.col("step").is_in(sorted(steps_of(run, selection.step)))
        calls, commands = calls.filter(kept_steps), commands.filter(kept_steps)
    if selection.submodule:
        calls = calls.filter(pl.col("submodule").cast(pl.String).is_in(selection.submodule))
        commands = commands.filter(pl.col("call").is_in(calls["call"].to_list()))
    if selection.device:
        there = pl.col("device").cast(pl.String).is_in(selection.device)
        commands = commands.filter(there)
        involved = commands["call"].unique().to_list()
        calls = calls.filter(there | pl.col("call").is_in(involved))
    kept_calls = [NO_CALL, *calls["call"].to_list()]
    commands = commands.filter(pl.col("call").is_in(kept_calls))
    if calls.is_empty() and commands.is_empty():
        raise InputError("the selection leaves no call: drop one of the filters")
    return calls, commands


def steps_of(run: Run, entries: Sequence[str]) -> set[int]:
    """The steps of `run` that `entries` (`"7"`, `"0-3"`, `"last"`) name; raises InputError."""
    existing = sorted({*run.calls["step"].unique(), *run.spans["step"].unique()} - {-1})
    found: set[int] = set()
    for entry in entries:
        between = step_range(entry)
        if entry.strip() == "last":
            wanted = set(existing[-1:])
        elif between is not None:
            wanted = {step for step in existing if between[0] <= step <= between[1]}
        else:
            wanted = set()
        if not wanted:
            raise InputError(f"no step {entry!r} in this run: {_existing_steps(existing)}")
        found |= wanted
    return found


def _existing_steps(existing: Sequence[int]) -> str:
    if not existing:
        return "it has no steps"
    whole = len(existing) == existing[-1] - existing[0] + 1
    names = f"{existing[0]}-{existing[-1]}" if whole else ", ".join(map(str, existing))
    return f"there is {names}; write 7, 0-3, 0-3,7 or last"


def _names(*columns: pl.Series) -> list[str]:
    found = {name for column in columns for name in column.unique().cast(pl.String).drop_nulls()}
    return sorted(found)


def _known(what: str, wanted: Iterable[str], existing: Sequence[str]) -> None:
    for name in wanted:
        if name not in existing:
            there = ", ".join(existing) if existing else "none"
            raise InputError(f"no {what} {name!r} in this run: there is {there}")


# --- What the tables of one run are made from: each value made once, when it is first asked for.
#
# `Inputs` knows the run and what was selected of it. What several tables share beyond that is a
# function of the analysis that it belongs to, `shared`.


_Value = TypeVar("_Value")


def shared(make: Callable[[Inputs], _Value]) -> Callable[[Inputs], _Value]:
    """Decorate `make` so that its value is made once for each `Inputs`."""

    @wraps(make)
    def value(of: Inputs) -> _Value:
        made = of.made
        if make not in made:
            made[make] = make(of)
        return cast("_Value", made[make])

    return value


@shared
def device_axes(of: Inputs) -> Axes:
    """The axes of the run's devices; they take up to 60 bytes per command until released."""
    return of.run.axes_of(of.everything)


class Inputs:
    """A run, the selected part of it, and values that analyses share.

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
        """Raises InputError if the selection names what the run does not have."""
        self.run = run
        if not run.calls["call"].is_sorted():
            self.run = replace(run, calls=run.calls.sort("call"))
        self.selection = selection
        self.measured = measured
        self.device_memory = device_memory
        self.calls, self.frame = select(self.run, selection)
        self.made: dict[object, Any] = {}

    def table(self, name: str) -> pl.DataFrame:
        """A table of the registry by name, made on first use. Raises InputError if there is
        none."""
        if name not in self.made:
            table = table_named(name)
            for other in table.reads:
                self.table(other)
            self.made[name] = table.frame(self)
        return cast("pl.DataFrame", self.made[name])

    def release(self, *made: Callable[[Inputs], object]) -> None:
        """Drop the values of these `shared` functions; the next call makes them again."""
        for make in made:
            self.made.pop(make.__wrapped__, None)  # type: ignore[attr-defined]

    @cached_property
    def everything(self) -> CommandArrays:
        return CommandArrays.of(self.run.commands, self.run.calls)

    @cached_property
    def commands(self) -> CommandArrays:
        return CommandArrays.of(self.frame, self.calls) if self.selection else self.everything

    @cached_property
    def unsteady(self) -> pl.Series:
        """The run's `unsteady_calls`."""
        return unsteady_calls(self.run)

    @cached_property
    def pipelines(self) -> PipelineCalls:
        return PipelineCalls.of(self.run)

    @cached_property
    def axis(self) -> Axis:
        device_axes(self)  # the run's tiles are made from them
        return Axis.of(self.run, self.pipelines)

    @cached_property
    def kinds(self) -> Kinds:
        """The kinds of the selected commands."""
        accelerated = has_accelerators(self.run.commands["device"].unique())
        return kinds_of(self.calls, self.frame, self.commands.call, accelerated=accelerated)

    @cached_property
    def host_times(self) -> HostTimes:
        return host_times(
            self.frame, self.commands, self.kinds, self.axis.waits, self.run.tiles.synchronous
        )

    @cached_property
    def call_kinds(self) -> CallKinds:
        return CallKinds.of(self.kinds, self.commands, len(self.calls))
