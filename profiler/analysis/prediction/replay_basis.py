"""What predictions on a device that works through a queue of launches start from.

Such a run is predicted by replaying its launches, or not at all: sums of its calls' times would
have less work save what the host still takes to launch it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import polars as pl

from profiler.analysis.pipelines import PipelineCalls
from profiler.analysis.prediction.codes import Refusal
from profiler.analysis.prediction.host_replay import Paces, ReplayedCall, replayed_call
from profiler.analysis.prediction.pieces import PipelinePieces, host_pieces_of
from profiler.analysis.prediction.workload import Workload
from profiler.analysis.replay.faithful import Fidelity, fidelity
from profiler.analysis.replay.recording import Recording, recording_of
from profiler.analysis.replay.works import NEVER
from profiler.errors import InputError
from profiler.run.device_timeline import Flags
from profiler.run.run import Run
from profiler.text import Note

__all__ = ["RefusedError", "ReplayBasis", "replay_basis"]

_MISSING = 0.05  # of the time of work: so much may lack its launch


class RefusedError(InputError):
    """A run whose launches cannot be replayed; `why` has the code (`Refusal`) and its values."""

    def __init__(self, why: Note, sentence: str) -> None:
        """`sentence` is what the user reads."""
        super().__init__(sentence)
        self.why = why


@dataclass(frozen=True, slots=True, eq=False)
class ReplayBasis:
    """The measured pipeline calls on the host's axis, and the launches in them.

    Of n calls `names` and `branches` are their submodules and branches, `queued`, bool [n], which
    launched work, `host` how long the host takes in them over what it took: less where they were
    traced and the cost of that is known; float64 [n]. `fidelity` is the sum over pipeline calls.
    `pace` is that by which `host` was multiplied to be as without the profiler, None: it was not.
    """

    recording: Recording
    plans: tuple[PipelinePieces, ...]
    names: npt.NDArray[np.str_]
    branches: npt.NDArray[np.str_]
    queued: Flags
    host: npt.NDArray[np.float64]
    fidelity: Fidelity
    pace: float | None = None

    @property
    def queued_names(self) -> tuple[str, ...]:
        """The submodules that launch work, in order of their calls."""
        return tuple(dict.fromkeys(self.names[self.queued].tolist()))

    def replayed(self, plans: Sequence[PipelinePieces], paces: Paces) -> tuple[ReplayedCall, ...]:
        """The pipeline calls of `plans`."""
        return tuple(replayed_call(self.recording, plan, paces) for plan in plans)

    @property
    def as_recorded(self) -> Paces:
        """Nothing changed, but without the cost of tracing where that is known."""
        return Paces(np.ones(len(self.host)), self.host)


def replay_basis(run: Run, workload: Workload) -> ReplayBasis | None:
    """The basis of `workload`, which is of `run`; None where the run recorded no launches.

    Raises RefusedError where a replay does not tell what the run would have taken.
    """
    if not run.calls["call"].is_sorted():
        run = replace(run, calls=run.calls.sort("call"))
    recording = recording_of(run)
    if recording is None:
        return None
    pieces = host_pieces_of(run, PipelineCalls.of(run))
    plans = tuple(plan for plan in pieces if plan.number in workload.numbers)
    names = run.calls["submodule"].cast(pl.String).to_list()
    queued = np.zeros(len(names), dtype=np.bool_)
    queued[recording.works.call[recording.works.call >= 0]] = True
    traced = run.calls["ops_traced"].to_list()
    _check_traced(plans, names, queued, traced)
    _check_launched(recording)
    count = len(names)
    unchanged = [
        replayed_call(recording, plan, Paces(np.ones(count), np.ones(count))) for plan in plans
    ]
    each = [fidelity(recording, call.replayed) for call in unchanged]
    _check_believed(each)
    factors = workload.overhead_ratio
    host = [factors.get(name, 1.0) if was else 1.0 for name, was in zip(names, traced, strict=True)]
    return ReplayBasis(
        recording=recording,
        plans=plans,
        names=np.array(names, dtype=np.str_),
        branches=np.array(run.calls["branch"].cast(pl.String).fill_null("").to_list(), dtype=str),
        queued=queued,
        host=np.array(host),
        fidelity=Fidelity(sum(f.recorded_ns for f in each), sum(f.replayed_ns for f in each)),
    )


def _check_traced(
    plans: Sequence[PipelinePieces], names: Sequence[str], queued: Flags, traced: Sequence[bool]
) -> None:
    """Raise where some calls of a submodule that launches work were not traced."""
    on_device = {name for name, launches in zip(names, queued.tolist(), strict=True) if launches}
    called = {
        piece.call
        for plan in plans
        for phase in (plan.encode, *plan.steps, plan.decode)
        for piece in phase
        if piece.submodule is not None
    }
    missing = {names[row] for row in called if not traced[row]} & on_device
    if missing:
        name = min(missing)
        raise RefusedError(
            Note.of(Refusal.PARTLY_TRACED, submodule=name),
            f"some calls of {name} were recorded without their launches, so what the host and the "
            "device would do cannot be replayed: record the run with --ops all",
        )


def _check_launched(recording: Recording) -> None:
    """Raise where the launches of much of the work are not known."""
    works = recording.works
    worked = works.row >= 0
    of = int(works.length[worked].sum())
    missing = int(works.length[worked & (works.launch == NEVER) & (works.moment > NEVER)].sum())
    if missing > _MISSING * of:
        raise RefusedError(
            Note.of(Refusal.LAUNCHES_MISSING, missing_share=missing / of),
            f"the launches of {missing / of:.0%} of the device's work are not in the trace, so "
            "what the host and the device would do cannot be replayed: record the whole run",
        )


def _check_believed(each: Sequence[Fidelity]) -> None:
    """Raise where the unchanged replay of a pipeline call is not what was recorded."""
    worst = max(each, key=lambda one: abs(one.ratio - 1.0), default=None)
    if worst is not None and not worst.believed:
        raise RefusedError(
            Note.of(
                Refusal.REPLAY_OFF,
                recorded_ns=worst.recorded_ns,
                replayed_ns=worst.replayed_ns,
                off_share=abs(worst.ratio - 1.0),
            ),
            f"replayed as it was, the run has {worst.ratio:.1%} of its device span, so its trace "
            "lacks something that its device waited for (events of other streams, another process) "
            "and a replay of anything else would be wrong by more: give a run that replays "
            "within 1%",
        )
