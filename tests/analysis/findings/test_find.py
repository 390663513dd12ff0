"""Findings of whole runs: real ones, random ones, and their table."""

import json
from pathlib import Path

import msgspec
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.analysis import Finding, Selection, Where, change, find, words
from profiler.analysis.analyze import analyze
from profiler.analysis.findings import findings_table
from profiler.analysis.result import FINDINGS, SEVERITIES
from profiler.importers import import_trace
from profiler.run.columns import checked
from profiler.tools.sources import analyze as analyze_path
from profiler.tools.sources import load
from profiler.trace import HOST_TRACK, ActivityKind, HostActivity
from tests.analysis.linked_runs import linked
from tests.analysis.random_runs import pipeline_runs, runs
from tests.corpus import CORPUS, PERFETTO_TESTS, SD35, needs_corpus
from tests.examples import examples_of_reports
from tests.runs import EPOCH, Command, make_call, make_info, make_run, tiny_run

ROOT = Path(__file__).parents[3]
SAMPLES = sorted(path.parent for path in (ROOT / "sample_traces").glob("*/manifest.json"))
RECORDED = sorted(path.parent for path in (ROOT / "tests").glob("analysis/roles/recorded/*/*.json"))


@pytest.mark.parametrize("path", [*SAMPLES, *RECORDED], ids=lambda path: path.name)
def test_recorded_runs(path):
    """Every run of the repository has findings that are plain values, or none."""
    found = find(analyze(load(path)))
    checked(findings_table(found), FINDINGS)


@pytest.mark.parametrize("path", PERFETTO_TESTS, ids=lambda path: path.stem)
def test_foreign_traces(path):
    """What holds no call of ours has no findings but drops."""
    assert {finding.rule for finding in find(analyze(load(path)))} <= {"incomplete_trace"}


@needs_corpus
def test_a_cold_trace():
    """ResNet's first steps: in the 12 gaps of 10 ms and more runtime calls of over 1 ms that are no
    waits take 3,552.598 ms by the file's own events (the longest is one cudaLaunchKernel of 1.56
    s). Warming up is advised, not graphs."""
    path = CORPUS / "wild" / "kineto_autograd_api_2021.pt.trace.json.gz"
    (found,) = analyze_path(path).findings
    assert found.evidence["loading_ns"] == 3_552_598_000
    assert change(found).startswith("Warm up")
    assert "Launch less" not in words(found).recommendation


@needs_corpus
def test_real_trace(tmp_path):
    """Stable Diffusion 3.5 on an MI300X, with Python stacks: the device waits for the host, which
    one finding says with how much of each step that is and how much before its first kernel;
    attention is far from the roofline, the negative prompt is encoded by itself. T5's attention is
    not fused either, but would save 0.1 % of the run: no word of it."""
    found = find(analyze(load(import_trace(SD35, tmp_path))))
    assert [(finding.rule, finding.severity) for finding in found] == [
        ("host_bound", "high"),
        ("slow_products", "medium"),
        ("negative_prompt", "low"),
    ]
    host_bound = found[0]
    assert host_bound.where.submodule == "transformer"
    assert host_bound.evidence["recorded"] == "python_stacks"
    assert host_bound.evidence["host_wait_share"] == pytest.approx(450.06 / 1194.25, abs=0.001)
    bound = [host_bound.evidence[f"{which}_of_step_ns"] / 1e6 for which in ("least", "most")]
    assert bound == pytest.approx([90.80, 92.89], abs=0.01)
    before = [host_bound.evidence[f"{which}_before_kernel_ns"] / 1e6 for which in ("least", "most")]
    assert before == pytest.approx([15.75, 16.77], abs=0.01)
    assert "15.8 ms to 16.8 ms before the first kernel" in words(host_bound).title


@given(st.one_of(runs(), pipeline_runs()))
@settings(deadline=None, max_examples=examples_of_reports(60))
def test_whatever_the_run(run):
    """No run breaks a rule; costs are times, order is by severity, JSON holds all of it."""
    found = find(analyze(run))
    for finding in found:
        assert finding.cost_ns is None or finding.cost_ns >= 0
        json.dumps(msgspec.to_builtins(finding), allow_nan=False)
    ranks = [SEVERITIES.index(finding.severity) for finding in found]
    assert ranks == sorted(ranks)
    assert find(analyze(run)) == found


def test_a_selection_finds_no_other_time():
    """Shares are of the whole run: what is left of it has less to show."""
    run = tiny_run()
    whole = {finding.rule for finding in find(analyze(run))}
    part = find(analyze(run, Selection(submodule=("vae",))))
    assert {finding.rule for finding in part} <= whole


def test_table():
    """One row a finding, evidence as JSON."""
    where = Where("vae", device="cuda:0", step=3, calls=(3, 4))
    finding = Finding("rule", {"a_ns": 5, "b": "x"}, where, 7, 0.5, "high")
    table = checked(
        findings_table([finding, msgspec.structs.replace(finding, cost_ns=None)]), FINDINGS
    )
    assert table["cost_ns"].to_list() == [7, None]
    row = table.row(0, named=True)
    assert json.loads(row["evidence"]) == {"a_ns": 5, "b": "x"}
    assert (row["submodule"], row["layer"], row["step"], row["calls"]) == ("vae", None, 3, "3, 4")
    assert findings_table([]).schema == table.schema


def test_untraced_calls_count():
    """Text projected in two of four calls, 5 ns each, one of them needed: 10 ns with the others."""
    from tests.analysis.findings import redundancy_cases

    analysis = redundancy_cases.text_projected_in_four_calls_of_which_two_were_traced()
    assert analysis.redundant_work["saved_ns"].to_list() == [5]
    (finding,) = [f for f in find(analysis) if f.rule == "recomputed"]
    assert finding.cost_ns == 10
    assert isinstance(analysis.redundant_work, pl.DataFrame)


def test_what_was_not_recorded_is_no_time_of_the_host():
    """The host polls for 5 ms in which a launched kernel waits for something that nobody recorded:
    that is no idle time, so the finding about 0.3 ms between two calls does not name it."""
    calls = [
        make_call(n, "t", 1_000 * us, 1_000 * (us + took), device="cuda:0")
        for n, us, took in ((0, 0, 6_500), (1, 6_800, 500))
    ]
    commands = [
        Command(0, "cpu:0", "thread 1", "host", "cudaLaunchKernel", 0, 10_000),
        Command(0, "cpu:0", "thread 1", "host", "cudaLaunchKernel", 20_000, 10_000),
        Command(1, "cpu:0", "thread 1", "host", "cudaLaunchKernel", 6_800_000, 10_000),
        Command(0, "cuda:0", "stream 7", "compute", "a", 20_000, 980_000),
        Command(0, "cuda:0", "stream 7", "compute", "b", 6_000_000, 500_000),
        Command(1, "cuda:0", "stream 7", "compute", "c", 6_820_000, 480_000),
    ]
    polls = HostActivity(
        name="poll",
        kind=ActivityKind.FUNCTION,
        thread=HOST_TRACK,
        start_ns=EPOCH + 1_000_000,
        duration_ns=5_000_000,
    )
    info = make_info(host_activities=(polls,))
    analysis = analyze(linked(make_run(calls, commands, info=info), (0, 3), (1, 4), (2, 5)))
    assert analysis.gaps["cause"].to_list()[:2] == ["unrecorded", "host"]
    assert analysis.gaps["host_activity"][0] == "poll"
    (found,) = [one for one in find(analysis) if one.rule == "idle_gaps"]
    assert "host_in" not in found.evidence
