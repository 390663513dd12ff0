"""The figures of comparisons and predictions, as notebooks draw them."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from profiler.analysis.analyze import analyze
from profiler.compare import compare_runs
from profiler.prediction import Scenario
from profiler.prediction.predict import predict
from profiler.report import figures
from profiler.tools.sources import load
from tests.report.generated import write_generated_bundle


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A generated run of four steps."""
    return load(write_generated_bundle(tmp_path_factory.mktemp("generated"), steps=4))


def test_a_prediction_before_and_after(run):
    """Parts of each bar add up to the measured and the predicted time, and the interval ends where
    the prediction says."""
    found = predict(run, analyze(run), Scenario(steps=2))
    figure = figures.prediction(found)
    bars = [trace for trace in figure.data if trace.type == "bar"]
    totals = {"measured": found.measured.ns, "predicted": found.request.ns}
    for side, ns in totals.items():
        parts = [x for bar in bars for y, x in zip(bar.y, bar.x, strict=True) if y == side]
        assert sum(parts) == pytest.approx(ns / 1e6, abs=1e-3)
    assert {bar.name for bar in bars} == {part.name for part in found.submodules}
    (interval,) = (trace for trace in figure.data if trace.type == "scatter")
    ends = interval.x[0] + interval.error_x.array[0], interval.x[0] - interval.error_x.arrayminus[0]
    assert ends == pytest.approx((found.request.high / 1e6, found.request.low / 1e6))


def test_a_prediction_without_an_interval(run):
    """Where nothing was measured more than once there are bars alone."""
    found = predict(run, analyze(run), Scenario(steps=1))
    drawn = {trace.type for trace in figures.prediction(found).data}
    assert drawn == ({"bar"} if found.request.low is None else {"bar", "scatter"})


def test_an_interval_without_end_leaves_the_changes_in_sight(run):
    """An interval that goes on a hundred times as far as any change does not stretch the axis: it
    is cut at the edge, where a text tells its end."""
    found = compare_runs([run], [run])
    wide = pl.when(pl.col("metric") == "end_to_end")
    metrics = found.metrics.with_columns(
        change=wide.then(-0.4).otherwise("change"),
        low=wide.then(-0.6).otherwise("low"),
        high=wide.then(158.66).otherwise("high"),
    )
    figure = figures.comparison(replace(found, metrics=metrics))
    assert figure.layout.xaxis.range == (-80, 40)
    (note,) = figure.layout.annotations
    assert (note.xref, note.x, note.y) == ("paper", 1, "0")
    assert note.text == "+15,866 % \u25b8"


def test_a_comparison_with_itself(run):
    """A run against itself: a point for each part that both have, all of them at zero."""
    figure = figures.comparison(compare_runs([run], [run]))
    points = [x for trace in figure.data for x in trace.x]
    assert len(points) > 5
    assert set(points) == {0}
