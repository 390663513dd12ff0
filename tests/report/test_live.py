"""A run that goes on: what is shown of its calls so far."""

from __future__ import annotations

import io
import itertools
from dataclasses import replace

from rich.console import Console

from profiler.report.build import LiveRun
from profiler.report.terminal import report_texts
from tests.runs import EPOCH, make_call

MS = 1_000_000


INDICES = itertools.count()


def call(submodule, start_ms, duration_ms, *, step=-1, stage="denoise", pipeline=0):
    end_ms = start_ms + duration_ms
    place = {"step": step, "stage": stage, "pipeline": pipeline}
    return make_call(next(INDICES), submodule, start_ms * MS, end_ms * MS, **place)


def shown(run, now_ms, width=80):
    console = Console(file=io.StringIO(), width=width)
    for line in report_texts(run.report(EPOCH + now_ms * MS), width):
        console.print(line)
    return [" ".join(line.split()) for line in console.file.getvalue().splitlines()]


def test_before_the_first_call():
    """A run without a call says so, instead of nothing."""
    assert shown(LiveRun("a"), 5) == ["run a: no call has returned yet"]


def test_calls_steps_and_time_by_submodule():
    """Steps count from begin to begin; submodules stand by their time, with shares of it."""
    run = LiveRun("a")
    run.add([call("text_encoder", 0, 10, stage="encode")])
    assert shown(run, 12)[0] == "run a: 1 call in 12.0 ms, encode"
    run.add([call("transformer", 10, 20, step=0), call("transformer", 40, 30, step=1)])
    assert shown(run, 80) == [
        "run a: 3 calls in 80.0 ms, denoise, 2 steps done",
        "",
        "steps: last 30.0 ms, median 30.0 ms",
        "██",
        "",
        "submodule calls duration ms median ms last ms share %",
        "transformer 2 50.0 25.0 30.0 83.3",
        "text_encoder 1 10.0 10.0 10.0 16.7",
    ]


def test_a_call_whose_labels_change_counts_once():
    """The journal has a second line for it, with the step that it turned out to be of."""
    run = LiveRun("a")
    first = call("dreamer", 0, 10, stage="encode")
    run.add([first, replace(first, stage="denoise", step=0)])
    assert shown(run, 12)[0] == "run a: 1 call in 12.0 ms, denoise, 1 step done"


def test_a_call_that_its_device_has_noted_takes_that_long():
    """The journal has a second line for it, perhaps after the next call's first one."""
    run = LiveRun("a")
    noted, last = call("transformer", 0, 1, step=0), call("vae", 1, 2, stage="decode")
    run.add([noted, last, replace(noted, device_lag_ns=0, device_duration_ns=30 * MS)])
    lines = shown(run, 40)
    assert lines[0].startswith("run a: 2 calls in 40.0 ms, decode")
    assert lines[-2:] == ["transformer 1 30.0 30.0 30.0 93.8", "vae 1 2.0 2.0 2.0 6.2"]


def test_steps_of_an_earlier_pipeline_call_tell_how_many():
    """The second pipeline call of a run knows how many steps the first had."""
    run = LiveRun("a")
    run.add(call("transformer", 10 * n, 5, step=n) for n in range(4))
    run.add([call("transformer", 100, 5, step=0, pipeline=1)])
    assert shown(run, 200)[0].endswith("pipeline call 1, denoise, 1 step done of 4 as before")


def test_hostile_names_and_narrow_terminals():
    """Names cannot steer the terminal, and every line fits."""
    run = LiveRun("a\x1b[31m")
    run.add([call(f"unet\x1b]0;{n}", n, 1, step=n) for n in range(200)])
    lines = shown(run, 1, 40)
    assert not any("\x1b" in line for line in lines)
    assert max(map(len, lines)) <= 40
    assert "12 of 200 rows" in lines
