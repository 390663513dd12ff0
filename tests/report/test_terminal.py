"""The report in the terminal: what it says, and that it fits."""

import re

import pytest
from msgspec import structs

from profiler.analysis import Selection
from profiler.analysis.analyze import analyze
from profiler.analysis.result import Finding
from profiler.report import print_report
from profiler.report.terminal import evidence_text
from profiler.tools.sources import load
from profiler.trace import Drop, DropKind
from tests.cli.test_terminal import Recording
from tests.report.generated import write_generated_bundle
from tests.report.rendered import part_lines, printed, report_of, section_lines
from tests.runs import (
    TINY_CALLS,
    TINY_INFO,
    Command,
    make_call,
    make_info,
    make_run,
    make_span,
    tiny_run,
    why,
)

_UNIT = re.compile(r" (ns|µs|ms|s|%|[MGT]FLOP/s|[MG]B/s)$")


def _text(run, width=100, selection=Selection(), **options):  # noqa: B008
    return printed(analyze(run, selection), width, **options)


def _info(**changes):
    return structs.replace(TINY_INFO, **changes)


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    """A run of 28 steps and 47,504 commands."""
    return load(write_generated_bundle(tmp_path_factory.mktemp("generated")))


def test_first_line_is_the_answer():
    """How many steps in what time, and where it went."""
    first = _text(tiny_run()).splitlines()[0]
    assert first.startswith("1.00 µs for 2 steps: 2 NPUs compute 7.0 % to 48 %")


def test_accounting_adds_up_in_view():
    """Stages and unaccounted time stand above the end-to-end time, whose columns are their sums."""
    assert part_lines(
        _text(tiny_run()), "Stages: calls, host work between them, no call running"
    ) == [
        "stage elapsed µs share % calls in calls µs host work µs no call µs host range µs",
        "encode 0.10 10.0 1 0.09 0.01 0 0.20",
        "denoise 0.66 66.0 2 0.50 0.04 0.12 0.70",
        "decode 0.24 24.0 1 0.08 0.04 0.12 0.10",
        "unaccounted 0 0 - - - - -",
        "end to end 1.00 100.0 4 0.67 0.09 0.24 1.00",
    ]
    identity = (
        "End to end 1.00 µs = calls 670 ns + host work between them 90 ns + no call running 240 ns"
    )
    assert f"{identity} + unaccounted 0 ns (0 %)." in " ".join(_text(tiny_run()).split())


def test_work_of_devices_in_no_call_is_not_idle():
    """Of 60 ns outside of the call a device works 30, the host 5 of these."""
    spans = [make_span("pipeline", "P", 0, 100), make_span("stage", "denoise", 0, 100)]
    free = [
        Command(-1, "cuda:0", "stream 7", "collective", "ring", 50, 30),
        Command(-1, "cpu:0", "Host", "host", "f", 70, 5),
        Command(0, "cuda:0", "stream 7", "compute", "k", 0, 40),
    ]
    call = make_call(0, "t", 0, 40, device="cuda:0")
    text = " ".join(_text(make_run([call], free, spans)).split())
    work = "host work between them 5 ns + work of devices in no call 25 ns + no call running 30 ns"
    assert f"End to end 100 ns = calls 40 ns + {work} + unaccounted 0 ns (0 %)." in text
    assert "While no call ran, devices worked for 25 ns." in text


def test_long_gaps_have_their_number_and_time_in_one():
    """A wait of 65.6 ms beside them is mostly in shorter ones."""
    evidence = {
        "host_wait_ns": 65_600_000,
        "gaps": 39,
        "gap_ns": 24_900_000,
        "mean_gap_ns": 638_000,
    }
    text = evidence_text(Finding("host_bound", evidence)).replace("\N{NO-BREAK SPACE}", " ")
    assert text == "host wait 65.6 ms, gaps over 100 µs 24.9 ms (39), mean gap 638 µs"


def test_residual_is_explained():
    """More than 1 % says so."""
    spans = [make_span("pipeline", "P", 10, 110), make_span("stage", "denoise", 10, 110)]
    text = " ".join(_text(make_run([make_call(0, "t", 0, 100)], (), spans)).split())
    assert "Unaccounted: 10 ns outside of the pipeline call, more than 1.0 % of end to end" in text


def test_accounting_without_spans_is_not_possible():
    """The sentence stands where the table would."""
    drop = Drop(DropKind.MISSING_FILE, "host.pb", 1, "files", why("the run was killed"))
    text = _text(make_run(TINY_CALLS, drops=(drop,)))
    sentence = "the trace holds no pipeline and no stage span, host.pb is missing"
    assert f"No accounting of the whole time: {sentence}." in " ".join(text.split())
    assert "residual" not in text


