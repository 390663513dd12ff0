"""What a reader with thirty seconds needs: the values of the 40 lines and of the first screen."""

import json
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from msgspec import structs

from profiler.analysis import Finding, WaitCause, change, rules
from profiler.analysis.analyze import analyze
from profiler.analysis.host_bound import MostlyBetween
from profiler.analysis.idle_section import CAUSE_CHANGES
from profiler.analysis.overview import advised, noted_times_facts
from profiler.prediction.ladder import ladder_of_analysis
from profiler.prediction.ladder_section import all_together
from profiler.report.html.page import findings_html
from profiler.text import Note, Said, percent
from profiler.tools.sources import load
from profiler.trace import Drop, DropKind, DropReason, Overhead, Recording
from profiler.trace.manifest_fields import UnknownCost, WhyUnknown
from tests.corpus import CORPUS, needs_corpus
from tests.report.generated import write_generated_bundle
from tests.report.rendered import report_of
from tests.runs import TINY_INFO, Command, make_call, make_info, make_run, make_span, tiny_run, why

_SAMPLES = Path(__file__).parents[2] / "sample_traces"


def _opening(run, **options):
    return report_of(analyze(run), **options).opening


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    return load(write_generated_bundle(tmp_path_factory.mktemp("generated")))


def _plain(text):
    return text.replace("\N{NO-BREAK SPACE}", " ")


def test_opening_begins_as_the_report_does():
    """Headline and subject are those of the summary, whoever renders them."""
    report = report_of(analyze(tiny_run()))
    assert report.opening.headline == report.summary.headline
    assert report.opening.subject == report.summary.subject


def test_devices_say_how_busy_they_were_and_why_not():
    """Busy and idle share of each device, and first how much of it is launch-bound: of a CPU, which
    runs what nobody launches, what lies between operators."""
    facts = {fact.label: fact for fact in _opening(tiny_run()).facts}
    assert _plain(facts["End to end"].value) == "1.00 µs"
    busy = analyze(tiny_run()).devices.select("device", "idle_share").rows()
    for device, idle in busy:
        if idle is not None:
            assert _plain(facts[device].value) == f"busy {_plain(percent(1 - idle))}"
            first = "between operators" if device.startswith("cpu:") else "launch-bound"
            assert _plain(facts[device].note).startswith(f"idle {_plain(percent(idle))}: {first}")


def test_the_head_says_what_of_the_peaks_the_run_uses():
    """All FLOPs and bytes of a run on one GPU over its time, against the published peaks; without
    a profile of the device nothing is said. The module tree's share, of the time of operators with
    known FLOPs, is larger, and called so."""
    analysis = analyze(load(_SAMPLES / "sd35_mi300x"))
    report = report_of(analysis)
    facts = {fact.label: fact for fact in report.opening.facts}
    commands, (device,) = analysis.commands, analysis.device_profiles.values()
    elapsed = analysis.accounting.end_to_end_ns / 1e9
    flops = commands["flops"].sum() / device.peak_flops["bfloat16"] / elapsed
    moved = commands.select(pl.sum_horizontal("bytes_read", "bytes_written").sum()).item()
    fact = facts["Peak use"]
    assert _plain(fact.value) == f"compute {_plain(percent(flops))}"
    share = _plain(percent(moved / device.memory_bandwidth / elapsed))
    assert _plain(fact.note) == f"memory bandwidth {share}, over the whole run"
    (tree, *_) = next(one.parts for one in report.sections if one.key == "modules")
    (column,) = [one for one in tree.table.columns if one.name == "flops_of_peak"]
    assert column.label == "of peak, FLOPs known"
    assert analysis.module_tree["flops_of_peak"][0] > 1.5 * flops
    assert not any(one.label.startswith("Peak") for one in _opening(tiny_run()).facts)


def test_unknown_work_makes_shares_of_peaks_the_least():
    """If shapes of some operators are unknown, what they compute and move comes on top."""
    run = load(_SAMPLES / "sd35_mi300x")
    known = pl.col("shapes").cast(pl.String).hash() % 4 > 0
    commands = run.commands.with_columns(
        shapes=pl.when(known)
        .then(pl.col("shapes").cast(pl.String))
        .otherwise(pl.lit(""))
        .cast(pl.Categorical)
    )
    whole = {fact.label: fact for fact in _opening(run).facts}["Peak use"]
    part = {fact.label: fact for fact in _opening(replace(run, commands=commands)).facts}[
        "Peak use"
    ]
    assert _plain(part.value).startswith("compute at least ")
    assert _plain(part.note).startswith("memory bandwidth at least ")
    assert float(part.value.split()[-2]) < float(whole.value.split()[-2])


