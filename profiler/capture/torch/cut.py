"""Sessions of torch.profiler that were stopped: read, put on the run's clock, cut into calls."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from profiler.capture.clock import Clock
from profiler.capture.recorder import Recorder
from profiler.capture.torch.commands import CallCommands, find_commands
from profiler.capture.torch.events import TorchEvents, session_events
from profiler.capture.torch.generated_code import source_of
from profiler.capture.torch.memory import DeviceMemory, device_memory
from profiler.drop_reasons import DropReason
from profiler.errors import InputError
from profiler.interruptions import let_pass
from profiler.kineto.events import Scalar
from profiler.kineto.trace_file import read_kineto_file
from profiler.notes import Note
from profiler.trace.columns import CommandColumns, Counter

__all__ = [
    "CutCall",
    "StoppedSession",
    "TracedCall",
    "misplaced_ns",
    "on_clock",
    "pair_clocks",
    "written",
]

_SLACK_NS = 50_000  # by which a range may lie outside its invocation
_NAME = "session.json"
_NOTHING = DropReason.NO_SESSION_EVENTS


@dataclass(frozen=True, slots=True, eq=False)
class CutCall:
    """What a session tells of one invocation. `moved_ns` is by how much its events were moved to
    lie within it, 0 where they did."""

    found: CallCommands
    commands: CommandColumns
    counters: tuple[Counter, ...]
    moved_ns: int


@dataclass(slots=True)
class TracedCall:
    """One range of ours in a session: an invocation, or the host work around invocations. `layer`
    is what its operators outside all modules belong to, "" for each one's own name; `deliver` is
    told what the session has of it, or why it has nothing (`DropReason`); `owner` is who asked.
    `packed` are shapes of packed weights by the path of their module."""

    layer: str
    deliver: Callable[[CutCall | Note], None]
    number: int = -1
    begin_ns: int = -1
    end_ns: int = -1
    owner: object = None
    packed: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class StoppedSession:
    """What torch has recorded: `trace` is what Kineto has written of it (`written`), or why it has
    not. `start` and `end` are of `pair_clocks`; `allocated` the bytes that torch held on each
    device when the session began. `threads` numbers threads by their system's id, `kind` is the
    accelerator's. `events` is how many host events it may have. `follows`: it goes on in the
    pipeline call of the session before it. `levels`, which all share, are the bytes that the last
    one to be converted left allocated, by device."""

    trace: BinaryIO | Note
    start: tuple[int, int]
    end: tuple[int, int]
    allocated: dict[str, int]
    calls: list[TracedCall]
    threads: Mapping[Scalar, int]
    kind: str
    events: int = 0
    follows: bool = False
    levels: dict[str, int] = field(default_factory=dict)

    def convert(self) -> None:
        """Cut it, knowing what the session before it left."""
        after = self.cut(self.levels if self.follows else {})
        self.levels.clear()
        self.levels.update(after)

    def recorders(self) -> list[Recorder]:
        """Those that the owners of its calls have, each once."""
        found = [getattr(call.owner, "recorder", None) for call in self.calls]
        return list({id(one): one for one in found if one is not None}.values())

    def cut(self, levels: Mapping[str, int]) -> dict[str, int]:
        """Deliver what it has of each call: why not where it cannot be read, never an error.
        `levels` are the bytes that the session before it left allocated, by device; returns those
        that it leaves."""
        after = {**levels, **self.allocated}
        found: dict[int, CutCall] = {}
        failure = self.trace if isinstance(self.trace, Note) else Note.of(_NOTHING)
        try:
            if self.calls and not isinstance(self.trace, Note):
                found, after = self._read(self.trace, after)
        except (OSError, InputError, RuntimeError):
            failure = Note.of(DropReason.SESSION_UNREADABLE)
        except Exception as error:  # noqa: BLE001 - the script's call must not fail of us
            let_pass(error)
            told = f"{type(error).__name__}: {error}"
            failure = Note.of(DropReason.SESSION_NOT_CUT, error=told)
        self.close()
        for call in self.calls:
            call.deliver(found.get(call.number, failure))
        return after

    def close(self) -> None:
        """Let go of what was written."""
        if not isinstance(self.trace, Note):
            self.trace.close()
            self.trace = Note.of(_NOTHING)

    def _read(
        self, file: BinaryIO, before: Mapping[str, int]
    ) -> tuple[dict[int, CutCall], dict[str, int]]:
        """What it has, by the calls' numbers, and the bytes that it leaves allocated."""
        trace = read_kineto_file(Path(_NAME), file)
        events = on_clock(session_events(trace, self.kind, self.threads), self.start, self.end)
        closed = {call.number: call for call in self.calls if call.end_ns >= 0}
        layers = {number: call.layer for number, call in closed.items()}
        packed = {number: call.packed for number, call in closed.items()}
        found = find_commands(events, layers, source_of, packed)
        memory = device_memory(events, before)
        cut = {number: _cut_call(closed[number], own, memory) for number, own in found.items()}
        return cut, {**before, **{series.device: series.after for series in memory}}


def written(results: Any) -> BinaryIO | Note:
    """What Kineto writes of its `results`, in a file that has no name any more: it goes with the
    process, however that ends. Why not, where there is none."""
    try:
        if results is None or not results.trace_start_ns():
            return Note.of(_NOTHING)
        with tempfile.TemporaryDirectory(
            prefix="profile-sd3-", ignore_cleanup_errors=True
        ) as folder:
            path = Path(folder) / _NAME
            results.save(str(path))
            return path.open("rb")
    except (OSError, RuntimeError):
        return Note.of(DropReason.SESSION_UNREADABLE)


def _cut_call(call: TracedCall, found: CallCommands, memory: Iterable[DeviceMemory]) -> CutCall:
    moved = misplaced_ns(call, found)
    columns = found.build()
    counters = [series.between(found.start_ns, found.end_ns) for series in memory]
    return CutCall(
        found=found,
        commands=replace(columns, start_ns=columns.start_ns + moved),
        counters=tuple(replace(c, times_ns=c.times_ns + moved) for c in counters),
        moved_ns=moved,
    )


def pair_clocks(clock: Clock) -> tuple[int, int]:
    """CLOCK_REALTIME, in which Kineto counts, and what to add to it to get the run's clock."""
    best_width, best = 1 << 62, (0, 0)
    for _ in range(8):
        before = clock.now_ns()
        realtime = time.time_ns()
        after = clock.now_ns()
        if after - before < best_width:
            best_width, best = after - before, (realtime, (before + after) // 2 - realtime)
    return best


def on_clock(events: TorchEvents, start: tuple[int, int], end: tuple[int, int]) -> TorchEvents:
    """The events on the run's clock: the offset moves evenly from `start` to `end`."""
    elapsed = events.start_ns - start[0]
    drift = np.interp(elapsed, (0, max(end[0] - start[0], 1)), (0, end[1] - start[1]))
    return replace(events, start_ns=events.start_ns + start[1] + np.rint(drift).astype(np.int64))


def misplaced_ns(call: TracedCall, found: CallCommands) -> int:
    """0 where the range lies within its invocation, give or take 50 µs; else what moves it to the
    invocation's begin: the wall clock was set while the session ran."""
    early, late = call.begin_ns - found.start_ns, found.end_ns - call.end_ns
    return early if max(early, late) > _SLACK_NS else 0
