"""The page's first screen: the opening's values as HTML, and the tables that canvases draw."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import polars as pl
import pytest

from profiler.analysis.analyze import analyze
from profiler.analysis.dropped_data import missing_lines
from profiler.report import header_html, timeline_of
from profiler.report.html.page import shapes_json
from profiler.report.html.tables import busy_json, icicle_json, strip_json
from profiler.text import Note
from profiler.tools.sources import load
from profiler.trace import Drop, DropKind
from profiler.trace.events import DropReason
from tests.corpus import CORPUS, needs_corpus
from tests.importers.kineto.traces import Trace
from tests.report.generated import write_generated_bundle
from tests.report.hostile import HOSTILE, hostile_analysis
from tests.report.reader import QUESTIONS, answers, plain, words
from tests.report.rendered import report_of
from tests.runs import EPOCH, Command, make_call, make_info, make_run, make_span, tiny_run, why

_SAMPLES = Path(__file__).parents[2] / "sample_traces"
*_, _GO_ON = QUESTIONS  # a page has its contents for that


SD35 = Path(__file__).parents[2] / "sample_traces" / "sd35_mi300x"


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    return load(write_generated_bundle(tmp_path_factory.mktemp("generated"), steps=2))


def test_the_first_screen_has_what_the_terminal_opens_with(generated):
    """Facts, checks, advice and shapes of the opening stand in it, each with its value."""
    report = report_of(analyze(generated))
    header = {name: words(text) for name, text in header_html(report).items()}
    opening = report.opening
    assert opening.facts
    assert opening.advice
    for fact in opening.facts:
        assert words(f"{fact.label} {fact.value}") in header["answers"]
        assert words(fact.note) in header["answers"]
    for check in opening.checks:
        assert words(f"{check.label} {check.value}") in header["bookkeeping"]
    for advice in opening.advice:
        gain = advice.gain if advice.outcome else f"gain {advice.gain}"
        assert words(f"{advice.title} {gain}") in header["gains"]
        assert words(advice.change) in header["gains"]
    shapes = shapes_json(opening)["values"]
    assert (
        shapes["label"] == analyze(generated).shapes["label"].head(len(shapes["label"])).to_list()
    )


@pytest.mark.parametrize("sample", ["tiny_two_devices", "sd35_mi300x"])
def test_the_first_screen_answers_the_readers_questions(sample):
    """What a terminal's 40 lines answer of a run, the page does on its first screen."""
    analysis = analyze(load(_SAMPLES / sample))
    report = report_of(analysis)
    shapes = shapes_json(report.opening)["values"]
    peaks = (f"{part * 100:.1f}" for part in shapes.get("of_peak", ()) if part is not None)
    parts = (report.summary.headline, *header_html(report).values(), *shapes["label"], *peaks)
    text = plain(" ".join(map(words, parts))).casefold()
    for question, wanted in answers(analysis).items():
        if question != _GO_ON:
            for word in wanted:
                assert word.casefold() in text, f"{question} {word!r}"


def test_advice_leads_to_its_finding(generated):
    """The links of the first screen name the articles of these findings."""
    report = report_of(analyze(generated))
    numbers = [int(at) for at in re.findall(r'#finding-(\d+)"', header_html(report)["gains"])]
    (findings,) = [part.findings for s in report.sections for part in s.parts if part.findings]
    assert [findings[at - 1] for at in numbers] == [
        one.finding for one in report.opening.advice if one.finding is not None
    ]


def test_bookkeeping_stands_out_only_where_something_is_wrong():
    """A whole run has one quiet line; a drop comes before it, framed alone, with its note."""
    quiet = header_html(report_of(analyze(tiny_run())))["bookkeeping"]
    assert quiet.startswith('<details class="bookkeeping"><summary>')
    assert 'role="alert"' not in quiet
    drop = Drop(DropKind.TRUNCATED_FILE, "006.pb", 512, "bytes", why("cut: copy it again"))
    text = header_html(report_of(analyze(tiny_run(drops=(drop,)))))["bookkeeping"]
    alerts, line = text.split('<details class="bookkeeping"><summary>')
    assert alerts.startswith('<div class="alerts"><strong role="alert">')
    assert 'role="alert"' not in line
    assert text.index("Lost data") < text.index("Profiling overhead")
    assert "cut: copy it again" in text


