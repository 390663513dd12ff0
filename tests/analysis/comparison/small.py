"""Runs of one denoising pipeline whose steps take given times, for the tests of comparisons.

Each step is one call of `transformer` and 10 ns of host work behind it; the call has two commands,
`blocks.0.norm1` for 20 ns and `blocks.0.ff` for the rest. The first step is the first call.
"""

from __future__ import annotations

from dataclasses import replace

from profiler.compare.compare import compare
from profiler.compare.measure import measure
from profiler.trace import HOST_TRACK, NO_CALL, ROOT_DEVICE, BundleWriter, CommandBuilder
from tests.runs import Command, make_call, make_info, make_run, make_span

__all__ = ["BASE", "SLOWER", "compared", "row", "steps_run", "verdicts", "write_steps"]

DEVICE = "cuda:0"
HOST = 10
NORM = 20
BASE = (500, 100, 102, 98, 100, 101, 99)
SLOWER = (500, 120, 122, 118, 120, 121, 119)
PARTS = (("blocks.0.norm1", "norm"), ("blocks.0.ff", "mlp"))


def steps_run(*pipelines, parts=PARTS, info=None, untraced=()):
    """A run with one pipeline call for each tuple of step times in ns; calls with a number in
    `untraced` have no commands. `parts` are the layers of the two commands, with their roles."""
    calls, commands, spans = [], [], []
    at = 0
    for pipeline, steps in enumerate(pipelines):
        begin = at
        for step, duration in enumerate(steps):
            number, end = len(calls), at + duration
            traced = number not in untraced
            place = {"step": step, "device": DEVICE, "pipeline": pipeline, "branch": "batched"}
            calls.append(make_call(number, "transformer", at, end - HOST, traced=traced, **place))
            spans.append(make_span("step", f"step {step}", at, end, step, pipeline=pipeline))
            host = (NO_CALL, ROOT_DEVICE, HOST_TRACK, "host", "scheduler.step", end - HOST, HOST)
            commands.append(Command(*host, "", "denoise", step, pipeline))
            if traced:
                commands += _commands(number, at, end - HOST, parts)
            at = end
        spans.append(make_span("stage", "denoise", begin, at, pipeline=pipeline))
        spans.append(make_span("pipeline", "Pipe", begin, at, pipeline=pipeline))
        at += 1000
    made = make_run(calls, sorted(commands, key=lambda c: c.call), spans, info=info)
    return replace(made, run_id=f"{sum(map(sum, pipelines))}")


def _commands(call, start, end, parts):
    first, second = (layer for layer, _ in parts)
    yield Command(call, DEVICE, "stream 7", "compute", first, start, NORM)
    yield Command(call, DEVICE, "stream 7", "compute", second, start + NORM, end - start - NORM)


def compared(base, new):
    """The comparison of a run, or a list of runs, with another."""
    sides = [side if isinstance(side, list) else [side] for side in (base, new)]
    return compare(*[[measure(run) for run in side] for side in sides])


def row(comparison, metric):
    """The row of a metric."""
    rows = comparison.metrics.filter(comparison.metrics["metric"] == metric)
    assert len(rows) == 1, (metric, comparison.metrics["metric"].to_list())
    return rows.row(0, named=True)


def verdicts(comparison):
    """Verdict by metric."""
    return dict(comparison.metrics.select("metric", "verdict").iter_rows())


def write_steps(parent, run_id, steps, **info):
    """Write a run of one pipeline call with these step times as a bundle, in µs."""
    spans = [
        make_span("pipeline", "Pipe", 0, 1000 * sum(steps), pipeline=0),
        make_span("stage", "denoise", 0, 1000 * sum(steps), pipeline=0),
    ]
    at = 0
    with BundleWriter.create(parent, run_id) as bundle:
        for number, duration in enumerate(steps):
            end = at + 1000 * duration
            place = {"step": number, "device": DEVICE, "pipeline": 0}
            bundle.write_call(
                make_call(number, "transformer", at, end - HOST, **place), CommandBuilder().build()
            )
            spans.append(make_span("step", f"step {number}", at, end, number, pipeline=0))
            at = end
        bundle.write_host(spans, CommandBuilder().build(), ROOT_DEVICE)
        return bundle.finish(make_info("capture", **info))
