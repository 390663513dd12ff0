"""What a run says that tracing cost, against a stop watch: traced and untraced processes in turn.

    python benchmarks/capture_truth.py [--rounds 3] [--calls 4] [--steps 4] [--runtime torch]
    python benchmarks/capture_truth.py --within [--turns 4] [...]

Each round starts processes one after the other, in an order that turns with the round: some that
run `pipe()` without us (`--untraced`), whose median is the truth, and one for each level (`--ops
none`: calls; `all`: operators) that profiles its first call in a run and the following ones in
another. Processes, because a first call is first once a process, and because what torch and ONNX
Runtime keep (allocators, kernels chosen, threads) would carry over from one kind to the other.

With `--within` a process of each level runs without us and with us in turn, `--calls` calls each,
so that how processes differ by themselves is in no figure: each run of ours stands between two
stretches without us, whose mean is its truth. A call that nobody counts precedes each stretch.
First calls of a process are in none of it. Two more columns tell an estimate that is wrong from one
that is held against a truth that varies: the mean of stated less true shares with its standard
error, and how far each stretch without us lies from its neighbours, as if it had been one of ours.

What a call took is what its caller sees: `time.perf_counter` around `pipe()`, with `--processor`
(for busy machines, where the stated share is of wall time all the same) `time.process_time`. The
true share is 1 - untraced / traced of the same round,
the stated one is `overhead.share`, and the interval of `untraced_ns`, as shares, contains the true
one or not. `--peer` adds torch.profiler around each call, with our options, as a kind of its own.
torch and ONNX Runtime run on one thread: with more, equal processes differ by more than what is
measured. What is printed is the table of docs/capture-ops.md, in Markdown.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import checkout  # noqa: F401 - finds the project

import profiler
from profiler.trace.manifest_fields import stated

LEVELS = {"calls": "none", "first-last": "first,last", "operators": "all"}


def torch_pipeline(steps: int, **more: Any) -> tuple[Any, Callable[..., Any]]:
    """diffusers' tiny SD3 on torch and one call of it, with guidance; `more` are arguments, which a
    call may replace."""
    import torch

    from tests.capture import tiny_diffusers as tiny

    torch.set_num_threads(1)
    pipeline = tiny.quiet(tiny.sd3(num_layers=4))
    settings = {"num_inference_steps": steps, "output_type": "np", **tiny.SIZE, **more}
    prompts = {"prompt": "a cat", "negative_prompt": "a dog"}
    return pipeline, lambda **own: pipeline(**prompts, **{**settings, **own})


def onnx_pipeline(steps: int, **more: Any) -> tuple[Any, Callable[..., Any]]:
    """The embedded SD3 on ONNX Runtime and one call of it; `more` are arguments."""
    from profiler.pipelines.sd3 import StableDiffusion3Pipeline
    from profiler.pipelines.tiny import default_model_folder

    pipeline = StableDiffusion3Pipeline.from_folder(default_model_folder())
    for name in pipeline.SUBMODULES:
        own = getattr(pipeline, name)
        part = getattr(own, "decoder", own)
        part.share = replace(part.share, cores=part.share.cores[:1], pinned=False)
        part.session  # noqa: B018 - opened here, not within the first call, where nobody profiles
    settings = {"num_inference_steps": steps, "seed": 0, **more}
    return pipeline, lambda **own: pipeline("a cat", **{**settings, **own})


PIPELINES = {"torch": torch_pipeline, "onnxruntime": onnx_pipeline}


def around_each_call(kind: str) -> Callable[[], AbstractContextManager[Any]]:
    """What the caller puts around each call: torch.profiler, or nothing."""
    if kind != "peer":
        return nullcontext
    import torch

    cpu = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=cpu):  # its first start imports torch's compiler
        pass
    return lambda: torch.profiler.profile(activities=cpu, record_shapes=True, profile_memory=True)


class Child:
    """One process of a kind ("untraced", "peer" or a level), and what it runs."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.level = options.child
        self.calls = options.calls
        self.turns = options.turns
        self.pipeline, self.call = PIPELINES[options.runtime](options.steps)
        self._around = around_each_call(self.level)
        self._now = time.process_time if options.processor else time.perf_counter

    def plain(self, count: int) -> list[float]:
        """The seconds of each of so many calls."""
        seconds = []
        for _ in range(count):
            begin = self._now()
            with self._around():
                self.call()
            seconds.append(self._now() - begin)
        return seconds

    def traced(self, count: int) -> dict[str, Any]:
        """The same in a run of ours, and what its manifest says of the cost."""
        with tempfile.TemporaryDirectory() as folder:
            with profiler.profile(self.pipeline, ops=LEVELS[self.level], out=folder) as recording:
                seconds = self.plain(count)
                closing = self._now()
            closing = self._now() - closing
            overhead = dict(stated(profiler.load(recording.path).info.overhead))
        return {"seconds": seconds, "overhead": overhead, "closing": closing}

    def in_turn(self) -> dict[str, Any]:
        """Stretches without us, one more than runs of ours, which stand between them."""
        self.plain(1)
        self.traced(1)
        plain, traced = [], []
        for _ in range(self.turns):
            self.plain(1)
            plain.append(self.plain(self.calls))
            self.plain(1)
            traced.append(self.traced(self.calls))
        self.plain(1)
        plain.append(self.plain(self.calls))
        return {"plain": plain, "traced": traced}

    def found(self) -> dict[str, Any]:
        """First and steady calls."""
        if self.level not in LEVELS:
            return {"seconds": self.plain(1 + self.calls)}
        return {"first": self.traced(1), "steady": self.traced(self.calls)}