@pytest.mark.parametrize(
    ("kind", "reason", "values", "expected"),
    [
        (
            DropKind.DROPPED_EVENTS,
            DropReason.NO_TIME,
            {},
            (
                "Their time is missing, or not in the years 1970 to 2043. Figures leave these "
                "out; record again if they are many."
            ),
        ),
        (
            DropKind.ESTIMATED_TIMES,
            DropReason.EXECUTIONS_IN_ORDER,
            {},
            (
                "The file does not say when executions started, so they are placed one after "
                "another. Nothing needs to be done."
            ),
        ),
        (
            DropKind.TRUNCATED_FILE,
            DropReason.CUT_SHORT,
            {"at": 7, "size": 9},
            "The file ends at byte 7 of 9: copy it again.",
        ),
        (
            DropKind.ABORTED_RUN,
            DropReason.ENDED_WITH,
            {"failure": "SIGTERM"},
            "The run ended with SIGTERM. Record again for what came after that.",
        ),
    ],
)
def test_a_drop_says_what_must_be_done(kind, reason, values, expected):
    """Each line about missing data ends in whole sentences: what happened, and what to do."""
    drop = Drop(kind, "a.pb", 2, "events", Note.of(reason, **values))
    _, line = missing_lines([drop])
    text = str(line).replace("\N{NO-BREAK SPACE}", " ")
    assert text.endswith(f"2 events. {expected}")


def test_names_of_the_run_are_escaped():
    """No name of a trace becomes markup on the first screen."""
    text = "".join(header_html(report_of(hostile_analysis())).values())
    assert not any(name in text for name in HOSTILE if "<" in name)


def test_the_strip_has_the_calls_of_each_device():
    """Begin, length, submodule and step of every call, as the timeline has them."""
    run = tiny_run()
    timeline = timeline_of(run)
    found = strip_json(timeline)
    calls = timeline.tables["calls"]
    for lane in timeline.document["lanes"]:
        if lane["kind"] != "calls":
            continue
        (device,) = [one for one in found["devices"] if one["device"] == lane["device"]]
        rows = slice(lane["first"], lane["first"] + lane["count"])
        for name in ("start", "duration", "submodule", "stage", "step"):
            assert device[name] == calls[name][rows].tolist()
    assert found["steps"]["step"] == [0, 1]


def test_a_device_without_calls_has_the_stretches_of_their_commands():
    """A second device is drawn where it worked for a call, under the call's submodule."""
    calls = [make_call(0, "unet", 0, 100, device="cuda:0")]
    commands = [
        Command(0, "cuda:0", "s", "compute", "a", 0, 100),
        Command(0, "cuda:1", "s", "compute", "b", 20, 10),
        Command(0, "cuda:1", "s", "compute", "c", 50, 30),
    ]
    timeline = timeline_of(make_run(calls, commands))
    (second,) = [d for d in strip_json(timeline)["devices"] if d["device"] == "cuda:1"]
    assert (second["start"], second["duration"]) == ([20], [60])
    assert timeline.document["strings"][second["submodule"][0]] == "unet"


def test_work_of_no_call_is_drawn_where_no_call_is():
    """What a GPU executed before, between and after its calls has stretches of its own; what lies
    in a call, or is shorter than a thousandth of the run, has none."""
    calls = [
        make_call(n, "unet", at, at + 2000, device="cuda:0") for n, at in ((0, 5000), (1, 8000))
    ]
    times = [(0, 1500), (1502, 3000), (5500, 6000), (6900, 7400), (7700, 7701), (10_000, 12_000)]
    commands = [
        Command(-1, "cuda:0", "s", "compute", "k", start, end - start) for start, end in times
    ]
    (device,) = strip_json(timeline_of(make_run(calls, commands)))["devices"]
    assert device["start"] == [0, 5000, 7000, 8000, 10_000]
    assert device["duration"] == [3000, 2000, 400, 2000, 2000]
    assert device["submodule"].count(-1) == 3


