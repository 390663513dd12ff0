"""The report in the terminal: what it says, and that it fits."""

import io
import re

import pytest
from msgspec import structs
from rich.console import Console

from profiler.analysis.analyze import analyze
from profiler.analysis.selection import Selection
from profiler.events import DropKind, Loss
from profiler.report.text import print_report
from profiler.table.load import load
from tests.report.generated import write_generated_bundle
from tests.runs import (
    TINY_CALLS,
    TINY_INFO,
    Command,
    make_call,
    make_info,
    make_run,
    make_span,
    tiny_run,
)


def _text(run, width=100, selection=Selection(), **options):  # noqa: B008
    console = Console(file=io.StringIO(), width=width, highlight=False, **options.pop("tty", {}))
    print_report(console, analyze(run, selection), **options)
    return console.file.getvalue()


def _section(text, title):
    """The lines of one section, words separated by single blanks."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(title))
    end = next((i for i, line in enumerate(lines[start:], start) if not line.strip()), len(lines))
    return [" ".join(line.split()) for line in lines[start + 1 : end]]


def _info(**changes):
    return structs.replace(TINY_INFO, **changes)


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    """A run of 28 steps and 47,504 commands."""
    return load(write_generated_bundle(tmp_path_factory.mktemp("generated")))


def test_first_line_is_the_answer():
    """How many steps in what time, and where it went."""
    first = _text(tiny_run()).splitlines()[0]
    assert first.startswith("2 steps in 1.00 µs: 50 % transformer")


def test_accounting_adds_up_in_view():
    """Stages and residual stand above the end-to-end time, whose columns are their sums."""
    assert _section(_text(tiny_run()), "Where the time went, whole run") == [
        "stage calls time µs in calls µs host work µs idle µs share %",
        "encode 1 0.20 0.09 0.01 0.10 20.0",
        "denoise 2 0.70 0.50 0.08 0.12 70.0",
        "decode 1 0.10 0.08 0 0.02 10.0",
        "residual - 0 - - - 0",
        "end to end 4 1.00 0.67 0.09 0.24 100.0",
    ]


def test_residual_is_explained():
    """More than 1 % says so."""
    spans = [
        make_span("pipeline", "P", 0, 100),
        make_span("stage", "encode", 0, 40),
        make_span("stage", "denoise", 50, 100),
    ]
    text = _text(make_run([make_call(0, "t", 50, 100)], (), spans))
    assert "residual - 10 - - - 10.0" in _section(text, "Where the time went, whole run")
    assert "10 ns between stages; 10 % of end to end, more than 1.0 %" in text


def test_accounting_without_spans_is_not_possible():
    """The sentence stands where the table would."""
    loss = Loss(DropKind.MISSING_FILE, "host.pb", 1, "files", "the run was killed")
    text = _text(make_run(TINY_CALLS, losses=(loss,)))
    sentence = "the trace holds no pipeline and no stage span, host.pb is missing"
    assert _section(text, "Where the time") == [f"accounting not possible: {sentence}"]


def test_devices_and_submodules():
    """One row each; what cannot be known is a dash."""
    text = _text(tiny_run())
    assert _section(text, "Devices")[1:] == [
        "cpu:0 0 3 0 0 0 0 90 - -",
        "rbln:0 3 8 580 475 470 10 0 305 60.9",
        "rbln:1 1 1 90 70 70 0 0 20 77.8",
        "not shown: span ns",
    ]
    assert "transformer rbln:0 2 500 300 200 200 200 410 50.0" in _section(text, "Submodules")


def test_steps_have_statistics_and_a_sparkline():
    """The slower step is the higher bar."""
    assert _section(_text(tiny_run()), "Steps") == [
        "steps min ns median ns max ns mean ns outliers",
        "2 260 305 350 305 none",
        "█▁",
    ]


def test_steps_by_calls_say_so():
    """Without step spans the durations mean something else."""
    assert "the run has no step spans" in _text(make_run(TINY_CALLS))


def test_operators_and_host_work():
    """Operators of devices first, what the host did after them."""
    text = _text(tiny_run(), 80)
    assert _section(text, "Operators, all 4 by busy time")[:2] == [
        "layer submodule commands union ns busy ns parallel share %",
        "blocks.0.attn transformer 4 180 300 0.83 44.8",
    ]
    assert _section(text, "Host work, all 2 by time")[1] == "scheduler.step - 2 80 80 40 88.9"


def test_top_limits_the_operators(generated):
    """--top 3 prints three and says of how many; --top 0 none."""
    rows = _section(_text(generated, top=3), "Operators, 3 of 959 by busy time")
    assert len([row for row in rows if not row.startswith("not shown")]) == 4
    assert "by busy time" not in _text(generated, top=0)


def test_equal_blocks_are_folded(generated):
    """24 blocks with the same operators are one row."""
    rows = _section(_text(generated, 80), "Operators with equal blocks folded, 10 of 58")
    assert rows[1].startswith("transformer_blocks.*.attn.sdpa 24 ")


@pytest.mark.parametrize("width", [80, 100, 140, 200])
def test_fits_the_terminal(generated, width):
    """No line is longer than the terminal is wide, and no table lost its last column."""
    text = _text(generated, width)
    assert max(map(len, text.splitlines())) <= width
    assert len(re.findall(r"(share|busy of span) %\n", text)) == 8


def test_wide_terminals_get_more_columns(generated):
    """imbalance and min have no room in 80 columns."""
    narrow, wide = _text(generated, 80), _text(generated, 140)
    assert "imbalance" not in _section(narrow, "Operators")[0]
    assert "imbalance" in _section(wide, "Operators")[0]
    assert "operators" in _section(wide, "Submodules")[0]


def test_long_layer_names_are_shortened_in_the_middle():
    """Begin and end tell operators apart."""
    layer = "model.transformer_blocks.17.attention.processor.scaled_dot_product_attention"
    run = make_run([make_call(0, "t", 0, 90)], [Command(0, "a:0", "t", "compute", layer, 0, 9)])
    assert "model.tran…dot_product_attention" in _text(run, 80)
    assert layer in _text(run, 200)


def test_what_ran_is_said():
    """Model, settings, devices with their cores, versions, warm-up, attribution."""
    lines = {" ".join(line.split()) for line in _text(tiny_run()).splitlines()}
    assert {
        "run tiny, 2027-01-15 08:00:00 UTC",
        "model tiny-sd3, StableDiffusion3Pipeline",
        "settings steps 2",
        "devices cpu:0 Example CPU, cores 0-1",
        "rbln:0 CA22",
        "versions profile-sd3 0.1.0, onnxruntime 1.20.0",
        "traced 4 calls, all with operators: 12 commands; producer capture",
        "warm-up 1 run, 800 ns, not in this run",
        "attributed to module paths, of operator time: transformer 99 %",
        "losses none",
    } <= lines


def test_cost_of_tracing_is_said():
    """Measured: what, how many, how much; else: not measured."""
    text = " ".join(_text(tiny_run()).split())
    assert (
        "overhead 0.90 % of end to end, estimated, hooks 4 ns, 9 operator events at 0.50 ns: 5 ns"
        in text
    )
    assert "overhead not measured" in " ".join(_text(make_run(TINY_CALLS)).split())


def test_losses_are_loud():
    """How many, each with kind, place, detail and number; in red."""
    losses = (
        Loss(
            DropKind.TRUNCATED_FILE, "006_transformer.pb", 120, "bytes", "cut or damaged at byte 7"
        ),
        Loss(DropKind.UNTRACED_CALL, "run", 1, "calls", "the call did not return"),
        Loss(DropKind.DROPPED_EVENTS, "vae", -1, "events", "ring buffer full"),
    )
    run = tiny_run(losses=losses)
    lines = [" ".join(line.split()) for line in _text(run, 120).splitlines()]
    assert (
        "3 losses truncated file, 006_transformer.pb: cut or damaged at byte 7 (120 bytes)" in lines
    )
    assert "dropped events, vae: ring buffer full" in lines
    assert "\x1b[1;31m3 losses" in _text(run, tty={"force_terminal": True, "no_color": False})


def test_selection_is_said():
    """What was asked for, and how much of the run it is."""
    text = " ".join(_text(tiny_run(), selection=Selection(stage=("denoise",))).split())
    assert "selection stage denoise: 2 of 4 calls, 8 of 12 commands" in text


def test_notes_follow_the_answer():
    """How the run was chosen."""
    lines = _text(tiny_run(), notes=["the newest of 2 runs"]).splitlines()
    assert lines[lines.index("") - 1] == "the newest of 2 runs"


def test_untraced_calls_calibrate():
    """Where three steady calls of both kinds exist, operators have an untraced time."""
    times = [(0, 150, True), *((100 * i, 100 * i + 100, True) for i in (2, 3, 4))]
    times += [(100 * i, 100 * i + 80, False) for i in (5, 6, 7)]
    calls = [make_call(i, "t", a, b, traced=traced) for i, (a, b, traced) in enumerate(times)]
    commands = [Command(i, "a:0", "t", "compute", "mlp", times[i][0], 50) for i in range(4)]
    text = _text(make_run(calls, commands), 120)
    assert "untraced ns" in text
    assert "untraced/traced" in text


def test_a_calibration_within_noise_is_said():
    """Its submodule has no factor and its operators the times as traced; beside another that is
    calibrated they are in the same column, alone there is none."""
    unclear = {"calibration": {"factor": 0.9, "low": 0.8, "high": 1.1}}
    clear = {"calibration": {"factor": 0.8, "low": 0.7, "high": 0.9}}
    calls = [make_call(i, name, 100 * i, 100 * i + 100) for i, name in enumerate("ab")]
    commands = [Command(i, "a:0", "q", "compute", f"mlp {i}", 100 * i, 50) for i in range(2)]

    def sections(info):
        text = _text(make_run(calls, commands, info=make_info("capture", submodules=info)), 160)
        return (_section(text, "Submodules"), _section(text, "Operators"))

    submodules, operators = sections({"a": unclear, "b": clear})
    assert ["within noise" in line for line in submodules[1:3]] == [True, False]
    assert "0.80" in submodules[2]
    assert "busy ns untraced ns median ns" in operators[0]
    assert operators[1].startswith("mlp 0 a - 1 1 1 50 50 50 50 ")
    assert operators[2].startswith("mlp 1 b - 1 1 1 50 50 40 50 ")
    submodules, operators = sections({"a": unclear, "b": unclear})
    assert ["within noise" in line for line in submodules[1:3]] == [True, True]
    assert "untraced" not in operators[0]


def test_plain_when_it_is_no_terminal():
    """Nothing but text in a pipe; no colour with NO_COLOR."""
    assert "\x1b" not in _text(tiny_run())
    styled = _text(tiny_run(), tty={"force_terminal": True, "no_color": True})
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", styled)


def test_names_cannot_steer_the_terminal():
    """Escape sequences and line breaks in a trace's names are replaced; markup stays text."""
    evil = "\x1b[2J\x07[bold]x\r\n\u202e"
    run = tiny_run(
        calls=[make_call(0, evil, 0, 90)],
        commands=[Command(0, "a:0", evil, "compute", evil, 0, 9, evil)],
        info=_info(model=evil, settings={evil: evil}, versions={evil: evil}),
        losses=(Loss(DropKind.DROPPED_EVENTS, evil, 1, evil, evil),),
    )
    text = _text(run, 200)
    assert not set("\x1b\x07\r\u202e") & set(text)
    assert "[2J�[bold]x�" in text
