"""The plotly figures: what they show, and that names stay text."""

from __future__ import annotations

import json
from dataclasses import replace

import polars as pl
import pytest
from msgspec import structs

from profiler.analysis import DeviceProfile, ReportInput, table_named
from profiler.analysis.analyze import analyze
from profiler.analysis.devices import devices_figure
from profiler.analysis.document import ROLE_COLOURS
from profiler.analysis.question import FigureSpec, registered
from profiler.analysis.roles import blocks_figure
from profiler.analysis.steps import steps_figure
from profiler.errors import InputError
from profiler.report import build_report, draw, figures
from profiler.report.charts import time
from profiler.report.charts.roofline import _decades
from profiler.report.charts.style import escaped, shortened, unit_for
from profiler.run import COUNTERS, schema
from tests.analysis.shaped_runs import Shaped, in_order
from tests.report.hostile import HOSTILE, hostile_analysis, hostile_run
from tests.runs import EPOCH, Command, make_call, make_run, make_span, tiny_run

OF_ANALYSES = (
    figures.step_operators,
    figures.idle,
    figures.critical_path,
    figures.roles,
    figures.roofline,
    figures.memory,
)


def points(figure, axis):
    return [value for trace in figure.data for value in trace[axis]]


def test_stage_bars_add_up(three_steps):
    """The parts of each stage's bar are its time: calls, host work and idle."""
    _, analysis = three_steps
    figure = figures.stages(analysis)
    for row in analysis.stages.rows(named=True):
        parts = [
            value
            for trace in figure.data
            for stage, value in zip(trace.y, trace.x, strict=True)
            if stage == row["stage"]
        ]
        assert sum(parts) == pytest.approx(row["elapsed_ns"] * 1e-6)


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
    """Each step is a bar from 0, outliers have marks above them, the median is a line."""
    lasting = [190 if step == 6 else 100 for step in range(9)]
    calls = [make_call(i, "t", 200 * i, 200 * i + ns, step=i) for i, ns in enumerate(lasting)]
    figure = figures.steps(analyze(make_run(calls)))
    named = {trace.name: trace for trace in figure.data}
    assert list(named["outlier"].x) == [6]
    assert list(named["step"].x) == [*range(9)]
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
    """Bars are the top operators by total, folded or one by one."""
    _, analysis = three_steps
    folded = figures.operators(analysis, top=3)
    assert folded.layout.yaxis.ticktext[0] == "transformer_blocks.*.attn.sdpa"
    single = figures.operators(analysis, top=5, patterns=False)
    longest = analysis.operators.filter(~pl.col("host"))["total_ns"].head(5)
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


def test_idle_bars_add_up_to_the_span():
    """Computing and the causes of waiting are the device's span; the two halves of the time between
    calls are apart."""
    analysis = analyze(waiting_run())
    figure = figures.idle(analysis)
    (row,) = analysis.idle.rows(named=True)
    assert sum(points(figure, "x")) == row["span_ns"]
    named = {trace.name: trace.x[0] for trace in figure.data}
    assert named["between calls, host work"] == row["host_work_ns"]
    assert named["between calls, nothing"] == row["host_ns"] - row["host_work_ns"]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_causes_of_waiting_look_different(theme):
    """No two parts of a bar are drawn alike, and collectives and data have their role's colour."""
    looks = [(colour.on(theme), shape) for _, _, colour, shape in time._CAUSES]
    assert len({*looks}) == len(looks)
    of = {column: colour for column, _, colour, _ in time._CAUSES}
    assert of["exposed_ns"] == ROLE_COLOURS["collective"]
    assert of["data_ns"] == ROLE_COLOURS["data_movement"]


def test_bars_of_devices_are_shares_of_the_end_to_end_time():
    """A device that computes 300 of 1000 ns, within 600 ns, is busy for 30 % of the run in its bar
    as in the table; work of the host that is longer than the run has no share."""
    calls = [make_call(0, "t", 200, 800, device="cuda:0")]
    works = [
        Command(0, "cuda:0", "s", "compute", "a", 200, 300),
        Command(-1, "cpu:0", "Host", "host", "load", 0, 1500),
    ]
    run = make_run(calls, works, spans=[make_span("pipeline", "p", 0, 1000)])
    analysis = analyze(run)
    busy = dict(analysis.devices.select("device", "utilization").iter_rows())
    assert busy["cuda:0"] == pytest.approx(0.3)
    made = draw(devices_figure(analysis), "light")
    notes = [
        one["text"].replace("\N{NO-BREAK SPACE}", " ") for one in made["layout"]["annotations"]
    ]
    assert notes == ["1.50 µs", "300 ns  30 %"]


