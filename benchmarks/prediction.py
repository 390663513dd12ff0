"""Predictions held against real re-runs: the embedded SD3 on ONNX Runtime, two CPU devices.

    python benchmarks/prediction.py [--rounds 6] [--minutes M] [--others 0.05]
                                    [--size 256] [--only TEXT]

Each round records the pipeline as it is (28 steps, guidance, all but the VAE on cpu:0), then does
for real what is predicted, in an order of its own; a prediction is made from its own round's run.
Requests at once are a closed loop: one worker a device, first come first served; `graph` starts all
encoder calls of a request at once, `pipeline` is a thread for each request. Figures are medians
over the rounds, errors (predicted / measured - 1) with the 95 % interval of their median.

The devices are cores, so whatever else runs on the machine slows them, above all where a call wakes
the worker of another core. What was recorded or measured while other processes took more than
`--others` of the machine's processor time is left out.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import checkout  # noqa: F401  (finds the project)
from paired import interval
from prediction_requests import Request, Server

import profiler
from profiler.analysis.analyze import analyze
from profiler.analysis.result import Analysis
from profiler.pipelines.sd3 import StableDiffusion3Pipeline
from profiler.pipelines.tiny import default_model_folder
from profiler.prediction.predict import predict
from profiler.prediction.scenario import Scenario
from profiler.run.run import Run

STEPS, FEW = 28, 4
T5 = "text_encoder_3"
BASE = {
    "text_encoder": "cpu:0",
    "text_encoder_2": "cpu:0",
    T5: "cpu:0",
    "transformer": "cpu:0",
    "vae": "cpu:1",
}
MOVED = {**BASE, T5: "cpu:1"}
ORDERS = ("graph", "pipeline")
MOST = 4  # requests at once
BASE_CALLS = 4
_STAT = Path("/proc/stat")
CALLS = "none"
TRACED = "steps:8-13"  # what guidance is predicted from: some steps with their operators


class Others:
    """What other processes take of the machine's processor time while something is measured."""

    def __init__(self, most: float) -> None:
        self._most = most

    def quietly(self, work: Callable[[], Any]) -> Any:
        """What `work` returns, None where others took too much."""
        all_before, own_before, begin = _busy_seconds(), time.process_time(), time.monotonic()
        found = work()
        own = time.process_time() - own_before
        passed = (time.monotonic() - begin) * (os.cpu_count() or 1)
        return found if _busy_seconds() - all_before - own <= self._most * passed else None


def _busy_seconds() -> float:
    """Processor seconds of all processes since the start: user, nice, system, irq, softirq, steal;
    0 where the system does not tell."""
    if not _STAT.exists():
        return 0.0
    _, user, nice, system, _, _, *rest = _STAT.read_text().split("\n", 1)[0].split()[:9]
    return sum(map(int, (user, nice, system, *rest))) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Base:
    """A run that predictions start from."""

    run: Run
    analysis: Analysis

    def predict(self, scenario: Scenario) -> Any:
        return predict(self.run, self.analysis, scenario)


@dataclass(frozen=True)
class Case:
    """One prediction and its counterpart; both give the same figure, in `unit`. `ops` are the
    calls of its base whose operators are traced."""

    name: str
    goal: int  # %
    unit: str
    ops: str
    predict: Callable[[Base], float]
    measure: Callable[[], float]


