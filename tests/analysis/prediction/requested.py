"""Small runs of pipeline calls that are made of steps: what predictions start from.

`stepped_run` makes one pipeline call after the other. A step has the calls of `step` in order, each
(submodule, branch, ns), with 10 ns of the host before each call; there are 10 ns of host after the
last one of a step. Before the steps come the calls of `encode`, after them those of `decode`.
"""

from __future__ import annotations

from collections.abc import Sequence

from profiler.analysis.analyze import analyze
from profiler.prediction import Workload, workload_of
from profiler.run import Run
from profiler.trace import RunInfo
from tests.runs import Command, make_call, make_info, make_run, make_span

__all__ = ["HOST_NS", "WARM", "Calls", "by_name", "guided_run", "stepped_run", "workload"]

HOST_NS = 10
WARM = make_info(producer="test", warmup={"runs": 1})
Calls = Sequence[tuple[str, str, int]]


def stepped_run(
    pipelines: Sequence[Sequence[Calls]],
    encode: Calls = (("text_encoder", "prompt", 100),),
    decode: Calls = (("vae", "", 50),),
    *,
    traced: bool = False,
    info: RunInfo = WARM,
    commands: Sequence[Command] = (),
) -> Run:
    """A run of `pipelines`, each the calls of its steps."""
    calls, spans = [], []
    now = 0

    def add(some: Calls, stage: str, step: int, pipeline: int) -> None:
        nonlocal now
        for submodule, branch, duration in some:
            now += HOST_NS
            place = {"stage": stage, "step": step, "branch": branch, "pipeline": pipeline}
            end = now + duration
            calls.append(make_call(len(calls), submodule, now, end, traced=traced, **place))
            now = end
        now += HOST_NS

    for number, steps in enumerate(pipelines):
        begin = now
        add(encode, "encode", -1, number)
        spans.append(make_span("stage", "encode", begin, now, pipeline=number))
        middle = now
        for step, some in enumerate(steps):
            start = now
            add(some, "denoise", step, number)
            spans.append(make_span("step", f"step {step}", start, now, step, pipeline=number))
        spans.append(make_span("stage", "denoise", middle, now, pipeline=number))
        last = now
        add(decode, "decode", -1, number)
        spans.append(make_span("stage", "decode", last, now, pipeline=number))
        spans.append(make_span("pipeline", "P", begin, now, pipeline=number))
        now += 1000
    return make_run(calls, commands, spans, info=info)


def guided_run(times: Sequence[int] = (300, 200, 220)) -> Run:
    """One pipeline call with a negative prompt and uncond calls that take as long as the others."""
    steps = [[("transformer", "cond", t), ("transformer", "uncond", t)] for t in times]
    encode = [("text_encoder", "prompt", 100), ("text_encoder", "negative_prompt", 80)]
    return stepped_run([steps], encode)


def workload(run: Run, pipeline: int | None = None) -> Workload:
    """The workload of a run."""
    return workload_of(run, analyze(run), pipeline)


def by_name(tasks) -> list[tuple[str, list[int], list[list[int]]]]:
    """Name, first and steady times of each task."""
    return [(t.name, t.first_ns.tolist(), t.steady_ns.tolist()) for t in tasks]
