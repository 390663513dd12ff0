"""What is a part of a whole says so in its name and lies in 0…1, on every trace that can be read.

Values are looked at before they are formatted. Every sample of the corpus is read as its users
would give it, with its options, folders as one run; for importers of which nobody published a
sample, files as their generators make them. A trace that an importer learns to read is tested
without a word here; a new importer without a sample fails a test until it has one.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import polars as pl
import pytest

from profiler.analysis import headline, tables
from profiler.analysis.analyze import analyze
from profiler.compare.tables import TABLES as COMPARED
from profiler.errors import InputError
from profiler.importers import recognised
from profiler.importers.importing import built_in
from profiler.tools.sources import load
from tests.corpus import CORPUS, PERFETTO_TESTS, needs_corpus
from tests.importers.rbln.generator import write_sd3
from tests.importers.samples import options_of, samples
from tests.importers.serving.test_stage_times import BENCHMARK, DUMP, TABLE, omni
from tests.importers.test_other_views import unitrace, write_perfetto
from tests.importers.triton.simulated_server import (
    SD3_ENSEMBLE,
    Server,
    fragments,
    open_loop,
)
from tests.importers.triton.simulated_server import trace as traced

SAMPLES = Path(__file__).resolve().parents[1] / "sample_traces"
ASCEND = Path(__file__).resolve().parent / "importers" / "ascend" / "data"
JOB = "torch_multirank/trace_filter"  # two ranks of a job, as one run
REFUSED = {  # what of the corpus holds no run: a report without layers, a graph without times
    "openvino/winml_resnet_intel_npu__benchmark_report.csv",
    "tensorrt/resnet_fp16_a100.graph.json",
}
TRAINING = ("torch_kineto_tb", "torch_multirank", "benchmark_result")
PART = re.compile(r"share(?!d)|utilization|of_peak|of_roofline")
NO_PARTS = {  # ratios that 1 does not bound
    *("parallelism", "imbalance", "device_imbalance", "spread", "overhead_ratio"),
    *("change", "low", "high"),
}
_PERCENT = re.compile(r"(-|\N{MINUS SIGN})?(\d+(?:\.\d+)?)\s%")


def _candidates(folder):
    """What is read, by name: its path, and the options of its import."""
    found = {name: (CORPUS / name, options_of(CORPUS / name)) for name in [*samples(), JOB]}
    found |= {path.name: (path, {}) for path in PERFETTO_TESTS}
    bundles = (path.parent for path in SAMPLES.glob("*/manifest.json"))
    found |= {f"sample_traces/{path.name}": (path, {}) for path in bundles}
    return found | _generated(folder)


def _generated(folder):
    """Files of producers of which the corpus has none."""
    requests = traced(Server(SD3_ENSEMBLE, seed=5).run(open_loop(20, 50_000_000, seed=5)))
    texts = {
        "triton.json": fragments(requests),
        "sglang.json": json.dumps(DUMP),
        "vllm_omni.jsonl": omni("jsonl"),
        "diffusers.csv": TABLE,
        "unitrace.json": json.dumps(unitrace()),
        "fastvideo.json": json.dumps(BENCHMARK),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    write_sd3(folder / "rbln", steps=2)
    given = {name: (folder / name, {}) for name in texts}
    given["app.pftrace"] = write_perfetto(folder), {"device": "GPU"}
    given |= {f"ascend/{path.name}": (path, {}) for path in ASCEND.glob("*.gz")}
    return {**given, "rbln": (folder / "rbln", {"pipeline": "sd3", "steps": 2})}


@pytest.fixture(scope="module")
def read(tmp_path_factory):
    """The analysis of every trace that can be imported, by its name; which importers read any, and
    what was refused."""
    found, names, refused = {}, set(), set()
    for name, (path, options) in _candidates(tmp_path_factory.mktemp("made")).items():
        try:
            run = load(path, import_options=options)
            importer = recognised([path])
        except InputError:
            refused.add(name)
            continue
        names |= set() if importer is None else {importer.name}
        found[name] = analyze(run)
        run.close()
    return found, names, refused


@pytest.fixture(scope="module")
def analyses(read):
    """The analysis of every trace that can be imported, by its name."""
    return read[0]


def _outside(frame, name):
    """Values of a column that are no part of anything: below 0, above 1, NaN."""
    values = frame[name].drop_nulls()
    if not values.dtype.is_numeric():
        return []
    return values.filter(~values.is_between(0, 1) | values.cast(pl.Float64).is_nan()).to_list()


@needs_corpus
def test_every_importer_read_something(read):
    """The other tests are about every importer's runs, and about all that the corpus has of them
    but for what holds no run."""
    _, names, refused = read
    ours = {"bundles"}  # of ranks of a job: tests/programs/test_ranks.py
    asked = {importer.name for importer in built_in() if not importer.if_asked}
    assert asked - ours <= names
    assert refused == REFUSED


@needs_corpus
def test_parts_lie_between_nothing_and_all(analyses):
    """Every column of every table that is a part of a whole."""
    wrong = [
        (trace, table, name, values[:3])
        for trace, analysis in analyses.items()
        for table, frame in analysis.tables().items()
        for name in frame.columns
        if PART.search(name) and (values := _outside(frame, name))
    ]
    assert not wrong


@needs_corpus
def test_parts_in_findings_lie_between_nothing_and_all(analyses):
    """What findings state as evidence, and what they say to save."""
    wrong = [
        (trace, found.rule, name, value)
        for trace, analysis in analyses.items()
        for found in analysis.findings
        for name, value in [*found.evidence.items(), ("cost_share", found.cost_share)]
        if PART.search(name) and isinstance(value, (int, float)) and not 0 <= value <= 1
    ]
    assert not wrong


@needs_corpus
def test_parts_in_the_sentence_above_lie_between_nothing_and_all(analyses):
    """The first sentence of the report has no negative part and none beyond 100 %."""
    wrong = [
        (trace, text)
        for trace, analysis in analyses.items()
        if (text := str(headline(analysis, 0)))
        for sign, number in _PERCENT.findall(text)
        if sign or float(number) > 100
    ]
    assert not wrong


@needs_corpus
def test_nothing_of_the_corpus_is_beyond_its_roofline(analyses):
    """Of no trace is the roofline refuted: what is counted is a bound as it stands."""
    for trace, analysis in analyses.items():
        for frame in (analysis.roofline, analysis.roofline_roles):
            assert frame["not_explained_ns"].sum() == 0, trace
            known = frame.filter(pl.col("roofline_ns").is_not_null())
            assert (known["excess_ns"] >= 0).all()
            assert (known["roofline_ns"] + known["excess_ns"] <= known["total_ns"]).all()


@needs_corpus
def test_hardly_any_device_time_of_torch_is_other(analyses):
    """Less than 5 % of what devices did in each trace of torch, 10 % where it trained."""
    traces = {name: found for name, found in analyses.items() if name.startswith(("torch", "hta"))}
    assert len(traces) >= 16
    for name, analysis in traces.items():
        other = analysis.roles.filter(pl.col("role") == "other")["total_ns"].sum()
        limit = 0.1 if any(mark in name for mark in TRAINING) else 0.05
        assert other < limit * analysis.roles["total_ns"].sum(), name


def test_parts_are_named_as_parts():
    """A column that reports show as a share is named as one; a ratio that 1 does not bound never
    has such a name, and there is no third sort."""
    for table in [*(t.columns for t in tables()), *COMPARED.values()]:
        for column in table:
            is_part = PART.search(column.name) is not None
            assert not (column.kind == "share" and not is_part), column
            assert not (is_part and column.name in NO_PARTS), column
            if column.unit == "ratio":
                assert is_part or column.name in NO_PARTS, column