@pytest.mark.parametrize("collective", [(30, 80), (30, 40)], ids=["exposed", "hidden"])
def test_what_devices_communicate_is_not_called_computing(collective):
    """In 100 ns one GPU computes 40 and the other 60, and the first one communicates, in 10 ns of
    these too: each nanosecond counts once, as computing if it is both; what computing hides is not
    told."""
    work = (("cuda:0", "compute", 0, 40), ("cuda:1", "compute", 0, 60))
    work = (*work, ("cuda:0", "collective", *collective))
    calls = [make_call(n, "t", 0, 100, device=f"cuda:{n}") for n in range(2)]
    commands = [
        Command(int(on[-1]), on, f"stream {kind}", kind, "l", begin, end - begin)
        for on, kind, begin, end in work
    ]
    spans = [make_span("pipeline", "P", 0, 100), make_span("stage", "denoise", 0, 100)]
    headline = _plain(report_of(analyze(make_run(calls, commands, spans))).summary.headline)
    alone = len({*range(*collective)} - {*range(40)})
    told = f", only communicate 0 % to {alone} %" if alone else ""
    assert f": 2 GPUs compute 40 % to 60 %{told} and wait for the host " in headline


@pytest.mark.parametrize(
    ("works", "busy", "below"),
    [
        ([10 * n for n in range(1, 9)], "10 % to 80 %", "the most idle one is below"),
        ([40] * 8, "40 %", "all are alike, one is below"),
    ],
)
def test_many_devices_are_a_range_and_the_most_idle_one(works, busy, below):
    """Eight devices take two lines; the most idle one has its own, if it is not as idle as the
    others, else any of them."""
    calls = [make_call(n, "t", 0, 100, device=f"cuda:{n}") for n in range(8)]
    commands = [
        Command(n, f"cuda:{n}", "stream 7", "compute", "l", 0, work) for n, work in enumerate(works)
    ]
    spans = [make_span("pipeline", "P", 0, 100), make_span("stage", "denoise", 0, 100)]
    facts = _opening(make_run(calls, commands, spans)).facts
    labels = [fact.label for fact in facts]
    assert labels[1:3] == ["8 devices", "cuda:0"]
    assert _plain(facts[1].value) == f"busy {busy}"
    assert _plain(facts[1].note).endswith(f"; {below}")


def test_checks_alert_only_where_something_is_wrong():
    """A whole run has no alert; a drop and a residual each have one; a costly tracing loses
    nothing and is a remark."""
    assert not any(check.alert for check in _opening(tiny_run()).checks)
    drop = Drop(DropKind.MISSING_FILE, "host.pb", 1, "files", why("the run was killed"))
    alerts = [check.label for check in _opening(tiny_run(drops=(drop,))).checks if check.alert]
    assert alerts == ["Lost data"]
    info = structs.replace(TINY_INFO, overhead=make_info(overhead={"share": 0.4}).overhead)
    checks = _opening(tiny_run(info=info)).checks
    assert not any(check.alert for check in checks)
    assert [check.label for check in checks if check.remark] == ["Profiling overhead"]
    spans = [make_span("pipeline", "P", 10, 110), make_span("stage", "denoise", 10, 110)]
    run = make_run([make_call(0, "t", 0, 100)], (), spans)
    assert [check.label for check in _opening(run).checks if check.alert] == ["Unaccounted"]


@pytest.mark.parametrize(
    ("share", "events", "told"),
    [
        (0.71, 5319, "may distort figures (undistorted calls: --ops none)"),
        (0.25, 0, "may distort figures"),
        (0.24, 5319, ""),
    ],
)
def test_a_run_that_tracing_made_a_third_longer_says_so(share, events, told):
    """Hooks alone, which no operator's time has in it, are worth a remark, too: in the opening and
    among the key figures, with what to do where operators were recorded."""
    overhead = {"share": share, "operators_ns": 1, "untraced_ns": 1000, "operator_events": events}
    info = structs.replace(TINY_INFO, overhead=make_info(overhead=overhead).overhead)
    report = report_of(analyze(tiny_run(info=info)))
    for facts in (report.opening.checks, report.summary.facts):
        (cost,) = [fact for fact in facts if fact.label == "Profiling overhead"]
        assert cost.remark == bool(told)
        assert told in cost.note
        assert ("distort" in cost.note) == bool(told)
        assert ("--ops none" in cost.note) == ("--ops none" in told)


