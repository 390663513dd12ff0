"""The stage of calls whose component does not tell: found by what happens around them.

What is called between two calls of `scheduler.step` is in the loop. What comes before the first is
`encode`, but for what the first step itself calls: that is told by the second step, or, where there
is one step alone, by what was called last before it. What comes after the last step is `decode`.
Until then a call has the stage that is most likely, and is placed anew when that is known.

    stages.begin("dreamer_net")          # → stage, and whether that may change
    stages.opened(invocation)            # where it may
    stages.step_begins(0); stages.step_ended(last=False)
    stages.finish()                      # the pipeline call has ended
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from profiler.capture.invocations import Invocation
from profiler.events import NO_ITERATION, NO_STEP, RUN_STAGE

__all__ = ["Place", "Stages"]

_FEWEST_PASSES = 3  # of a loop that is not denoising
_MOST = 10_000  # calls that wait to be placed; further ones stay where they are


@dataclass(frozen=True, slots=True)
class Place:
    """Where a call belongs."""

    stage: str
    step: int = NO_STEP
    last_step: int = NO_STEP
    iteration: int = NO_ITERATION


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    """A call that may be placed anew: the `order`-th of all components, begun when so many `steps`
    had ended, -1 where it stays in its `place`. `passes`: it may be a pass of a loop."""

    invocation: Invocation
    order: int
    steps: int
    place: Place
    passes: bool


class Stages:
    """Places the calls of one pipeline call. `place(invocation, where)` is told what becomes of a
    call; `denoisers` are the submodules that earlier pipeline calls have found in the loop."""

    def __init__(
        self, place: Callable[[Invocation, Place], None], denoisers: set[str] | None = None
    ) -> None:
        self._place = place
        self._denoisers = denoisers if denoisers is not None else set()
        self._waiting: list[_Waiting] = []
        self._candidates: list[_Waiting] = []  # of the first step, until the second tells
        self._calls: deque[str] = deque(maxlen=_MOST)  # submodules called since the last step
        self._order = 0
        self._steps = 0  # that have ended, in all loops
        self._in_loop = 0  # of them in this one
        self._first: Place | None = None  # the step with which this loop began
        self._in_first: Counter[str] = Counter()  # calls that are known to be in it
        self._scheduled = False  # a schedule has been set, and has not run out
        self._over = False
        self._said: object = None  # the step that the script said last
        self._known_stages = False  # a component has told its stage

    @property
    def looping(self) -> bool:
        """Whether a loop goes on, as far as anybody knows."""
        return self._scheduled or (self._in_loop > 0 and not self._over)

    def begin(self, submodule: str, stage: str) -> tuple[str, bool]:
        """A call of `submodule` begins, which tells that it is of `stage`, "" where it does not:
        its stage, and whether that may change."""
        self._order += 1
        self._calls.append(submodule)
        if stage:
            self._known_stages = True
            return stage, False
        if len(self._waiting) >= _MOST and not (self._steps or self._scheduled):
            return RUN_STAGE, False  # a script that runs for long, and does not denoise
        if submodule in self._denoisers and self.looping:
            return "denoise", False
        return ("decode" if self._in_loop else "encode"), True

    def told(self) -> None:
        """The pipeline tells of a stage in another way."""
        self._known_stages = True

    def opened(self, invocation: Invocation, *, moves: bool, passes: bool) -> None:
        """The call that has begun may be placed anew (`moves`), or be a pass of a loop."""
        if not (moves or passes) or len(self._waiting) >= _MOST:
            return
        invocation.provisional = moves
        place = Place(invocation.stage, invocation.step, invocation.last_step)
        steps = self._steps if moves else -1
        self._waiting.append(_Waiting(invocation, self._order, steps, place, passes))

    def schedule_set(self) -> None:
        """A scheduler has got a new schedule: a loop begins."""
        self._in_loop, self._over, self._scheduled = 0, False, True
        self._candidates = []

    def step_begins(self, step: int, last_step: int) -> None:
        """`scheduler.step` is called: what was called since the last one is in the loop."""
        place = Place("denoise", step, last_step)
        recent = [one for one in self._waiting if one.steps == self._steps and one.steps >= 0]
        if self._in_loop == 0:
            self._first = place
            latest = self._calls[-1] if self._calls else ""
            trailing = self._trailing(recent, latest)
            self._move(trailing, place)
            self._in_first = Counter(one.invocation.submodule for one in trailing)
            self._candidates = [one for one in recent if one not in trailing]
        else:
            self._move(recent, place)
            self._denoisers.update(one.invocation.submodule for one in recent)
            if self._in_loop == 1:
                self._first_step(Counter(self._calls))
        self._calls.clear()

    def _trailing(self, recent: list[_Waiting], latest: str) -> list[_Waiting]:
        """The calls of `latest` behind which no other component was called."""
        count = 0
        for name in reversed(self._calls):
            if name != latest:
                break
            count += 1
        found = [one for one in recent if one.order > self._order - count]
        self._denoisers.update(one.invocation.submodule for one in found)
        return found

    def _first_step(self, called: Counter[str]) -> None:
        """The second step has been run: what it `called` the first one did as often."""
        assert self._first is not None
        for name, times in called.items():
            of_name = [c for c in self._candidates if c.invocation.submodule == name]
            first = max(len(of_name) - max(times - self._in_first[name], 0), 0)
            self._move(of_name[first:], self._first)
        self._candidates = []

    def said(self, step: object) -> None:
        """The script says that it is in `step`, another object each time."""
        if step is not self._said:
            self._said = step
            self._steps += 1
            self._in_loop += 1
            self._calls.clear()

    def step_ended(self, *, last: bool) -> None:
        """It has returned; `last`: the schedule has no further step."""
        self._steps += 1
        self._in_loop += 1
        self._over = last
        self._scheduled = self._scheduled and not last

    def finish(self) -> None:
        """The pipeline call ends: place what still waits."""
        waiting, self._waiting = self._waiting, []
        final = []
        for one in waiting:
            place = one.place
            if one.steps >= 0:
                stage = "decode" if one.steps == self._steps else "encode"
                if not self._steps:
                    stage = place.stage if self._known_stages else RUN_STAGE
                place = Place(stage)
            final.append(replace(one, place=place))
        for one, iteration in _with_passes(final):
            self._place(one.invocation, replace(one.place, iteration=iteration))

    def _move(self, found: list[_Waiting], place: Place) -> None:
        moved = {id(one) for one in found}
        self._waiting = [one for one in self._waiting if id(one) not in moved]
        for one in found:
            self._place(one.invocation, place)


def _with_passes(waiting: list[_Waiting]) -> list[tuple[_Waiting, int]]:
    """Each call, and its pass where its component was called three times or more with equal shapes
    of inputs."""

    def key(one: _Waiting) -> tuple[str, tuple[tuple[str, str], ...]]:
        return one.invocation.submodule, tuple(one.invocation.input_shapes.items())

    counts = Counter(key(one) for one in waiting if one.passes)
    seen: Counter[object] = Counter()
    found = []
    for one in waiting:
        loops = one.passes and counts[key(one)] >= _FEWEST_PASSES
        found.append((one, seen[key(one)] if loops else NO_ITERATION))
        seen[key(one)] += 1
    return found
