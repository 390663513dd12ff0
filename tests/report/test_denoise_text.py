"""Steps, guidance, redundancy and memory in the terminal."""

import io

import pytest
from rich.console import Console

from profiler.analysis.analyze import analyze
from profiler.report.denoise_text import denoise_sections
from profiler.report.memory_text import memory_sections
from tests.analysis import test_invariants, test_memory, test_step_matrix
from tests.runs import make_run, tiny_run


def _text(sections, width=120):
    console = Console(width=width, record=True, file=io.StringIO())
    for title, parts in sections:
        console.print(title)
        for part in parts:
            console.print(part)
    lines = console.export_text().splitlines()
    assert max(map(len, lines), default=0) <= width
    return [" ".join(line.split()) for line in lines]


def _denoise(run, width=120, top=15):
    return _text(denoise_sections(analyze(run), top, width), width)


def test_parts_that_change():
    """A warm-up of two steps: what it cost, and that it is no other track's fault."""
    run = test_step_matrix._steps([500_000, 300_000, *[200_000] * 10])
    lines = _denoise(run)
    assert lines[0] == "From step to step, all 2 with a warm-up, a drift beyond noise or outliers"
    assert any(line.startswith("mlp transformer 12 200") for line in lines)
    assert any("mlp" in line and "warm-up" in line for line in lines)


def test_guidance_says_what_is_estimated():
    """What half the batch would save."""
    lines = _denoise(tiny_run())
    assert lines[0] == "What guidance costs"
    assert any(
        line.startswith("classifier-free guidance* transformer batched 2 43") for line in lines
    )
    assert any(line.startswith("* estimated") for line in lines)


def test_what_is_computed_again():
    """The layer, why, and what it would save."""
    linear = ("context_embedder", "aten::linear", "float[2,333,32] float[32,32]", 10)
    lines = _denoise(test_invariants._run([linear]))
    assert "Computed again, all 1 by what hoisting would save" in lines
    assert any(
        line.startswith("context_embedder transformer conditioning steps 3 1") for line in lines
    )
    assert any("20 ns of device time (67 %)" in line for line in lines)


def test_memory_says_who_held_it():
    """Peak, weights, head-room; then the submodules."""
    run = test_memory._run(
        test_memory._arenas(), submodules=test_memory.WEIGHTS, hardware={"memory_bytes": 1000}
    )
    lines = _text(memory_sections(analyze(run), 120))
    assert any(
        line.startswith("cpu:0 850 B transformer step 0") and line.endswith("150 B")
        for line in lines
    )
    assert any(line.startswith("transformer 700 B 82.4 500 B 200 B") for line in lines)


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_fits_any_width(width):
    """Columns give way."""
    run = test_step_matrix._steps([500_000, 300_000, *[200_000] * 10])
    _denoise(run, width)


def test_cost_has_the_unit_of_the_median():
    """Where no part has a warm-up its cost is 0 of the unit of all times."""
    run = test_step_matrix._steps([*[200_000_000] * 7, 300_000_000, *[200_000_000] * 4])
    header = next(line for line in _denoise(run, 200) if line.startswith("part submodule"))
    assert "median ms" in header
    assert "cost ms" in header


def test_nothing_found_nothing_said():
    """A run of nothing has no sections; none were asked for with top 0 either."""
    empty = analyze(make_run())
    assert [*denoise_sections(empty, 15, 80), *memory_sections(empty, 80)] == []
    assert _denoise(tiny_run(), top=0) == []
