"""The ladder of outcomes: its figures are those of `predict`, and what may stand in it."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest
from msgspec import structs
from rich.console import Console

import profiler
from profiler.analysis import change, words
from profiler.analysis.profiling_overhead import cost_fact
from profiler.analysis.result import ReportInput
from profiler.prediction import Scenario
from profiler.prediction.ladder import MOST, Kind, Ladder, Outcome, ladder_of, ladder_of_analysis
from profiler.prediction.ladder_section import (
    all_together,
    factor,
    ladder_document,
    ladder_report,
    outcome_text,
    recording_note,
)
from profiler.report import print_report
from profiler.report.build import build_report
from profiler.report.files import markdown
from profiler.run import Run
from profiler.text import durations, percent
from profiler.trace import HOST_TRACK, ActivityKind, HostActivity
from tests.analysis.asked import asked
from tests.command_line import run_command
from tests.importers.kineto.traces import Trace
from tests.queued_runs import Machine, QueuedCall, QueuedPipeline
from tests.runs import make_info

SAMPLES = Path(__file__).resolve().parents[3] / "sample_traces"
ENCODE = (QueuedCall("text_encoder", "prompt"), QueuedCall("text_encoder", "negative_prompt"))
DECODE = (QueuedCall("vae", length=50_000, host=5_000),)
SLOW_HOST = QueuedCall("transformer", "batched", kernels=50)


def ladder(steps: int = 4, **base: int) -> Ladder:
    """That of a pipeline whose device waits for its host."""
    run = QueuedPipeline(ENCODE, [[SLOW_HOST]] * steps, DECODE).simulated().run
    return ladder_of(run, asked(run), Scenario(**base))


@pytest.fixture(scope="module", params=["sd35_mi300x", "tiny_two_devices"])
def sample(request):
    return SAMPLES / request.param


@pytest.fixture
def predict(cli):
    return partial(cli, "predict")


@cache
def of_sample(name: str) -> Ladder:
    """That of one of the samples."""
    return ladder_of_analysis(asked(profiler.load(SAMPLES / name)))


@pytest.fixture(scope="module")
def printed():
    """What `predict SAMPLE --json -` prints, by sample: asked once."""

    @cache
    def ask(sample):
        out = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
        with contextlib.redirect_stdout(out):
            assert run_command("predict", sample, "--json", "-") == 0
        return json.loads(out.buffer.getvalue())

    return ask


def predicted_ns(predict, sample, options):
    words = " ".join(options).split()
    return json.loads(predict(sample, *words, "--json", "-")[1])["predicted"]["ns"]


def test_every_figure_is_that_of_predict_with_the_same_options(predict, printed, sample):
    """Each rung alone, and all together: the command that a row names gives its figure."""
    found = printed(sample)["ladder"]
    assert found["rungs"]
    for rung in found["rungs"]:
        assert predicted_ns(predict, sample, rung["options"]) == rung["alone"]["ns"]
    assert predicted_ns(predict, sample, found["options"]) == found["all_together"]["ns"]


def test_a_finding_gains_at_most_what_its_rung_does(sample):
    """The ladder takes the negative prompt's calls away with what the host does for them; so does
    the finding, that of the MI300X by a replay of the whole run."""
    ladder = of_sample(sample.name)
    (rung,) = (
        one for one in ladder.rungs if one.change.follow == ("negative_prompt:text_encoder_3",)
    )
    (finding,) = rung.change.findings
    assert finding.cost_ns == pytest.approx(ladder.before_ns - rung.alone.ns, rel=0.001)


def test_after_those_above_are_options_combined(predict, printed):
    """The second rung's options after the first one's, in one command."""
    sample = SAMPLES / "sd35_mi300x"
    first, second, *_ = printed(sample)["ladder"]["rungs"]
    both = predicted_ns(predict, sample, [*first["options"], *second["options"]])
    assert both == second["after_those_above"]["ns"]


def test_a_report_and_predict_have_one_ladder(predict, printed, sample):
    """JSON of `analyze` has what `predict` prints."""
    found = of_sample(sample.name)
    assert ladder_document(found) == printed(sample)["ladder"]
    together = str(all_together(found)).replace("\N{NO-BREAK SPACE}", " ")
    assert " ".join(predict(sample)[1].lower().split()).startswith(together.lower())


def test_a_device_that_waits_gains_by_graphs_first():
    """Its host launches 50 kernels a call and takes longer than they: one launch takes that away.
    What gives another image is marked, below the others, and not in the total."""
    found = ladder()
    kinds = [rung.change.kind for rung in found.rungs]
    assert found.rungs[0].change.cuda_graph
    assert found.rungs[0].alone.ns < found.before_ns
    assert len(kinds) <= MOST
    assert kinds == sorted(kinds, key=[Kind.SAME_IMAGE, Kind.AT_BEST, Kind.OTHER_IMAGE].index)
    assert Kind.OTHER_IMAGE in kinds
    assert not {"--guidance off", "--steps 2"} & {*found.options}
    assert found.total.ns <= found.rungs[0].alone.ns


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (1194, 736, "1.6×"),
        (100, 95, "1.05×"),
        (10, 10, "1.00×"),
        (0, 0, "1.00×"),
        (1_100_000_000_000, 154, ">999×"),
        (10, 0, ">999×"),
    ],
)
def test_factors_have_few_digits(before, after, text):
    """A request of which a change leaves next to nothing is no number of ten digits as fast."""
    assert factor(before, after) == text


def test_gains_grow_downwards():
    """Each rung after those above takes less than the one before it, by a hundredth of the run."""
    same = [r for r in ladder().rungs if r.change.kind is Kind.SAME_IMAGE]
    times = [same[0].alone.ns, *(rung.after.ns for rung in same[1:])]
    assert all(b <= a - 0.01 * ladder().before_ns for a, b in pairwise(times))


COLD = make_info(producer="test")
STOPS = replace(SLOW_HOST, stalls=1_500_000)


def loading(
    run: Run, name: str = "cudaMalloc", kind: ActivityKind = ActivityKind.RUNTIME_CALL
) -> Run:
    """The run, whose host is in the driver, or in `name`, whenever it launches nothing for more
    than 1 ms."""
    launches = run.commands.filter(pl.col("layer") == "cudaLaunchKernel")["start_ns"].to_list()
    doing = tuple(
        HostActivity(
            name=name,
            kind=kind,
            thread=HOST_TRACK,
            start_ns=early + 10_000,
            duration_ns=late - early - 10_000,
        )
        for early, late in pairwise(launches)
        if late - early > 1_000_000
    )
    return replace(run, info=structs.replace(run.info, host_activities=doing))


def as_it_is(run: Run) -> Run:
    return run


def carried_over(run: Run) -> Run:
    """The run, of whose first call the launches are missing: its kernels ran again later."""
    call = run.commands["call"].gather(run.flows["target"])
    return replace(loading(run), flows=run.flows.filter(call > 0))


@pytest.mark.parametrize(
    ("steps", "info", "recorded", "cold"),
    [
        ([SLOW_HOST], COLD, as_it_is, False),
        ([STOPS], COLD, as_it_is, False),
        ([STOPS], COLD, loading, True),
        ([STOPS], make_info(producer="test", warmup={"runs": 1}), loading, False),
        ([STOPS], COLD, carried_over, False),
        ([SLOW_HOST] * 3, COLD, as_it_is, False),
        ([replace(SLOW_HOST, stalls=20_000_000), SLOW_HOST], COLD, as_it_is, True),
    ],
    ids=[
        "once: nothing is loaded",
        "once: the host is not in the driver",
        "once",
        "once, warm",
        "once: its kernels had run before",
        "several",
        "a slow first call",
    ],
)
def test_a_cold_run_is_warmed_up_first(steps, info, recorded, cold):
    """The report says so ahead of graphs, and that their gain is one of first calls; JSON, too. One
    call of each submodule is no sign of it unless the driver loads something meanwhile."""
    made = QueuedPipeline(ENCODE[:1], [[call] for call in steps], DECODE)
    analysis = asked(recorded(made.simulated(info=info).run))
    opening = build_report(ReportInput(analysis, 0, 1)).opening
    assert ("warm up and record again" in str(opening.advice_title)) is cold
    assert any("of a cold run" in note for note in opening.advice_notes) is cold
    assert ladder_document(ladder_of_analysis(analysis))["cold"] is cold


@pytest.mark.parametrize("layer", ["cudaGraphLaunch", "cudaLaunchKernel"])
def test_what_graphs_launch_already_is_not_advised_to_be_graphs(layer):
    """Each call is one launch, after which the device waits for the host between its calls; were
    those launches of kernels, the finding and the ladder would name graphs."""
    call = QueuedCall("transformer", "batched", kernels=2, length=2_000)
    run = QueuedPipeline(ENCODE, [[call]] * 40, DECODE).simulated().run
    names = run.commands["layer"].cast(pl.String).replace("cudaLaunchKernel", layer)
    analysis = asked(replace(run, commands=run.commands.with_columns(names.cast(pl.Categorical))))
    (waits,) = (one for one in analysis.findings if one.rule == "host_bound")
    graphs = layer == "cudaGraphLaunch"
    assert waits.evidence.get("in_graphs_share") == (1.0 if graphs else None)
    advice = words(waits).recommendation
    assert ("launch most of this work already" in advice) is graphs
    assert ("Launch less" in advice) is ("Launch less" in change(waits)) is not graphs
    options = [rung.change.options for rung in ladder_of(analysis.inputs.run, analysis).rungs]
    assert (("--cuda-graph",) in options) is not graphs


def test_the_profilers_share_stands_beside_the_gain():
    """The most that a slow host adds is what a host that needs no time would save: in a run that
    waits for its host alone nearly what graphs gain. Untraced times are without it."""
    found = ladder()
    assert found.recording_ns == pytest.approx(found.before_ns - found.rungs[0].alone.ns, rel=0.1)
    assert "recording costs 0 to" in str(recording_note(found))
    assert found.rungs[0].certain_ns == pytest.approx(0, abs=0.05 * found.before_ns)
    corrected = ladder(untraced_ns=round(found.before_ns * 0.8))
    assert corrected.recording_ns is None
    assert {rung.certain_ns for rung in corrected.rungs} == {None}
    assert corrected.before_ns == pytest.approx(0.8 * found.before_ns, rel=0.01)
    assert recording_note(corrected) is None


def test_the_range_of_an_outcome_ends_where_the_host_takes_no_time():
    """Simulated again with a host that launches in no time: the shortest time of the run, and with
    half the steps. Both are in the range that the ladder says, and the factors are theirs."""
    steps, machine = [[SLOW_HOST]] * 4, Machine(pace=0.0)
    fast, fewer = (
        QueuedPipeline(ENCODE, some, DECODE).simulated(machine=machine).ns
        for some in (steps, steps[:2])
    )
    found = ladder()
    (half,) = (rung for rung in found.rungs if rung.change.steps == 2)
    assert found.least_ns == pytest.approx(fast, rel=0.03)
    assert half.alone.least_ns == pytest.approx(fewer, rel=0.03)
    graphs = found.rungs[0].alone
    assert graphs.least_ns == pytest.approx(graphs.ns, rel=0.03)
    text = str(outcome_text(found, graphs))
    assert text.endswith(f"1.00× to {factor(found.before_ns, graphs.low, fine=True)}")
    assert text.startswith(durations(found.least_ns, found.before_ns))


def test_operators_recorded_on_a_cpu_widen_its_outcomes():
    """Of the sample recording cost 22 % to 65 %: the ladder has these shares of its own time, the
    pipeline call's 62.7 ms. The negative prompt's calls have more operators for their time than the
    transformer's, so that certainly less of it is gained: at the upper end each call is shorter by
    its operators at one price."""
    analysis = asked(profiler.load(SAMPLES / "tiny_two_devices"))
    found, cost = ladder_of_analysis(analysis), analysis.run.overhead
    now_ns = analysis.accounting.end_to_end_ns
    assert found.least_ns == pytest.approx(now_ns * cost.untraced_low_ns / cost.traced_ns, rel=1e-3)
    assert found.most_ns == pytest.approx(now_ns * cost.untraced_high_ns / cost.traced_ns, rel=1e-3)
    shares = (found.recording_least_ns / now_ns, found.recording_ns / now_ns)
    assert cost_fact(analysis).value == "{} to {}".format(*map(percent, shares))
    note = str(recording_note(found)).replace("\N{NO-BREAK SPACE}", " ")
    assert "costs 13.7 to 40.7 ms of 62.7 ms; --ops none" in note
    prompt = found.rungs[0].alone
    assert 1 < found.least_ns / prompt.least_ns < found.before_ns / prompt.ns
    commands, calls = analysis.inputs.run.commands, analysis.inputs.run.calls
    gone = calls.filter(pl.col("branch") == "negative_prompt")
    price = found.recording_least_ns / (commands["call"] >= 0).sum()
    less_ns = price * commands["call"].is_in(gone["call"].to_list()).sum()
    gain_ns = found.before_ns - prompt.ns - less_ns
    assert found.most_ns - prompt.most_ns == pytest.approx(gain_ns, rel=0.04)
    for one in (rung.alone for rung in found.rungs):
        assert one.least_ns <= one.most_ns < one.ns
    text = str(outcome_text(found, prompt)).replace("\N{NO-BREAK SPACE}", " ")
    assert text.startswith("22.0 to 49.0 ms → 20.0 to 44.4 ms")


MADE = Ladder("made", before_ns=999e6)
SLOWED = structs.replace(MADE, recording_ns=204e6)  # 795 to 999 ms


@pytest.mark.parametrize(
    ("found", "outcome", "text"),
    [
        (MADE, Outcome(640e6, None, None), "999 ms → 640 ms, 1.6×"),
        (MADE, Outcome(640e6, 630e6, 650e6), "999 ms → 640 ms, 1.6×"),
        (MADE, Outcome(640e6, 600e6, 650e6), "999 ms → 600 to 650 ms, 1.5× to 1.7×"),
        (
            SLOWED,
            Outcome(840e6, None, None, 637e6, 840e6),
            "795 to 999 ms → 637 to 840 ms, 1.19× to 1.25×",
        ),
        (
            SLOWED,
            Outcome(775e6, 768e6, 791e6, 775e6, 775e6),
            "795 to 999 ms → 768 to 791 ms, 1.03× to 1.30×",
        ),
        (
            SLOWED,
            Outcome(942e6, None, None, 738e6, 942e6),
            "795 to 999 ms → 738 to 942 ms, 1.06× to 1.08×",  # 999/942 and 795/738
        ),
        (
            SLOWED,
            Outcome(640e6, 635e6, 645e6, 500e6, 640e6),
            "795 to 999 ms → 500 to 640 ms, 1.6×",
        ),
        (
            structs.replace(SLOWED, recording_least_ns=99e6),
            Outcome(500e6, 400e6, 600e6, 300e6, 450e6),
            "795 to 900 ms → 300 to 540 ms, 1.7× to 2.6×",
        ),
    ],
)
def test_a_range_is_all_that_is_not_known(found, outcome, text):
    """What recording may have added, and the prediction's own interval beyond 2 % of it; factors
    are of the ends that belong together, with the same decimals."""
    assert str(outcome_text(found, outcome)).replace("\N{NO-BREAK SPACE}", " ") == text


def test_the_table_has_one_kind_of_range():
    """What recording may have added is in the columns, without the interval of one prediction
    beside it; where recording added nothing that is named."""
    found = of_sample("sd35_mi300x")
    text = markdown(ladder_report(found)).replace("\N{NO-BREAK SPACE}", " ")
    (row,) = (line for line in text.splitlines() if line.startswith("| 5 Generate without"))
    assert "| 420 ms to 1.13 s | 1.05× to 1.75× | 410 to 599 ms | 1.8× to 2.9× |" in row
    assert row.endswith("| --guidance off; other result |")
    sure = structs.replace(found, recording_ns=None)
    assert "90 % interval 726 to 851 ms; --cuda-graph" in markdown(ladder_report(sure)).replace(
        "\N{NO-BREAK SPACE}", " "
    )


@pytest.mark.parametrize("width", [60, 80, 100])
def test_a_narrow_table_names_each_change_in_full(width):
    """What does not fit beside the figures is in the next line; nor are options cut."""
    found = of_sample("sd35_mi300x")
    console = Console(file=io.StringIO(), width=width, highlight=False)
    print_report(console, ladder_report(found))
    lines = console.file.getvalue().splitlines()
    assert "…" not in "".join(lines)
    assert max(map(len, lines)) <= width
    for number, rung in enumerate(found.rungs, 1):
        start = next(n for n, line in enumerate(lines) if line.startswith(f"{number} "))
        named = " ".join((lines[start].split("  ")[0], *map(str.strip, lines[start + 1 :])))
        action = str(rung.change.action).replace("\N{NO-BREAK SPACE}", " ")
        assert named.startswith(f"{number} {action} {rung.change.options[0]}")


def test_loading_of_data_is_no_recording():
    """In each step the host is in the DataLoader for 3 ms, and launches for 2: a host that launches
    in no time, simulated, shows how much the recording can have added; the loader stays."""
    steps = [[replace(SLOW_HOST, stalls=3_000_000)]] * 4
    made = QueuedPipeline(ENCODE, steps, DECODE)
    recorded = made.simulated()
    name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    analysis = asked(loading(recorded.run, name, ActivityKind.RANGE))
    found = ladder_of_analysis(analysis)
    assert found.data_loader_ns == pytest.approx(4 * 3_000_000, rel=0.05)
    fast = made.simulated(machine=Machine(pace=0.0))
    assert found.recording_ns == pytest.approx(recorded.ns - fast.ns, rel=0.1)
    (graphs,) = (rung for rung in found.rungs if rung.change.cuda_graph)
    assert graphs.certain_ns >= recorded.ns - graphs.alone.ns - found.recording_ns
    notes = [str(note) for note in build_report(ReportInput(analysis, 0, 1)).opening.advice_notes]
    assert any("waiting for the DataLoader" in note for note in notes)
    text = markdown(ladder_report(found))
    assert "the DataLoader and its copies cannot be captured" in text


def test_graphs_may_gain_more_than_the_wait_and_the_finding_says_so():
    """458 ms on the ladder, where the device waits 451 for launches: the host gets ahead between
    calls, too, and the finding's 459 ms at most have that in them."""
    found = of_sample("sd35_mi300x")
    (waits,) = found.rungs[0].change.findings
    gain = found.before_ns - found.rungs[0].alone.ns
    assert waits.evidence["host_wait_ns"] < gain <= waits.cost_ns < 1.01 * gain
    assert "Graphs may gain more than this wait" in words(waits).caveat


