"""Operators that no recorder writes, or that launch nothing: the import ends in a sound bundle."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.errors import InputError
from profiler.importers.kineto.calls import Lookup, Section
from tests.examples import examples

from .test_guessed_calls import LATENTS, OUT, PACKED, ranges
from .test_regions import decoder, work
from .traces import Trace, calls, flux

TOKENS = [(49408, 768), (1, 77)]
IMAGE = [(1, 128, 8, 8), (3, 128, 3, 3)]
PARTS = (
    *(("aten::convolution", dims) for dims in (LATENTS, IMAGE)),
    *(("aten::linear", dims) for dims in (PACKED, OUT)),
    ("aten::embedding", TOKENS),
)
NAMES = st.sampled_from(
    [f"aten::{name}" for name in ("linear", "addmm", "convolution", "embedding", "mean", "cat")]
)
ODD = st.recursive(st.integers() | st.booleans() | st.none() | st.text(max_size=2), st.lists)
TIMES = st.integers(0, 40)
THREADS = st.integers(1, 2)


def test_a_product_of_one_operand_is_none(tmp_path):
    """`addmm` with two inputs tells one factor: it is passed over, and the call is found."""
    trace = Trace()
    work(trace, "aten::addmm", 0, [(77,), (77, 768)])
    decoder(trace, 100)
    assert calls(trace.imported(tmp_path)) == [("vae", "decode", None, -1)]


def test_an_encoder_behind_all_launches_ends_with_the_last_operator(tmp_path):
    """Where no operator launched a kernel, as on a processor, and where none did any more."""
    dims = {"Input Dims": [list(one) for one in TOKENS]}
    for number, launched in enumerate((False, True)):
        trace = Trace()
        if launched:
            decoder(trace, 0)
        else:
            for place, (name, shape) in enumerate(PARTS[:2]):
                trace.op(name, 20 * place, 10, **{"Input Dims": [list(one) for one in shape]})
        trace.op("aten::embedding", 100, 10, **dims)
        trace.op("aten::mul", 120, 30)
        folder = tmp_path / str(number)
        folder.mkdir()
        assert ranges(trace.imported(folder)) == [("vae", 0, 30), ("text_encoder", 100, 50)]


def test_an_argument_that_nests_without_end_is_none(tmp_path):
    """Concrete inputs are text, in which a parser can be made to recurse."""
    trace = flux()
    told = {"Input Dims": [[2, 8], [], [], []], "Input type": ["float", "", "", ""]}
    told["Concrete Inputs"] = ["", "[" * 100_000, "True", ""]
    trace.op("aten::mean", 22, 5, **told)
    trace.kernel("reduce", 60, 10, launched=23)
    shapes = trace.imported(tmp_path).commands["shapes"].cast(str).to_list()
    assert [text for text in shapes if text] == ["in: float32[2,8]"]


@settings(max_examples=examples(60), deadline=None)
@given(
    parts=st.lists(st.tuples(st.sampled_from(PARTS), TIMES, THREADS, st.booleans()), max_size=12),
    odd=st.lists(st.tuples(NAMES, TIMES, ODD, ODD, ODD), max_size=4),
)
def test_any_arrangement_of_operators_is_imported_or_refused(parts, odd):
    """No call ends before it begins, and no kernel is lost."""
    trace = Trace()
    for (name, dims), start, tid, launches in parts:
        if launches:
            work(trace, name, start, dims, tid)
        else:
            trace.op(name, start, 10, tid, **{"Input Dims": [list(one) for one in dims]})
    for name, start, dims, types, values in odd:
        told = {"Input Dims": dims, "Input type": types, "Concrete Inputs": values}
        trace.op(name, start, 5, **told)
        trace.kernel("k", start, 5, launched=start + 1)
    with tempfile.TemporaryDirectory() as folder:
        try:
            run = trace.imported(Path(folder))
        except InputError:
            return
    assert not len(run.calls) or run.calls["duration_ns"].min() >= 0
    launched = len(odd) + sum(launches for *_, launches in parts)
    assert (run.commands["device"] == "cuda:0").sum() == launched


@settings(max_examples=examples(200), deadline=None)
@given(
    spans=st.lists(st.tuples(TIMES, st.integers(-2, 9), THREADS), min_size=1, max_size=6),
    time_ns=TIMES,
    thread=THREADS,
)
def test_a_section_is_looked_up_as_a_search_of_all_finds_it(spans, time_ns, thread):
    """Around the time, on the thread where there is one; else the next, else the last."""
    sections = [Section("", tid, start, start + length) for start, length, tid in sorted(spans)]
    around = [one for one in sections if one.start_ns <= time_ns < one.end_ns]
    own = [one for one in around if one.thread == thread]
    later = [one for one in sections if one.start_ns > time_ns]
    expected = (own or around or later or sections[-1:])[0]
    assert Lookup(sections).of(thread, time_ns) is expected
