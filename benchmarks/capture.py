"""What capture costs on the embedded SD3, 28 steps: plain, calls only, with operators.

    python benchmarks/capture.py [--rounds 7] [--steps 28]

The three run in turn in each round; ratios are medians of per-round ratios, with their spread.
Times are of the pipeline call alone; converting and writing come after it and stand apart.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import profiler
from profiler.pipelines.sd3 import StableDiffusion3Pipeline
from profiler.pipelines.tiny import default_model_folder


def timed(pipeline: StableDiffusion3Pipeline, steps: int) -> float:
    begin = time.perf_counter()
    pipeline("a cat", num_inference_steps=steps, seed=0)
    return time.perf_counter() - begin


def profiled(
    pipeline: StableDiffusion3Pipeline, steps: int, ops: str, out: Path
) -> tuple[float, float, profiler.Run]:
    run = profiler.profile(pipeline, ops=ops, out=out)
    with run:
        with run.warmup():
            pipeline("a cat", num_inference_steps=1, seed=0)
        inside = timed(pipeline, steps)
        begin = time.perf_counter()
    assert run.path is not None
    return inside, time.perf_counter() - begin, profiler.load(run.path)


def spread(values: list[float], unit: str) -> str:
    return f"{statistics.median(values):7.3f} {unit} ({min(values):.3f} to {max(values):.3f})"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=28)
    options = parser.parse_args()
    pipeline = StableDiffusion3Pipeline.from_folder(default_model_folder())
    timed(pipeline, 2)
    plain, calls, operators, after = [], [], [], []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.rounds):
            plain.append(timed(pipeline, options.steps))
            calls.append(profiled(pipeline, options.steps, "none", Path(folder))[0])
            inside, writing, run = profiled(pipeline, options.steps, "all", Path(folder))
            operators.append(inside)
            after.append(writing)
        size = sum(path.stat().st_size for path in Path(folder).glob("*/0*.pb")) / options.rounds
    print(f"plain           {spread(plain, 's')}")
    for name, values in (("calls only", calls), ("with operators", operators)):
        ratios = [value / base for value, base in zip(values, plain, strict=True)]
        print(f"{name:15} {spread(values, 's')}  ratio {spread(ratios, 'x')}")
    print(
        f"afterwards      {spread(after, 's')} to convert and write {len(run.commands):,} commands"
    )
    print(f"call files      {size / 1e6:.2f} MB a run")
    print(f"stated overhead {run.info.overhead['share']:.1%} of the traced run")
    for submodule, share in run.info.attribution.items():
        print(f"attributed      {submodule:15} {share['share']:.2%} of operator time")


if __name__ == "__main__":
    main()