def test_devices_and_submodules():
    """One row each; what cannot be known is a dash."""
    text = _text(tiny_run(), 160)
    rows = section_lines(text, "Devices")[2:5]
    assert [row.split()[0] for row in rows] == ["cpu:0", "rbln:0", "rbln:1"]
    assert rows[0].startswith("cpu:0 Example CPU - ")
    assert rows[1].startswith("rbln:0 CA22 47.5 ")
    assert "transformer denoise rbln:0 2 500 50.0" in " ".join(part_lines(text, "Submodules"))


def test_steps_have_statistics_and_a_sparkline():
    """The slower step is the higher bar."""
    lines = part_lines(_text(tiny_run()), "Steps")
    assert lines[:2] == [
        (
            "2 steps, median 250 ns, mean 250 ns, 200 ns to 300 ns. "
            "Too few steps to look for outliers."
        ),
        "█▁",
    ]


def test_bars_of_two_devices_have_their_names():
    """One is busy in the first half, the other in the second; each line says whose it is."""
    halves = [
        Command(0, "cuda:0", "stream 7", "compute", "k", 0, 100),
        Command(0, "cuda:1", "stream 7", "compute", "k", 100, 100),
    ]
    text = _text(make_run([make_call(0, "t", 0, 200, device="cuda:0")], halves))
    lines = part_lines(text, "Busy share over time")[:2]
    assert [re.sub(r"(.)\1+", r"\1", line) for line in lines] == ["cuda:0 █▁", "cuda:1 ▁█"]


def test_steps_by_calls_say_so():
    """Without step spans the durations mean something else."""
    text = " ".join(_text(make_run(TINY_CALLS)).split())
    assert "calls define the steps" in text


def test_operators_and_host_work():
    """Operators of devices, and what the host did between calls."""
    text = _text(tiny_run(), 80)
    assert part_lines(text, "Operators")[:3] == [
        "4 operators, by the sum of their commands' time on devices.",
        "layer submodule commands total ns of total % wall sum ns",
        "blocks.0.attn transformer 4 300 44.8 180",
    ]
    host = part_lines(text, "The host's work, runtime calls and waits")
    assert host[0] == "what times self ns share of host time % total ns"
    assert host[1] == "scheduler.step 2 80 88.9 80"


def test_top_limits_the_operators(generated):
    """--top 3 prints three, folded and one by one, and says of how many; --top 0 none."""
    lines = part_lines(_text(generated, top=3), "Operators")
    folded, single = (n for n, line in enumerate(lines) if line.startswith("One row per"))
    for rows, total in ((lines[folded + 2 : single], 58), (lines[single + 2 :], 959)):
        assert len([row for row in rows if not row.startswith("not shown")]) == 4
        assert rows[-1] == f"3 of {total} rows"
    assert "One row per" not in _text(generated, top=0)


def test_equal_blocks_are_folded(generated):
    """24 blocks with the same operators are one row."""
    rows = part_lines(_text(generated, 120), "Operators")
    folded = r"transformer_blocks\.\*\.attn\.sdpa transformer (SDPA )?24 "
    assert len([row for row in rows if re.match(folded, row)]) == 1


@pytest.mark.parametrize("width", [80, 100, 140, 200])
def test_fits_the_terminal(generated, width):
    """No line is longer than the terminal is wide, and every table has all columns that always
    stay (importance 0), the last of them, too."""
    report = report_of(analyze(generated))
    console = Recording(width)
    print_report(console, report)
    assert max(map(len, console.file.getvalue().splitlines())) <= width
    views = [part.table for section in report.sections for part in section.parts if part.table]
    wanted = [view for view in views for _ in range(1 + len(view.variants))]
    assert len(console.tables) == len(wanted) > 8
    for drawn, view in zip(console.tables, wanted, strict=True):
        headers = iter([_UNIT.sub("", str(column.header)) for column in drawn.columns])
        always = [column.label for column in view.columns if column.importance == 0]
        assert all(label in headers for label in always), always  # in this order


def test_wide_terminals_get_more_columns(generated):
    """imbalance and shortest have no room in 80 columns."""
    narrow, wide = _text(generated, 80), _text(generated, 180)
    assert "imbal." not in part_lines(narrow, "Operators")[2]
    assert "imbal." in part_lines(wide, "Operators")[2]
    assert "shortest" not in part_lines(narrow, "Submodules")[0]
    assert "shortest" in part_lines(wide, "Submodules")[0]


def test_long_layer_names_are_shortened_in_the_middle():
    """Begin and end tell operators apart."""
    layer = "model.transformer_blocks.17.attention.processor.scaled_dot_product_attention"
    run = make_run([make_call(0, "t", 0, 90)], [Command(0, "a:0", "t", "compute", layer, 0, 9)])
    assert re.search(r"model\.\w+…\w+_attention", _text(run, 80))
    assert layer in _text(run, 200)


