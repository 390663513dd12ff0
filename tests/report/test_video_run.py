"""A video pipeline of torch, recorded here: what its report shows first answers a reader."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from profiler.analysis import extent
from profiler.analysis.analyze import analyze
from profiler.report import LINES, header_html
from profiler.report.html.page import shapes_json
from profiler.tools.sources import load
from tests.report.reader import QUESTIONS, answers, in_columns, plain, words
from tests.report.rendered import opened, report_of

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]
*_, _GO_ON = QUESTIONS  # a page has its contents for that


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A tiny LTX-Video pipeline of random weights: nine frames, two steps, with operators."""
    pytest.importorskip("torch")
    pytest.importorskip("diffusers")
    import profiler
    from tests.sweep.families.ltx import CASES

    case = next(one for one in CASES if one.name == "LTXPipeline")
    pipeline = case.pipeline()
    with profiler.profile(pipeline, out=tmp_path_factory.mktemp("ltx")) as profiled:
        case.call(pipeline)
    return load(profiled.path)


@pytest.fixture(scope="module")
def analysis(run):
    return analyze(run)


@pytest.mark.parametrize("width", [80, 120])
def test_forty_lines_answer_ten_questions(run, analysis, width):
    """How long, which submodule, idle and why, the largest product, what to do first, …"""
    text = opened(analysis, width, begin_ns=extent(run)[0])
    lines = text.splitlines()
    assert len(lines) <= LINES
    assert max(map(cell_len, lines)) <= width
    found = plain(in_columns(text))
    wanted = answers(analysis)
    assert len(wanted) == 10
    assert "transformer" in {*run.calls["submodule"]}
    for question, told in wanted.items():
        for word in told:
            assert word in found, f"{question} {word!r} is not in\n{text}"


def test_the_first_screen_answers_them_too(analysis):
    """The same words stand on the page's first screen."""
    report = report_of(analysis)
    shapes = shapes_json(report.opening)["values"]
    peaks = (f"{part * 100:.1f}" for part in shapes.get("of_peak", ()) if part is not None)
    parts = (report.summary.headline, *header_html(report).values(), *shapes["label"], *peaks)
    text = plain(" ".join(map(words, parts))).casefold()
    for question, wanted in answers(analysis).items():
        if question != _GO_ON:
            for word in wanted:
                assert word.casefold() in text, f"{question} {word!r}"
