"""The report checks itself: of no healthy trace do figures contradict each other, and figures that
do are seen, named in `--json` and on the first screen."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from profiler.analysis.analyze import analyze
from profiler.analysis.context import Inputs, Selection
from profiler.analysis.overview import extent
from profiler.analysis.result import ReportInput
from profiler.analysis.self_check import Check, check_figures
from profiler.errors import InputError
from profiler.report.build import build_report
from profiler.report.files import to_json
from profiler.tools.sources import load
from profiler.trace.manifest_fields import Overhead
from tests.corpus import CORPUS, SD35, needs_corpus
from tests.examples import examples
from tests.importers.samples import options_of, samples
from tests.runs import tiny_run

ROOT = Path(__file__).resolve().parents[2]
NIGHT = examples(100) > 100
OWN = [path.parent for path in sorted((ROOT / "sample_traces").glob("*/manifest.json"))]
EVIDENCE = sorted((ROOT / "tests" / "evidence" / "h200").glob("*.json.gz"))
FEW = {  # by kind of recording: ranks, several devices, work from before, graphs
    *("torch_multirank/trace_filter", "nsys/mfu_2gpu_before.sqlite"),
    *("xplane/jax_conv_minimal_08.xplane.pb", "aihub/whisper_base.perf.yaml"),
    "torch_pairs/Qwen_Qwen1.5-0.5B-Chat__h100.json.gz",
}


def _traces() -> list[Path]:
    """Every healthy trace at night, else one of a kind."""
    wild = [CORPUS / "wild" / path.name for path in sorted((CORPUS / "wild").glob("*.json.gz"))]
    names = sorted({*samples(), *FEW})
    found = [CORPUS / name for name in names if NIGHT or name in FEW]
    return found + OWN + (wild + EVIDENCE if NIGHT else [])


@needs_corpus
@pytest.mark.parametrize("path", _traces(), ids=lambda path: path.name)
def test_no_figures_of_a_healthy_trace_contradict_each_other(path):
    """Neither a share, nor a sum, nor a bound."""
    try:
        run = load(path, import_options=options_of(path) if path.is_relative_to(CORPUS) else {})
    except InputError:
        pytest.skip("holds no run")
    assert analyze(run).contradictions["sentence"].to_list() == []


def _tampered(table: str, **columns: pl.Expr) -> Inputs:
    """The inputs of the tiny run, of which a table says something else."""
    of = Inputs(tiny_run(), Selection(), (), {})
    of.made[table] = of.table(table).with_columns(**columns)
    return of


@pytest.mark.parametrize(
    ("table", "columns", "check"),
    [
        ("devices", {"busy_ns": pl.col("busy_ns") + 10_000}, Check.BUSY),
        ("devices", {"idle_share": pl.col("idle_share") / 2}, Check.IDLE),
        ("calls", {"busy_ns": pl.col("elapsed_ns") + 7}, Check.DEVICE_TIME),
        ("steps", {"busy_ns": pl.col("elapsed_ns") + 7}, Check.DEVICE_TIME),
        ("submodules", {"median_ns": pl.col("max_ns") + 1}, Check.MEDIAN),
        ("submodules", {"median_ns": pl.lit(0, pl.Int64)}, Check.MEDIAN),
        ("submodules", {"share": pl.lit(1.7)}, Check.SHARE),
        ("stages", {"share": pl.lit(-0.1)}, Check.SHARE),
        ("idle", {"before_after_ns": pl.lit(-5, pl.Int64)}, Check.LENGTH),
        ("pipelines", {"idle_ns": pl.col("elapsed_ns")}, Check.PARTS),
        ("module_tree", {"elapsed_ns": pl.col("elapsed_ns") * 2}, Check.TREE),
        ("findings", {"cost_ns": pl.lit(10**9, pl.Int64)}, Check.GAIN),
    ],
)
def test_a_wrong_figure_is_seen(table, columns, check):
    """Whatever table it stands in, by the comparison that is about it."""
    assert not [*check_figures(Inputs(tiny_run(), Selection(), (), {}))]
    assert check in {one.check for one in check_figures(_tampered(table, **columns))}


@needs_corpus
def test_a_wait_gains_no_more_than_the_device_computed_nothing():
    """SD3.5's device is idle for 482 of 1,194 ms: 500 is more, by more than a replay may be off."""
    of = Inputs(load(SD35), Selection(), (), {})
    findings = of.table("findings")
    for cost, wrong in ((490, []), (500, [(Check.GAIN, "host_bound", "idle.idle_of_run_ns")])):
        own = pl.when(rule="host_bound").then(pl.lit(cost * 10**6, pl.Int64))
        of.made["findings"] = findings.with_columns(cost_ns=own.otherwise("cost_ns"))
        assert [(one.check, one.row, one.other) for one in check_figures(of)] == wrong


def test_a_contradiction_is_on_the_first_screen_and_in_json():
    """Both values, in one plain line and as numbers."""
    run = tiny_run()
    analysis = analyze(run)
    of = _tampered("devices", busy_ns=pl.lit(45_600_000, pl.Int64))
    frames = {**analysis.frames, "contradictions": of.table("contradictions")}
    object.__setattr__(analysis, "frames", frames)
    report = build_report(ReportInput(analysis, *extent(run)))
    (line,) = [fact for fact in report.opening.checks if fact.label == "Uncertain"]
    assert line.value.replace("\N{NO-BREAK SPACE}", " ").endswith(
        "busy 45.6 ms and end to end 1.00 µs contradict each other; please report"
    )
    (first, *_) = json.loads(to_json(analysis))["contradictions"]
    assert (first["figure"], first["value"]) == ("devices.busy_ns", 45_600_000)
    assert (first["other"], first["other_value"]) == ("accounting.wall_ns", 1_000)


def test_no_interval_of_what_tracing_cost_goes_below_zero():
    """Whatever the noise was, the run took some time without tracing; older bundles, too."""
    assert Overhead(traced_ns=5, untraced_low_ns=-27, untraced_high_ns=9).untraced_low_ns == 0
