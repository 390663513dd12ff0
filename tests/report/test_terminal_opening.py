"""The 40 lines of the terminal: they answer a reader's questions, and fit whatever ran."""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.cells import cell_len
from rich.console import Console

from profiler.analysis import Selection, extent
from profiler.analysis.analyze import analyze
from profiler.analysis.document import Bars, Fact, Opening
from profiler.cli.terminal import plain_characters
from profiler.report import LINES
from profiler.report.terminal import opening_texts, print_opening
from profiler.tools.sources import load
from profiler.trace import Drop, DropKind
from tests.analysis.random_runs import pipeline_runs, runs
from tests.corpus import CORPUS, SD35, needs_corpus
from tests.examples import examples_of_reports
from tests.report.generated import write_generated_bundle
from tests.report.hostile import hostile_analysis
from tests.report.reader import QUESTIONS, answers, in_columns, plain
from tests.report.rendered import opened, report_of
from tests.runs import Command, make_call, make_run, make_span, tiny_run, why

_SAMPLES = Path(__file__).parents[2] / "sample_traces"
_QWEN = CORPUS / "torch_pairs" / "Qwen_Qwen1.5-0.5B-Chat__h100.json.gz"
_LONG = "transformer_" + "blocks." * 27
_WIDTHS = (80, 120)


def _fits(text, width, below=0):
    lines = text.splitlines()
    assert len(lines) + below <= LINES, text
    assert max(map(cell_len, lines), default=0) <= width, text


@cache  # each is shown in several widths
def _loaded(path):
    run = load(path)
    analysis = analyze(run)
    begin, end = extent(run)
    return analysis, begin, end


def _text(path, width):
    analysis, begin, _ = _loaded(path)
    return analysis, opened(analysis, width, begin_ns=begin)


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    return write_generated_bundle(tmp_path_factory.mktemp("generated"))


def _answered(path, width):
    analysis, text = _text(path, width)
    _fits(text, width)
    found = plain(in_columns(text))
    for question, words in answers(analysis).items():
        for word in words:
            assert word in found, f"{question} {word!r} is not in\n{text}"


@pytest.mark.parametrize("width", _WIDTHS)
@pytest.mark.parametrize("sample", ["tiny_two_devices", "sd35_mi300x"])
def test_samples_answer_ten_questions(sample, width):
    """Stable Diffusion 3 on ONNX Runtime, and 3.5 on an MI300X."""
    assert len(QUESTIONS) == 10
    _answered(_SAMPLES / sample, width)


@pytest.mark.parametrize("width", _WIDTHS)
def test_a_run_on_two_accelerators_answers_ten_questions(generated, width):
    """28 steps on two NPUs."""
    _answered(generated, width)


@needs_corpus
@pytest.mark.parametrize("path", [SD35, _QWEN], ids=["sd35_mi300x", "qwen_h100"])
def test_real_runs_answer_ten_questions(path):
    """One image on an MI300X, and a language model on an H100."""
    _answered(path, 80)


def test_actions_fit_beside_their_outcomes_in_a_narrow_terminal():
    """An outcome such as `→ 726 to 851 ms, 1.00× to 1.64×` leaves the action few of 40 columns."""
    _, text = _text(_SAMPLES / "sd35_mi300x", 40)
    assert "→ 726 to 851 ms, 1.00× to 1.64×" in plain(text)
    _fits(text, 40)


def test_outcomes_are_one_column():
    """Of an MI300X each rung, and all together, has its outcome where the first one has it, with
    the remarks below; the bars of the steps are beside their fact."""
    for width in (80, 100, 120):
        lines = _text(_SAMPLES / "sd35_mi300x", width)[1].splitlines()
        outcomes = [line for line in lines if " → " in line]
        assert len(outcomes) == 6
        (column,) = {line.index("→ ") for line in outcomes}
        (remark,) = {line.index("other result; after") for line in lines if "other result" in line}
        assert remark == column
        assert any(line.startswith("Steps") and line.endswith("  █▇▇█") for line in lines)


@pytest.mark.parametrize("width", _WIDTHS)
def test_nothing_of_an_mi300x_is_cut(width):
    """Its header has whole names, its device all causes of idle time, its ranges their options."""
    _, text = _text(_SAMPLES / "sd35_mi300x", width)
    assert "…" not in text
    for said in (
        "before and after its work 1.9 %, between calls 0.66 %",
        "profiling overhead not measured (Python stacks slow the host)",
        "Python stacks cost 0 to 458 ms before and after; or --untraced MS",
        "rocm:2 (AMD Instinct MI300X) · 2026-08-04 22:49:43 UTC · sd35_mi300x",
    ):
        assert said in plain(text)
    _fits(text, width)


@given(st.one_of(runs(), pipeline_runs()), st.sampled_from((40, 80, 120)))
@settings(max_examples=examples_of_reports(60), deadline=None)
def test_any_run_fits(run, width):
    """Whatever a run holds, with a line of the caller's below it."""
    text = opened(analyze(run), width, below=1)
    _fits(text, width, below=1)


@pytest.mark.parametrize("width", _WIDTHS)
def test_hostile_names_fit(width):
    """Markup, code, wide characters and those that turn a line around steer nothing."""
    text = opened(hostile_analysis(), width)
    _fits(text, width)
    assert "\N{RIGHT-TO-LEFT OVERRIDE}" not in text


