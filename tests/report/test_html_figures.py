"""The plotly figures: what they show, and that names stay text."""

from __future__ import annotations

import json

import polars as pl
import pytest

from profiler.analysis.analyze import analyze
from profiler.errors import InputError
from profiler.report import charts, figures
from profiler.report.chart_style import escaped, shortened, unit_for
from tests.report.hostile import HOSTILE, hostile_run
from tests.runs import Command, make_call, make_run, tiny_run


def points(figure, axis):
    return [value for trace in figure.data for value in trace[axis]]


def test_stage_bars_add_up(three_steps):
    """The parts of each stage's bar are its duration: calls, host work and idle."""
    _, analysis = three_steps
    figure = figures.stages(analysis)
    for row in analysis.stages.rows(named=True):
        parts = [
            value
            for trace in figure.data
            for stage, value in zip(trace.y, trace.x, strict=True)
            if stage == row["stage"]
        ]
        assert sum(parts) == pytest.approx(row["duration_ns"] * 1e-6)


def test_overlapping_calls_are_one_part():
    """Calls that run at once are not stacked as if one followed the other."""
    calls = [
        make_call(0, "a", 0, 100, device="rbln:0"),
        make_call(1, "b", 0, 100, device="rbln:1"),
    ]
    figure = figures.stages(analyze(make_run(calls)))
    assert next(trace.name for trace in figure.data) == "calls, several at once"
    assert list(figure.data[0].x) == [100]


def test_steps_mark_outliers_and_the_median():
    """Each step is a bar from 0, outliers are a trace of their own, the median is a line."""
    lasting = [190 if step == 6 else 100 for step in range(9)]
    calls = [make_call(i, "t", 200 * i, 200 * i + ns, step=i) for i, ns in enumerate(lasting)]
    figure = figures.steps(analyze(make_run(calls)))
    named = {trace.name: trace for trace in figure.data}
    assert list(named["outlier"].x) == [6]
    assert list(named["step"].x) == [0, 1, 2, 3, 4, 5, 7, 8]
    median = next(trace for name, trace in named.items() if name.startswith("median"))
    assert list(median.y) == [100, 100]


def test_device_bars_name_their_category(three_steps):
    """Each device has a bar for each category of work that it did, and no other."""
    _, analysis = three_steps
    names = set(points(figures.devices(analysis), "y"))
    assert "rbln:0  compute" in names
    assert "cpu:0  host" in names
    assert "cpu:0  compute" not in names


def test_operator_bars_are_the_longest(three_steps):
    """Bars are the top operators by busy sum, folded or one by one."""
    _, analysis = three_steps
    folded = figures.operators(analysis, top=3)
    assert folded.layout.yaxis.ticktext[0] == "transformer_blocks.*.attn.sdpa"
    single = figures.operators(analysis, top=5, patterns=False)
    longest = analysis.operators.filter(~pl.col("host"))["busy_sum_ns"].head(5)
    assert points(single, "x") == pytest.approx([ns * 1e-6 for ns in longest])


def test_timeline_of_calls_and_of_one_call(three_steps):
    """Without a call the timeline shows calls by submodule, with one its commands by role."""
    run, _ = three_steps
    calls = figures.timeline(run)
    assert sum(len(trace.x) for trace in calls.data) == len(run.calls)
    assert {trace.name for trace in calls.data} == set(run.calls["submodule"].unique())
    call = figures.timeline(run, call=6)
    assert sum(len(trace.x) for trace in call.data) == len(run.commands.filter(call=6))
    assert "attention" in {trace.name for trace in call.data}
    assert min(base for trace in call.data for base in trace.base) >= 0


def test_timeline_says_what_it_leaves_out(three_steps, monkeypatch):
    """More commands than plotly draws at once are cut to the longest, and the title says so."""
    run, _ = three_steps
    monkeypatch.setattr(figures, "TIMELINE_LIMIT", 100)
    figure = figures.timeline(run, call=6)
    assert sum(len(trace.x) for trace in figure.data) == 100
    assert "100 of 1,578, the longest commands" in figure.layout.title.text


def test_timeline_of_a_foreign_run():
    """A run without calls shows its commands."""
    run = make_run(commands=[Command(-1, "cuda:0", "stream 7", "compute", "k", 0, 50)])
    assert points(figures.timeline(run), "y") == ["cuda:0 stream 7"]


def test_timeline_of_an_unknown_call(three_steps):
    """A call that the run does not have is refused in one sentence that says what there is."""
    run, _ = three_steps
    with pytest.raises(InputError, match="has no call 99: choose one from 0 to 9"):
        figures.timeline(run, call=99)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_names_are_never_markup(theme):
    """No figure holds a name of a trace unescaped, wherever plotly would read markup."""
    run = hostile_run()
    analysis = analyze(run)
    drawn = [
        figures.stages(analysis, theme),
        figures.devices(analysis, theme),
        figures.operators(analysis, theme=theme),
        figures.steps(analysis, theme),
        figures.timeline(run, theme=theme),
        figures.timeline(run, call=0, theme=theme),
    ]
    for figure in drawn:
        text = json.dumps(json.loads(figure.to_json()), ensure_ascii=False)
        text = text.replace("<br>", "").replace("<extra></extra>", "")
        assert "<" not in text
    assert escaped(HOSTILE[1]) in drawn[2].to_json().encode().decode("unicode_escape")


def test_an_empty_analysis_has_figures():
    """Figures of a run without anything are empty, not errors."""
    analysis = analyze(make_run())
    for make in (figures.stages, figures.devices, figures.operators, figures.steps):
        assert not [trace for trace in make(analysis).data if len(trace.x)]
    assert not figures.timeline(make_run()).data


def test_themes_differ_in_colour_only():
    """The dark chart is the light one in other colours."""
    analysis = analyze(tiny_run())
    light, dark = (charts.steps(analysis, theme) for theme in ("light", "dark"))
    assert light != dark
    assert [trace["y"] for trace in light["data"]] == [trace["y"] for trace in dark["data"]]


@pytest.mark.parametrize(
    ("ns", "unit"), [(0, "ns"), (999, "ns"), (1000, "µs"), (10**6, "ms"), (10**11, "s")]
)
def test_axes_have_a_fitting_unit(ns, unit):
    """An axis has the unit in which its longest value reads best."""
    assert unit_for(ns).name == unit


def test_long_names_keep_what_tells_them_apart():
    """Paths keep their end, other names their beginning, short ones everything."""
    assert shortened("blocks.0.attn.to_q", 10) == "…attn.to_q"
    assert shortened("a quite long kernel name", 10) == "a quite l…"
    assert shortened("short", 10) == "short"
