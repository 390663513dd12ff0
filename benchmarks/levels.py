"""What each level of tracing costs a pipeline call: the ways in turn, in one process.

    python benchmarks/levels.py [--runtime torch] [--rounds 5] [--steps 28]

A round calls the pipeline once each way, in an order of its own: without us, `ops="none"` (calls),
`ops="first,last"`, `ops="all"` (operators), and on torch under torch.profiler with our options,
each after a call of one step and a second in which what that recorded is converted. Ratios are to
the call without us of the same round, of wall time and of processor time of all threads, median
(least to greatest): they hold on a busy machine, too, as long as it is as busy for all ways. What
is converted after the run stands apart. torch runs on one thread. What is printed is the table of
docs/capture-ops.md, in Markdown.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from capture_truth import PIPELINES, around_each_call, spread
from paired import Moment

import profiler

LEVELS = {"calls": "none", "first and last step": "first,last", "all operators": "all"}
PLAIN, PEER = "without us", "torch.profiler"
_REST_S = 1.0


def measured(way: str, pipeline: Any, call: Callable[..., Any], steps: int) -> tuple[Moment, float]:
    """What one pipeline call took, and how long our files took after it, in s."""
    with tempfile.TemporaryDirectory() as folder:
        recording: AbstractContextManager[Any] = nullcontext()
        if way in LEVELS:
            recording = profiler.profile(pipeline, ops=LEVELS[way], out=folder)
        around = around_each_call("peer" if way == PEER else way)
        with recording:
            call(num_inference_steps=1)
            time.sleep(_REST_S)
            begin = Moment.now()
            with around():
                call(num_inference_steps=steps)
            took = Moment.now().since(begin)
            closing = Moment.now()
        return took, Moment.now().since(closing).wall


def compare(runtime: str, options: argparse.Namespace) -> None:
    """Print the rows of a runtime."""
    pipeline, call = PIPELINES[runtime](options.steps)
    ways = [PLAIN, *LEVELS, *([PEER] if runtime == "torch" else [])]
    found: dict[str, list[tuple[Moment, float]]] = {way: [] for way in ways}
    order = random.Random(0)
    call(num_inference_steps=1)
    for _ in range(options.rounds):
        for way in order.sample(ways, len(ways)):
            found[way].append(measured(way, pipeline, call, options.steps))
    for way in ways:
        cells = [f"{runtime}, {way}", spread([took.wall for took, _ in found[way]])]
        cells += [ratios(found, way, PLAIN, clock) for clock in ("wall", "processor")]
        peer = runtime == "torch" and way == "all operators"
        cells += [ratios(found, way, PEER, "processor") if peer else ""]
        after = statistics.median(after for _, after in found[way])
        print(f"| {' | '.join(cells)} | {f'{after:.2f}' if way in LEVELS else ''} |", flush=True)


def ratios(found: dict[str, list[tuple[Moment, float]]], way: str, base: str, clock: str) -> str:
    """Of the calls of one round."""
    if way == base:
        return ""
    pairs = zip(found[way], found[base], strict=True)
    return spread([getattr(one, clock) / getattr(other, clock) for (one, _), (other, _) in pairs])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=28)
    parser.add_argument("--runtime", choices=PIPELINES)
    options = parser.parse_args()
    print(f"{options.rounds} rounds, {options.steps} steps, load {os.getloadavg()[0]:.0f}\n")
    header = ("runtime, level", "call, s", "÷ without us", "processor time ÷ without us")
    header += ("processor time ÷ torch.profiler", "converting, s")
    print(f"| {' | '.join(header)} |\n|{'---|' * len(header)}")
    for runtime in [options.runtime] if options.runtime else PIPELINES:
        compare(runtime, options)
    print(f"\nload at the end {os.getloadavg()[0]:.0f}")


if __name__ == "__main__":
    main()