def test_the_end_of_a_bar_is_the_idle_share_of_the_run():
    """Of a device that starts late and ends early, as the first screen and the table have it."""
    calls = [make_call(0, "t", 200, 800, device="cuda:0")]
    works = [Command(0, "cuda:0", "s", "compute", "a", 200, 500)]
    run = make_run(calls, works, spans=[make_span("pipeline", "p", 0, 1000)])
    analysis = analyze(run)
    (row,) = analysis.idle.rows(named=True)
    assert row["idle_share"] == pytest.approx(0.5)
    made = time.idle(analysis.idle)
    (note,) = [one["text"] for one in made["layout"]["annotations"]]
    assert note.replace("\N{NO-BREAK SPACE}", " ") == "50 % idle"


def waiting_run():
    """Two calls on an accelerator with host work and nothing between them."""
    calls = [make_call(i, "t", 100 * i, 100 * i + 60, step=i) for i in range(2)]
    commands = [
        *(Command(i, "rbln:0", "engine", "compute", "a", 100 * i + 10, 40) for i in range(2)),
        Command(-1, "cpu:0", "Host", "host", "scheduler", 65, 20, "", "denoise", 0),
    ]
    return make_run(calls, commands)


def test_operators_of_one_name_say_whose_they_are():
    """Two submodules with an operator of one name have a row each, and greys alone look alike."""
    calls = [make_call(0, "vae", 0, 50), make_call(1, "unet", 50, 100)]
    works = [Command(n, "cpu:0", "p", "compute", "aten::add", 50 * n, 40 - n) for n in (0, 1)]
    works.append(Command(1, "cpu:0", "p", "compute", "aten::mm", 90, 5))
    figure = figures.operators(analyze(make_run(calls, works)))
    assert list(figure.layout.yaxis.ticktext) == ["aten::add · vae", "aten::add · unet", "aten::mm"]


def test_an_axis_within_a_decade_has_ticks():
    """Rates of 170 and 176 lie between two powers of ten, which are the ticks."""
    assert _decades([170.0, 176.0])["range"] == [1.95, 3.05]
    assert _decades([1.0, 10.0]) == _decades([]) == {}


def test_the_critical_path_is_the_longest_first():
    """Bars are parts of submodules in order of their time on the path."""
    figure = figures.critical_path(analyze(tiny_run()))
    (bars,) = figure.data
    assert list(bars.x) == sorted(bars.x, reverse=True)
    assert figure.layout.yaxis.ticktext[0] == "transformer call"


def test_roles_are_shares_of_their_submodule(three_steps):
    """The parts of each submodule's bar are all of its device time."""
    _, analysis = three_steps
    figure = figures.roles(analysis)
    sums = {}
    for trace in figure.data:
        for name, share in zip(trace.y, trace.x, strict=True):
            sums[name] = sums.get(name, 0) + share
    assert sums == {name: pytest.approx(100, abs=0.01) for name in sums}
    assert figure.layout.yaxis.ticktext[0] == "transformer"


def test_the_roofline_has_points_and_roofs():
    """A role is where its rate and intensity are; the roofline rises to its ridge and is flat
    then."""
    profile = DeviceProfile("unit", {"float32": 4e9}, 2e9, None, "by hand", True, "cuda:0")
    run = Shaped(in_order(("aten::mm", "float[16,16] float[16,16]"), duration=10_000)).run
    figure = figures.roofline(analyze(run, measured=(profile,)))
    point, roofline = figure.data
    work, moved = 2 * 16**3, 3 * 16 * 16 * 4
    assert list(point.x) == pytest.approx([work / moved], rel=1e-3)
    assert list(point.y) == pytest.approx([work / 10_000], rel=1e-3)
    assert roofline.name == "roofline of cuda:0, float32"
    assert (roofline.x[1], roofline.y[1], roofline.y[2]) == (2, 4, 4)
    assert roofline.y[0] == pytest.approx(2 * roofline.x[0], rel=1e-3)


