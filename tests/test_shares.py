"""What is a part of a whole says so in its name and lies in 0…1, on every trace that can be read.

Values are looked at before they are formatted. A trace that an importer learns to read is tested
without a word here.
"""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest

from profiler.analysis.analyze import analyze
from profiler.analysis.comparison.columns import TABLES as COMPARED
from profiler.analysis.registry import tables
from profiler.errors import InputError
from profiler.report.sections.headline import headline
from profiler.sources.load import load
from tests.corpus import CORPUS, needs_corpus

SAMPLES = Path(__file__).resolve().parents[1] / "sample_traces"
READ_AT_LEAST = {  # traces that can be imported today
    "sd35_mi300x.json.gz",
    "sglang_Qwen3-8B_prefilldecode.json.gz",
    "sglang_Qwen3-8B_decode.json.gz",
    "graph_execution.json.gz",
    "Qwen_Qwen1.5-0.5B-Chat__h100.json.gz",
    "Qwen_Qwen1.5-0.5B-Chat__mi300.json.gz",
}
PART = re.compile(r"share(?!d)|utilization|of_peak|of_roofline")
NO_PARTS = {  # ratios that 1 does not bound
    *("parallelism", "imbalance", "device_imbalance", "spread", "overhead_ratio"),
    *("change", "low", "high"),
}
_PERCENT = re.compile(r"(-|\N{MINUS SIGN})?(\d+(?:\.\d+)?)\s%")


def _candidates():
    """Every file of the corpus, and the samples of this project."""
    corpus = [path for path in CORPUS.rglob("*") if path.is_file()] if CORPUS.is_dir() else []
    named = [path for path in corpus if not path.name.startswith(("LICENSE", "SOURCE", "truth"))]
    return [*sorted(named), *sorted(path.parent for path in SAMPLES.glob("*/manifest.json"))]


@pytest.fixture(scope="module")
def analyses():
    """The analysis of every trace that can be imported, by the name of its file."""
    found = {}
    for path in _candidates():
        try:
            run = load(path)
        except InputError:
            continue
        found[path.name] = analyze(run)
        run.close()
    return found


def _outside(frame, name):
    """Values of a column that are no part of anything: below 0, above 1, NaN."""
    values = frame[name].drop_nulls()
    if not values.dtype.is_numeric():
        return []
    return values.filter(~values.is_between(0, 1) | values.cast(pl.Float64).is_nan()).to_list()


@needs_corpus
def test_what_can_be_read_was_read(analyses):
    """The other tests are about something."""
    assert set(analyses) >= READ_AT_LEAST


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
            assert frame["refuted_ns"].sum() == 0, trace
            known = frame.filter(pl.col("roofline_ns").is_not_null())
            assert (known["beyond_ns"] >= 0).all()
            assert (known["roofline_ns"] + known["beyond_ns"] <= known["total_ns"]).all()


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