def test_the_strip_ends_where_what_it_draws_does():
    """What the host did afterwards, such as writing the trace, leaves no empty half behind it."""
    calls = [make_call(0, "unet", 0, 100, device="cuda:0")]
    found = strip_json(
        timeline_of(make_run(calls, spans=[make_span("profiler", "write", 100, 900)]))
    )
    assert found["span"] == 100


def test_the_strip_begins_where_a_long_loading_ends():
    """Of a run whose first calls come after nine tenths of it, the axis begins with them; if they
    come after a third, with the run."""
    loading = make_span("stage", "load", 0, 10)
    late = [make_call(0, "transformer", 900, 1000)]
    early = [make_call(0, "transformer", 300, 1000)]
    assert strip_json(timeline_of(make_run(late, [], [loading])))["begin"] == 900
    assert strip_json(timeline_of(make_run(early, [], [loading])))["begin"] == 0


def test_what_was_done_before_the_strip_begins_is_named():
    """The longest of the host's work of no call, if it is most of the time until then."""
    calls = [make_call(0, "resnet", 900, 1000, device="qnn:0")]

    def before(**lengths):
        host = [Command(-1, "cpu:0", "host", "host", name, 0, ns) for name, ns in lengths.items()]
        return strip_json(timeline_of(make_run(calls, host)))["before"]

    assert before(finalize=880, other=20) == {"name": "finalize", "duration": 880}
    assert before(finalize=400, other=20) is None


def test_operators_without_times_are_a_part_of_each_call():
    """15 and 30 of 100 ns: those are drawn, and not where they ran. Waiting is no operator. If
    operators take all of their calls, or it is known when a device was busy, there is no part."""
    calls = [make_call(n, "resnet", 100 * n, 100 * n + 100, device="qnn:0") for n in range(2)]

    def inside(*lengths, busy=()):
        work = [
            Command(n, "qnn:0", "HTP", kind, "op", 100 * n, ns)
            for n, kind, ns in (*lengths, (0, "sync", 50))
        ]
        strip = strip_json(timeline_of(make_run(calls, work)), {device: {} for device in busy})
        return strip["devices"][0]["inside"]

    some = (0, "compute", 10), (0, "compute", 5), (1, "compute", 30)
    assert inside(*some) == [0.15, 0.3]
    assert inside(*some, busy=["qnn:0"]) is None
    assert inside((0, "compute", 100), (1, "compute", 100)) is None
    assert inside((0, "compute", 10)) is None
    assert inside((0, "compute", 60), (0, "compute", 60), (1, "compute", 9)) is None


def test_many_calls_are_few_rectangles():
    """Thousands of calls of one submodule that follow each other are one rectangle of their whole
    stretch; another submodule among them keeps its own."""
    calls = [make_call(i, "llm", 10 * i, 10 * i + 9, device="cuda:0") for i in range(3000)]
    calls[1000] = make_call(1000, "vae", 10_000, 10_009, device="cuda:0")
    (device,) = strip_json(timeline_of(make_run(calls)))["devices"]
    assert device["start"] == [0, 10_000, 10_010]
    assert device["duration"] == [9_999, 9, 19_989]


def test_the_icicle_has_the_nodes_of_the_tree(generated):
    """Every node that took time has the tree's figures, and is in the node that the tree says."""
    analysis = analyze(generated)
    found, tree = icicle_json(analysis), analysis.module_tree.filter(pl.col("elapsed_ns") > 0)
    nodes, rows = tree["node"].to_list(), of_tree(found)
    assert [found["values"]["elapsed_ns"][row] for row in rows] == tree["elapsed_ns"].to_list()
    assert [found["depth"][row] for row in rows] == tree["depth"].to_list()
    parents = [found["parent"][row] for row in rows]
    named = [nodes[rows.index(parent)] if parent >= 0 else -1 for parent in parents]
    assert named == tree["parent"].to_list()


