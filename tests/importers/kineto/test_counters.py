"""Counters in a trace of torch.profiler: `"ph": "C"` events of any name."""

from __future__ import annotations

import polars as pl
import pytest

from profiler.analysis.analyze import analyze
from tests.importers.kineto.traces import BASE_NS, flux


def _counted(trace, pid, name, *samples):
    for time, args in samples:
        trace.events.append({"ph": "C", "name": name, "pid": pid, "ts": time, "args": args})


def _samples(run):
    rows = run.counters.select(
        pl.col("device", "name").cast(pl.String), pl.col("time_ns") - BASE_NS, "value"
    )
    return sorted(rows.rows())


def test_counters_are_those_of_their_device(tmp_path):
    """The process says whose they are: `GPU 0 Counters` as torch 2.14 names it, the number of a
    device that worked, else the host. Each number in the arguments is a series; what is none is
    left out."""
    trace = flux()
    trace.kernel("gemm", 60, 10, launched=23)
    _counted(trace, "GPU 0 Counters", "SM Clock (MHz)", (10.5, {"": 1980.0}), (40, {"": 1500}))
    _counted(trace, 0, "Queue", (20, {"Queue": 3, "note": "x"}), (30, {"depth": "4"}))
    _counted(trace, "Spans", "threads", (25, {"value": 8}), (26, {"value": None}), (27, {}))
    run = trace.imported(tmp_path)
    assert _samples(run) == [
        ("cpu:0", "threads", 25_000, 8.0),
        ("cuda:0", "Queue", 20_000, 3.0),
        ("cuda:0", "Queue depth", 30_000, 4.0),
        ("cuda:0", "SM Clock (MHz)", 10_500, 1980.0),
        ("cuda:0", "SM Clock (MHz)", 40_000, 1500.0),
    ]
    row = analyze(run).tables()["device_counters"].row(-1, named=True)
    assert (row["counter"], row["samples"], row["min"], row["max"]) == (
        "SM Clock (MHz)",
        2,
        1500.0,
        1980.0,
    )
    assert row["mean"] == pytest.approx((1980 + 1500) / 2)  # each held as long


def test_energy_is_power_times_time(tmp_path):
    """Of the pipeline call and the tile of each step, by hand: power holds until its next
    sample; before the first nothing is known, and the last holds as long as samples are usually
    apart."""
    trace = flux()
    power = [(at, {"": 100.0 + at}) for at in range(0, 1000, 50)]
    _counted(trace, "GPU 0 Counters", "Power (mW)", *power)
    run = trace.imported(tmp_path)
    energy = analyze(run).tables()["energy"]
    wanted = {}
    for step, begin, end in ((-1, 0, 1000), (0, 150, 210), (1, 350, 410)):
        held = {at: max(min(at + 50, end) - max(at, begin), 0) for at, _ in power}
        total = sum(held[at] * args[""] for at, args in power)
        wanted[step] = (sum(held.values()) * 1e3, total * 1e-9)
    found = {
        step: (known, joules)
        for step, known, joules in energy.select("step", "covered_ns", "energy_j").rows()
    }
    assert found.keys() == wanted.keys()
    for step, (known, joules) in wanted.items():
        assert found[step] == (known, pytest.approx(joules))


def test_counters_over_time_come_in_intervals(tmp_path):
    """A counter of 1,000 samples is at most 256 rows, and none of its samples is lost."""
    trace = flux()
    _counted(trace, "GPU 0 Counters", "SM Active (%)", *((at, {"": at % 7}) for at in range(1000)))
    analysis = analyze(trace.imported(tmp_path))
    rows = analysis.tables()["counter_timeline"]
    assert len(rows) <= 256
    assert (rows["samples"].sum(), rows["min"].min(), rows["max"].max()) == (1000, 0.0, 6.0)


def test_a_run_without_counters_has_no_such_tables(tmp_path):
    """They are empty, and the report does not show them."""
    tables = analyze(flux().imported(tmp_path)).tables()
    for name in ("device_counters", "counter_timeline", "energy"):
        assert tables[name].is_empty()
