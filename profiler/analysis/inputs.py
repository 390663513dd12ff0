"""What several analyses of one run start from: each made once, when it is first asked for.

The members stand in an order in which each needs only those above it; `Inputs.names` gives it, so
that one can be looked at, or timed, after the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import polars as pl

from profiler.analysis.accounting import account
from profiler.analysis.arrays import CommandArrays
from profiler.analysis.call_kinds import CallKinds
from profiler.analysis.denoise.invariants import Invariants, find_invariants
from profiler.analysis.denoise.step_matrix import StepMatrix, step_matrix
from profiler.analysis.kinds import Kinds, kinds_of
from profiler.analysis.memory.usage import Memory, find_memory
from profiler.analysis.memory.weights import device_weights
from profiler.analysis.operators.folds import Folds, fold
from profiler.analysis.pipelines import PipelineCalls
from profiler.analysis.result import Accounting
from profiler.analysis.roles.of_kinds import roles_of
from profiler.analysis.roofline.device_profiles import DeviceProfile, profiles_of
from profiler.analysis.roofline.verdicts import kind_roof
from profiler.analysis.selection import Selection, select, steps_of
from profiler.analysis.steps import step_table
from profiler.analysis.submodules import (
    calibration_factors,
    call_table,
    first_calls,
    submodule_table,
)
from profiler.analysis.waiting.boundaries import boundary_tables
from profiler.analysis.waiting.run_timeline import RunTimeline
from profiler.analysis.work.of_kinds import KindWork, kind_work
from profiler.table.run import Run

__all__ = ["Inputs"]


class Inputs:
    """A run, what of it was selected, and what analyses share.

    `selected` are the calls and commands that the selection keeps, `commands` their arrays;
    `everything` are those of the whole run.
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
        self._measured = measured
        self._device_memory = device_memory
        self.calls, self.frame = select(self.run, selection)

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The members that are made when asked for, each behind those that it needs."""
        return tuple(n for n, member in vars(cls).items() if isinstance(member, cached_property))

    @cached_property
    def everything(self) -> CommandArrays:
        return CommandArrays.of(self.run.commands, self.run.calls)

    @cached_property
    def commands(self) -> CommandArrays:
        return CommandArrays.of(self.frame, self.calls) if self.selection else self.everything

    @cached_property
    def profiles(self) -> dict[str, DeviceProfile]:
        """The profile of each device that has one."""
        devices = dict.fromkeys(self.commands.devices) | dict(self.run.info.devices)
        return profiles_of(devices, self._measured)

    @cached_property
    def pipelines(self) -> PipelineCalls:
        return PipelineCalls.of(self.run)

    @cached_property
    def account(self) -> tuple[Accounting, pl.DataFrame, pl.DataFrame]:
        """The accounting, stages and pipeline calls of the whole run."""
        return account(self.run, self.pipelines)

    @cached_property
    def folds(self) -> Folds:
        return fold(self.calls, self.frame, self.commands)

    @cached_property
    def call_rows(self) -> pl.DataFrame:
        first = first_calls(self.run.calls)
        return call_table(self.calls, self.commands, self.folds.call, first)

    @cached_property
    def submodules(self) -> pl.DataFrame:
        submodule = pl.DataFrame(
            {"submodule": self.folds.submodules}, schema={"submodule": pl.String}
        )
        factors = calibration_factors(self.run.info.submodules)
        return submodule_table(self.call_rows, submodule, self.end_to_end_ns, factors)

    @cached_property
    def steps(self) -> pl.DataFrame:
        """The steps that were selected, as they were in the whole run."""
        steps = step_table(self.run, self.everything, self.pipelines)
        if self.selection.stage and "denoise" not in self.selection.stage:
            return steps.clear()
        if self.selection.step:
            kept = sorted(steps_of(self.run, self.selection.step))
            return steps.filter(pl.col("step").is_in(kept))
        return steps

    @cached_property
    def kinds(self) -> Kinds:
        return kinds_of(self.calls, self.frame, self.commands.call)

    @cached_property
    def kind_roles(self) -> pl.DataFrame:
        given = self.frame["role"]
        return roles_of(self.run.info.submodules, self.kinds, self.commands.call, given)

    @cached_property
    def work(self) -> KindWork:
        return kind_work(self.kinds, self.frame)

    @cached_property
    def roof(self) -> pl.DataFrame:
        return kind_roof(self.kinds, self.work, self.commands, self.profiles)

    @cached_property
    def call_kinds(self) -> CallKinds:
        return CallKinds.of(self.kinds, self.commands, len(self.calls))

    @cached_property
    def step_matrix(self) -> StepMatrix:
        return step_matrix(
            self.calls, self.kinds, self.kind_roles, self.call_kinds, self.steps, self.pipelines
        )

    @cached_property
    def invariants(self) -> Invariants:
        return find_invariants(
            self.calls,
            self.kinds,
            self.kind_roles,
            self.call_kinds,
            self.pipelines.number_of(self.calls),
            self.run.info.submodules,
        )

    @cached_property
    def timeline(self) -> RunTimeline:
        return RunTimeline.of(self.run, self.everything, self.pipelines)

    @cached_property
    def boundaries(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Provider boundaries, and what was left on another provider."""
        return boundary_tables(self.calls, self.frame, self.commands)

    @cached_property
    def memory(self) -> Memory:
        return find_memory(self.run, self._device_memory)

    @property
    def end_to_end_ns(self) -> int:
        return self.account[0].end_to_end_ns

    @property
    def calibration(self) -> pl.DataFrame:
        """`submodule` and its `calibration`."""
        return self.submodules.select("submodule", "calibration")

    @property
    def device_weights(self) -> dict[str, int]:
        """Bytes of weights by device."""
        return device_weights(self.run.info.submodules, self.run.info.devices)
