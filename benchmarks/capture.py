"""What capture costs on the embedded SD3, 28 steps: plain, calls only, some steps, with operators.

    python benchmarks/capture.py [--rounds 7] [--steps 28] [--some every:2] [--pairs 200]

They run in turn in each round; ratios are medians of per-round ratios, with their spread. Times
are of the pipeline call alone; converting and writing come after it and stand apart.

What a call costs that is left out by `--ops` is measured three ways. "Steps": the steps that
`--some` leaves untraced against the same steps of the plain run, medians of their times from one
scheduler step to the next. "Pairs": one transformer call with our hooks against one without, on
one and the same session, in turn. "Hooks": the same where the session answers at once, so that
only our own work is left; this one hardly feels what else the machine does.

"Own work" is that of a whole pipeline call, see own_work.py. `--rounds 0` leaves the whole runs
out, but for three plain ones. Other profilers beside us: side_by_side.py.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import checkout  # noqa: F401 - finds the project
from own_work import Instant, print_own_work, transformer_inputs
from paired import interval

import profiler
from profiler.pipelines.sd3 import StableDiffusion3Pipeline
from profiler.pipelines.tiny import default_model_folder
from profiler.trace.manifest_fields import stated


@dataclass
class Timed:
    """One run: seconds of the pipeline call, of each step but the first, and after it."""

    seconds: float
    steps: dict[int, float]
    after: float = 0.0
    run: profiler.Run | None = None


def timed(pipeline: StableDiffusion3Pipeline, steps: int) -> Timed:
    ends: list[float] = []

    def at_step_end(*_: Any) -> None:
        ends.append(time.perf_counter())

    begin = time.perf_counter()
    pipeline("a cat", num_inference_steps=steps, seed=0, callback_on_step_end=at_step_end)
    seconds = time.perf_counter() - begin
    return Timed(seconds, {i: ends[i] - ends[i - 1] for i in range(1, len(ends))})


def profiled(pipeline: StableDiffusion3Pipeline, steps: int, ops: str, out: Path) -> Timed:
    run = profiler.profile(pipeline, ops=ops, out=out)
    with run:
        with run.warmup():
            pipeline("a cat", num_inference_steps=2, seed=0)
        found = timed(pipeline, steps)
        begin = time.perf_counter()
    found.after = time.perf_counter() - begin
    assert run.path is not None
    found.run = profiler.load(run.path)
    return found


@dataclass
class Rounds:
    """One way of running, over all rounds."""

    seconds: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)  # to the plain run of the same round


def left_out_pairs(
    pipeline: StableDiffusion3Pipeline, pairs: int, out: Path, *, instant: bool = False
) -> list[tuple[float, float]]:
    """Seconds of hooked, untraced calls of the transformer and of plain ones, on one session."""
    part, given = pipeline.transformer, transformer_inputs(pipeline)
    own = part.session
    session = Instant(own) if instant else own
    hooked = StableDiffusion3Pipeline.from_folder(default_model_folder())
    part.session = hooked.transformer.session = session
    found = []
    with profiler.profile(hooked, ops="none transformer=steps:999", out=out):
        for number in range(pairs):
            seconds = {}
            for one in (part, hooked.transformer) if number % 2 else (hooked.transformer, part):
                begin = time.perf_counter()
                one(**given)
                seconds[one] = time.perf_counter() - begin
            found.append((seconds[hooked.transformer], seconds[part]))
    part.session = own
    return found


def untraced_steps(run: profiler.Run) -> list[int]:
    """The steps, but the first, whose transformer calls hold no operators."""
    rows = run.calls.select("submodule", "step", "ops_traced").iter_rows()
    return [step for name, step, traced in rows if name == "transformer" and step and not traced]


def spread(values: list[float], unit: str) -> str:
    return f"{statistics.median(values):7.3f} {unit} ({min(values):.3f} to {max(values):.3f})"


def in_words(values: list[float]) -> str:
    low, high = interval(values)
    return f"95 % {low:.3f} to {high:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=28)
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--some", default="every:2", help="some calls, as --ops takes them")
    options = parser.parse_args()
    pipeline = StableDiffusion3Pipeline.from_folder(default_model_folder())
    timed(pipeline, 2)
    with tempfile.TemporaryDirectory() as folder:
        if options.rounds:
            whole_runs(pipeline, options, Path(folder) / "runs")
        pairs = left_out_pairs(pipeline, options.pairs, Path(folder))
        ratios = [hooked / plain for hooked, plain in pairs]
        print(f"left out, pairs ratio {spread(ratios, 'x')} {in_words(ratios)}")
        hooks = left_out_pairs(pipeline, 10 * options.pairs, Path(folder), instant=True)
        costs = [(hooked - plain) * 1e6 for hooked, plain in hooks]
        call = statistics.median(plain for _, plain in pairs) * 1e6
        share = statistics.median(costs) / call
        print(f"left out, hooks {statistics.median(costs):.1f} us a call, {share:.3%} of its time")
    base = statistics.median(timed(pipeline, options.steps).seconds for _ in range(3))
    number = max(options.pairs // 4, 1)
    for ops in ("none", "all"):
        print_own_work(default_model_folder(), ops, options.steps, number, ("plain", base))


def whole_runs(pipeline: StableDiffusion3Pipeline, options: argparse.Namespace, out: Path) -> None:
    """Whole runs, plain and profiled in turn."""
    modes = {"calls only": "none", options.some: options.some, "with operators": "all"}
    plain, after, left_out = [], [], []
    rounds = {name: Rounds() for name in modes}
    for number in range(options.rounds):
        base = timed(pipeline, options.steps)
        plain.append(base.seconds)
        order = list(modes.items())
        for name, ops in order if number % 2 else reversed(order):
            found = profiled(pipeline, options.steps, ops, out)
            rounds[name].seconds.append(found.seconds)
            rounds[name].ratios.append(found.seconds / base.seconds)
            assert found.run is not None
            if ops == "all":
                run = found.run
                after.append(found.after)
            elif steps := untraced_steps(found.run) if ops != "none" else []:
                medians = [
                    statistics.median(t.steps[step] for step in steps) for t in (found, base)
                ]
                left_out.append(medians[0] / medians[1])
                measured = stated(found.run.info.overhead.measured.get("transformer"))
    print(f"plain           {spread(plain, 's')}")
    for name, values in rounds.items():
        line = f"{name:15} {spread(values.seconds, 's')}  ratio {spread(values.ratios, 'x')}"
        print(f"{line} {in_words(values.ratios)}")
    if left_out:
        print(f"left out, steps ratio {spread(left_out, 'x')} {in_words(left_out)}")
        for key, value in measured.items():
            print(f"last run        transformer {key}: {value:,}")
    print(
        f"afterwards      {spread(after, 's')} to convert and write {len(run.commands):,} commands"
    )
    size = sum(path.stat().st_size for path in out.glob("*/0*.pb")) / options.rounds
    print(f"call files      {size / 1e6:.2f} MB a round")
    print(f"stated overhead {run.info.overhead.share or 0:.1%} of the traced run")
    for submodule, share in run.info.attribution.items():
        print(f"attributed      {submodule:15} {share.share or 0.0:.2%} of operator time")


if __name__ == "__main__":
    main()
