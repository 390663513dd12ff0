"""The table of compilations, and what they are kept out of."""

from __future__ import annotations

import pytest

from profiler.analysis import Selection, words
from profiler.analysis.commands import unsteady_calls
from tests.analysis.asked import asked
from tests.runs import EPOCH, make_call, make_info, make_run, make_span

BREAK = {"reason": "Call to `print`", "place": "model.py:7", "times": 2}


def compiled(call, start, duration, **more):
    return {"call": call, "start_ns": EPOCH + start, "duration_ns": duration, **more}


def run_with(*compilations, durations=(500, 100, 300, 100)):
    """The transformer's calls, one after the other from 0 on."""
    calls, begin = [], 0
    for index, duration in enumerate(durations):
        calls.append(make_call(index, "transformer", begin, begin + duration, step=index))
        begin += duration
    info = make_info(compilations=list(compilations))
    return make_run(calls, [], [make_span("pipeline", "P", 0, begin)], info=info)


FIRST = compiled(0, 10, 380, id="0/0", function="forward", graph_breaks=[BREAK])
AGAIN = compiled(2, 620, 180, id="0/1", function="forward", recompile_reason="size mismatch")
BETWEEN = compiled(-1, 600, 1, forgotten=3, forgotten_ns=7)


def test_a_row_is_a_compilation():
    """With the submodule and step of its call; what the manifest does not tell is null."""
    table = asked(run_with(FIRST, BETWEEN, AGAIN)).compilations
    assert table.to_dicts() == [
        {
            "compilation": "0/0",
            "call": 0,
            "submodule": "transformer",
            "step": 0,
            "function": "forward",
            "start_ns": EPOCH + 10,
            "duration_ns": 380,
            "recompile_reason": None,
            "graph_breaks": 2,
            "graph_break_reason": "model.py:7: Call to `print`",
            "failure": None,
            "forgotten": 0,
            "forgotten_ns": 0,
        },
        {
            "compilation": "",
            "call": -1,
            "submodule": None,
            "step": -1,
            "function": "",
            "start_ns": EPOCH + 600,
            "duration_ns": 1,
            "recompile_reason": None,
            "graph_breaks": 0,
            "graph_break_reason": None,
            "failure": None,
            "forgotten": 3,
            "forgotten_ns": 7,
        },
        {
            "compilation": "0/1",
            "call": 2,
            "submodule": "transformer",
            "step": 2,
            "function": "forward",
            "start_ns": EPOCH + 620,
            "duration_ns": 180,
            "recompile_reason": "size mismatch",
            "graph_breaks": 0,
            "graph_break_reason": None,
            "failure": None,
            "forgotten": 0,
            "forgotten_ns": 0,
        },
    ]


def test_a_selection_has_those_of_its_calls():
    """What was compiled outside of calls is of no selected call."""
    run = run_with(FIRST, BETWEEN, AGAIN)
    table = asked(run, Selection(step=("1-3",))).compilations
    assert table["call"].to_list() == [2]


def test_a_call_that_compiled_is_not_steady():
    """Calls of 500, 100, 300 and 100 ns, of which the first and the third compiled: steady ones
    take 100, in the table of submodules as over the steps."""
    run = run_with(FIRST, AGAIN)
    assert unsteady_calls(run).to_list() == [0, 2]
    analysis = asked(run)
    row = analysis.submodules.row(0, named=True)
    assert (row["first_ns"], row["min_ns"], row["median_ns"], row["max_ns"]) == (500, 100, 100, 100)
    assert analysis.step_summary.median_ns == 100
    assert asked(run_with(FIRST)).submodules["max_ns"].item() == 300


def test_a_compilation_of_a_call_that_is_not_there_changes_nothing():
    """A bundle may lack calls that its manifest names."""
    run = run_with(compiled(99, 0, 1))
    assert unsteady_calls(run).to_list() == [0]
    assert asked(run).compilations.is_empty()


def of_rule(analysis, rule):
    return [found for found in analysis.findings if found.rule == rule]


def test_the_finding_tells_the_call_and_the_reasons():
    """What the first call took, how much of it compiled, and why it compiled again; the rule of
    first calls does not say it a second time."""
    analysis = asked(run_with(FIRST, AGAIN))
    (found,) = of_rule(analysis, "compilation")
    assert found.evidence == {
        "compilations": 2,
        "compile_ns": 560,
        "compile_share": 0.56,
        "compiled_in": "first_call",
        "compiling_call_ns": 500,
        "compiling_call_compile_ns": 380,
        "recompiles": 1,
        "graph_breaks": 2,
        "recompile_reason": "size mismatch",
        "graph_break_reason": "model.py:7: Call to `print`",
    }
    assert (found.where.submodule, found.where.calls) == ("transformer", (0, 2))
    assert (found.cost_ns, found.severity) == (560, "high")
    assert words(found).title == (
        "First call of transformer: 500 ns, of which 380 ns compiling; "
        "1 recompile: size mismatch; 2 graph breaks: model.py:7: Call to `print`"
    )
    assert not of_rule(analysis, "first_call")


def test_a_first_call_that_compiled_little_is_said_as_before():
    """What compilation does not explain."""
    analysis = asked(run_with(compiled(0, 10, 20)))
    assert len(of_rule(analysis, "first_call")) == 1
    assert len(of_rule(analysis, "compilation")) == 1


@pytest.mark.parametrize(
    ("compilations", "title"),
    [
        ([AGAIN], "A later call of transformer: 300 ns, of which 180 ns compiling"),
        ([compiled(-1, 0, 40)], "Compiling outside of calls: 40 ns"),
    ],
)
def test_where_it_compiled(compilations, title):
    """In a later call, and outside of calls."""
    (found,) = of_rule(asked(run_with(*compilations)), "compilation")
    assert words(found).title.split(";")[0] == title


def test_a_trifle_is_no_finding():
    """9 of 1000 ns, nothing compiled anew."""
    assert not of_rule(asked(run_with(compiled(0, 10, 9))), "compilation")
