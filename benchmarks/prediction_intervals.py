"""How often the intervals of predictions hold real re-runs: the embedded SD3 on ONNX Runtime, CPU.

    python benchmarks/prediction_intervals.py [--reruns 48] [--minutes 8] [--others 0.15]
                                              [--calls 4] [--again 3] [--size 256] [--steps 12]

Each re-run has a recording of its own, right before it: the pipeline as it is, untraced or with the
operators of some steps. From that it is predicted as it was, with other steps, without guidance,
at another size or with T5 on the other device, and then done for real, in a random order of
questions: untraced, where the prediction has the cost of tracing taken out, else recorded like the
run that it was predicted from. The VAE is on a device of its own, so that every device has one core
before and after. `--calls` pipeline calls a run are predicted from, after one to warm up; 1 shows
what an interval from a single call is worth. A re-run takes what the median of its `--again` calls
takes, after one to warm up; how often the interval holds the first of these, which is what it is
made for, is counted beside it. Printed are the shares held by kind of run and of question, how wide
intervals are, of the prediction, and how wide they would have to be for equal re-runs alone to lie
in 90 of 100, by what the machine does between them. What ran while other processes took more than
`--others` of the machine is left out. Precision is not asked: nothing runs the CPU in another type
at a rate that its profile has.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

import checkout  # noqa: F401  (finds the project)
import polars as pl
from prediction import BASE, MOVED, T5, Others
from prediction_requests import Request

import profiler
from profiler.analysis.analyze import analyze
from profiler.pipelines.sd3 import StableDiffusion3Pipeline
from profiler.pipelines.tiny import default_model_folder
from profiler.prediction.predict import predict
from profiler.prediction.scenario import ImageSize, Scenario
from profiler.run.run import Run
from profiler.trace.bootstrap import PREDICTED_CONFIDENCE

EQUAL = "as it was"
HELD, WIDTH = 0.85, 0.12  # what the whole should reach: at least, at most
_Z90 = 1.645  # of a normal distribution, for 90 % between -z and z
KINDS = {"untraced": "none", "traced": "steps:2-5"}


@dataclass(frozen=True)
class Asked:
    """A question, and the request that answers it; `moved`: with T5 on the other device."""

    name: str
    scenario: Scenario
    request: Request
    moved: bool = False
    kinds: tuple[str, ...] = tuple(KINDS)


@dataclass(frozen=True)
class Answer:
    """A prediction in ms, its interval (None: none was given), what the re-run took, and its first
    request."""

    asked: str
    kind: str
    predicted: float
    low: float | None
    high: float | None
    measured: float
    single: float

    @property
    def held(self) -> bool:
        """Whether the interval holds the re-run."""
        return self._holds(self.measured)

    @property
    def held_single(self) -> bool:
        """Whether it holds the first request."""
        return self._holds(self.single)

    def _holds(self, value: float) -> bool:
        return self.low is not None and self.low <= value <= (self.high or 0.0)

    @property
    def width(self) -> float:
        """Of the interval over the prediction; none counts as 0."""
        return ((self.high or 0.0) - (self.low or 0.0)) / self.predicted


def questions(whole: Request) -> list[Asked]:
    """What is predicted from a run of `whole`."""
    steps = sorted({max(whole.steps // 3, 2), whole.steps + whole.steps // 2})
    return [
        Asked(EQUAL, Scenario(), whole),
        *(Asked(f"{n} steps", Scenario(steps=n), replace(whole, steps=n)) for n in steps),
        Asked(
            "guidance off",
            Scenario(guidance=False),
            replace(whole, guidance=1.0),
            kinds=("traced",),  # untraced, half a batch is a guess
        ),
        *(
            Asked(
                f"{size} pixels",
                Scenario(size=ImageSize(size, size)),
                replace(whole, size=size),
                kinds=("traced",),  # untraced, its shapes are not known
            )
            for size in (whole.size // 2, whole.size + whole.size // 2)
        ),
        Asked("T5 on cpu:1", Scenario(place={T5: "cpu:1"}), whole, moved=True),
    ]


def recorded(pipeline: StableDiffusion3Pipeline, request: Request, ops: str, calls: int) -> Run:
    """A run of so many pipeline calls, and one before them to warm up."""
    request.run(pipeline)
    with tempfile.TemporaryDirectory() as folder:
        with profiler.profile(pipeline, ops=ops, out=folder) as recording:
            for _ in range(calls + (calls > 1)):  # of several the first is left out
                request.run(pipeline)
        return profiler.load(recording.path)


def answers(calls: int, again: int, whole: Request, others: Others, end: float) -> Iterator[Answer]:
    """Each prediction with its re-run, round after round, until the moment `end`."""
    folder = default_model_folder()
    here = StableDiffusion3Pipeline.from_folder(folder, BASE)
    there = StableDiffusion3Pipeline.from_folder(folder, MOVED)
    generator = random.Random(0)
    both = [(asked, kind) for asked in questions(whole) for kind in asked.kinds]
    while True:
        for asked, kind in generator.sample(both, len(both)):
            if time.monotonic() > end:
                return
            run = others.quietly(partial(recorded, here, whole, KINDS[kind], calls))
            if run is None:
                continue
            prediction = predict(run, analyze(run), asked.scenario)
            pipeline = there if asked.moved else here
            ops = KINDS["untraced"] if prediction.measured.corrected else KINDS[kind]
            rerun = others.quietly(partial(recorded, pipeline, asked.request, ops, again))
            if rerun is None:
                continue
            took = rerun.spans.filter(pl.col("kind") == "pipeline").sort("start_ns")["duration_ns"]
            first, *more = (ns / 1e6 for ns in took.to_list()[again > 1 :])
            found = prediction.request
            ends = (None if end is None else end / 1e6 for end in (found.low, found.high))
            truth = statistics.median([first, *more])
            yield Answer(asked.name, kind, found.ns / 1e6, *ends, truth, first)


def print_table(found: list[Answer]) -> None:
    """A row for each kind and question, then all."""
    print("| from a run | asked | re-runs | held | single requests | median width | median error |")
    print("|---|---|---|---|---|---|---|")
    groups = {(each.kind, each.asked): "" for each in found}
    for kind, asked in sorted(groups):
        _row(kind, asked, [a for a in found if (a.kind, a.asked) == (kind, asked)])
    _row("all", f"{PREDICTED_CONFIDENCE:.0%} intervals", found)
    held, width = _held(found), statistics.median(each.width for each in found)
    print(
        f"\n{len(found)} re-runs: {held:.0%} held (at least {HELD:.0%} are meant), "
        f"median width {width:.1%} (at most {WIDTH:.0%})"
    )
    equal = [math.log(a.measured / a.predicted) for a in found if a.asked == EQUAL]
    if len(equal) > 1:
        print(f"\nequal re-runs alone need a width of {2 * _Z90 * statistics.stdev(equal):.1%}")


def _held(some: list[Answer]) -> float:
    return sum(each.held for each in some) / len(some)


def _row(kind: str, asked: str, some: list[Answer]) -> None:
    held, single = sum(each.held for each in some), sum(each.held_single for each in some)
    width = statistics.median(each.width for each in some)
    error = statistics.median(each.predicted / each.measured - 1 for each in some)
    print(
        f"| {kind} | {asked} | {len(some)} | {held} ({_held(some):.0%}) "
        f"| {single} ({single / len(some):.0%}) | {width:.1%} | {error:+.1%} |",
        flush=True,
    )


def main() -> None:
    """Print how often intervals held what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--reruns", type=int, default=48, help="so many")
    parser.add_argument("--minutes", type=float, default=8.0, help="not longer than this")
    parser.add_argument("--others", type=float, default=0.15, help="share of the machine")
    parser.add_argument("--calls", type=int, default=4, help="pipeline calls of a recorded run")
    parser.add_argument("--again", type=int, default=3, help="pipeline calls of a re-run")
    parser.add_argument("--size", type=int, default=256, help="pixels")
    parser.add_argument("--steps", type=int, default=12, help="of the recorded run")
    options = parser.parse_args()
    whole, others = Request(options.steps, options.size), Others(options.others)
    end = time.monotonic() + 60 * options.minutes
    found = list(islice(answers(options.calls, options.again, whole, others, end), options.reruns))
    if found:
        print_table(found)
    else:
        print("nothing was measured while others left the machine alone")


if __name__ == "__main__":
    main()