@pytest.mark.parametrize(
    ("low_ns", "high_ns", "told"),
    [(580, 640, "40 %"), (500, 700, "30 % to 50 %"), (500, 1_100, "up to 50 %")],
)
def test_a_wide_interval_stands_in_place_of_the_cost(low_ns, high_ns, told):
    """One figure would say more than is known if the bounds lie more than a tenth apart."""
    overhead = {"share": 0.4, "traced_ns": 1_000, "untraced_ns": 600}
    overhead |= {"untraced_low_ns": low_ns, "untraced_high_ns": high_ns}
    info = structs.replace(TINY_INFO, overhead=make_info(overhead=overhead).overhead)
    (cost,) = [f for f in _opening(tiny_run(info=info)).checks if f.label == "Profiling overhead"]
    assert _plain(cost.value) == told


@pytest.mark.parametrize(
    ("recording", "said"),
    [
        (Recording(with_stack=True, record_shapes=True), "(Python stacks slow the host)"),
        (Recording(record_shapes=True), "(recording operators slows the host)"),
        (Recording(with_stack=False), ""),
        (Recording(), ""),
    ],
    ids=["stacks", "operators", "neither", "untold"],
)
def test_what_slows_the_host_is_said_beside_the_cost_of_tracing(recording, said):
    """A producer that did not measure its cost may tell what it recorded."""
    overhead = Overhead(unknown=(UnknownCost(why=WhyUnknown.NOT_TOLD),))
    info = make_info("kineto", recording=recording, overhead=overhead)
    run = make_run([make_call(0, "t", 0, 90)], info=info)
    (cost,) = [f for f in _opening(run).checks if f.label == "Profiling overhead"]
    assert cost.value == f"not measured {said}".strip()


def test_totals_of_tracks_at_once_say_so():
    """Two tracks of a device that work side by side for 50 ns make 100 ns of 50; one after the
    other they make what the device was busy."""
    call = make_call(0, "t", 0, 100, device="qnn:0")
    for second, said in ((0, True), (50, False)):
        commands = [
            Command(0, "qnn:0", f"HVX {n}", "compute", "HVX", at, 50)
            for n, at in enumerate((0, second))
        ]
        title = _opening(make_run([call], commands)).shapes.name
        assert title.endswith("tracks add up") == said


def test_parts_recorded_one_by_one_are_no_pipeline_calls():
    """An engine's inferences and the averages of its layers: their sum is no end-to-end time, and
    what ran are their calls."""
    calls = [make_call(n, "t", 100 * n, 100 * n + 100, pipeline=n) for n in range(2)]
    spans = [make_span("pipeline", "P", 100 * n, 100 * n + 100, pipeline=n) for n in range(2)]
    apart = Drop(DropKind.ESTIMATED_TIMES, "t", 2, "timelines", Note.of(DropReason.TIMELINES_APART))
    for drops, headline, fact in (
        ((apart,), "200 ns for 2 calls", ("Together", "2 recordings, one after another")),
        ((), "200 ns for 2 pipeline calls", ("End to end", "2 pipeline calls")),
    ):
        opening = _opening(make_run(calls, spans=spans, drops=drops))
        assert _plain(opening.headline).startswith(headline)
        assert (opening.facts[0].label, opening.facts[0].note) == fact


def test_a_loop_of_the_script_lasts_from_its_first_call_to_the_last():
    """It has no pipeline call that could be counted."""
    calls = [make_call(n, "t", 100 * n, 100 * n + 90, step=n) for n in range(2)]
    fact = _opening(make_run(calls)).facts[0]
    assert (_plain(fact.value), fact.note) == ("190 ns", "from the first call to the last")


def test_one_step_has_one_time():
    """A median, a range and a bar say nothing of a single step; two have all of them."""
    for steps, note in ((1, "90 ns"), (2, "median 90 ns, 90 ns to 90 ns")):
        calls = [make_call(n, "t", 100 * n, 100 * n + 90, step=n) for n in range(steps)]
        opening = _opening(make_run(calls))
        (fact,) = [fact for fact in opening.facts if fact.label == "Steps"]
        assert (fact.value, _plain(fact.note)) == (str(steps), note)
        assert len(opening.bars) == steps - 1


