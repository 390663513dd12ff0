"""Memory by hand: peaks, who held it, what is left; and what the counters never say."""

import dataclasses
import tracemalloc

import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.analysis.memory import find_memory, last_begun
from profiler.run import COUNTERS, schema
from tests.analysis.asked import asked
from tests.examples import examples
from tests.runs import EPOCH, make_call, make_info, make_run

CALLS = (
    make_call(0, "text_encoder", 0, 100, stage="encode", branch="prompt", device="cpu:0"),
    make_call(1, "transformer", 100, 200, step=0, device="cpu:0"),
    make_call(2, "vae", 200, 300, stage="decode", device="cpu:0"),
)


def _run(samples, calls=CALLS, **info):
    """`samples`: call, device, counter, time in ns, bytes."""
    rows = [(c, d, name, "bytes", EPOCH + at, float(v)) for c, d, name, at, v in samples]
    counters = pl.DataFrame(rows, schema=schema(COUNTERS), orient="row")
    run = make_run(calls, info=make_info("capture", **info))
    return dataclasses.replace(run, counters=counters)


def _arenas():
    return [
        (0, "cpu:0", "text_encoder arena in use", 10, 120),
        (0, "cpu:0", "text_encoder arena in use", 50, 100),
        (1, "cpu:0", "transformer arena in use", 110, 500),
        (1, "cpu:0", "transformer arena in use", 150, 700),
        (1, "cpu:0", "transformer arena in use", 190, 500),
        (2, "cpu:0", "vae arena in use", 210, 50),
        (2, "cpu:0", "vae arena in use", 250, 90),
    ]


WEIGHTS = {
    "text_encoder": {"device": "cpu:0", "weight_bytes": 100},
    "transformer": {"device": "cpu:0", "weight_bytes": 500},
    "vae": {"device": "cpu:0", "weight_bytes": 50},
}


def test_arenas_add_up():
    """At 150 ns: text encoder 100, transformer 700, and the vae's 50 that are loaded already."""
    found = asked(_run(_arenas(), submodules=WEIGHTS, hardware={"memory_bytes": 1000}))
    row = found.memory_devices.row(0, named=True)
    assert (row["peak_bytes"], row["peak_ns"] - EPOCH) == (850, 150)
    assert (row["submodule"], row["stage"], row["step"]) == ("transformer", "denoise", 0)
    assert (row["weight_bytes"], row["weights_counted"], row["required_bytes"]) == (650, True, 850)
    assert (row["size_bytes"], row["headroom_bytes"]) == (1000, 150)
    held = found.memory.select(
        "submodule", "retained_bytes", "activation_bytes", "peak_bytes"
    ).rows()
    assert held == [
        ("transformer", 700, 200, 700),
        ("text_encoder", 100, 20, 120),
        ("vae", 50, 40, 90),
    ]


def test_an_arena_takes_what_a_call_needs_at_once():
    """700 from the first node on, 500 of them weights: 200 of activations, though 10 were added.
    Weights mapped from a file are not in the arena: then all 30 that it held are activations."""
    samples = [
        (1, "cpu:0", "transformer arena in use", 110, 690),
        (1, "cpu:0", "transformer arena in use", 150, 700),
        (2, "cpu:0", "vae arena in use", 210, 25),
        (2, "cpu:0", "vae arena in use", 250, 30),
    ]
    held = asked(_run(samples, submodules=WEIGHTS)).memory
    found = dict(held.select("submodule", "activation_bytes").iter_rows())
    assert (found["transformer"], found["vae"]) == (200, 30)


def test_timeline_holds_the_peak():
    """Its points are in order, and one of them is the peak."""
    line = asked(_run(_arenas())).memory_timeline
    assert line["time_ns"].is_sorted()
    assert line["bytes"].max() == 850
    assert line.filter(pl.col("bytes") == 850)["submodule"].unique().to_list() == ["transformer"]


def test_timeline_falls_when_a_short_peak_ends():
    """900 bytes for 5 of 25,600 ns are not drawn until the next sample 20,000 ns later: what the
    course holds at a moment is never below the counter, and above it for one interval of 100 ns
    at most. It ends with what was held last."""
    samples = [(0, 100), (1_010, 900), (1_015, 100), (21_000, 300), (25_590, 300), (25_599, 50)]
    rows = [(0, "cuda:0", "torch allocated", at, held) for at, held in samples]
    line = asked(_run(rows)).memory_timeline
    times, held = line["time_ns"].to_numpy() - EPOCH, line["bytes"].to_numpy()
    moments = np.arange(25_600)
    drawn = held[np.searchsorted(times, moments, side="right") - 1]
    ats, values = (np.array(column) for column in zip(*samples, strict=True))
    truth = values[np.searchsorted(ats, moments, side="right") - 1]
    assert (drawn >= truth).all()
    assert np.count_nonzero(drawn > truth) <= 200
    assert (times[-1], held[-1]) == (25_599, 50)


def test_torch_on_a_gpu_counts_everything():
    """600 weights, 300 of the transformer's activations, 40 nobody is known to hold."""
    calls = [dataclasses.replace(call, device="cuda:0") for call in CALLS]
    known = {name: value | {"device": "cuda:0"} for name, value in WEIGHTS.items()}
    samples = [
        (0, "cuda:0", "torch allocated", 0, 650),
        (0, "cuda:0", "torch allocated", 90, 690),
        (1, "cuda:0", "torch allocated", 100, 690),
        (1, "cuda:0", "torch allocated", 150, 990),
        (2, "cuda:0", "torch allocated", 200, 690),
    ]
    devices = {"cuda:0": {"memory_bytes": 2000}}
    found = asked(_run(samples, calls, submodules=known, devices=devices))
    row = found.memory_devices.row(0, named=True)
    assert (row["peak_bytes"], row["required_bytes"], row["headroom_bytes"]) == (990, 990, 1010)
    held = dict(found.memory.select("submodule", "retained_bytes").iter_rows())
    assert held == {"transformer": 800, "text_encoder": 100, "vae": 50, None: 40}