def test_the_last_line_says_which_rows_it_adds_up():
    """Of an MI300X the first two; the table says why the others, a kernel's best and two other
    images, are left out: the marks that their rows have."""
    found = of_sample("sd35_mi300x")
    left = [
        (number, kind)
        for number, kind in enumerate((rung.change.kind for rung in found.rungs), 1)
        if kind is not Kind.SAME_IMAGE
    ]
    assert left == [(3, Kind.AT_BEST), (4, Kind.OTHER_IMAGE), (5, Kind.OTHER_IMAGE)]
    line = str(all_together(found)).replace("\N{NO-BREAK SPACE}", " ")
    assert line.startswith("all together (1 + 2): ")
    rows = markdown(ladder_report(found)).splitlines()
    (last,) = (row for row in rows if row.startswith("| all together |"))
    assert last.endswith("| without 3 (at best), 4, 5 (other result) |")
    alike = [rung for rung in found.rungs if rung.change.kind is Kind.SAME_IMAGE]
    assert str(all_together(structs.replace(found, rungs=alike))).startswith("all together: ")


def test_of_bounds_alone_nothing_is_added_up(tmp_path):
    """Of each 100 us 40 are a copy, which may all go at best: the report says so, and not below it
    that nothing gains 1 %. That is said where all gains are those of other results."""
    trace = Trace()
    for at in range(0, 5_000, 100):
        for kernel, begin, length in (("aten::copy_", at, 40), ("aten::mm", at + 40, 60)):
            operator = trace.op(kernel, begin, 2)
            trace.kernel("k", begin + 2, length - 2, launched=begin + 1, external=operator)
    found = ladder_of_analysis(asked(trace.imported(tmp_path)))
    assert [rung.change.kind for rung in found.rungs] == [Kind.AT_BEST]
    least_ns = found.before_ns - 50 * 38_000  # without launching them it is less
    assert 0.9 * least_ns < found.rungs[0].alone.ns < least_ns
    assert all_together(found) is None
    assert str(ladder_report(found).summary.headline).startswith("At best 4.80 to 5.00")
    other = structs.replace(found.rungs[0].change, kind=Kind.OTHER_IMAGE)
    rungs = (structs.replace(found.rungs[0], change=other),)
    assert "keeps the result gains" in str(all_together(structs.replace(found, rungs=rungs)))


