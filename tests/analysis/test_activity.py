"""What devices did in stages and steps: it adds up to both, and is what the bars of pages show."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from profiler.analysis import ReportInput, extent
from profiler.analysis.stages import SECTION, stages_figure
from profiler.analysis.steps import steps_figure
from profiler.report import draw
from profiler.tools.sources import load
from profiler.trace.events import ROLES
from tests.analysis.asked import asked
from tests.corpus import CORPUS, needs_corpus
from tests.report.rendered import report_of
from tests.runs import Command, make_call, make_run, make_span

_OTHERS = "work of other calls"
_SAMPLES = Path(__file__).parents[2] / "sample_traces"


def kernel(call: int, start: int, end: int, layer: str = "blocks.0.attn.to_q") -> Command:
    return Command(call, "cuda:0", "s", "compute", layer, start, end - start)


def test_time_is_work_waiting_or_between_calls():
    """Of two steps one has a call that waits for its first kernel, and nothing runs between them; a
    call without operators is a part of its own."""
    calls = [
        make_call(0, "unet", 100, 400, device="cuda:0", step=0),
        make_call(1, "unet", 500, 900, device="cuda:0", step=1),
        make_call(2, "vae", 900, 1000, device="cuda:0", traced=False, stage="decode"),
    ]
    commands = [kernel(0, 150, 400), kernel(1, 500, 800), kernel(1, 700, 900)]
    spans = [
        make_span("pipeline", "p", 0, 1000),
        make_span("stage", "denoise", 0, 900),
        make_span("stage", "decode", 900, 1000),
    ]
    found = asked(make_run(calls, commands, spans)).activity
    assert found.select("stage", "step", "what", "elapsed_ns").rows() == [
        ("denoise", -1, "idle", 200),
        ("decode", -1, "untraced", 100),
        ("denoise", 0, "work", 250),
        ("denoise", 0, "wait", 50),
        ("denoise", 1, "work", 400),
    ]


@pytest.mark.parametrize("sample", ["tiny_two_devices", "sd35_mi300x"])
def test_bars_are_as_long_as_the_tables_say(sample):
    """What is drawn of a step or stage adds up to its elapsed time within 1 %, waiting to the idle
    time of its calls, and work to the union of each call's commands in its tile."""
    analysis = asked(load(_SAMPLES / sample))
    waiting = ("other waits", "waits for the host")
    for figure, at, rows, along in (
        (steps_figure, "x", analysis.steps, "y"),
        (stages_figure, "y", analysis.stages, "x"),
    ):
        traces = [one for one in draw(figure(analysis), "light")["data"] if one["type"] == "bar"]
        drawn: dict[object, float] = {}
        waits = 0.0
        for trace in traces:
            for key, length in zip(trace[at], trace[along], strict=True):
                drawn[key] = drawn.get(key, 0.0) + length
            waits += sum(trace[along]) if str(trace["name"]) in waiting else 0
        expected = [ns / 1e6 for ns in rows["elapsed_ns"]]
        keys = range(len(rows)) if figure is steps_figure else rows["stage"]
        assert [drawn[key] for key in keys] == pytest.approx(expected, rel=0.01)
        inside = pl.col("step") >= 0 if figure is steps_figure else pl.lit(value=True)
        idle = analysis.calls.filter(inside)["idle_inside_ns"].sum()
        assert waits == pytest.approx(idle / 1e6, rel=0.01)
    work = analysis.activity.filter(pl.col("what") == "work")["elapsed_ns"].sum()
    assert work == sum(
        union_in_tile(analysis.inputs.run, row) for row in analysis.calls.rows(named=True)
    )


def test_bars_of_devices_at_once_are_their_mean():
    """Of 1000 ns, cuda:0 works 100 to 400 and 600 to 900 in two calls, cuda:1 200 to 800 in one:
    the stage is divided by the mean of both."""
    calls = [
        make_call(0, "unet", 0, 500, device="cuda:0"),
        make_call(1, "unet", 0, 900, device="cuda:1"),
        make_call(2, "unet", 600, 950, device="cuda:0"),
    ]
    there = Command(1, "cuda:1", "s", "compute", "blocks.0.attn.to_q", 200, 600)
    commands = [kernel(0, 100, 400), there, kernel(2, 600, 900, "blocks.0.norm1")]
    spans = [make_span("pipeline", "p", 0, 1000), make_span("stage", "denoise", 0, 1000)]
    analysis = asked(make_run(calls, commands, spans))
    chart = draw(stages_figure(analysis), "light")
    assert [title for title, drawn, _ in stage_parts(analysis) if drawn] == [
        "Stages: what devices did"
    ]
    assert chart["layout"]["xaxis"]["title"]["text"] == "µs per device, mean of 2"
    drawn = {str(one["name"]): round(1000 * sum(one["x"])) for one in chart["data"]}
    assert drawn["qkv_projection"] == (300 + 600) / 2
    assert drawn["norm"] == 300 / 2
    assert sum(drawn.values()) == 1000