def test_torch_on_a_cpu_counts_changes_alone():
    """Weights are added to what is needed."""
    name = "torch allocated since the pipeline began"
    samples = [(1, "cpu:0", name, 100, 0), (1, "cpu:0", name, 150, 300)]
    row = asked(_run(samples, submodules=WEIGHTS)).memory_devices.row(0, named=True)
    assert (row["peak_bytes"], row["weights_counted"], row["required_bytes"]) == (300, False, 950)


def test_weights_that_moved_between_devices_are_not_all_held():
    """With offloading 200 bytes were in use, less than all weights: only who ran is known."""
    calls = [dataclasses.replace(call, device="cuda:0") for call in CALLS]
    known = {name: {"device": "cuda:0", "weight_bytes": 150} for name in WEIGHTS}
    samples = [
        (1, "cuda:0", "torch allocated", 100, 150),
        (1, "cuda:0", "torch allocated", 150, 200),
    ]
    found = asked(_run(samples, calls, submodules=known)).memory
    held = dict(found.select("submodule", "retained_bytes").iter_rows())
    assert held == {"transformer": 200, "text_encoder": None, "vae": None}


def test_asked_for_sizes_go_first():
    """16 for one device, 8 for all others; below 0 there is too little."""
    run = _run(_arenas(), submodules=WEIGHTS, hardware={"memory_bytes": 1000})
    assert asked(run, device_memory={"": 800}).memory_devices["headroom_bytes"].to_list() == [-50]
    sizes = {"": 800, "cpu:0": 900}
    assert asked(run, device_memory=sizes).memory_devices["headroom_bytes"].to_list() == [50]


def test_weights_alone_where_nothing_was_counted():
    """No counters: what weights need is known, the peak is not."""
    row = asked(_run([], submodules=WEIGHTS)).memory_devices.row(0, named=True)
    assert (row["peak_bytes"], row["required_bytes"], row["weights_counted"]) == (None, 650, None)


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 300), st.integers(0, 1000)),
        min_size=1,
        max_size=20,
    )
)
@settings(deadline=None, max_examples=examples(50))
def test_parts_add_up_to_the_peak(samples):
    """What submodules held at the peak is the peak, which no single arena exceeds."""
    calls = [make_call(i, name, 0, 300, device="cpu:0") for i, name in enumerate("ab")]
    rows = [(0, "cpu:0", f"{name} arena in use", at, value) for name, at, value in samples]
    found = asked(_run(rows, calls))
    row = found.memory_devices.row(0, named=True)
    assert found.memory["retained_bytes"].sum() == row["peak_bytes"]
    assert (found.memory["peak_bytes"].drop_nulls() <= row["peak_bytes"]).all()
    assert row["min_bytes"] <= row["peak_bytes"] == found.memory_timeline["bytes"].max()


def test_less_than_before_still_needs_the_weights():
    """torch on a CPU freed 70 bytes of before: the 650 of weights are needed all the same."""
    samples = [(0, "cpu:0", "torch allocated since the pipeline began", 10, -70)]
    row = asked(_run(samples, submodules=WEIGHTS)).memory_devices.row(0, named=True)
    assert (row["peak_bytes"], row["required_bytes"]) == (-70, 650)


def test_nobody_holds_more_than_is_needed():
    """From 100 below the begin the transformer rises to 10 above it: 10 is all that is needed."""
    name = "torch allocated since the pipeline began"
    samples = [(1, "cpu:0", name, 100, -100), (1, "cpu:0", name, 150, 10)]
    known = {"transformer": {"device": "cpu:0", "weight_bytes": 0}}
    found = asked(_run(samples, calls=CALLS[1:2], submodules=known))
    assert found.memory_devices["required_bytes"].to_list() == [10]
    assert found.memory.select("submodule", "retained_bytes").rows() == [("transformer", 10)]


_SPANS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)), max_size=12)


@settings(deadline=None)
@given(_SPANS, st.lists(st.integers(-2, 45), max_size=8))
def test_the_last_call_to_begin_of_those_that_run(spans, times):
    """At every moment, by looking at every call."""
    start = np.array([begin for begin, _ in spans], dtype=np.int64)
    end = start + np.array([took for _, took in spans], dtype=np.int64)
    found = last_begun(np.arange(len(spans)), start, end, np.array(times, dtype=np.int64))
    for row, time in zip(found.tolist(), times, strict=True):
        running = [n for n in range(len(spans)) if start[n] <= time <= end[n]]
        assert row == max(running, key=lambda n: (start[n], n), default=-1)


def test_the_timeline_of_many_calls_takes_little_memory():
    """256 points and 20,000 calls are no table of 5 million (40 MB as integers)."""
    calls = [make_call(n, "vae", 100 * n, 100 * n + 90, device="cpu:0") for n in range(20_000)]
    samples = [(n, "cpu:0", "vae arena in use", 100 * n + 50, n) for n in range(0, 20_000, 20)]
    run = _run(samples, calls)
    tracemalloc.start()
    found = find_memory(run, {})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(found.timeline) == 257  # 256 intervals and the end
    assert found.timeline["submodule"].unique().to_list() == ["vae"]
    assert peak < 20e6
