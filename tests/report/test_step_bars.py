"""Bars of denoising steps: one line, a line more for each submodule where several run in steps."""

from __future__ import annotations

from profiler.analysis.analyze import analyze
from tests.report.rendered import part_lines, printed
from tests.runs import make_call, make_run


def bars(calls, width=40):
    lines = part_lines(printed(analyze(make_run(calls)), width), "Steps")
    return [line for line in lines if set(line) & set("▁▃▆█") or line.startswith("each bar")]


def transformer(count, duration=lambda step: 100):
    return [
        make_call(step, "transformer", 1000 * step, 1000 * step + duration(step), step=step)
        for step in range(count)
    ]


def test_one_submodule_is_one_line():
    """The bars of the steps say it all."""
    assert bars(transformer(4, lambda step: 100 * (step + 1))) == ["▁▃▆█"]


def test_submodules_have_lines_below_that_of_the_steps():
    """A ControlNet that ran in two of four steps is a bar of no height in the others; each line has
    its own scale."""
    calls = transformer(4)
    calls += [
        make_call(4 + n, "controlnet", 1000 * step + 200, 1000 * step + 400, step=step)
        for n, step in enumerate((2, 3))
    ]
    assert bars(calls) == [
        "step ▁▁██",
        "transformer ████",
        "controlnet ▁▁██",
    ]


def test_more_steps_than_columns_say_so():
    """A bar is the longest of its steps, none of which is lost without a word."""
    line, note = bars(transformer(100, lambda step: 900 if step == 57 else 100), width=50)
    assert line == "▁" * 28 + "█" + "▁" * 21
    assert note == "each bar the highest of up to 2"
