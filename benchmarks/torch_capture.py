"""What capture costs on diffusers' SD3 on torch, tiny random weights, on the CPU.

    python benchmarks/torch_capture.py [--rounds 7] [--steps 28] [--layers 4]
    python benchmarks/torch_capture.py --events                    # what reading a session takes
    python benchmarks/torch_capture.py --left-out                  # calls that are left out

The runs of a round come one after the other; ratios are medians of per-round ratios, with their
spread. Times are of the pipeline call alone, and, for busy machines, the CPU time of the median
transformer call; stopping the profiler and cutting its events come after it and stand apart.

With `--events`: the CPU time of stopping a session, having its trace written, reading and cutting
it. With `--left-out`: the CPU time of calls of the transformer that are left out, while others of
the run are traced, against those of plain runs, in pairs.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import checkout  # noqa: F401 - finds the project
import polars as pl
import torch

import profiler
from profiler.capture.torch.events import find_commands, session_events
from profiler.capture.torch.modules import new_profiler, quiet
from profiler.kineto.trace_file import read_kineto
from tests.capture import tiny_diffusers


def seconds(pipeline: Any, steps: int) -> float:
    """Duration of one pipeline call with guidance, images of 32 x 32 pixels."""
    begin = time.perf_counter()
    pipeline(
        "a cat",
        negative_prompt="a dog",
        num_inference_steps=steps,
        output_type="np",
        **tiny_diffusers.SIZE,
    )
    return time.perf_counter() - begin


class CallTimes:
    """CPU time of each transformer call, by hooks that are there in every run."""

    def __init__(self, module: Any) -> None:
        self.times: list[float] = []
        module.register_forward_pre_hook(self._begin)
        module.register_forward_hook(self._end)

    def _begin(self, *_: Any) -> None:
        self._started = time.process_time()

    def _end(self, *_: Any) -> None:
        self.times.append(time.process_time() - self._started)

    def median(self) -> float:
        """Seconds of the calls since the last question."""
        times, self.times = self.times, []
        return statistics.median(times)


def with_us(pipeline: Any, steps: int, ops: str, out: Path) -> tuple[float, float, profiler.Run]:
    """The pipeline call as the run recorded it, what followed until the bundle was written."""
    begin = time.perf_counter()
    with profiler.profile(pipeline, ops=ops, out=out, name=f"run-{time.time_ns()}") as recording:
        seconds(pipeline, steps)
    whole = time.perf_counter() - begin
    run = profiler.load(recording.path)
    inside = run.spans.filter(pl.col("kind") == "pipeline")["duration_ns"].sum() / 1e9
    return inside, whole - inside, run


def torch_profiler() -> Any:
    """torch.profiler with the settings that capture uses."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    return torch.profiler.profile(activities=activities, record_shapes=True, profile_memory=True)


def with_torch_profiler(pipeline: Any, steps: int) -> tuple[float, float]:
    """The pipeline call under torch.profiler alone, and stopping it; nothing is read."""
    recording = torch_profiler()
    recording.start()
    inside = seconds(pipeline, steps)
    begin = time.perf_counter()
    recording.stop()
    return inside, time.perf_counter() - begin


def spread(values: list[float], digits: int = 3) -> str:
    """Median, least and greatest."""
    middle = f"{statistics.median(values):8.{digits}f}"
    return f"{middle} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def print_ratios(found: dict[str, list[float]]) -> None:
    """Each kind of run, its ratio to the plain one and to the one under torch.profiler."""
    for name, values in found.items():
        line = f"  {name:15} {spread(values)}"
        for base in ("plain", "torch.profiler"):
            ratios = [a / b for a, b in zip(values, found[base], strict=True)]
            line += f"   ÷ {base} {spread(ratios)}"
        print(line)