def test_waits_of_devices_at_once_have_their_cause():
    """Of 1000 ns, tpu:0 waits 600 ns for its copies and tpu:1 200 ns: the mean of 400 ns is called
    so, as in the headline."""
    calls = [make_call(number, "unet", 0, 1000, device=f"tpu:{number}") for number in (0, 1)]
    commands = []
    for number, waited in enumerate((600, 200)):
        device = f"tpu:{number}"
        commands += [
            Command(number, device, "sync", "sync", "copy-done.2", 0, waited),
            Command(number, device, "s", "compute", "blocks.0.norm1", waited, 1000 - waited),
        ]
    spans = [make_span("pipeline", "p", 0, 1000), make_span("stage", "denoise", 0, 1000)]
    chart = draw(stages_figure(asked(make_run(calls, commands, spans))), "light")
    drawn = {str(one["name"]): round(1000 * sum(one["x"])) for one in chart["data"]}
    assert drawn == {"norm": 600, "waits for copies": 400}


def stage_parts(analysis):
    """Title, whether there is a chart, and whether there is a table, of each part about stages."""
    parts = SECTION.parts(ReportInput(analysis, *extent(analysis.inputs.run)))
    found = [part for part in parts if part.title.startswith("Stages:")]
    return [(str(one.title), one.figure is not None, one.table is not None) for one in found]


def test_the_heading_says_what_is_drawn():
    """Calls without operators are drawn beside the table of calls, under its heading; what a device
    did has one of its own."""
    calls = [make_call(0, "unet", 0, 400, device="cuda:0")]
    spans = [make_span("pipeline", "p", 0, 500), make_span("stage", "denoise", 0, 500)]
    both = "Stages: calls, host work between them, no call running"
    assert stage_parts(asked(make_run(calls, [], spans))) == [(both, True, True)]
    worked = stage_parts(asked(make_run(calls, [kernel(0, 100, 400)], spans)))
    assert worked == [("Stages: what devices did", True, False), (both, False, True)]


@needs_corpus
@pytest.mark.parametrize("folder", ["", "trace_filter"])
def test_what_is_drawn_of_ranks_is_what_their_tables_say(folder):
    """Work is the mean of the devices' busy shares, and waits for the host that of what the idle
    table puts down to launches, within 1 %."""
    analysis = asked(load(CORPUS / "torch_multirank" / folder))
    chart = draw(stages_figure(analysis), "light")
    drawn = {str(one["name"]): sum(one["x"]) for one in chart["data"]}
    whole = sum(drawn.values())
    assert whole == pytest.approx(analysis.accounting.end_to_end_ns / 1e6)
    worked = sum(length for name, length in drawn.items() if name in {*ROLES, _OTHERS})
    busy = analysis.devices.filter(pl.col("calls") > 0)["utilization"].mean()
    assert worked / whole == pytest.approx(busy, rel=0.01)
    launch = analysis.idle["launch_ns"].mean()
    assert drawn["waits for the host"] == pytest.approx(launch / 1e6, rel=0.01)


def union_in_tile(run, call):
    """How long any device worked for a call in its tile, from the commands one by one."""
    own = run.commands.filter(
        (pl.col("call") == call["call"])
        & ~pl.col("category").cast(pl.String).is_in(["host", "sync"])
    ).sort("start_ns")
    total, reached = 0, call["begin_ns"]
    for start, length in own.select("start_ns", "duration_ns").iter_rows():
        end = min(start + length, call["end_ns"])
        total += max(end - max(start, reached), 0)
        reached = max(reached, end)
    return total


@needs_corpus
def test_what_is_in_no_node_is_no_waiting_if_nobody_knows_when_nodes_ran():
    """Nodes of QNN have cycles and no times: of the 31.910 ms of its executions they take 4.857
    (by the file). What the rest was is unknown: neither waiting nor other work is drawn of it."""
    activity = asked(load(CORPUS / "qnn" / "winml_optrace_resnet50.csv")).activity
    sums = dict(activity.group_by("what").agg(pl.col("elapsed_ns").sum()).iter_rows())
    assert set(sums) == {"work", "no_operator"}
    assert sums["no_operator"] / 1e6 == pytest.approx(31.910 - 4.857, abs=0.01)


def test_a_run_without_stages_is_one_whole():
    """Tables, chart and module tree call it so; calls and submodules have no column for it."""
    calls = [make_call(0, "t", 0, 400, device="cuda:0", stage="run")]
    spans = [make_span("pipeline", "p", 0, 500), make_span("stage", "run", 0, 500)]
    analysis = asked(make_run(calls, [kernel(0, 100, 400)], spans))
    sections = report_of(analysis).sections
    tables = (part.table for section in sections for part in section.parts)
    views = {one.key: one for one in tables if one is not None}
    assert str(views["stages"].frame["stage"][0]) == "whole run"
    assert draw(stages_figure(analysis), "light")["layout"]["yaxis"]["ticktext"] == ["whole run"]
    assert str(views["module_tree"].frame["label"][1]) == "whole run"
    for key in ("calls", "submodules"):
        assert "stage" not in [column.name for column in views[key].columns]