class Validation:
    """Pipelines and servers that the rounds share, warmed up."""

    def __init__(self, size: int) -> None:
        self.few, self.all = Request(FEW, size), Request(STEPS, size)
        self.pipeline = self._pipeline(BASE)
        self.moved = self._pipeline(MOVED)
        self.servers = {
            (order, moved): Server(MOVED if moved else BASE, order, MOST)
            for order in ORDERS
            for moved in (False, True)
            if moved or order == "graph"
        }
        for server in self.servers.values():
            server.loop(self.few, 1, 1)

    def _pipeline(self, devices: dict[str, str]) -> StableDiffusion3Pipeline:
        made = StableDiffusion3Pipeline.from_folder(default_model_folder(), devices)
        self.few.run(made)
        return made

    def record(self, ops: str) -> Base:
        """A run that is predicted from."""
        with tempfile.TemporaryDirectory() as folder:
            with profiler.profile(self.pipeline, ops=ops, out=folder) as recording:
                for _ in range(BASE_CALLS):
                    self.all.run(self.pipeline)
            run = profiler.load(recording.path)
        return Base(run, analyze(run))

    def cases(self) -> list[Case]:
        """Everything that is predicted."""
        unguided = replace(self.all, guidance=1.0)
        singles = [
            ("28 → 4 steps", 5, CALLS, Scenario(steps=FEW), self.pipeline, self.few),
            ("guidance off", 5, TRACED, Scenario(guidance=False), self.pipeline, unguided),
            ("T5 on cpu:1", 10, CALLS, Scenario(place={T5: "cpu:1"}), self.moved, self.all),
        ]
        found = [self._single(*single) for single in singles]
        found.append(self._loop(FEW, 1, "graph", moved=True))
        for concurrency in (2, MOST):
            found += [
                self._loop(STEPS, concurrency, "graph", moved=False),
                self._loop(FEW, concurrency, "graph", moved=False),
                self._loop(FEW, concurrency, "graph", moved=True),
                self._loop(FEW, concurrency, "pipeline", moved=True),
            ]
        return found

    def _single(
        self,
        name: str,
        goal: int,
        ops: str,
        scenario: Scenario,
        pipeline: StableDiffusion3Pipeline,
        request: Request,
    ) -> Case:
        repeats = 3 if request.steps == STEPS else 9
        return Case(
            name,
            goal,
            "ms",
            ops,
            lambda base: base.predict(scenario).request.ns / 1e6,
            lambda: statistics.median(request.run(pipeline) for _ in range(repeats)) * 1e3,
        )

    def _loop(self, steps: int, concurrency: int, order: str, *, moved: bool) -> Case:
        scenario = Scenario(
            steps=steps,
            concurrency=concurrency,
            order=order,  # type: ignore[arg-type]
            place={T5: "cpu:1"} if moved else {},
        )
        request = self.few if steps == FEW else self.all
        measured = 12 if steps == FEW else 4
        server = self.servers[order, moved]
        return Case(
            f"{steps} steps, {concurrency} at once{', T5 on cpu:1' if moved else ''}, {order}",
            10,
            "requests/s",
            CALLS,
            lambda base: base.predict(scenario).simulation.throughput,
            lambda: server.loop(request, concurrency, measured).throughput,
        )


def rows(
    cases: list[Case], validation: Validation, others: Others, rounds: int, minutes: float
) -> dict[str, list[Any]]:
    """By case its pairs of predicted and measured figures; no round that would end too late."""
    found: dict[str, list[Any]] = {case.name: [] for case in cases}
    generator = random.Random(0)
    begin = time.monotonic()
    for done in range(rounds):
        spent = (time.monotonic() - begin) / 60
        if done and spent * (done + 1) / done > minutes:
            break
        wanted = dict.fromkeys(case.ops for case in cases)
        bases = {ops: others.quietly(partial(validation.record, ops)) for ops in wanted}
        for case in generator.sample(cases, len(cases)):
            base = bases[case.ops]
            measured = others.quietly(case.measure) if base else None
            if measured is not None:
                found[case.name].append((case.predict(base), measured))
    return found


def print_table(cases: list[Case], found: dict[str, list[Any]]) -> None:
    print("| | predicted | measured | error, 95 % | rounds | goal |")
    print("|---|---|---|---|---|---|")
    for case in cases:
        pairs = found[case.name]
        if not pairs:
            print(f"| {case.name} | | | | 0 | {case.goal} % |")
            continue
        predicted, measured = (statistics.median(side) for side in zip(*pairs, strict=True))
        errors = [100 * (one / other - 1) for one, other in pairs]
        low, high = interval(errors)
        print(
            f"| {case.name} | {predicted:.4g} {case.unit} | {measured:.4g} {case.unit} "
            f"| {statistics.median(errors):+.1f} % ({low:+.1f} to {high:+.1f}) "
            f"| {len(pairs)} | {case.goal} % |",
            flush=True,
        )


def main() -> None:
    """Print what was predicted and what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--minutes", type=float, default=60.0, help="not longer than this")
    parser.add_argument("--others", type=float, default=0.05, help="share of the machine")
    parser.add_argument("--size", type=int, default=256, help="pixels")
    parser.add_argument("--only", default="", help="cases with this in their names")
    options = parser.parse_args()
    validation = Validation(options.size)
    cases = [case for case in validation.cases() if options.only in case.name]
    others = Others(options.others)
    found = rows(cases, validation, others, options.rounds, options.minutes)
    print_table(cases, found)
    for server in validation.servers.values():
        server.close()


if __name__ == "__main__":
    main()