def child(options: argparse.Namespace) -> None:
    """One process: prints what it found."""
    own = Child(options)
    print(json.dumps(own.in_turn() if options.within else own.found(), default=str))


def ran(runtime: str, kind: str, options: argparse.Namespace) -> dict[str, Any]:
    """What a process of its own found."""
    command = [sys.executable, __file__, "--child", kind, "--runtime", runtime]
    command += ["--calls", str(options.calls), "--steps", str(options.steps)]
    command += ["--turns", str(options.turns)]
    command += ["--processor"] if options.processor else []
    command += ["--within"] if options.within else []
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def rounds_of(runtime: str, options: argparse.Namespace) -> Iterator[dict[str, dict[str, Any]]]:
    """What the processes of each round found, by kind."""
    kinds: list[str] = [*LEVELS, *(["peer"] if options.peer and runtime == "torch" else [])]
    between = max(len(kinds) // options.untraced, 1)
    for number in range(options.untraced):  # as far apart as they can be
        kinds.insert(number * (between + 1), f"untraced {number}")
    for number in range(options.rounds):
        turned = kinds[number % len(kinds) :] + kinds[: number % len(kinds)]
        found = {kind: ran(runtime, kind, options) for kind in turned}
        print(json.dumps({runtime: found}), file=sys.stderr, flush=True)
        yield found


HEADER = (
    "runtime, level, calls",
    "untraced, s",
    "traced ÷ untraced",
    "true share",
    "stated",
    "apart, points",
    "interval holds",
    "half its width",
    "converting, s",
)
WITHIN = ("stated less true, points", "untraced apart, points")


def compare(runtime: str, options: argparse.Namespace) -> None:
    """Print the rows of a runtime: stated and true shares, first and steady calls apart."""
    rounds = list(rounds_of(runtime, options))
    seconds = [[one[f"untraced {n}"]["seconds"] for n in range(options.untraced)] for one in rounds]
    first = [statistics.median(each[0] for each in own) for own in seconds]
    steady = [statistics.median(statistics.mean(each[1:]) for each in own) for own in seconds]
    for level in LEVELS:
        for which, untraced in (("first", first), ("steady", steady)):
            row = cells([one[level][which] for one in rounds], untraced)
            print(f"| {' | '.join((f'{runtime}, {level}, {which}', *row))} |", flush=True)
    if "peer" in rounds[0]:
        peer = [statistics.mean(one["peer"]["seconds"][1:]) for one in rounds]
        ours = [statistics.mean(one["operators"]["steady"]["seconds"]) for one in rounds]
        ratios = [a / b for a, b in zip(ours, peer, strict=True)]
        print(f"\ntorch.profiler around each call, s: {spread(peer)}; ours ÷ it {spread(ratios)}")


def compare_within(runtime: str, options: argparse.Namespace) -> None:
    """Print the rows of a runtime, of processes that run without us and with us in turn."""
    for level in LEVELS:
        runs, untraced, among = [], [], []
        for _ in range(options.rounds):
            found = ran(runtime, level, options)
            print(json.dumps({runtime: {level: found}}), file=sys.stderr, flush=True)
            runs += found["traced"]
            means = [*map(statistics.mean, found["plain"])]
            untraced += [(before + after) / 2 for before, after in itertools.pairwise(means)]
            among += [100 * abs(true_share(*near)) for near in neighbours(means)]
        row = cells(runs, untraced)
        more = (bias(runs, untraced), spread(among, 1) if among else "-")
        print(f"| {' | '.join((f'{runtime}, {level}', *row, *more))} |", flush=True)


def neighbours(means: list[float]) -> Iterator[tuple[float, float]]:
    """Each stretch but the first and last, behind the mean of those around it."""
    for before, here, after in zip(means, means[1:], means[2:], strict=False):
        yield (before + after) / 2, here


def true_share(untraced: float, traced: float) -> float:
    """What tracing took of `traced` seconds."""
    return 1 - untraced / traced


def bias(found: list[dict[str, Any]], untraced: list[float]) -> str:
    """Mean and standard error of stated less true shares, in points."""
    pairs = zip(found, untraced, strict=True)
    away = [
        100 * (one["overhead"]["share"] - true_share(plain, statistics.mean(one["seconds"])))
        for one, plain in pairs
        if one["overhead"].get("share") is not None
    ]
    if len(away) < 2:
        return "-"
    return f"{statistics.mean(away):.1f} ± {statistics.stdev(away) / len(away) ** 0.5:.1f}"


def cells(found: list[dict[str, Any]], untraced: list[float]) -> list[str]:
    """One level's figures, of its rounds; medians, least and greatest."""
    traced = [statistics.mean(one["seconds"]) for one in found]
    ratios = [own / plain for plain, own in zip(untraced, traced, strict=True)]
    true = [true_share(plain, own) for plain, own in zip(untraced, traced, strict=True)]
    known = [one["overhead"].get("share") for one in found]
    shares = [100 * share for share in known if share is not None]
    away = [100 * abs(a - b) for a, b in zip(known, true, strict=True) if a is not None]
    inside = sum(contains(one["overhead"], share) for one, share in zip(found, true, strict=True))
    widths = [100 * width for one in found for width in half_width(one["overhead"])]
    return [
        spread(untraced),
        spread(ratios),
        f"{spread([100 * share for share in true], 1)} %",
        f"{spread(shares, 1)} %" if shares else "never",
        spread(away, 1) if away else "-",
        f"{inside} of {len(found)}",
        f"{spread(widths, 1)} points" if widths else "-",
        spread([one["closing"] for one in found], 2),
    ]


def half_width(overhead: dict[str, Any]) -> list[float]:
    """Half of the stated interval, as a share; nothing where there is none."""
    low, high = overhead.get("untraced_low_ns"), overhead.get("untraced_high_ns")
    if low is None or high is None or not overhead["traced_ns"]:
        return []
    return [(high - low) / 2 / overhead["traced_ns"]]


def contains(overhead: dict[str, Any], true: float) -> bool:
    """Whether the stated interval holds the true share."""
    low, high = overhead.get("untraced_low_ns"), overhead.get("untraced_high_ns")
    traced = overhead["traced_ns"]
    return low is not None and high is not None and low <= (1 - true) * traced <= high


def spread(values: list[float], digits: int = 3) -> str:
    """Median, least and greatest."""
    shown = (f"{each:.{digits}f}" for each in (statistics.median(values), min(values), max(values)))
    return "{} ({} to {})".format(*shown)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--calls", type=int, default=4)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--untraced", type=int, default=1, help="processes a round")
    parser.add_argument("--runtime", choices=PIPELINES)
    parser.add_argument("--peer", action="store_true")
    parser.add_argument("--processor", action="store_true")
    parser.add_argument("--within", action="store_true")
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--child", default="")
    options = parser.parse_args()
    if options.child:
        child(options)
        return
    print(f"{options.rounds} rounds, {options.calls} steady calls of {options.steps} steps\n")
    header = HEADER + WITHIN if options.within else HEADER
    print(f"| {' | '.join(header)} |\n|{'---|' * len(header)}")
    for runtime in [options.runtime] if options.runtime else PIPELINES:
        (compare_within if options.within else compare)(runtime, options)


if __name__ == "__main__":
    main()
