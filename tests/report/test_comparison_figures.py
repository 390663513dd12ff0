"""The figures of comparisons and predictions, as notebooks draw them."""

from __future__ import annotations

import pytest

from profiler.analysis.analyze import analyze
from profiler.analysis.comparison.compare import compare_runs
from profiler.analysis.prediction.predict import predict
from profiler.analysis.prediction.scenario import Scenario
from profiler.report import figures
from profiler.table.load import load
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


def test_a_comparison_with_itself(run):
    """A run against itself: a point for each part that both have, all of them at zero."""
    figure = figures.comparison(compare_runs([run], [run]))
    points = [x for trace in figure.data for x in trace.x]
    assert len(points) > 5
    assert set(points) == {0}
