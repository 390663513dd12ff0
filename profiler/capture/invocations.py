"""What happened in a run: invocations of submodules, host work, and commands of no invocation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from profiler.capture.timeline import PipelineCall, number_of
from profiler.events import NO_ITERATION, NO_STEP, UNKNOWN, Call

if TYPE_CHECKING:
    from profiler.capture.backend import Skipped
    from profiler.trace.columns import CommandColumns  # numpy, in every process that is on

__all__ = ["HostCommands", "HostWork", "Invocation"]


@dataclass(slots=True, eq=False)
class Invocation:
    """One submodule invocation, from its begin on.

    `index` is given when it has returned, -1 before; `failed` tells that it ended with an
    exception. `recorded` is False in warm-up: it takes part in no table. `pipeline` is the
    pipeline call that it belongs to, None outside every one; `last_step` the last step of the
    scheduler's schedule, -1 where it is not known. `left_out` tells that its operators are not to
    be traced, though others of the submodule are. `awaits_operators` tells that a source was to
    trace it, `drop_told` that a drop says why it has none. `provisional` tells that its stage is
    not known for good before `Recorder.place_call`. `beyond_size` tells that the run's size
    kept its operators from being traced, `skipped` is what a step cache did in it. `hooks_ns` is
    time in our own code around a call of no pipeline call, which else has it. `device_lag_ns` and
    `device_duration_ns` are as the `Call` has them; `noting` tells that they are still to come.
    """

    submodule: str
    stage: str
    branch: str
    step: int
    device: str
    input_shapes: Mapping[str, str]
    start_ns: int = -1
    end_ns: int = -1
    ops_traced: bool = False
    recorded: bool = True
    failed: bool = False
    index: int = -1
    pipeline: PipelineCall | None = None
    last_step: int = NO_STEP
    left_out: bool = False
    hooks_ns: int = 0
    awaits_operators: bool = False
    drop_told: bool = False
    iteration: int = NO_ITERATION
    provisional: bool = False
    beyond_size: bool = False
    skipped: Skipped | None = None
    device_lag_ns: int = UNKNOWN
    device_duration_ns: int = UNKNOWN
    noting: bool = False

    def as_call(self) -> Call:
        """The finished invocation as the call that the bundle holds."""
        return Call(
            index=self.index,
            submodule=self.submodule,
            stage=self.stage,
            branch=self.branch,
            step=self.step,
            device=self.device,
            start_ns=self.start_ns,
            duration_ns=self.end_ns - self.start_ns,
            ops_traced=self.ops_traced,
            input_shapes=self.input_shapes,
            pipeline=number_of(self.pipeline),
            iteration=self.iteration,
            device_lag_ns=self.device_lag_ns,
            device_duration_ns=self.device_duration_ns,
        )


@dataclass(slots=True)
class HostWork:
    """A piece of work of the pipeline itself, on the root device, outside every call."""

    name: str
    start_ns: int
    end_ns: int
    pipeline: PipelineCall | None = None


@dataclass(frozen=True, slots=True, eq=False)
class HostCommands:
    """What was executed in `pipeline` outside of the calls that were traced."""

    commands: CommandColumns
    pipeline: PipelineCall