def compare_runs(pipeline: Any, rounds: int, steps: int) -> None:
    """Print times and ratios of plain runs, runs with us, and runs under torch.profiler."""
    names = ("calls only", "with operators", "torch.profiler")
    inside: dict[str, list[float]] = {name: [] for name in ("plain", *names)}
    calls: dict[str, list[float]] = {name: [] for name in ("plain", *names)}
    times = CallTimes(pipeline.transformer)
    after: dict[str, list[float]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(rounds):
            inside["plain"].append(seconds(pipeline, steps))
            calls["plain"].append(times.median())
            for name, ops in (("calls only", "none"), ("with operators", "all")):
                during, following, run = with_us(pipeline, steps, ops, Path(folder))
                inside[name].append(during)
                after[name].append(following)
                calls[name].append(times.median())
            during, following = with_torch_profiler(pipeline, steps)
            inside["torch.profiler"].append(during)
            after["torch.profiler"].append(following)
            calls["torch.profiler"].append(times.median())
    print("pipeline call, s")
    print_ratios(inside)
    print("median transformer call, ms of CPU time")
    print_ratios({name: [1e3 * value for value in values] for name, values in calls.items()})
    for name, values in after.items():
        print(f"{name:15} {spread(values)} s afterwards")
    print(f"commands        {len(run.commands):,} of {len(run.calls)} calls")
    for submodule, share in run.info.attribution.items():
        print(f"attributed      {submodule:15} {share['share']:.2%} of operator time")


def time_reading(pipeline: Any, rounds: int, steps: int) -> None:
    """Print what a session's events cost once it is stopped."""
    parts: dict[str, list[float]] = {
        name: [] for name in ("stop", "write", "read", "columns", "cut")
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "session.json"
        for _ in range(rounds):
            recording = new_profiler(memory=True)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            with quiet():
                recording.__enter__()
            seconds(pipeline, steps)
            cpu = [time.process_time()]
            recording.__exit__(None, None, None)
            cpu.append(time.process_time())
            recording.kineto_results.save(str(path))
            cpu.append(time.process_time())
            trace = read_kineto(path)
            cpu.append(time.process_time())
            events = session_events(trace)
            cpu.append(time.process_time())
            find_commands(events, {})
            cpu.append(time.process_time())
            for times, begin, end in zip(parts.values(), cpu, cpu[1:], strict=False):
                times.append((end - begin) * 1e6 / len(events))
            grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
            print(f"{len(events):,} events, resident memory grew by {grown / 1e3:.0f} MB")
        size = path.stat().st_size / len(events)
    print(f"CPU time an event, µs; {size:.0f} bytes of JSON an event")
    for name, times in parts.items():
        print(f"{name:10} {spread(times, 2)}")


def time_left_out(pipeline: Any, rounds: int, steps: int, ops: str) -> None:
    """Print the CPU time of calls that are left out against calls at the same steps of plain
    runs, and how far plain runs are from each other."""
    times = CallTimes(pipeline.transformer)
    ratios, plain_ratios, pauses = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            runs: dict[str, list[float]] = {}
            for kind in ("plain", "with us", "again")[:: 1 if number % 2 else -1]:
                if kind == "with us":
                    _, _, run = with_us(pipeline, steps, ops, Path(folder))
                else:
                    seconds(pipeline, steps)
                runs[kind], times.times = times.times, []
            traced = (
                run.calls.filter(pl.col("submodule").cast(pl.String) == "transformer")
                .sort("start_ns")["ops_traced"]
                .to_list()
            )
            left_out = [index for index, kept in enumerate(traced) if not kept]
            medians = {
                kind: statistics.median(found[index] for index in left_out)
                for kind, found in runs.items()
            }
            ratios.append(medians["with us"] / medians["plain"])
            plain_ratios.append(medians["again"] / medians["plain"])
            pauses.append(run.info.overhead.hooks_ns / 1e6)
    print(f"--ops '{ops}': {len(left_out)} of {len(traced)} calls left out")
    print(f"left out ÷ plain  {spread(ratios, 4)}   median transformer call, CPU time")
    print(f"plain ÷ plain     {spread(plain_ratios, 4)}")
    print(f"hooks in the run  {spread(pauses, 1)} ms, stops of the session included")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=28)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--events", action="store_true")
    parser.add_argument("--left-out", action="store_true")
    parser.add_argument("--ops", default="transformer=every:7")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    pipeline = tiny_diffusers.sd3(num_layers=options.layers)
    seconds(pipeline, 2)
    if options.left_out:
        time_left_out(pipeline, options.rounds, options.steps, options.ops)
        return
    compare = time_reading if options.events else compare_runs
    compare(pipeline, options.rounds, options.steps)


if __name__ == "__main__":
    main()
