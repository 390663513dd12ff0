"""Numbers as people read them, the headline, the key figures, and folded blocks."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from profiler.analysis import Selection, headline, key_facts, pattern
from profiler.analysis.analyze import analyze
from profiler.analysis.end_to_end import asynchronous
from profiler.analysis.table_text import by_pattern
from profiler.text import Note, count, counted, duration, percent, said, sentence_of, size
from profiler.trace import Drop, DropKind, DropReason
from tests.report.hostile import hostile_run
from tests.report.rendered import report_of
from tests.runs import TINY_SPANS, Command, make_call, make_info, make_run, make_span, tiny_run, why

NBSP = "\N{NO-BREAK SPACE}"


def plain(text):
    return text.replace(NBSP, " ")


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"),
        (740, "740 ns"),
        (12.5, "12.5 ns"),
        (999.6, "1.00 µs"),
        (9_994, "9.99 µs"),
        (9_995, "10.0 µs"),
        (99_951, "100 µs"),
        (999_499, "999 µs"),
        (999_500, "1.00 ms"),
        (68_358_971, "68.4 ms"),
        (2_090_178_200, "2.09 s"),
        (131_000_000_000, "131 s"),
        (-1_500, "\N{MINUS SIGN}1.50 µs"),
    ],
)
def test_durations_have_three_digits(ns, text):
    """Three significant digits, never four before the unit changes."""
    assert plain(duration(ns)) == text


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (0, "0 %"),
        (1, "100 %"),
        (1.2, "120 %"),
        (0.92, "92 %"),
        (0.04, "4.0 %"),
        (0.0031, "0.31 %"),
        (0.99999, "99.9 %"),
        (0.9951, "99.5 %"),
        (0.00001, "<0.01 %"),
        (-0.03, "\N{MINUS SIGN}3.0 %"),
    ],
)
def test_percents_do_not_round_to_all(ratio, text):
    """Two digits; less than all is never written as 100 %, more than nothing never as 0 %."""
    assert plain(percent(ratio)) == text


def test_sizes_and_counts():
    """Bytes are in powers of 1024, counts have separators and a fitting noun."""
    assert plain(size(1536 * 1024)) == "1.50 MiB"
    assert plain(size(12)) == "12 B"
    assert count(47_504) == "47,504"
    assert [counted(n, "call") for n in (0, 1, 35)] == ["0 calls", "1 call", "35 calls"]


def test_a_sentence_keeps_the_first_letter_of_a_name():
    """A capital letter is for our words; names, and what other programs said, stay as they are."""
    inner = said("the file ends early")
    assert sentence_of(said("{what}; copy it", what=inner)) == "The file ends early; copy it."
    assert sentence_of(said("{name} is idle", name="cuda:0")) == "cuda:0 is idle."
    assert sentence_of(said("{error}", error="no such file.")) == "no such file."


def test_headline_answers():
    """How long the steps took, how busy devices were and what for they waited most, and which
    submodules took the time."""
    text = plain(headline(analyze(tiny_run()), 1000))
    assert text == (
        "1.00 µs for 2 steps: 2 NPUs compute 7.0 % to 48 % and are idle outside of calls 42 % to "
        "91 %; transformer takes 50 %, text_encoder 9.0 %, vae 8.0 %"
    )


def one_submodule(*devices):
    """A run of 100 ns, 90 of it the transformer, on these devices one after the other; 60 ns are
    attention."""
    commands = [
        Command(i, device, "q", "compute", "attn", 90 * i, 60, "SDPA")
        for i, device in enumerate(devices)
    ]
    commands += [
        Command(i, device, "q", "compute", "ff.net.0", 90 * i + 60, 20, "MatMul")
        for i, device in enumerate(devices)
    ]
    calls = [
        make_call(i, "transformer", 90 * i, 90 * (i + 1), step=i, device=device)
        for i, device in enumerate(devices)
    ]
    end = 90 * len(devices) + 10
    spans = [make_span("pipeline", "P", 0, end), make_span("stage", "denoise", 0, end)]
    return make_run(calls, commands, spans)


def test_headline_of_one_submodule():
    """One submodule that takes most is named; a CPU waits for no host."""
    text = plain(headline(analyze(one_submodule("cpu:0")), 100))
    assert (
        text == "100 ns for 1 step: the CPU computes 80 % and is idle 20 %; transformer takes 90 %"
    )


def test_headline_of_what_takes_all():
    """A submodule that takes all is no news: roles are named, of the same time as what the devices
    did, the sum of both devices."""
    devices = ("cuda:0", "cuda:1")
    calls = [make_call(i, "whole", 0, 100, device=name) for i, name in enumerate(devices)]
    commands = []
    for number, device in enumerate(devices):
        place = (number, device, "stream 7", "compute")
        commands.append(Command(*place, "blocks.0.attn", 0, 50 + 10 * number, "SDPA"))
        commands.append(Command(*place, "blocks.0.norm1", 60, 20))
    spans = [make_span("pipeline", "P", 0, 100), make_span("stage", "denoise", 0, 100)]
    analysis = analyze(make_run(calls, commands, spans))
    text = plain(headline(analysis, 100))
    assert "2 GPUs compute 70 % to 80 %" in text
    assert text.endswith(f"; attention takes {(50 + 60) // 2} %, norm {(20 + 20) // 2} %")
    chosen = analyze(make_run(calls, commands, spans), Selection(device=("cuda:0",)))
    assert "attention" not in headline(chosen, 100)


def test_headline_of_many_devices():
    """Of several devices it says how busy the least and the most are."""
    devices = [f"rbln:{number}" for number in range(4)]
    text = plain(headline(analyze(one_submodule(*devices)), 100))
    assert "4 NPUs compute 22 % and are idle outside of calls 76 %" in text


def test_headline_without_operators():
    """Of a device whose calls were not traced it is known only that it had no call."""
    calls = [make_call(0, "transformer", 0, 90, step=0, device="cpu:0", traced=False)]
    spans = [make_span("pipeline", "P", 0, 100), make_span("stage", "denoise", 0, 100)]
    text = plain(headline(analyze(make_run(calls, [], spans)), 100))
    assert text == (
        "100 ns for 1 step: device cpu:0 without a call for 10 %; transformer takes 90 %"
    )


def untraced_in_part(*devices, traced):
    """A run of 100 ns: on each device one traced call with a command of 10 ns from 0 to 40, and a
    call of 50 ns, which is `traced` too or not."""
    calls, commands = [], []
    for number, device in enumerate(devices):
        name = f"transformer_{number}"
        calls += [
            make_call(2 * number, name, 0, 40, step=0, device=device),
            make_call(2 * number + 1, name, 40, 90, step=1, device=device, traced=traced),
        ]
        commands.append(Command(2 * number, device, "q", "compute", "attn", 0, 10))
    return make_run(calls, commands, [make_span("pipeline", "P", 0, 100)])


def test_headline_of_calls_that_were_not_traced():
    """What a device did in a call that was not traced nobody knows: it is not called idle, and the
    table of what devices waited for, which is in the same report, has no row either."""
    run = untraced_in_part("rocm:2", traced=False)
    assert plain(headline(analyze(run), 100)).startswith(
        "100 ns for 2 steps: device rocm:2 without a call for 10 %"
    )
    assert analyze(run).idle.is_empty()
    known = untraced_in_part("rocm:2", traced=True)
    assert "the GPU computes 10 % and waits for the host 80 %" in plain(
        headline(analyze(known), 100)
    )
    assert len(analyze(known).idle) == 1


def test_headline_of_several_devices_that_were_not_traced():
    """A few by name, many as a range."""
    two = plain(headline(analyze(untraced_in_part("rocm:0", "rocm:1", traced=False)), 100))
    assert "devices without a call: rocm:0 10 %, rocm:1 10 %" in two
    many = untraced_in_part(*(f"rocm:{number}" for number in range(4)), traced=False)
    text = plain(headline(analyze(many), 100))
    assert "4 devices without a call for 10 %" in text


def test_headline_tells_idle_devices_from_those_without_a_call():
    """One device was traced wholly, the other in part: each has what is known of it."""
    calls = [
        make_call(0, "transformer", 0, 40, step=0, device="rocm:0"),
        make_call(1, "transformer", 40, 90, step=1, device="rocm:0", traced=False),
        make_call(2, "vae", 90, 100, stage="decode", device="cuda:0"),
    ]
    work = [
        Command(0, "rocm:0", "q", "compute", "attn", 0, 10),
        Command(2, "cuda:0", "q", "compute", "conv", 90, 10),
    ]
    run = make_run(calls, work, [make_span("pipeline", "P", 0, 100)])
    text = plain(headline(analyze(run), 100))
    assert (
        "computes 10 % and is idle outside of calls 90 %; device rocm:0 without a call for 10 %"
        in text
    )


def test_a_loop_that_is_not_denoising_is_told_by_its_iterations():
    """Of training, and of tokens: headline and key figure say iterations, no call of a pipeline."""
    calls = [
        replace(make_call(n, "Net", 10 * n, 10 * n + 10, stage="run"), iteration=n)
        for n in range(3)
    ]
    spans = [make_span("pipeline", "P", 0, 30), make_span("stage", "run", 0, 30)]
    found = analyze(make_run(calls, [], spans))
    assert found.accounting.iterations == 3
    assert plain(headline(found, 30)).startswith("30 ns for 3 iterations")
    assert plain(key_facts(found, 30)[0].note) == "3 iterations"
    single = analyze(make_run(calls[:1], [], spans))
    assert plain(key_facts(single, 30)[0].note) == "1 pipeline call"


def test_headline_of_a_selection():
    """Roles and idle time are those of the selection, so the headline leaves them out."""
    chosen = analyze(one_submodule("cpu:0"), Selection(step=("0",)))
    assert plain(headline(chosen, 100)) == "100 ns for 1 step: transformer takes 90 %"


def test_headline_of_a_foreign_trace():
    """Without calls the headline says how idle devices were."""
    run = make_run(commands=[Command(-1, "cuda:0", "stream 7", "compute", "k", 0, 50)])
    assert plain(headline(analyze(run), 100)) == "50 ns for 1 command: the GPU computes 100 %"


def test_headline_of_nothing():
    """An empty run still has a headline."""
    assert plain(headline(analyze(make_run()), 0)) == "0 ns for 0 commands"


def groups_of(run):
    """Names and values of the report by the title of their group."""
    report = report_of(analyze(run))
    parts = [part for section in report.sections for part in section.parts]
    return {group.title: dict(group.rows) for part in parts for group in part.groups}


def facts_of(run):
    return {fact.label: fact for fact in key_facts(analyze(run), 1000)}


def test_key_facts_qualify_the_numbers():
    """Profiling overhead, attribution, residual and drops are all there."""
    facts = facts_of(tiny_run())
    assert plain(facts["Profiling overhead"].value) == "0.90 %"
    assert plain(facts["Attributed"].value) == "99 %"
    assert plain(facts["Unaccounted"].value) == "0 %"
    assert facts["Lost"].value == "no events"
    assert not any(fact.alert for fact in facts.values())


def test_drops_name_their_kind_once():
    """The provenance has the kind of a drop beside what it says of it, not in it."""
    dropped = Drop(DropKind.TRUNCATED_FILE, "a.pb", 10, "bytes", why("cut"))
    assert groups_of(tiny_run(drops=(dropped,)))["Lost data"] == {
        "truncated file": "a.pb: 10 bytes. cut"
    }


def test_drops_and_a_large_residual_alert():
    """What makes the report doubtful is marked as such."""
    lost = facts_of(
        tiny_run(drops=(Drop(DropKind.TRUNCATED_FILE, "a.pb", 10, "bytes", why("cut")),))
    )
    assert lost["Lost data"].alert
    assert lost["Lost data"].note == "truncated file"
    begun_late = [make_span("pipeline", "P", 50, 1000), *TINY_SPANS[1:]]
    unaccounted = facts_of(tiny_run(spans=begun_late))["Unaccounted"]
    assert unaccounted.alert
    assert "more than 1 %" in unaccounted.note
    assert facts_of(make_run())["Unaccounted"].value == "unknown"


def test_what_is_doubtful_is_not_dropped():
    """Where everything that ran is here, nothing is said to be dropped."""
    doubtful = Drop(DropKind.ESTIMATED_TIMES, "a.yaml", 3, "calls", why("averages"))
    facts = facts_of(tiny_run(drops=(doubtful,)))
    assert facts["Uncertain"].remark
    assert not facts["Uncertain"].alert
    assert "Lost data" not in facts


def test_components_measured_one_by_one_have_no_end_to_end_time():
    """Their sum is called that, in the headline, too: how often each is called is not told."""
    steps_unknown = Note.of(DropReason.STEPS_UNKNOWN)
    run = tiny_run(drops=(Drop(DropKind.ESTIMATED_TIMES, "a.yaml", 3, "calls", steps_unknown),))
    facts = facts_of(run)
    assert "End to end" not in facts
    assert facts["Together"].value == facts_of(tiny_run())["End to end"].value
    assert headline(analyze(run), 1000).startswith("measured one by one: ")
    assert not headline(analyze(tiny_run()), 1000).startswith("measured one by one: ")


def test_nothing_measured_is_said():
    """A producer that measured no profiling overhead is reported as such, not as 0."""
    facts = facts_of(tiny_run(info=make_info(producer="x")))
    assert facts["Profiling overhead"].value == "not measured"
    assert "Attributed" not in facts


def test_a_key_figure_stays_short():
    """Where too few calls could be compared, the cost is called estimated; how many of which
    submodule they were stands among the details."""
    few = {"vae": {"traced_calls": 1, "untraced_calls": 2}}
    overhead = {"share": 0.04, "estimated_events": 9, "too_few": few}
    run = tiny_run(info=make_info(producer="x", overhead=overhead))
    assert facts_of(run)["Profiling overhead"].note == "of pipeline calls' time, estimated"
    groups = groups_of(run)
    assert "vae" in groups["Profiling overhead"]["too few"]


def test_details_take_any_names():
    """Hostile names and texts are shown as they are."""
    run = hostile_run()
    groups = groups_of(run)
    assert groups["Settings"]["nan"] == "nan"
    assert facts_of(run)["Profiling overhead"].value == "not measured"


def test_details_give_units_to_numbers():
    """Keys that end in a unit lose it and their values gain it."""
    groups = groups_of(tiny_run())
    assert plain(groups["Profiling overhead"]["hooks"]) == "4 ns"
    assert plain(groups["Profiling overhead"]["share"]) == "0.90 %"
    assert plain(groups["Warm-up, not in this run"]["duration"]) == "800 ns"


@pytest.mark.parametrize(
    ("layer", "folded"),
    [
        ("transformer_blocks.7.ff.net.0.proj", "transformer_blocks.*.ff.net.*.proj"),
        ("a.0.1.2.b", "a.*.*.*.b"),
        ("decoder.conv1", "decoder.conv1"),
        ("/blocks.3/attn/MatMul_12", "/blocks.*/attn/MatMul_*"),
        ("linear_196", "linear_*"),
        ("3", "*"),
        ("", ""),
        ("블록.3.attn", "블록.*.attn"),
    ],
)
def test_patterns_fold_numbers_that_stand_alone(layer, folded):
    """Numbers between separators fold, numbers that belong to a word stay."""
    assert pl.select(pattern(pl.lit(layer))).item() == folded


def test_folded_operators_add_up(three_steps):
    """Folding loses no commands and no time, and keeps the efficiency between its layers'."""
    _, analysis = three_steps
    folded = by_pattern(analysis.operators)
    assert len(folded) < len(analysis.operators) / 4
    for column in ("commands", "total_ns", "wall_ns"):
        assert folded[column].sum() == analysis.operators[column].sum()
    assert folded["layers"].sum() == len(analysis.operators)
    attention = folded.filter(pl.col("layer") == "transformer_blocks.*.attn.sdpa").row(
        0, named=True
    )
    single = analysis.operators.filter(pl.col("layer").str.ends_with(".attn.sdpa"))
    efficiency = single["parallel_utilization"]
    assert attention["layers"] == 24
    assert efficiency.min() <= attention["parallel_utilization"] <= efficiency.max()


def test_a_call_that_returns_before_its_device_is_done_is_said_so():
    """The VAE's call returns after 100 ns, its kernel of 350 ends after 400: the share is that of
    its tile, a fact says so."""
    run = make_run(
        [make_call(0, "vae", 0, 100, stage="decode")],
        [Command(0, "rbln:0", "Neural Engine Clusters", "compute", "conv", 50, 350)],
        [make_span("pipeline", "sd3", 0, 1000), make_span("stage", "decode", 0, 1000)],
    )
    analysis = analyze(run)
    assert asynchronous(analysis) == [("vae", 100, 350)]
    assert "vae takes 40 %" in plain(headline(analysis, 1000))
    (fact,) = [fact for fact in key_facts(analysis, 1000) if fact.label == "vae"]
    assert "100 ns in its calls" in plain(fact.note)
