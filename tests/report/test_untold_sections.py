"""Each producer's samples, section by section: figures, or in one line why there are none."""

from __future__ import annotations

import re
from functools import cache

import polars as pl
import pytest

from profiler.analysis import ReportInput, extent
from profiler.analysis.analyze import analyze
from profiler.analysis.finding_text import noun_of
from profiler.report import build_report
from profiler.text import Noun
from profiler.tools.sources import load
from tests.corpus import CORPUS, needs_corpus
from tests.report.rendered import report_of
from tests.runs import Command, make_call, make_info, make_run, make_span

FIGURES = "figures"
WHY = {
    "idle": "The trace does not say when its commands ran",
    "launches": "The trace has no launches",
    "shapes": "The trace has no shapes of operators",
    "memory": "The trace has no allocations",
    "roofline": "There is no roofline: the trace has no shapes",
}
# sample → what stands in its sections: idle, shapes, the roofline, memory
SAMPLES = {
    "torch_pairs/*h100.json.gz": (FIGURES, FIGURES, FIGURES, FIGURES),
    "torch_multirank/nccl_parser_config": (FIGURES, "shapes", "roofline", "memory"),
    "nsys/healthy_1pct.sqlite": (FIGURES, "shapes", "roofline", "memory"),
    "nsys/mfu_2gpu_before.sqlite": (FIGURES, "shapes", "roofline", "memory"),
    "torch_kineto_tb/resnet50_num_workers_0/*.json.gz": (FIGURES,) * 4,
    "rocprofv3/908_results.json.gz": ("launches", "shapes", "roofline", "memory"),
    "rocprofv3/ruv_decode": (FIGURES, "shapes", "roofline", "memory"),
    "ort/*.json.gz": ("launches", "shapes", FIGURES, "memory"),
    "tensorrt/resnet_fp16_a100.profile.json": ("idle", "shapes", "roofline", "memory"),
    "tensorrt/RTX-3090_fp16": ("launches", FIGURES, FIGURES, "memory"),
}
UNSEEN = {
    *("rocprofv3/908_results.json.gz", "ort/*.json.gz"),
    *("tensorrt/resnet_fp16_a100.profile.json", "tensorrt/RTX-3090_fp16"),
}
SECTIONS = ("idle", "shapes", "roofline", "memory")
TITLES = {  # of what has figures, where a section has others beside
    "idle": "What devices waited for",
    "roofline": "against the roofline",
}


@cache
def _report(pattern):
    run = load(min(CORPUS.glob(pattern)))
    analysis = analyze(run)
    return analysis, build_report(ReportInput(analysis, *extent(run)))


@needs_corpus
@pytest.mark.parametrize("section", SECTIONS)
@pytest.mark.parametrize("sample", SAMPLES)
def test_figures_or_the_reason(sample, section):
    """A section has figures, or a line says why it has none; never both, and never neither."""
    expected = SAMPLES[sample][SECTIONS.index(section)]
    report = _report(sample)[1]
    parts = next((one.parts for one in report.sections if one.key == section), ())
    leads = [part.lead for part in parts if any(part.lead.startswith(why) for why in WHY.values())]
    title = TITLES.get(section, "")
    tables = [part for part in parts if title in part.title and (part.table or part.figure)]
    if expected == FIGURES:
        assert tables
        assert leads == []
    else:
        assert [lead.startswith(WHY[expected]) for lead in leads] == [True]
        assert bool(tables) == (expected == "launches")


@needs_corpus
@pytest.mark.parametrize("sample", SAMPLES)
def test_operators_are_counted_alike(sample):
    """A submodule has as many operators as the table of operators has rows of it: what the host did
    is none of them."""
    analysis = _report(sample)[0]
    rows = analysis.operators.filter(~pl.col("host"))
    counted = rows.group_by("submodule").agg(operators=pl.len().cast(pl.Int64))
    listed = analysis.submodules.select("submodule", "operators")
    assert sorted(listed.rows()) == sorted(counted.drop_nulls("submodule").rows())
    assert (analysis.calls["operators"] <= listed["operators"].max()).all()


@needs_corpus
@pytest.mark.parametrize("sample", SAMPLES)
def test_nobody_is_blamed_unseen(sample):
    """Without a launch or any other work of the host no operator, role or module is host-bound, and
    no gap is put down to the host."""
    analysis = _report(sample)[0]
    bounds = [
        *(analysis.roofline["bound"], analysis.roofline_roles["bound"]),
        *(analysis.module_tree["bound"], analysis.shapes["bound"]),
    ]
    blamed = any((bound == "host").any() for bound in bounds)
    caused = analysis.gaps["cause"].is_in(["launch", "sync", "queue"]).any()
    if sample in UNSEEN:
        assert not blamed
        assert not caused
    elif not analysis.gaps.is_empty():
        assert caused