def test_what_ran_is_said():
    """Model, settings, devices with their cores, versions, warm-up, attribution."""
    text = " ".join(_text(tiny_run(), 300).split())
    for said in (
        "tiny-sd3 · StableDiffusion3Pipeline · cpu:0 (Example CPU, 2 cores), rbln:0 (CA22)",
        "Run run tiny; model tiny-sd3; pipeline StableDiffusion3Pipeline; producer capture",
        "Settings steps 2",
        "Versions profile-sd3 0.1.0, onnxruntime 1.20.0",
        "4 calls, all with operators: 12 commands",
        "runs 1, duration 800 ns",
        "Attributed to module paths, of operator time: transformer 99 %.",
        "Lost data none no loss was detected",
    ):
        assert said in text


def test_cost_of_tracing_is_said():
    """Measured: what, how many, how much; else: not measured."""
    text = " ".join(_text(tiny_run()).split())
    assert (
        "Profiling overhead: 0.90 % of pipeline calls' time, estimated, "
        "991 ns without tracing (990 ns to 993 ns) in place of 1.00 µs, hooks 4 ns, "
        "9 operator events at 0.50 ns: 5 ns" in text
    )
    assert "Profiling overhead: not measured." in " ".join(_text(make_run(TINY_CALLS)).split())


def test_drops_are_loud():
    """Each with kind, place, number and detail; in red."""
    drops = (
        Drop(
            DropKind.TRUNCATED_FILE,
            "006_transformer.pb",
            120,
            "bytes",
            why("cut at byte 7"),
        ),
        Drop(DropKind.UNTRACED_CALL, "run", 1, "calls", why("the call did not return")),
        Drop(DropKind.DROPPED_EVENTS, "vae", -1, "events", why("ring buffer full")),
    )
    run = tiny_run(drops=drops)
    lines = [" ".join(line.split()) for line in _text(run, 120).splitlines()]
    assert "This report does not cover everything that was executed." in lines
    cut = "Truncated file in 006_transformer.pb: 120 bytes. cut at byte 7."
    assert cut in lines
    assert "Dropped events in vae: an unknown number of events. ring buffer full." in lines
    tty = {"force_terminal": True, "no_color": False}
    assert "\x1b[1;31mThis report does not cover" in _text(run, tty=tty)


def test_selection_is_said():
    """What was asked for, and how much of the run it is."""
    text = " ".join(_text(tiny_run(), selection=Selection(stage=("denoise",))).split())
    assert "The tables and the figures show stage denoise: 2 of 4 calls and 8 of 12" in text


def test_notes_follow_the_answer():
    """How the run was chosen."""
    lines = _text(tiny_run(), notes=["the newest of 2 runs"]).splitlines()
    assert lines[lines.index("") - 1] == "the newest of 2 runs"


def test_untraced_calls_correct_times():
    """Where three steady calls of both kinds exist, operators have an untraced time."""
    times = [(0, 150, True), *((100 * i, 100 * i + 100, True) for i in (2, 3, 4))]
    times += [(500, 620, False), *((100 * i, 100 * i + 80, False) for i in (7, 8, 9))]
    calls = [make_call(i, "t", a, b, traced=traced) for i, (a, b, traced) in enumerate(times)]
    commands = [Command(i, "a:0", "t", "compute", "mlp", times[i][0], 50) for i in range(4)]
    text = _text(make_run(calls, commands), 200)
    lead, head = part_lines(text, "Operators")[:2]
    assert lead.endswith("Corrected: scaled to calls that ran without tracing operators.")
    assert "corrected ns" in head
    assert "overhead ratio" in part_lines(text, "Submodules")[0]


def test_an_overhead_ratio_within_noise_is_said():
    """Its submodule has no factor and its operators the times as traced; beside another that is
    corrected they are in the same column."""
    unclear = {"overhead_ratio": {"factor": 0.9, "low": 0.8, "high": 1.1}}
    clear = {"overhead_ratio": {"factor": 0.8, "low": 0.7, "high": 0.9}}
    calls = [make_call(i, name, 100 * i, 100 * i + 100) for i, name in enumerate("ab")]
    commands = [Command(i, "a:0", "q", "compute", f"mlp {i}", 100 * i, 50) for i in range(2)]
    info = {"a": unclear, "b": clear}
    text = _text(make_run(calls, commands, info=make_info("capture", submodules=info)), 200)
    submodules = part_lines(text, "Submodules")
    assert ["within noise" in line for line in submodules[1:3]] == [True, False]
    assert "0.80" in submodules[2]
    lines = part_lines(text, "Operators")
    operators = {tuple(line.split()[:2]): line.split() for line in lines if line[:3] == "mlp"}
    place = lines[1].split()
    assert "corrected" in place
    assert "50" in operators["mlp", "0"]
    assert "40" in operators["mlp", "1"]
    alone = _text(make_run(calls, commands, info=make_info("capture", submodules={"a": unclear})))
    assert "Corrected:" not in alone
    assert "40" not in operators["mlp", "0"]


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
        drops=(Drop(DropKind.DROPPED_EVENTS, evil, 1, evil, why(evil)),),
    )
    text = _text(run, 200)
    assert not set("\x1b\x07\r\u202e") & set(text)
    assert "[2J�[bold]x�" in text
