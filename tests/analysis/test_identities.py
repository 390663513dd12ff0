"""What holds of every analysis, on runs that nobody would think of, and on every trace there is."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from profiler.analysis import Selection
from profiler.analysis.analyze import analyze
from profiler.errors import InputError
from profiler.importers import import_trace
from profiler.report import print_report, to_json
from profiler.run import intervals
from profiler.tools.sources import load
from profiler.trace.events import STAGES
from tests.analysis.identities import check_all
from tests.analysis.random_runs import pipeline_runs, runs
from tests.corpus import CORPUS, PERFETTO_TESTS, SD35, needs_corpus
from tests.examples import examples_of_reports
from tests.importers.rbln.generator import write_sd3
from tests.importers.rbln.importing import import_rbln
from tests.report.rendered import report_of
from tests.runs import make_info, tiny_run

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = sorted(path.parent for path in (ROOT / "sample_traces").glob("*/manifest.json"))
IMPORTED = [SD35, *sorted(CORPUS.glob("hta/*.json.gz"))]
REFUSED = sorted(CORPUS.glob("tensorrt/*graph.json"))

_slow = settings(suppress_health_check=[HealthCheck.too_slow], max_examples=examples_of_reports(60))


def _reported(analysis):
    """The analysis, once it was printed and written as JSON without NaN and infinity."""
    print_report(Console(file=io.StringIO(), width=100), report_of(analysis))
    assert to_json(analysis).endswith("}\n")
    return analysis


@given(runs())
@_slow
def test_identities_hold_of_any_run(run):
    """Sums add up, unions are no longer than sums, paths no longer than walls; it is reported."""
    check_all(run, _reported(analyze(run)))


@given(st.one_of(runs(), pipeline_runs()))
@_slow
def test_identities_hold_in_small_batches(run):
    """Long runs are worked on in batches: four commands at a time change nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intervals, "_BATCH", 4)
        check_all(run, analyze(run))


_SELECTIONS = st.builds(
    Selection,
    stage=st.lists(st.sampled_from(STAGES), max_size=2).map(tuple),
    submodule=st.sampled_from([(), ("transformer",), ("vae", "text_encoder")]),
    device=st.sampled_from([(), ("cpu:0",), ("cuda:0",)]),
    step=st.sampled_from([(), ("last",), ("0-2", "3")]),
)


@given(st.one_of(runs(), pipeline_runs()), _SELECTIONS)
@_slow
def test_any_part_of_any_run_is_reported(run, selection):
    """A selection is analyzed, or refused where the run lacks it."""
    try:
        analysis = _reported(analyze(run, selection))
    except InputError:
        return
    assert analysis.operators["commands"].sum() == analysis.run.selected_commands
    on_devices = analysis.operators.filter(~analysis.operators["host"])
    assert analysis.roles["total_ns"].sum() <= on_devices["total_ns"].sum()


@given(pipeline_runs())
@_slow
def test_identities_hold_of_pipelines_on_a_gpu(run):
    """The same where hosts launch and wait, steps repeat, and pipeline calls may overlap."""
    check_all(run, _reported(analyze(run)))


@given(st.sampled_from([1e-3, 1e3, 1, 0.5]))
def test_any_overhead_ratio_breaks_nothing(factor):
    """Whatever factor a manifest can state."""
    info = make_info("capture", submodules={"transformer": {"overhead_ratio": {"factor": factor}}})
    run = tiny_run(info=info)
    check_all(run, _reported(analyze(run)))


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_identities_hold_of_samples(path):
    """Every bundle in `sample_traces`, and its merged trace alone."""
    for part in (path, path / "merged.pb"):
        run = load(part)
        check_all(run, _reported(analyze(run)))


@needs_corpus
@pytest.mark.parametrize("path", PERFETTO_TESTS, ids=lambda path: path.stem)
def test_identities_hold_of_traces_of_others(path):
    """Single .pb of another producer: no calls, no spans."""
    run = load(path)
    check_all(run, _reported(analyze(run)))


@needs_corpus
@pytest.mark.parametrize("path", IMPORTED, ids=lambda path: path.stem)
def test_identities_hold_of_what_is_imported(path, tmp_path):
    """The real SD3.5 trace of an MI300X, and traces without modules."""
    run = load(import_trace(path, tmp_path))
    analysis = _reported(analyze(run))
    check_all(run, analysis)
    of_roofline = analysis.roofline_roles.filter(analysis.roofline_roles["bound"] == "compute")
    found = of_roofline["of_roofline"].drop_nulls()
    assert ((found > 0) & (found <= 1)).all()  # published peaks are never exceeded
    assert len(found) or path != SD35


@pytest.mark.parametrize("version", ["0.11", "0.12"])
@pytest.mark.parametrize("labelled", [True, False])
def test_identities_hold_of_split_operators(version, labelled, tmp_path):
    """RBLN's traces: operators on several clusters, with transfers beside, on two devices."""
    write_sd3(tmp_path / "traces", steps=6, version=version)
    more = {"pipeline": "sd3", "steps": 6} if labelled else {}
    run = load(import_rbln(tmp_path / "traces", tmp_path / "out", **more))
    analysis = _reported(analyze(run))
    check_all(run, analysis)
    assert {"whole", "compute", "movement"} <= set(analysis.partitioning["part"])


@needs_corpus
@pytest.mark.parametrize("path", REFUSED, ids=lambda path: path.name)
def test_what_cannot_be_imported_is_refused_in_one_sentence(path, tmp_path):
    """What, where, what to do."""
    with pytest.raises(InputError) as caught:
        import_trace(path, tmp_path)
    text = str(caught.value)
    assert text.startswith(str(path))
    assert "\n" not in text
    assert ": " in text
    assert not [*tmp_path.iterdir()]
