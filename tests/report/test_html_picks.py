"""What points of charts and rows of tables stand for, which the page's choice follows."""

from __future__ import annotations

import re

import polars as pl
import pytest

from profiler.analysis import pattern
from profiler.analysis.analyze import analyze
from profiler.analysis.devices import devices_figure
from profiler.analysis.idle_section import critical_path_figure, idle_figure
from profiler.analysis.operators_section import operators_figure
from profiler.analysis.roles import roles_figure
from profiler.analysis.roofline_section import roofline_figure
from profiler.analysis.stages import stages_figure
from profiler.analysis.steps import step_matrix, steps_figure
from profiler.analysis.table_text import table
from profiler.report import draw, table_json
from profiler.report.charts.steps import matrix_chart
from profiler.report.charts.style import picking
from profiler.report.html.page import page_scripts
from profiler.run import Column
from profiler.tools.sources import load
from tests.report.generated import write_generated_bundle

DIMENSIONS = {"stage", "submodule", "branch", "step", "device", "role", "operator"}
DRAWN = (
    stages_figure,
    devices_figure,
    operators_figure,
    steps_figure,
    roles_figure,
    roofline_figure,
    idle_figure,
    critical_path_figure,
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return load(write_generated_bundle(tmp_path_factory.mktemp("picks"), steps=3))


@pytest.fixture(scope="module")
def analysis(run):
    return analyze(run)


def known(run):
    """By dimension the values that the run has."""
    layers = run.commands.select(layer=pl.col("layer").cast(pl.String)).unique()
    found = {
        name: set(run.calls[name].cast(pl.String).to_list())
        for name in ("stage", "submodule", "branch", "device")
    }
    found["device"] |= set(run.commands["device"].cast(pl.String).to_list())
    return found | {
        "step": set(run.calls["step"].to_list()),
        "role": set(run.commands["role"].cast(pl.String).to_list()),
        "operator": set(layers["layer"]) | set(layers.select(pattern(pl.col("layer")))["layer"]),
    }


@pytest.mark.parametrize("figure", DRAWN)
def test_every_point_stands_for_something_of_the_run(figure, analysis, run):
    """Each bar and point has a pick, of dimensions and values that the page can choose."""
    traces = [trace for trace in draw(figure(analysis), "light")["data"] if "picks" in trace]
    assert traces
    values = known(run)
    for trace in traces:
        assert len(trace["picks"]) == len(trace["x"])
        for pick in trace["picks"]:
            assert pick
            assert set(pick) <= DIMENSIONS
            for dimension, value in pick.items():
                assert value in values[dimension], (dimension, value)


def test_rows_and_columns_of_the_matrix_stand_for_operators_and_steps(analysis, run):
    """The heat map's rows are operators of submodules, its columns steps."""
    (trace,) = matrix_chart(step_matrix(analysis))["data"]
    picks, values = trace["picks"], known(run)
    assert len(picks["rows"]) == len(trace["y"])
    assert picks["columns"] == [{"step": step} for step in range(3)]
    assert picks["rows"][:2] == [{}, {"submodule": "transformer"}]
    for pick in picks["rows"][2:]:
        assert pick["submodule"] == "transformer"
        assert pick["operator"] in values["operator"]


def test_a_pick_leaves_out_what_is_unknown():
    """A dimension that is None is no part of what a point stands for."""
    assert picking({"x": [1]}, [{"stage": "denoise", "submodule": None}])["picks"] == [
        {"stage": "denoise"}
    ]


def test_columns_that_are_not_shown_filter_rows_too():
    """A table keeps what its rows are of where no column shows it, and nothing twice."""
    frame = pl.DataFrame({"part": ["a b"], "layer": ["a"], "role": ["b"], "step": [3]})
    shown = (
        Column("part", pl.String(), "", "what", kind="layer"),
        Column("step", pl.Int64(), "", "which", kind="step"),
    )
    made = table("key", "name", shown, (), frame)
    assert made is not None
    assert table_json(made)["keys"] == {"operator": ["a"], "role": ["b"]}


def test_scripts_of_the_page_share_no_name():
    """All scripts run as one: a function of one must not replace that of another."""
    scripts = "\n".join(page_scripts())
    names = re.findall(r"^(?:async )?(?:function|class|const|let) (\w+)", scripts, re.MULTILINE)
    assert len(names) > 100
    assert sorted(names) == sorted(set(names))