@pytest.mark.parametrize(
    ("places", "columns"),
    [
        ((("text_encoder", "rbln:0"), ("vae", "rbln:1")), ["label", "submodule", "total_ns"]),
        ((("vae", "rbln:0"), ("vae", "rbln:1")), ["label", "device", "total_ns"]),
        (
            (("vae", "rbln:0"), ("vae", "rbln:1"), ("text_encoder", "rbln:0")),
            ["label", "submodule", "device"],
        ),
    ],
)
def test_rows_of_one_label_have_the_columns_that_tell_them_apart(places, columns):
    """The same operator in several submodules or on several devices: the submodule where that is
    enough, the device where it is not; both stay in a narrow terminal."""
    calls = [make_call(n, name, 0, 100, device=on) for n, (name, on) in enumerate(places)]
    commands = [
        Command(n, on, f"Cluster {n}", "compute", "Runtime", 0, 50)
        for n, (_, on) in enumerate(places)
    ]
    shown = _opening(make_run(calls, commands)).shapes.columns
    assert [column.name for column in shown[:3]] == columns
    assert all(column.importance == 0 for column in shown[:3])


@pytest.mark.parametrize(
    ("devices", "begins", "elapsed_ns", "at_once"),
    [
        (("cuda:0", "cuda:1"), (0, 0), 200, True),
        (("cuda:0", "cuda:0"), (0, 0), 100, False),
        (("cuda:0", "cuda:0"), (0, 100), 200, False),
    ],
    ids=["two devices", "two threads", "one after the other"],
)
def test_elapsed_that_adds_up_devices_says_so(devices, begins, elapsed_ns, at_once):
    """Two calls of 100 ns at once on two devices: their sum is 200 ns of a run of 100 ns. Two
    threads share the tiles of one device, and calls in turn add what they take: no word there."""
    calls = [
        make_call(n, "t", at, at + 100, device=on)
        for n, (at, on) in enumerate(zip(begins, devices, strict=True))
    ]
    run = make_run(calls, spans=[make_span("pipeline", "P", 0, max(begins) + 100)])
    report = report_of(analyze(run))
    assert ("times add up over devices" in report.opening.submodules.name) == at_once
    (part,) = [
        one for section in report.sections for one in section.parts if one.title == "Submodules"
    ]
    assert bool(part.notes) == at_once
    assert part.table.frame["elapsed_ns"].to_list() == [elapsed_ns]


@pytest.mark.parametrize(("free", "base"), [(0, "of work"), (25, "of work in calls")])
def test_shares_of_shapes_say_that_they_are_of_the_work_in_calls(free, base):
    """Of 100 ns two operators in a call take 60 and 15, one in none 25: shares are of the 75."""
    commands = [
        Command(0, "cuda:0", "s", "compute", "mm", 0, 60),
        Command(0, "cuda:0", "s", "compute", "add", 60, 15),
        Command(-1, "cuda:0", "s", "compute", "copy", 75, free),
    ]
    shapes = _opening(make_run([make_call(0, "t", 0, 75)], commands)).shapes
    (column,) = (each for each in shapes.columns if each.name == "share")
    assert _plain(column.label or column.name) == base
    assert shapes.frame["share"].to_list() == [60 / 75, 15 / 75]


def test_kernels_of_one_name_have_the_template_argument_that_differs():
    """Three kernels that one name stands for, and one that has its name alone, which stays."""
    commands = [
        Command(
            0, "rbln:0", "s", "compute", name, 10 * n, 9 - n, kernel=f"void {name}<{args}>(int)"
        )
        for n, (name, args) in enumerate(
            (
                ("mmvq", "(type)13, 1"),
                ("mmvq", "(type)12, 1"),
                ("rows", "4"),
                ("mmvq", "(type)8, 1"),
            )
        )
    ]
    shapes = _opening(make_run([make_call(0, "t", 0, 100, device="rbln:0")], commands)).shapes
    assert shapes.frame["label"].to_list() == ["mmvq<13>", "mmvq<12>", "rows", "mmvq<8>"]


def test_a_column_tells_rows_of_one_label_apart_or_is_not_there():
    """One operator on two devices, another one in another submodule: the device tells the first two
    apart and is not put away for width, and the submodule would tell nothing."""
    work = (("jit_f", "tpu:0", "add"), ("jit_f", "tpu:1", "add"), ("psum", "tpu:0", "reduce"))
    calls = [make_call(n, name, 0, 100, device=on) for n, (name, on, _) in enumerate(work)]
    commands = [
        Command(n, on, "XLA Ops", "compute", layer, 0, 50) for n, (_, on, layer) in enumerate(work)
    ]
    shapes = _opening(make_run(calls, commands)).shapes
    assert [(column.name, column.importance) for column in shapes.columns[:3]] == [
        ("label", 0),
        ("device", 0),
        ("total_ns", 0),
    ]