def of_tree(found):
    """The rows of an icicle that are nodes of the module tree."""
    kinds = found["codes"]["kind"]
    return [
        row for row, kind in enumerate(kinds) if kind not in ("waiting", "no_call", "no_operator")
    ]


def test_waiting_fills_what_nothing_else_does(generated):
    """Every stage and submodule with traced calls is as long as what is in it, and what waiting
    there is in calls is the idle time in tiles of the idle table."""
    analysis = analyze(generated)
    found = icicle_json(analysis)
    times, kinds, parents = found["values"]["elapsed_ns"], found["codes"]["kind"], found["parent"]
    inner = [0] * len(times)
    for row, parent in enumerate(parents):
        if parent >= 0:
            inner[parent] += times[row]
    assert inner[0] == times[0]
    for row, kind in enumerate(kinds):
        if kind == "stage" or (kind == "submodule" and inner[row]):
            assert inner[row] == times[row]
    in_calls = sum(
        time
        for time, kind, parent in zip(times, kinds, parents, strict=True)
        if kind == "waiting" and kinds[parent] == "submodule"
    )
    assert in_calls == analysis.idle["idle_inside_ns"].sum() > 0


@pytest.fixture(scope="module")
def sd35():
    """An MI300X that waits for its host for 38 % of the run."""
    return analyze(load(SD35))


def test_waiting_of_each_submodule_is_that_of_its_table(sd35):
    """On a real trace each node *waits for the host* is the launch-bound time of its submodule, and
    all waiting together the idle share of the run."""
    found = icicle_json(sd35)
    kinds, parents, names = found["codes"]["kind"], found["parent"], found["values"]["name"]
    times = found["values"]["elapsed_ns"]
    waits: Counter[str] = Counter()  # for launches, and for launches after a synchronization
    for row, kind in enumerate(kinds):
        if kind == "waiting" and kinds[parents[row]] == "submodule" and "host" in names[row]:
            waits[names[parents[row]]] += times[row]
    rows = sd35.submodules.filter(pl.col("launch_bound_ns") > 0)
    assert waits == dict(rows.select("submodule", "launch_bound_ns").iter_rows())
    waited = sum(time for time, kind in zip(times, kinds, strict=True) if kind == "waiting")
    (share,) = sd35.devices.filter(pl.col("device") == "rocm:2")["idle_share"]
    assert waited / times[0] == pytest.approx(share, abs=0.01)


def test_what_is_drawn_of_a_real_trace_is_its_busy_share(sd35):
    """Leaves that are no waiting, and the area below the curve of the strip, are each the busy
    share of the table within 1 %."""
    found = icicle_json(sd35)
    times, parents, kinds = (
        found["values"]["elapsed_ns"],
        {*found["parent"]},
        found["codes"]["kind"],
    )
    worked = sum(
        time
        for row, time in enumerate(times)
        if row not in parents and kinds[row] not in ("waiting", "no_call", "no_operator")
    )
    (idle,) = sd35.devices.filter(pl.col("device") == "rocm:2")["idle_share"]
    assert worked / times[0] == pytest.approx(1 - idle, abs=0.01)
    curve = busy_json(sd35, sd35.inputs.run.spans["start_ns"].min())["rocm:2"]
    assert sum(curve["busy"]) / len(curve["busy"]) / 1000 == pytest.approx(1 - idle, abs=0.01)


