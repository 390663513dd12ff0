"""Whether a replay may be believed: unchanged it must give the device span that was recorded."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profiler.analysis.replay.engine import Replayed, replay
from profiler.analysis.replay.recording import Recording, Script, recording_of
from profiler.analysis.replay.works import NEVER
from profiler.run.device_timeline import Times
from profiler.run.run import Run

__all__ = ["TOLERANCE", "Fidelity", "WholeRun", "fidelity", "whole_run"]

TOLERANCE = 0.01  # of the recorded device span: a replay that is further off predicts nothing


class Fidelity(Struct, frozen=True):
    """The device span of some host time in ns, as it was recorded and as it is replayed."""

    recorded_ns: int
    replayed_ns: int

    @property
    def ratio(self) -> float:
        """Replayed / recorded, 1 of nothing."""
        return self.replayed_ns / self.recorded_ns if self.recorded_ns > 0 else 1.0

    @property
    def believed(self) -> bool:
        """Whether the replay is within the tolerance."""
        return abs(self.ratio - 1.0) <= TOLERANCE


def fidelity(recording: Recording, unchanged: Replayed) -> Fidelity:
    """That of a replay in which nothing was changed."""
    works, some = recording.works, unchanged.work
    recorded = int(works.end[some].max() - works.start[some].min()) if len(some) else 0
    return Fidelity(recorded, unchanged.device_span_ns)


class WholeRun(Struct, frozen=True, eq=False):
    """All that was launched in a run, to be replayed with other lengths of work."""

    recording: Recording
    script: Script
    unchanged: Replayed
    fidelity: Fidelity

    def with_lengths(self, lengths: Times) -> Replayed:
        """The replay of the run were its works so long, int64 [w]."""
        return replay(self.recording, self.script, lengths)

    def gain_ns(self, lengths: Times) -> int:
        """By how much the device span becomes shorter with such lengths."""
        return self.unchanged.device_span_ns - self.with_lengths(lengths).device_span_ns


def whole_run(run: Run) -> WholeRun | None:
    """`run`, whose calls are in order of their numbers; None where it recorded no launches."""
    recording = recording_of(run)
    if recording is None:
        return None
    works, waits = recording.works, recording.waits
    moments = works.moment[works.moment > NEVER]
    first = np.array([min(int(moments.min()), int(waits.begin.min(initial=moments.min())))])
    last = np.array([max(int(moments.max()), int(waits.end.max(initial=moments.max()))) + 1])
    script = Script.of(first, last)
    unchanged = replay(recording, script)
    return WholeRun(recording, script, unchanged, fidelity(recording, unchanged))
