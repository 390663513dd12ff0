"""Steps, guidance, redundancy and memory in the report."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from profiler.analysis.analyze import analyze
from tests.analysis import test_memory, test_redundant_work, test_step_matrix
from tests.report.rendered import part_lines, printed, report_of
from tests.runs import make_run, tiny_run

_CHANGES = "What changes: parts with a warm-up, a drift beyond noise or outliers"
_AGAIN = "Redundant work, by what hoisting would save"


def _text(run, width=160, **options):
    text = printed(analyze(run), width, **options)
    assert max(map(len, text.splitlines())) <= width
    return text


def test_parts_that_change():
    """A warm-up of two steps: what it cost, and that it is no other track's fault."""
    text = _text(test_step_matrix._steps([500_000, 300_000, *[200_000] * 10]))
    assert any(line.startswith("mlp transformer 12 ") for line in part_lines(text, _CHANGES))
    outliers = part_lines(text, "Outliers and what explains them")
    assert any("mlp" in line and "warm-up" in line for line in outliers)


def test_guidance_says_what_is_estimated():
    """What half the batch would save."""
    lines = part_lines(_text(tiny_run()), "What dropping guidance saves")
    (row,) = [line for line in lines if line.startswith("classifier-free guidance transformer")]
    assert row.startswith("classifier-free guidance transformer batched 2 43")
    assert " yes" in row
    assert any(line.startswith("Estimated: ") for line in lines)


def test_half_a_batch_of_a_launch_bound_submodule_is_no_promise():
    """The estimate counts work, launches stay: said from 5 % of the elapsed time on, not below."""
    analysis = analyze(tiny_run())
    said = {}
    for percent in (5, 40):
        bound = pl.col("elapsed_ns") * percent // 100
        submodules = analysis.submodules.with_columns(launch_bound_ns=bound)
        changed = replace(analysis, frames={**analysis.frames, "submodules": submodules})
        lines = part_lines(printed(changed, 160), "What dropping guidance saves")
        said[percent] = " ".join(lines)
    assert "is launch-bound" not in said[5]
    assert "40 % of transformer is launch-bound: half the batch takes as many" in said[40]


def test_what_is_computed_again():
    """The layer, why, and what it would save."""
    linear = ("context_embedder", "aten::linear", "float[2,333,32] float[32,32]", 10)
    lines = part_lines(_text(test_redundant_work._run([linear])), _AGAIN)
    expected = "context_embedder transformer conditioning steps 3 1"
    assert any(line.startswith(expected) for line in lines)
    assert any("20 ns of device time (67 %)" in line for line in lines)


def test_memory_says_who_held_it():
    """Peak, weights, head-room; then the submodules."""
    run = test_memory._run(
        test_memory._arenas(), submodules=test_memory.WEIGHTS, hardware={"memory_bytes": 1000}
    )
    text = _text(run)
    devices = part_lines(text, "Peak and head-room, whole run")
    assert devices[0] == "device peak at ns in step min weights required memory head-room counters"
    counters = ", ".join(f"{name} arena in use" for name in ("text_encoder", "transformer", "vae"))
    row = "cpu:0 850 B 150 transformer 0 650 B 650 B 850 B 1000 B 150 B"
    assert devices[1] == f"{row} {counters}"
    holders = part_lines(text, "What held memory at the peak")
    expected = "transformer cpu:0 700 B 82.4 500 B 200 B"
    assert any(line.startswith(expected) for line in holders)


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_fits_any_width(width):
    """Columns give way."""
    _text(test_step_matrix._steps([500_000, 300_000, *[200_000] * 10]), width)


def test_times_of_a_table_have_one_unit():
    """That of its largest, whatever is small or 0."""
    run = test_step_matrix._steps([*[200_000_000] * 7, 300_000_000, *[200_000_000] * 4])
    header = part_lines(_text(run, 200), _CHANGES)[0]
    assert "median ms" in header
    assert "cost of these ms" in header


def test_nothing_found_nothing_said():
    """A run of nothing has no such section; with top 0 tables that rank by time are left out."""
    keys = [section.key for section in report_of(analyze(make_run())).sections]
    assert not {"memory", "guidance", "roofline"} & set(keys)
    assert _AGAIN not in _text(tiny_run(), top=0)
    assert "What dropping guidance saves" not in _text(tiny_run(), top=0)