def test_attention_pays_only_after_graphs():
    """On an MI300X that waits for its host, less work on the device gains nothing until one launch
    a call ends that; compiled code is not advised to be compiled."""
    found = of_sample("sd35_mi300x")
    assert "compiled already" in str(found.rungs[0].change.action)
    (attention,) = [rung for rung in found.rungs if rung.change.kind is Kind.AT_BEST]
    assert attention.alone.ns == pytest.approx(found.before_ns, rel=0.01)
    assert attention.pays_after == 1
    assert attention.after.ns < 0.9 * found.rungs[0].alone.ns


def test_what_pays_only_after_another_starts_from_what_that_leaves(cli):
    """Not with a gain of nothing above changes that gain more."""
    code, out, _ = cli("analyze", SAMPLES / "sd35_mi300x", "--no-html")
    words = " ".join(out.split())
    assert code == 0
    assert "1.19 s, 1.00×" not in words
    assert "3 Try another attention backend; → 551 to 703 ms, 1.17× to 1.29× lengths" in words
    assert "at best; pays only after 1; from 709 to (transformer) 823 ms after 1 + 2 4 2" in words


def test_following_what_is_no_finding_is_refused(predict, sample):
    """The sentence names those that can be followed."""
    code, _, error = predict(sample, "--follow", "nonsense")
    assert code == 2
    assert "--follow 'nonsense' is no finding whose effect is known" in error
    assert "negative_prompt:text_encoder_3" in error
