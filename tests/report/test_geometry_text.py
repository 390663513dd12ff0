"""Split operators in the terminal."""

import io

import pytest
from rich.console import Console

from profiler.analysis.analyze import analyze
from profiler.report.geometry_text import geometry_sections
from tests.runs import Command, make_call, make_run, tiny_run


def _lines(run, width=120):
    console = Console(width=width, record=True, file=io.StringIO())
    for title, (part,) in geometry_sections(analyze(run), 15, width):
        console.print(title)
        console.print(part)
    lines = console.export_text().splitlines()
    assert max(map(len, lines), default=0) <= width
    return [" ".join(line.split()) for line in lines]


def _on_two_devices():
    commands = [
        Command(0, "rbln:0", "C0", "compute", "mlp", 0, 100),
        Command(0, "rbln:1", "C0", "compute", "mlp", 0, 50),
        Command(0, "rbln:1", "DMA", "dma", "mlp", 60, 20),
    ]
    return make_run([make_call(0, "transformer", 0, 200)], commands)


def test_parts_stand_below_their_operator():
    """The whole, computing, moving data, then each device."""
    lines = _lines(_on_two_devices())
    assert lines[0] == "Split operators, all 1 by busy time"
    assert [line.split()[0] for line in lines[2:]] == [
        "mlp",
        "compute",
        "movement",
        "rbln:0",
        "rbln:1",
    ]
    assert lines[2].startswith("mlp transformer 1 3 3 100 170 0")


@pytest.mark.parametrize("width", [40, 80, 200])
def test_fits_any_width(width):
    """Columns give way."""
    _lines(_on_two_devices(), width)


def test_operators_on_one_track_are_not_listed():
    """attn and the decoder's conv were split, mlp was not."""
    lines = _lines(tiny_run())
    assert not any(line.startswith("blocks.0.mlp") for line in lines)
    assert any(line.startswith("conv") for line in lines)