@needs_corpus
@pytest.mark.parametrize("sample", SAMPLES)
def test_a_tree_of_calls_beside_each_other_says_so(sample):
    """Where its root takes longer than passed, a line says why."""
    analysis, report = _report(sample)
    root, passed = analysis.module_tree["elapsed_ns"].max(), analysis.accounting.end_to_end_ns
    parts = next(one.parts for one in report.sections if one.key == "modules")
    said = any("at the same time on several" in note for part in parts for note in part.notes)
    assert said == (root > 1.01 * passed)
    assert said == (sample == "nsys/mfu_2gpu_before.sqlite")


@needs_corpus
@pytest.mark.parametrize("sample", SAMPLES)
def test_no_rate_is_zero(sample):
    """What only moves data has no FLOP/s, and neither has what it stands in."""
    assert (_report(sample)[0].module_tree["teraflops_per_s"].drop_nulls() > 0).all()


@needs_corpus
@pytest.mark.parametrize("sample", [name for name in SAMPLES if name.startswith("tensorrt")])
def test_layers_and_inferences_are_no_kernels(sample):
    """An engine's layer, or an inference of it, may run any number of kernels."""
    analysis = _report(sample)[0]
    assert noun_of(analysis) is Noun.COMMANDS


@needs_corpus
@pytest.mark.parametrize("sample", SAMPLES)
def test_rules_say_what_they_cannot_look_at(sample):
    """That no rule found anything is not said of what no rule could see."""
    analysis, report = _report(sample)
    findings = next(one for one in report.sections if one.key == "findings")
    named = re.findall(r"\d+ needs? (\w+)", " ".join(part.lead for part in findings.parts))
    named = [{"start": "timeline"}.get(word, word) for word in named]
    told = analysis.inputs.run.info.capabilities
    lacking = {"timeline", "shapes", "launches", "memory"} - set(told)
    assert set(named) <= lacking
    assert len(named) == len(set(named))
    assert bool(named) == bool(lacking)
    assert ("shapes" in named) == ("shapes" in lacking)


@pytest.mark.parametrize("told", [("timeline",), ("averages",)])
def test_idle_time_is_no_zero_where_nobody_recorded_when_commands_ran(told):
    """Of 100 ns a call takes 60, its command 50. Without start times the stages and the pipeline
    call have no idle time, the calls none within them, and no table or sentence says 0; what is in
    no call is in the activity all the same, so that a stage adds up."""
    known = told == ("timeline",)
    work = Command(0, "cuda:0", "s", "compute", "Conv_0", 0, 50)
    spans = [make_span("pipeline", "P", 0, 100), make_span("stage", "denoise", 0, 100)]
    calls = [make_call(0, "unet", 0, 60, device="cuda:0")]
    run = make_run(calls, [work], spans, info=make_info(capabilities=told))
    analysis = analyze(run)
    assert analysis.stages["idle_ns"].to_list() == [100 - 60 if known else None]
    assert analysis.pipelines["idle_ns"].to_list() == analysis.stages["idle_ns"].to_list()
    assert [one.idle_ns for one in analysis.accounting.stages] == analysis.stages[
        "idle_ns"
    ].to_list()
    assert analysis.accounting.unaccounted_ns == 0
    assert analysis.activity["elapsed_ns"].sum() == 100
    report = report_of(analysis)
    titles = [part.title for section in report.sections for part in section.parts]
    assert (
        any(title.endswith("host work between them, no call running") for title in titles) == known
    )
    shown = {
        part.table.key: {column.name for column in part.table.columns}
        for section in report.sections
        for part in section.parts
        if part.table is not None
    }
    assert ("idle_ns" in shown["stages"]) == known
    assert all(("idle_inside_ns" in shown[key]) == known for key in ("submodules", "calls"))
    text = report.summary.accounting.replace("\N{NO-BREAK SPACE}", " ")
    assert ("no call running 40 ns" in text, "idle time is not known" in text) == (known, not known)


@needs_corpus
def test_averages_have_no_idle_time():
    """Layers that lie end to end because nobody knows when they ran: no device was idle or busy, in
    no table, and the headline says nothing of it."""
    analysis, report = _report("tensorrt/resnet_fp16_a100.profile.json")
    for name in ("idle", "gaps", "busy_timeline", "critical_path"):
        assert getattr(analysis, name).is_empty()
    assert analysis.devices["idle_share"].null_count() == len(analysis.devices)
    assert "idle" not in report.summary.headline
    commands = next(fact for fact in report.summary.facts if fact.label == "Commands")
    assert commands.note == "1 call"


@needs_corpus
def test_what_rules_lack_is_said_if_the_trace_alone_has_findings():
    """A summary of QNN has a finding of its trace and none of its run: the first screen says what
    the rules need that could not look at it."""
    analysis, report = _report("qnn/winml_qhas_resnet50.json")
    assert [one.rule for one in analysis.findings] == ["incomplete_trace"]
    assert report.opening.advice == ()
    assert [note.split(":")[0] for note in report.opening.advice_notes] == [
        "9 need start times",
        "5 need shapes",
        "2 need memory",
    ]
