"""Loops of a script's own, outside of every pipeline call: each pass through the steps or
iterations counts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from profiler.analysis.end_to_end import iteration_notes
from profiler.analysis.timeline import PipelineCalls
from tests.analysis.asked import asked
from tests.runs import make_call, make_run

_REQUEST = 1_000  # ns from one request to the next


def _request(number, steps=3):
    """Encoder, then each step a control net and a denoiser of 20 ns each and 10 ns of nothing, then
    a decoder."""
    begin = number * _REQUEST
    yield "encoder", "encode", -1, begin, begin + 30
    for step in range(steps):
        at = begin + 100 + 50 * step
        yield "control", "denoise", step, at, at + 20
        yield "unet", "denoise", step, at + 20, at + 40
    yield "decoder", "decode", -1, begin + 400, begin + 430


def _calls(rows):
    return [
        make_call(index, name, start, end, stage=stage, step=step)
        for index, (name, stage, step, start, end) in enumerate(rows)
    ]


def test_each_request_has_its_steps():
    """Two requests of three steps are six of 40 ns, 10 ns after each other; none lies between the
    requests. By hand: 6 = 2 * 3 calls of the denoiser."""
    calls = _calls([*_request(0), *_request(1)])
    analysis = asked(make_run(calls))
    assert analysis.steps.select(
        "pipeline", "step", "elapsed_ns", "between_ns", "calls"
    ).rows() == [
        (number, step, 40, 10 if step else None, 2) for number in range(2) for step in range(3)
    ]
    assert analysis.accounting.steps == sum(call.submodule == "unet" for call in calls) == 6
    assert (analysis.step_summary.count, analysis.step_summary.median_ns) == (6, 40)


def test_a_loop_of_another_submodule_is_another_pass():
    """A prior of three steps, and a decoder of two: five steps."""
    rows = [("prior", "denoise", step, 50 * step, 50 * step + 40) for step in range(3)]
    rows += [("unet", "denoise", step, 500 + 50 * step, 540 + 50 * step) for step in range(2)]
    analysis = asked(make_run(_calls(rows)))
    assert analysis.accounting.steps == len(analysis.steps) == 5


@pytest.mark.parametrize(("steps", "passes"), [((0, 1, 2, 0, 1, 2), 2), ((0, 0, 1, 1), 1)])
def test_a_smaller_step_begins_a_pass(steps, passes):
    """Two calls of one step, such as those of two branches, do not."""
    calls = _calls([("unet", "denoise", step, 50 * i, 50 * i + 40) for i, step in enumerate(steps)])
    numbers = PipelineCalls.of(run := make_run(calls)).number_of(run.calls)
    assert len(np.unique(numbers)) == passes
    assert (np.diff(numbers) >= 0).all()


def test_each_request_has_its_iterations():
    """Two requests of a call for the prompt and three iterations of 20 ns, 10 ns apart: six
    iterations, of which the last of a request ends with its call: (30 + 30 + 20) / 3 each."""
    calls = []
    for number in range(2):
        for turn in range(4):
            at = number * _REQUEST + 30 * turn
            call = make_call(4 * number + turn, "model", at, at + 20, stage="run")
            calls.append(replace(call, iteration=turn - 1))
    analysis = asked(make_run(calls))
    assert analysis.accounting.iterations == 6
    notes = [str(note).replace("\xa0", " ") for note in iteration_notes(analysis)]
    assert notes == ["mean 26.7 ns", "30 ns before the first", "920 ns between them"]
