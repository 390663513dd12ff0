"""Split operators in the report."""

from __future__ import annotations

import pytest

from profiler.analysis.analyze import analyze
from tests.report.rendered import part_lines, printed
from tests.runs import Command, make_call, make_run, tiny_run

_TITLE = "Split operators, by total time"


def _text(run, width=160):
    text = printed(analyze(run), width)
    assert max(map(len, text.splitlines())) <= width
    return text


def _on_two_devices():
    commands = [
        Command(0, "rbln:0", "C0", "compute", "mlp", 0, 100),
        Command(0, "rbln:1", "C0", "compute", "mlp", 0, 50),
        Command(0, "rbln:1", "DMA", "dma", "mlp", 60, 20),
    ]
    return make_run([make_call(0, "transformer", 0, 200)], commands)


def test_parts_stand_below_their_operator():
    """The whole, computing, moving data, then each device."""
    lines = part_lines(_text(_on_two_devices()), _TITLE)[2:]
    assert [line.split()[:2] for line in lines[:5]] == [
        ["mlp", "whole"],
        ["mlp", "compute"],
        ["mlp", "movement"],
        ["mlp", "device"],
        ["mlp", "device"],
    ]
    assert lines[0].startswith("mlp whole transformer - 1 3 3 100 170 0")


@pytest.mark.parametrize("width", [40, 80, 200])
def test_fits_any_width(width):
    """Columns give way."""
    _text(_on_two_devices(), width)


def test_operators_on_one_track_are_not_listed():
    """attn and the decoder's conv were split, mlp was not."""
    lines = part_lines(_text(tiny_run()), _TITLE)
    assert not any(line.startswith("blocks.0.mlp") for line in lines)
    assert any(line.startswith("conv") for line in lines)


def test_wall_time_of_calls_at_once_is_called_a_sum():
    """Two devices run the operator for the same 50 ns: 100 ns in a run of 60 are a sum."""
    calls = [make_call(n, "t", 0, 60, device=f"cuda:{n}") for n in range(2)]
    works = [Command(n, f"cuda:{n}", "stream 7", "compute", "mm", 0, 50) for n in range(2)]
    text = _text(make_run(calls, works))
    lines = part_lines(text, "Operators")
    (head,) = [line for line in lines if line.startswith("layer ")]
    (row,) = [line for line in lines if line.startswith("mm ")]
    assert "of total % wall sum ns" in head
    assert " 100.0 100 " in row
