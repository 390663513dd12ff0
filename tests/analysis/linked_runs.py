"""Runs with flows: which command launched which, or waited for it."""

from __future__ import annotations

import dataclasses

import polars as pl

from profiler.analysis import Axis, CommandArrays, PipelineCalls
from profiler.analysis.idle_causes import RunTimeline, launches_of
from profiler.run import FLOWS, Run, schema
from tests.runs import Command

__all__ = ["gpu", "host", "linked", "timeline", "wait"]


def host(call: int, start: int, end: int, layer: str = "cudaLaunchKernel") -> Command:
    """A host command: a launch, or host work for call -1."""
    return Command(call, "cpu:0", "CPU thread 1 launches", "host", layer, start, end - start)


def wait(call: int, start: int, end: int) -> Command:
    """A wait of the host for its device."""
    track = "CPU thread 1 sync"
    return Command(call, "cpu:0", track, "sync", "cudaStreamSynchronize", start, end - start)


def gpu(
    call: int, start: int, end: int, category: str = "compute", device: str = "cuda:0"
) -> Command:
    """A command of a GPU on its only stream; copies have a track of their own."""
    track = "stream 7" if category == "compute" else "stream 7 memcpy"
    return Command(call, device, track, category, "kernel", start, end - start)


def linked(run: Run, *pairs: tuple[int, int]) -> Run:
    """`run` with flows: pairs of rows of commands, source and target."""
    flows = pl.DataFrame(list(pairs), schema=schema(FLOWS), orient="row")
    return dataclasses.replace(run, flows=flows)


def timeline(run: Run) -> RunTimeline:
    """The timeline of `run`, its calls in order."""
    run = dataclasses.replace(run, calls=run.calls.sort("call"))
    commands, pipelines = CommandArrays.of(run.commands, run.calls), PipelineCalls.of(run)
    axis, launches = Axis.of(run, pipelines), launches_of(run, commands)
    return RunTimeline(run, commands, axis, launches, pipelines)