def test_memory_is_a_line_a_device():
    """Every sample is on the line of its device, from the first call on, and the peak is marked."""
    samples = [(0, "cpu:0", "t arena in use", "bytes", EPOCH + at, 2.0**20 * at) for at in (9, 60)]
    run = make_run([make_call(0, "t", 0, 100, device="cpu:0")])
    counters = pl.DataFrame(samples, schema=schema(COUNTERS), orient="row")
    figure = figures.memory(analyze(replace(run, counters=counters)))
    (line,) = figure.data
    assert line.name == "cpu:0"
    assert (min(line.x), max(line.y)) == (9, 60)
    (mark,) = figure.layout.annotations
    assert (mark.x, mark.y) == (60, 60)
    assert mark.text.replace("\N{NO-BREAK SPACE}", " ") == "cpu:0: peak 60.0 MiB in t"


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
        *(draw(hostile_analysis(), theme) for draw in OF_ANALYSES),
    ]
    for figure in drawn:
        text = json.dumps(json.loads(figure.to_json()), ensure_ascii=False)
        text = text.replace("<br>", "").replace("<extra></extra>", "")
        assert "<" not in text
    assert escaped(HOSTILE[1]) in drawn[2].to_json().encode().decode("unicode_escape")


def test_an_empty_analysis_has_figures():
    """Figures of a run without anything are empty, not errors."""
    analysis = analyze(make_run())
    for make in (figures.stages, figures.devices, figures.operators, figures.steps, *OF_ANALYSES):
        assert not [trace for trace in make(analysis).data if len(trace.x)]
    assert not figures.timeline(make_run()).data


def test_figures_are_those_of_the_report():
    """What the report of a run draws is there by its name, without a list of names; so is the
    figure that a table declares, and a name that is none says which there are."""
    analysis = analyze(tiny_run())
    report = build_report(ReportInput(analysis, 0, 1))
    parts = [part for section in report.sections for part in section.parts]
    shown = {part.figure.key for part in parts if part.figure}
    made = {name for name in dir(figures) if name not in figures.__all__}
    assert shown - {"path", "matrix"} <= made
    assert {"critical_path", "step_operators"} <= made
    assert len(figures.blocks(analysis, submodule="transformer").data) > 0
    spec = FigureSpec("bars", {"label": ("submodule",), "values": ("elapsed_ns",)})
    table = structs.replace(table_named("submodules"), name="longest", figure=spec)
    with registered(table):
        (bars,) = figures.longest(analyze(tiny_run())).data
    assert len(bars.x) == len(analysis.submodules)
    with pytest.raises(AttributeError, match="critical_path, devices"):
        figures.nothing  # noqa: B018


def test_themes_differ_in_colour_only():
    """The dark chart is the light one in other colours."""
    analysis = analyze(tiny_run())
    light, dark = (draw(steps_figure(analysis), theme) for theme in ("light", "dark"))
    assert light != dark
    assert [trace["y"] for trace in light["data"]] == [trace["y"] for trace in dark["data"]]


@pytest.mark.parametrize(
    ("ns", "unit"), [(0, "ns"), (999, "ns"), (1000, "µs"), (10**6, "ms"), (10**10, "s")]
)
def test_axes_have_a_fitting_unit(ns, unit):
    """An axis has the unit in which its longest value reads best."""
    assert unit_for(ns).name == unit


def test_long_names_keep_what_tells_them_apart():
    """Paths keep their end, other names their beginning, short ones everything."""
    assert shortened("blocks.0.attn.to_q", 10) == "…attn.to_q"
    assert shortened("a quite long kernel name", 10) == "a quite l…"
    assert shortened("short", 10) == "short"
    assert shortened("sd3.5, steps=28", 10) == "sd3.5, st…"


def test_blocks_of_several_kinds_are_all_named():
    """Where a submodule has blocks of two kinds, the first of each stands with its name and the
    axis is named for none of them; blocks of one kind have their name at the axis alone."""
    layers = ("mid_block.conv", "up_blocks.0.conv", "up_blocks.1.conv")
    one, several = (
        draw(blocks_figure(analyze(_blocks_of("vae", names)), "vae"), "light")["layout"]["xaxis"]
        for names in (layers[1:], layers)
    )
    assert (one["title"]["text"], one["ticktext"]) == ("up_blocks.*", ["0", "1"])
    assert several["title"]["text"] == "block"
    assert several["ticktext"] == ["mid_block", "0<br>up_blocks", "1"]


def _blocks_of(submodule, layers):
    call = make_call(0, submodule, 0, 900, stage="decode")
    commands = [
        Command(0, "rbln:0", "C0", "compute", layer, 100 * number, 50, "Conv")
        for number, layer in enumerate(layers)
    ]
    return make_run([call], commands)