def test_a_pipeline_without_stages_has_no_row_of_them():
    """The only stage, `run`, is the run again: its submodules and its waiting are right below the
    run, with all of their time. A stage that has a name stays."""
    calls = [make_call(n, "ab"[n], 100 * n, 100 * n + 80, stage="run") for n in (0, 1)]
    works = [Command(n, "cpu:0", "p", "compute", "mm", 100 * n, 60) for n in (0, 1)]
    found = icicle_json(analyze(make_run(calls, works)))
    kinds, names = found["codes"]["kind"], found["values"]["name"]
    assert "stage" not in kinds
    top = kinds.index("run")
    below = [row for row, above in enumerate(found["parent"]) if above == top]
    assert [names[row] for row in below if kinds[row] == "submodule"] == ["a", "b"]
    assert {found["depth"][row] for row in below} == {found["depth"][top] + 1}
    elapsed = found["values"]["elapsed_ns"]
    assert sum(elapsed[row] for row in below) == elapsed[top] == 180
    staged = [make_call(0, "vae", 0, 80, stage="decode")]
    assert "stage" in icicle_json(analyze(make_run(staged, works[:1])))["codes"]["kind"]


def test_time_of_a_call_in_none_of_its_operators_is_a_node():
    """Of a device whose waiting is not known, 60 of 100 ns of a call lie in no node: drawn as such,
    not as a hole."""
    info = make_info(capabilities=("averages",))
    works = [Command(0, "qnn:0", "s", "compute", "conv", 0, 40)]
    run = make_run([make_call(0, "resnet", 0, 100, device="qnn:0")], works, info=info)
    found = icicle_json(analyze(run))
    rest = [row for row, kind in enumerate(found["codes"]["kind"]) if kind == "no_operator"]
    assert [(found["values"]["name"][row], found["values"]["elapsed_ns"][row]) for row in rest] == [
        ("outside of operators", 60)
    ]


def test_what_is_drawn_of_work_is_the_busy_share():
    """Of a run on one device, leaves but waiting take the share of the run in which it was busy, in
    the icicle and in the curve of the strip."""
    ranges = (("unet", 0, 400), ("vae", 500, 1000))
    calls = [make_call(n, *each, device="cuda:0") for n, each in enumerate(ranges)]
    work = [(0, 100, 150), (0, 200, 300), (1, 500, 900)]
    commands = [Command(c, "cuda:0", "s", "compute", "k", a, b - a) for c, a, b in work]
    run = make_run(calls, commands, spans=[make_span("pipeline", "p", 0, 1000)])
    analysis = analyze(run)
    found = icicle_json(analysis)
    times, parents = found["values"]["elapsed_ns"], set(found["parent"])
    leaves = [row for row in range(len(times)) if row not in parents]
    worked = sum(times[row] for row in leaves if found["codes"]["kind"][row] != "waiting")
    assert worked / times[0] == pytest.approx(0.55)
    curve = busy_json(analysis, EPOCH)["cuda:0"]
    assert sum(curve["busy"]) / len(curve["busy"]) / 1000 == pytest.approx(0.55, rel=0.01)
    assert curve["share"] == pytest.approx(0.55)


@needs_corpus
@pytest.mark.parametrize(
    ("name", "waits"),
    [
        ("xplane/xprof_tpu_inference_2.xplane.pb", True),
        ("nsys/mfu_2gpu_before.sqlite", True),
        ("torch_multirank/trace_filter", True),
        ("qnn/winml_optrace_resnet50.csv", False),
        ("tensorrt/resnet_fp16_a100.profile.json", False),
    ],
)
def test_nodes_of_real_traces_fill_what_they_are_in(name, waits):
    """What is in a node is not wider than it, nor below 99 % of it. Waiting in calls is the idle
    time that the table of idle devices has there, beside what lies outside of the end-to-end time;
    there is none if it is unknown."""
    analysis = analyze(load(CORPUS / name))
    found = icicle_json(analysis)
    times, inner = found["values"]["elapsed_ns"], Counter()
    kinds, names, waited = found["codes"]["kind"], found["values"]["name"], 0
    for row, parent in enumerate(found["parent"]):
        inner[parent] += times[row]
        inside = kinds[row] == "waiting" and kinds[parent] == "submodule"
        waited += times[row] if inside and names[row] != "waits outside of end to end" else 0
    del inner[-1]
    assert all(0.99 * times[row] <= length <= times[row] for row, length in inner.items())
    assert waited == analysis.idle["idle_inside_ns"].sum()
    assert bool(waited) == waits