def test_a_shape_of_several_devices_is_one_row():
    """Of one operator on three devices the longest is shown, with how many more there are; the same
    operator in another submodule is a row of its own."""
    work = (("f", "tpu:0", 40), ("f", "tpu:1", 50), ("f", "tpu:2", 30), ("g", "tpu:0", 20))
    calls = [make_call(n, name, 0, 100, device=on) for n, (name, on, _) in enumerate(work)]
    commands = [
        Command(n, on, "XLA Ops", "compute", "add", 50 * (name == "g"), took)
        for n, (name, on, took) in enumerate(work)
    ]
    shapes = _opening(make_run(calls, commands)).shapes
    rows = shapes.frame.select("submodule", "device", "total_ns").rows()
    assert rows == [("f", "tpu:1, 2 more", 50), ("g", "tpu:0", 20)]
    assert str(shapes.name).endswith("; slowest device")


@pytest.mark.parametrize("outside", [0, 1])
def test_counts_of_shapes_say_what_they_count(outside):
    """Of one shape on two devices, one on the first alone, and one outside of calls: the first
    screen counts two, and their section says how its rows come to be more."""
    work = (("cuda:0", "mm"), ("cuda:1", "mm"), ("cuda:0", "add"), ("cuda:0", "late"))
    calls = [make_call(n, "t", 0, 50, device=f"cuda:{n}") for n in range(2)]
    commands = [
        Command(-1 if layer == "late" else int(on[-1]), on, "s", "compute", layer, 10 * n, 9, layer)
        for n, (on, layer) in enumerate(work[: 3 + outside])
    ]
    run = make_run(calls, commands)
    known = run.commands.with_columns(shapes=pl.lit("float[2,3]").cast(pl.Categorical))
    report = report_of(analyze(replace(run, commands=known)))
    distinct = {layer for _, layer in work if layer != "late"}
    assert f", all {len(distinct)}" in report.opening.shapes.name
    (part,) = [
        part for section in report.sections if section.key == "shapes" for part in section.parts
    ]
    assert len(part.table.frame) == 3 + outside
    assert [*part.notes] == [
        "Shapes of calls: 2, in 3 rows: each device that ran one has its own row.",
        *["Rows of work in no call: 1."] * outside,
    ]


def test_the_largest_of_submodules_and_shapes(generated):
    """Three submodules, five shapes, and at most five rungs; `top` limits them further."""
    opening = _opening(generated)
    rows = opening.submodules.frame.head(opening.submodules.shown)
    assert rows["submodule"].to_list() == ["transformer", "vae", "text_encoder_3"]
    assert opening.submodules.shown == 3
    assert opening.shapes.shown == 5
    assert len(opening.advice) <= 5
    fewer = _opening(generated, top=2)
    assert (fewer.submodules.shown, fewer.shapes.shown) == (2, 2)
    none = _opening(generated, top=0)
    assert (none.submodules, none.shapes, none.advice) == (None, None, ())


def test_a_ladder_stands_in_place_of_gains(generated):
    """What was replayed has its outcome; without `top` rows there is none."""
    opening = _opening(generated)
    ladder = ladder_of_analysis(analyze(generated))
    assert [advice.title for advice in opening.advice] == [
        str(rung.change.action) for rung in ladder.rungs
    ]
    assert all("→ " in advice.gain for advice in opening.advice)
    assert all_together(ladder) == opening.advice_total.title
    opening = _opening(load(_SAMPLES / "sd35_mi300x"))
    total = opening.advice_total
    whole = str(all_together(ladder_of_analysis(analyze(load(_SAMPLES / "sd35_mi300x")))))
    assert whole.startswith(f"{total.title}: ")
    assert whole.endswith(f" {total.gain}")


def test_what_one_change_comes_to_is_said_once():
    """Of the only change that keeps the image there is no total: no note below the ladder stands
    in its place, in the weight of one."""
    opening = _opening(load(_SAMPLES / "tiny_two_devices"))
    assert opening.advice_total is None
    assert any(note.startswith("not replayed") for note in opening.advice_notes)
    assert 'class="last"' not in findings_html(opening, ())


