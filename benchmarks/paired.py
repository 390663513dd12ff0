"""Runs in turn: what is measured of each, ratios of runs of one round, and their intervals."""

from __future__ import annotations

import functools
import gc
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Moment:
    """Now: seconds of the clock, and processor seconds of all threads of this process."""

    wall: float
    processor: float

    @classmethod
    def now(cls) -> Moment:
        return cls(time.perf_counter(), time.process_time())

    def since(self, begin: Moment) -> Moment:
        return Moment(self.wall - begin.wall, self.processor - begin.processor)


@dataclass
class Measured:
    """One run: the pipeline call from its begin, the tool's own start included, until the pipeline
    has its image; then what passes until all files are complete; bytes and events in them."""

    call: Moment
    after: Moment
    size: int = 0
    events: int = 0


@dataclass(frozen=True)
class Mode:
    """One way to run. `measure()` does it once, warm-up included; `tells` is what its file has."""

    name: str
    measure: Callable[[], Measured]
    tells: str = ""


def noting_end(pipeline: Any) -> Any:
    """Let `pipeline` note as `ended` when its own work is done, inside whatever wraps its call."""
    base = type(pipeline)

    class Noting(base):
        @functools.wraps(base.__call__)
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            result = base.__call__(self, *args, **kwargs)
            self.ended = Moment.now()
            return result

    Noting.__name__ = base.__name__
    pipeline.__class__ = Noting
    return pipeline


def nothing() -> None:
    """The start and the end of a tool that needs neither."""


def measured(
    pipeline: Any,
    run: Callable[[], Any],
    start: Callable[[], Any] = nothing,
    finish: Callable[[], Any] = nothing,
) -> Measured:
    """`run` calls the pipeline; `start` starts a tool before, `finish` has its files written."""
    gc.collect()
    begin = Moment.now()
    start()
    run()
    finish()
    end = Moment.now()
    return Measured(pipeline.ended.since(begin), end.since(pipeline.ended))


def in_turn(modes: Sequence[Mode], rounds: int, seed: int = 0) -> dict[str, list[Measured]]:
    """All modes once a round, in an order that changes from round to round."""
    found: dict[str, list[Measured]] = {mode.name: [] for mode in modes}
    generator = random.Random(seed)
    for _ in range(rounds):
        for mode in generator.sample(modes, len(modes)):
            found[mode.name].append(mode.measure())
    return found


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % bootstrap interval of the median."""
    generator = np.random.default_rng(0)
    picked = np.array(values)[generator.integers(len(values), size=(2_000, len(values)))]
    low, high = np.percentile(np.median(picked, axis=1), (2.5, 97.5))
    return float(low), float(high)


def with_interval(values: Sequence[float], digits: int = 3) -> str:
    """Median and its 95 % interval."""
    low, high = interval(values)
    return f"{statistics.median(values):.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def ratios(
    found: dict[str, list[Measured]], name: str, base: str, clock: str = "wall"
) -> list[float]:
    """Pipeline calls of `name` to those of `base`, round by round, by one of the two clocks."""
    pairs = zip(found[name], found[base], strict=True)
    return [getattr(one.call, clock) / getattr(other.call, clock) for one, other in pairs]


def print_table(modes: Sequence[Mode], found: dict[str, list[Measured]]) -> None:
    """A Markdown table; the first mode is the plain one."""
    clocks = ("call, s", "÷ plain, 95 %", "processor, s", "÷ plain, 95 %")
    header = ("", *clocks, "after it, s", "MB", "events", "the file tells")
    print("| " + " | ".join(header) + " |\n" + "|---" * len(header) + "|")
    plain = modes[0].name
    for mode in modes:
        rows = found[mode.name]
        cells = [mode.name]
        for clock in ("wall", "processor"):
            cells.append(f"{statistics.median(getattr(row.call, clock) for row in rows):.3f}")
            ratio = ratios(found, mode.name, plain, clock)
            cells.append(with_interval(ratio) if mode.name != plain else "")
        if mode.name != plain:
            cells.append(f"{statistics.median(row.after.wall for row in rows):.3f}")
            cells.append(f"{statistics.median(row.size for row in rows) / 1e6:.2f}")
            cells.append(f"{statistics.median(row.events for row in rows):,.0f}")
        else:
            cells += [""] * 3
        print("| " + " | ".join([*cells, mode.tells]) + " |")