def test_only_leaves_and_roles_have_a_role(generated):
    """What is around others is called neither by the role nor by the bound of its largest child."""
    found = icicle_json(analyze(generated))
    around = {parent for parent in found["parent"] if parent >= 0}
    for row in around:
        assert found["values"]["bound"][row] is None
        assert found["values"]["role"][row] is None or found["codes"]["kind"][row] == "role"


def test_a_sum_over_devices_says_so():
    """Two devices that work beside each other: the run's time is less than the tree's."""
    calls = [make_call(n, f"part_{n}", 0, 100, device=f"cuda:{n}") for n in range(2)]
    commands = [Command(n, f"cuda:{n}", "s", "compute", "k", 0, 100) for n in range(2)]
    found = icicle_json(analyze(make_run(calls, commands, [make_span("pipeline", "p", 0, 100)])))
    assert found["values"]["elapsed_ns"][0] == 200
    assert found["together"] == {"devices": 2, "passed": 100}


@pytest.mark.parametrize("outside", [0, 20])
def test_a_sum_over_devices_is_the_run_of_each(outside):
    """One device is in a call for 100 of 100 ns, another for 30: the run is 200 wide, and 70 are
    outside of calls: idle, but for the work that ran there. What is drawn 50 % wide is 50 % of the
    run."""
    calls = [
        make_call(0, "long", 0, 100, device="cuda:0"),
        make_call(1, "short", 10, 40, device="cuda:1"),
    ]
    commands = [Command(0, "cuda:0", "s", "compute", "k", 0, 100)]
    commands += [Command(1, "cuda:1", "s", "compute", "k", 10, 30)]
    commands += [Command(-1, "cuda:1", "s", "compute", "k", 60, outside)] * bool(outside)
    found = icicle_json(analyze(make_run(calls, commands, [make_span("pipeline", "p", 0, 100)])))
    values, kinds = found["values"], found["codes"]["kind"]
    first = [row for row, parent in enumerate(found["parent"]) if parent == 0]
    names = {kinds[row]: (values["elapsed_ns"][row], values["share"][row]) for row in first}
    idle = 70 - outside
    expected = {"stage": (130, 0.65), "waiting": (idle, idle / 200)}
    assert names == expected | ({"no_call": (outside, outside / 200)} if outside else {})
    assert (values["elapsed_ns"][0], values["share"][0]) == (200, 1.0)


@pytest.mark.parametrize("launches", [True, False])
def test_waits_in_calls_without_operators_are_in_no_node(launches, tmp_path):
    """Then nothing says how busy the run was: its waits are not all there."""
    trace = Trace()
    for at, name in ((0, "forward"), (100, "sample"), (200, "forward")):
        trace.event("user_annotation", name, at, 100)
        if launches or name == "forward":
            external = trace.op("aten::mm", at + 10, 10)
            trace.kernel("gemm", at + 20, 30, launched=at + 12, external=external)
    found = icicle_json(analyze(trace.imported(tmp_path)))
    assert found["waits_lack"] is not launches


def test_the_icicle_keeps_the_largest_nodes(generated, monkeypatch):
    """Of many nodes the largest are kept, with all that they are in."""
    monkeypatch.setattr("profiler.report.html.tables._MAX_NODES", 10)
    analysis = analyze(generated)
    found, tree = icicle_json(analysis), analysis.module_tree
    kept = [found["values"]["elapsed_ns"][row] for row in of_tree(found)]
    assert len(kept) == 10
    assert sorted(kept, reverse=True) == tree["elapsed_ns"].sort(descending=True).to_list()[:10]
    assert [parent for parent in found["parent"] if parent < 0] == [-1]


def test_a_run_without_time_has_no_icicle():
    """Nothing is drawn of nothing."""
    assert icicle_json(analyze(make_run())) is None
