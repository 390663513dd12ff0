"""The step matrix as a heat map: rows, columns, what is left out, and the colours."""

from __future__ import annotations

import math

import pytest

from profiler.analysis import step_matrix
from profiler.analysis.analyze import analyze
from profiler.analysis.steps import step_matrix as shown_matrix
from profiler.report.charts.steps import matrix_chart
from tests.runs import Command, make_call, make_run


def run_of(times, *, layers=None, traced=None):
    """Steps of one call each: `times[step][layer]` ns; `traced` says whose commands there are."""
    layers = layers or [f"layer_{i}" for i in "abcdefgh"[: len(times[0])]]
    calls, commands = [], []
    for step, row in enumerate(times):
        begin = 10_000 * step
        has = traced is None or traced[step]
        calls.append(make_call(step, "transformer", begin, begin + 9_000, step=step, traced=has))
        for layer, ns in zip(layers, row, strict=True):
            if has:
                commands.append(Command(step, "cuda:0", "s", "compute", layer, begin, ns))
                begin += ns
    return make_run(calls, commands)


def test_rows_are_the_step_its_submodules_and_operators():
    """Most time first below the step; each against its own median."""
    matrix = shown_matrix(analyze(run_of([[100, 300], [100, 300], [200, 300]])))
    assert matrix.names == ["step", "transformer", "layer_b", "layer_a"]
    assert matrix.columns == ["0", "1", "2"]
    assert matrix.time[2:].tolist() == [[300, 300, 300], [100, 100, 200]]
    assert matrix.median[2:].tolist() == [300, 100]


def test_equal_blocks_are_one_row():
    """The layers of repeated blocks add up."""
    layers = ["blocks.0.attn", "blocks.1.attn"]
    analysis = analyze(run_of([[100, 300], [200, 300]], layers=layers))
    folded = shown_matrix(analysis)
    assert folded.names[2:] == ["blocks.*.attn"]
    assert folded.time[2].tolist() == [400, 500]
    assert "1 operation (equal blocks aggregated)" in folded.sentence


def test_what_has_no_row_shares_the_last(monkeypatch):
    """No time is lost, and the sentence says how many share."""
    monkeypatch.setattr(step_matrix, "_SHOWN_PARTS", 1)
    matrix = shown_matrix(analyze(run_of([[100, 200, 300], [100, 200, 600]])))
    assert matrix.names[2:] == ["layer_c", "2 others"]
    assert matrix.time[2:].tolist() == [[300, 600], [300, 300]]
    assert "2 others share the last row" in matrix.sentence


def test_of_many_steps_a_column_is_the_longest_of_several(monkeypatch):
    """Outliers stay visible; the last column may stand for fewer."""
    monkeypatch.setattr(step_matrix, "_SHOWN_COLUMNS", 2)
    matrix = shown_matrix(analyze(run_of([[10], [90], [10], [20], [10]])))
    assert matrix.columns == ["0-2", "3-4"]
    assert matrix.time[-1].tolist() == [90, 20]
    assert matrix.median[-1] == 10
    assert "A column is the longest of 3 steps." in matrix.sentence


def test_steps_that_were_not_traced_are_gaps():
    """They have a wall time and no operators."""
    matrix = shown_matrix(analyze(run_of([[10], [10], [10]], traced=[True, False, True])))
    assert math.isnan(matrix.time[1][1])
    assert not math.isnan(matrix.time[0][1])
    assert shown_matrix(analyze(run_of([[10], [10]], traced=[True, False]))) is None


def test_colours_are_what_is_added_to_the_step():
    """Of steps of 9 µs one has a part that takes 0.9 µs longer: it has the strongest colour, others
    weaker ones by how much they add or save; what adds little to any step stays pale."""
    lasting = (100, 100, 100, 550, 1000, 50, 100)
    matrix = shown_matrix(analyze(run_of([[t] for t in lasting])))
    assert matrix.farthest == pytest.approx(900 / 9000)
    chart = matrix_chart(matrix)
    shades = chart["data"][0]["z"][-1]
    assert shades == pytest.approx([0, 0, 0, 0.5, 1, -50 / 900, 0], abs=0.005)
    text = chart["data"][0]["text"][-1][3].replace("\N{NO-BREAK SPACE}", " ")
    assert text == "3: 550 ns, 5.50 x"
    pale = matrix_chart(shown_matrix(analyze(run_of([[100], [100], [109]]))))
    assert pale["data"][0]["z"][-1] == pytest.approx([0, 0, 0.05], abs=0.005)


def test_parts_below_a_hundredth_of_every_step_have_no_row():
    """Of steps of 9 µs, 29 ns are in no row, and the sentence says how much that is; what takes a
    hundredth in one step alone stays."""
    matrix = shown_matrix(analyze(run_of([[3000, 20, 9, 9], [3000, 20, 9, 900]])))
    assert matrix.names[2:] == ["layer_a", "layer_d"]
    assert (matrix.sharing, matrix.hidden) == (0, 2)
    assert matrix.hidden_share == pytest.approx(2 * 29 / 18_000)
    said = matrix.sentence.replace("\N{NO-BREAK SPACE}", " ")
    assert "2 others, each below 1.0 % of every step, are not shown: 0.32 % of the steps" in said


def test_a_run_without_steps_has_an_empty_chart():
    """Nothing to draw is no error."""
    assert shown_matrix(analyze(make_run())) is None
    assert matrix_chart(None)["data"] == []
