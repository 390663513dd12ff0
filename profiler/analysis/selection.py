"""Which part of a run a report is about: stages, submodules, devices, steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import polars as pl
from msgspec import Struct

from profiler.errors import InputError
from profiler.options import step_range
from profiler.run.run import Run
from profiler.trace.events import NO_CALL

__all__ = ["Selection", "select", "steps_of"]


class Selection(Struct, frozen=True):
    """What to keep: one entry of each field that has any; a field without keeps everything.

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
    commands there. Raises InputError, naming what there is, where the run lacks what is asked.
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