@pytest.mark.parametrize("name", [_LONG, "변환기" * 60], ids=["long", "wide"])
@pytest.mark.parametrize("width", _WIDTHS)
def test_names_of_200_characters_fit(name, width):
    """Names of submodules, layers, devices; of characters that take two columns, too."""
    calls = [make_call(n, f"{name}{n}", n * 100, 100, device=f"cuda:{n % 2}") for n in range(6)]
    commands = [
        Command(n, f"cuda:{n % 2}", "stream 7", "compute", f"{name}.{n}", n * 100, 60, name)
        for n in range(6)
    ]
    spans = [make_span("pipeline", name, 0, 600), make_span("stage", "denoise", 0, 600)]
    _fits(opened(analyze(make_run(calls, commands, spans)), width), width)


def test_hundreds_of_drops_are_a_line():
    """How many there are and the worst; that figures lack time is said once."""
    drops = tuple(
        Drop(DropKind.MISSING_FILE, f"{number:03}_vae.pb", 1, "files", why("the disk was full"))
        for number in range(300)
    )
    text = opened(analyze(tiny_run(drops=drops)))
    _fits(text, 80)
    assert "missing file in 000_vae.pb and 299 more, the disk was full; the figures" in plain(text)


def test_an_empty_run_fits():
    """Nothing ran, and how to go on is told all the same."""
    text = opened(analyze(make_run()))
    _fits(text, 80)
    assert "--full" in text


def test_ranks_and_pipelines_fit():
    """Eight ranks of a job take two lines of devices, five pipeline calls one of steps."""
    calls, commands, spans = [], [], []
    for number in range(40):
        device, at = f"rank{number % 8}/cuda:{number % 8}", number // 8 * 200
        calls.append(make_call(number, "t", at, 150, device=device, step=number // 8))
        commands.append(Command(number, device, "stream 7", "compute", "l", at, 100))
    for number in range(5):
        spans.append(make_span("pipeline", "P", number * 200, 180))
        spans.append(make_span("stage", "denoise", number * 200, 180))
    text = opened(analyze(make_run(calls, commands, spans)))
    _fits(text, 80)
    assert "8 devices" in text


def test_a_selection_says_that_it_is_one():
    """Tables show a part, and the lines begin with it."""
    text = opened(analyze(tiny_run(), Selection(submodule=("vae",))))
    _fits(text, 80)
    assert "The tables and the figures show submodule vae" in plain(text)


def _fullest():
    """An opening in which everything is there, and much of it."""
    of_run = report_of(analyze(tiny_run())).opening
    long = "word " * 60
    return replace(
        of_run,
        headline=long,
        subject=(long,),
        selection=long,
        against=long,
        facts=tuple(Fact(f"device {number}", long, long) for number in range(6)),
        checks=tuple(Fact(f"check {number}", long, long, alert=True) for number in range(7)),
        bars=(Bars("step", range(1000)),),
        advice=tuple(replace(one, title=long, change=long) for one in _advice() * 3)[:3],
    )


def _advice():
    return report_of(analyze(load(_SAMPLES / "tiny_two_devices"))).opening.advice


@pytest.mark.parametrize("below", [0, 2, 4])
@pytest.mark.parametrize("width", _WIDTHS)
def test_the_fullest_opening_fits(width, below):
    """Texts lose their second lines, then rows go: never the facts or what is wrong."""
    notes = [f"the run in {'folder/' * 20}{number} was left out" for number in range(9)]
    console = Console(width=width, highlight=False)
    with console.capture() as shown:
        print_opening(console, _fullest(), Path("t"), notes=notes, below=below)
    lines = shown.get().splitlines()
    assert sum(-(-max(len(line), 1) // width) for line in lines) <= LINES - below
    for number in range(7):
        assert any(line.startswith(f"check {number}") for line in lines)


def test_blank_lines_part_blocks_where_there_is_room():
    """A short run has one between each two of its six blocks."""
    assert opened(analyze(tiny_run())).count("\n\n") == 5


def test_steps_are_bars():
    """A bar a step; of more than a line holds the highest of several."""
    text = opened(analyze(tiny_run()))
    assert "█▁" in text
    opening = replace(report_of(analyze(tiny_run())).opening, bars=(Bars("step", range(500)),))
    lines = [str(text) for text in opening_texts(opening, Path("t"), 80)]
    assert any("each bar the highest of up to 8" in line for line in lines)


def test_a_terminal_without_unicode_gets_as_many_characters():
    """ASCII stands for what it lacks, one for one: what fits in 80 columns still does."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    plain_characters(stream)
    text = opened(analyze(tiny_run()))
    stream.write(text)
    stream.flush()
    _fits(stream.buffer.getvalue().decode("ascii"), 80)


def test_the_command_stands_whole_or_not_at_all():
    """A path that does not fit is no path that somebody would copy."""
    short = opened(analyze(tiny_run()), place=Path("traces/a b"))
    assert "profile-sd3 analyze 'traces/a b' --full" in short
    alone = "profile-sd3 analyze traces/" + "x" * 46 + " --full"
    text = opened(analyze(tiny_run()), place=Path("traces") / ("x" * 46))
    assert len(alone) == 80
    assert alone in text.splitlines()  # without the word before it
    long = opened(analyze(tiny_run()), place=Path("traces") / ("x" * 90))
    assert "profile-sd3 analyze … --full" in long


def test_an_opening_of_nothing():
    """A report that has no more than a headline."""
    texts = opening_texts(Opening("nothing ran"), Path("t"), 80)
    assert str(texts[0]) == "nothing ran"