def test_findings_with_a_known_gain_come_first():
    """What is wrong with the trace is among the checks."""
    found = (
        Finding("host_between_steps", {}),
        Finding("unaccounted_time", {}, cost_ns=9),
        Finding("idle_gaps", {}, cost_ns=5),
    )
    assert [one.rule for one in advised(found)] == ["idle_gaps", "host_between_steps"]


def test_every_rule_has_a_change_of_one_line():
    """What to do about a finding fits beside its gain in 80 columns; causes say it for the rest."""
    assert all(rule.change is not None for rule in rules().values())
    lines = [rule.change for rule in rules().values() if isinstance(rule.change, Said)]
    for text in (*lines, *CAUSE_CHANGES.values()):
        assert 0 < len(text) <= 72


def test_what_a_change_depends_on():
    """A cause has its own; a rule of somebody else's says its whole recommendation."""
    gaps = Finding("idle_gaps", {"cause": WaitCause.SYNC})
    assert change(gaps) == CAUSE_CHANGES[WaitCause.SYNC]
    between = Finding("host_between_steps", {"mostly": MostlyBetween.NOT_RECORDED})
    assert change(between).startswith("Find what runs there")  # not what nobody recorded
    assert change(Finding("outlier_steps", {})).startswith("Record again on a quiet machine")
    assert change(Finding("somebody_elses", {})) == ""


def test_an_empty_run_has_an_opening():
    """Nothing ran: no tables, no findings, and no error."""
    opening = _opening(make_run((), ()))
    assert (opening.submodules, opening.bars) == (None, ())


@pytest.mark.parametrize(
    ("device", "traced", "said"),
    [("cuda:0", False, True), ("cuda:0", True, False), ("rbln:0", False, False)],
)
def test_times_of_calls_alone_are_the_hosts_where_a_gpu_works_behind_them(device, traced, said):
    """Captured without operators on a device with a queue: a call ends once it has launched."""
    call = make_call(0, "vae", 0, 90, device=device, traced=traced)
    run = make_run([call], info=make_info("capture"))
    facts = [fact for fact in _opening(run).checks if fact.label == "Calls"]
    assert [fact.value for fact in facts] == (["the host's times"] if said else [])
    assert all(f"{device} works behind them" in fact.note and fact.remark for fact in facts)


def test_calls_that_their_device_has_timed_have_its_times():
    """One call of two was timed on a GPU: no warning, and the report says how many were."""
    noted = replace(
        make_call(0, "vae", 0, 90, device="cuda:0", traced=False),
        device_lag_ns=5,
        device_duration_ns=500,
    )
    run = make_run([noted, make_call(1, "vae", 90, 99, device="cuda:0")], info=make_info("capture"))
    assert [fact for fact in _opening(run).checks if fact.label == "Calls"] == []
    (fact,) = noted_times_facts(analyze(run))
    assert "1 of 2, by events" in fact.note
    submodules = _opening(run).submodules
    assert submodules.frame.select("elapsed_ns", "busy_ns").rows() == [(500, None)]


def test_a_run_without_times_says_how_little_of_it_operators_take():
    """Operators take 40 of a call's 100 ns: the headline begins with that, before their roles. If
    they take 95, it says nothing of it."""
    info = make_info(capabilities=("averages",))
    for took, said in ((40, "operators take 40 % and what is around them 60 %"), (95, "")):
        work = Command(0, "qnn:0", "s", "compute", "Conv_0", 0, took, "Conv")
        run = make_run([make_call(0, "resnet", 0, 100, device="qnn:0")], [work], info=info)
        _, parts = _plain(report_of(analyze(run)).summary.headline).split(": ", 1)
        expected = [said, "convolution takes 100 % of the operators' time"]
        assert parts == "; ".join(part for part in expected if part)


@needs_corpus
def test_a_run_without_times_says_which_roles_take_its_operators_time():
    """Of a TensorRT profile, whose layers have durations alone: the share of those that begin with
    a convolution, from the file's own percentages."""
    path = CORPUS / "tensorrt" / "resnet_fp16_a100.profile.json"
    layers = json.loads(path.read_text())[1:]
    share = sum(one["percentage"] for one in layers if one["name"].startswith("Conv_")) / 100
    headline = _plain(report_of(analyze(load(path))).summary.headline)
    assert f"convolution takes {_plain(percent(share))} of the operators' time" in headline
