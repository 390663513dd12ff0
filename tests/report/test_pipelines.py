"""Reports of runs with several pipeline calls, and of denoisers with several branches."""

from __future__ import annotations

from profiler.analysis import headline, key_facts
from profiler.analysis.analyze import analyze
from profiler.analysis.end_to_end import at_once
from profiler.analysis.stages import stages_figure
from profiler.report import draw, html_page, timeline_of
from tests.analysis.test_pipelines import two_at_once
from tests.report.rendered import page_of, part_lines, printed
from tests.runs import EPOCH, make_call, make_run, make_span, tiny_run


def guided_run(branches=("uncond", "cond", "skip_layers")):
    """Two steps with a call of 10 ns for each branch."""
    calls = [
        make_call(i, "transformer", 10 * i, 10 * i + 10, step=i // len(branches), branch=branch)
        for i, branch in enumerate(branches * 2)
    ]
    end = 10 * len(calls)
    spans = [make_span("pipeline", "P", 0, end), make_span("stage", "denoise", 0, end)]
    return make_run(calls, (), spans)


def test_the_terminal_says_that_they_overlapped():
    """Wall time and sum stand in the answer and below the accounting, each call in its own row."""
    text = printed(analyze(two_at_once()), 120)
    assert text.startswith("130 ns (200 ns in sum) for 2 pipeline calls, 2 steps: device rbln:0 ")
    sentence = (
        "2 of 2 pipeline calls ran at the same time as another: "
        "130 ns of wall time, 200 ns in sum, to which times and shares refer."
    )
    assert sentence in " ".join(text.split())
    header, *rows = part_lines(text, "Pipeline calls")[:3]
    assert header.startswith("pipeline call pipeline start ns elapsed ns")
    assert [row.split()[:4] for row in rows] == [["0", "P0", "0", "100"], ["1", "P1", "30", "100"]]


def test_one_pipeline_call_needs_no_table():
    """Nor does it say anything of others."""
    text = printed(analyze(tiny_run()))
    assert "Pipeline calls" not in text
    assert "at the same time" not in text


def test_calls_outside_are_told():
    """A call that the script makes itself."""
    spans = [make_span("pipeline", "P", 0, 50, pipeline=0)]
    spans.append(make_span("stage", "denoise", 0, 50, pipeline=0))
    calls = [make_call(0, "d", 0, 40, pipeline=0), make_call(1, "t", 60, 80)]
    run = make_run(calls, (), spans)
    parts = [bar["name"] for bar in draw(stages_figure(analyze(run)), "light")["data"]]
    assert parts == ["d", "host work", "no call"]
    assert "Not in it: 1 call in no pipeline call, 20 ns." in " ".join(
        printed(analyze(run)).split()
    )
    assert "Not in it: 1 call in no pipeline call, 20" in html_page(run, analyze(run))


def test_a_run_that_does_not_tell_is_said_to_be_so():
    """Overlapping pipeline calls of a foreign trace are taken for one, in so many words."""
    spans = [make_span("pipeline", "P", at, at + 100) for at in (0, 30)]
    spans += [make_span("stage", "denoise", at, at + 100) for at in (0, 30)]
    sentence = at_once(analyze(make_run((), (), spans)).accounting)
    assert sentence == (
        "2 of 2 pipeline calls ran at the same time as another; "
        "the run does not say what belongs to which, so they count as one"
    )


def test_the_page_has_a_table_of_pipeline_calls():
    """Only where there are several; the calls then say which they belong to."""
    tables = page_of(analyze(two_at_once()), EPOCH).tables
    values = tables["pipelines"]["values"]
    assert (values["pipeline"], values["start_ns"]) == ([0, 1], [0, 30])
    assert tables["calls"]["values"]["pipeline"] == [0, 0, 1, 1]
    alone = page_of(analyze(tiny_run()), EPOCH).tables
    assert "pipelines" not in alone
    assert "pipeline" not in alone["calls"]["values"]


def test_the_page_says_that_they_overlapped():
    """In the sentence of the accounting, and in the key figure."""
    run = two_at_once()
    analysis = analyze(run)
    assert "130\N{NO-BREAK SPACE}ns of wall time, 200\N{NO-BREAK SPACE}ns in sum" in html_page(
        run, analysis
    )
    assert "2 at the same time" in key_facts(analysis, 130)[0].note
    assert "in sum" in headline(analysis, 130)


def test_stages_of_pipeline_calls_at_once_have_lanes_of_their_own():
    """Else they would lie on each other; one after another they share a lane."""
    lanes = [lane["track"] for lane in timeline_of(two_at_once()).document["lanes"]]
    assert lanes[:4] == [
        "Stages of call 0",
        "Steps of call 0",
        "Stages of call 1",
        "Steps of call 1",
    ]
    assert timeline_of(tiny_run()).document["lanes"][0]["track"] == "Stages"


def test_branches_stand_below_their_submodule():
    """A denoiser that is called for three branches has a row for each."""
    rows = part_lines(printed(analyze(guided_run()), 120), "Submodules by branch")[1:]
    branches = [["transformer", name] for name in ("uncond", "cond", "skip_layers")]
    assert [row.split()[:2] for row in rows if not row.startswith("not shown")] == branches
    tables = page_of(analyze(guided_run()), EPOCH).tables
    assert tables["branches"]["values"]["branch"] == ["uncond", "cond", "skip_layers"]


def test_a_single_branch_has_no_rows():
    """One branch is its submodule."""
    assert "Submodules by branch" not in printed(analyze(guided_run(("batched",))), 120)
