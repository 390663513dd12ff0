"""What the accounting of a run says: the end-to-end time, and what the stages account for."""

from __future__ import annotations

from msgspec import Struct

from profiler.text import Note

__all__ = ["Accounting", "StageAccount", "SubmoduleTime"]


class StageAccount(Struct, frozen=True):
    """Where the time of one stage went: `elapsed_ns = calls_ns + host_ns + idle_ns`."""

    stage: str
    elapsed_ns: int
    calls_ns: int
    host_ns: int
    idle_ns: int


class SubmoduleTime(Struct, frozen=True):
    """Union of the tiles of one submodule's calls in each pipeline call, summed up, and its share
    of end to end; of all its calls where the run has no pipeline span."""

    submodule: str
    wall_ns: int
    share: float


class Accounting(Struct, frozen=True):
    """End-to-end time against what the stages account for; always of the whole run.

    Times are on the devices' axis: a pipeline call lasts to the end of the last command that was
    launched for it. Every pipeline call is accounted for by itself, and `end_to_end_ns` is the sum
    of their times, as are all parts. `wall_ns` is the time in which any of them ran: less, where
    `overlapping` of them ran at the same time as another. Where the run does not tell what belongs
    to which (`told_apart` is False: foreign traces, old bundles) all are accounted for as if they
    were one, and `end_to_end_ns` is `wall_ns`. `calls_outside` counts the submodule calls in no
    pipeline call, which are in no stage and not in the end-to-end time; they took
    `calls_outside_ns`.

    `residual_ns = end_to_end_ns - Σ stages (calls_ns + host_ns + idle_ns)`. `outside_ns` is how
    long tiles were outside of their pipeline call, in no stage. `residual_share` is
    `(residual_ns + outside_ns) / end_to_end_ns`. `unrecorded_ns` lies in the pipeline calls' time
    and counts neither there nor in a stage: nothing was recorded though work waited, or only what
    had been launched before the recording began ran. `profiler_ns` lies there, too, and counts
    nowhere: the pipeline waited for the profiler's own work.

    `possible` is False, with the reason in `why_not`, where the run holds no pipeline or stage
    spans; then `stages` is empty and the parts are 0. `iterations` are passes of loops that are not
    denoising, over all pipeline calls. Without a pipeline span `end_to_end_ns` lasts
    from the first tile or command of a device to the last. `submodules` is known all the same,
    longest first.
    """

    end_to_end_ns: int
    pipelines: int
    steps: int
    stages: tuple[StageAccount, ...]
    residual_ns: int
    residual_share: float
    outside_ns: int
    unrecorded_ns: int
    submodules: tuple[SubmoduleTime, ...]
    possible: bool = True
    why_not: Note | None = None
    wall_ns: int = 0
    overlapping: int = 0
    told_apart: bool = True
    calls_outside: int = 0
    calls_outside_ns: int = 0
    profiler_ns: int = 0
    iterations: int = 0

    @property
    def in_iterations(self) -> bool:
        """Whether the run is told by its iterations: one pipeline call of several, no steps."""
        return self.iterations > 1 and self.pipelines <= 1 and not self.steps
