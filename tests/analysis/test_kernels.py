"""How long each kernel takes: its executions, ordered by hand."""

from __future__ import annotations

import math
import statistics
from pathlib import Path

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.analysis.result import ReportInput
from profiler.report import draw
from profiler.report.build import build_report
from profiler.tools.sources import load
from tests.analysis.asked import asked
from tests.examples import examples
from tests.runs import Command, make_call, make_run, tiny_run

_SAMPLES = Path(__file__).parents[2] / "sample_traces"


def _run(rows):
    """One call on two devices: kernel, device, duration, category."""
    calls = [make_call(0, "transformer", 0, 10_000, device="cuda:0")]
    commands = [
        Command(
            *(0, device, "stream 7", category, f"layer.{at % 3}", 10 * at, took, "aten::mm"),
            kernel=kernel,
        )
        for at, (kernel, device, took, category) in enumerate(rows)
    ]
    return make_run(calls, commands)


def test_executions_of_a_kernel():
    """Of a hundred of 1 to 100 ns: the median is 50.5, 99 take 100; another
    device is apart, and a copy is no kernel: it counts in what its device did."""
    rows = [("gemm", "cuda:0", took, "compute") for took in range(100, 0, -1)]
    rows += [("gemm", "cuda:1", 7, "compute"), ("copy", "cuda:1", 21, "dma")]
    table = asked(_run(rows)).kernels
    columns = ("mean_ns", "layers", "occupancy_share", "blocks_per_sm", "warps_per_sm")
    assert table.drop(columns).rows() == [
        ("gemm", "cuda:0", 100, 5050, 1.0, 50, 100, 1, 100),
        ("gemm", "cuda:1", 1, 7, 0.25, 7, 7, 7, 7),
    ]
    assert table["layers"].to_list() == [3, 1]


def test_host_work_and_what_never_closed():
    """Launches are no kernels; a kernel that never closed took no time."""
    rows = [("launch", "cuda:0", 50, "host"), ("gemm", "cuda:0", -1, "compute")]
    table = asked(_run(rows)).kernels
    assert table.select("kernel", "executions", "total_ns", "share").rows() == [
        ("gemm", 1, 0, None)
    ]


def test_nodes_are_no_kernels():
    """Of runs whose producer tells no kernels the table is empty."""
    assert asked(tiny_run()).kernels.is_empty()


_ROWS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from(["cuda:0", "cuda:1"]),
        st.integers(0, 50),
        st.sampled_from(["compute", "copy", "sync", "host"]),
    ),
    min_size=1,
    max_size=60,
)


@settings(deadline=None, max_examples=examples(50))
@given(_ROWS)
def test_rows_are_those_of_a_plain_tally(rows):
    """Each number is that of the sorted times of a kernel's executions on a device."""
    tallies: dict[tuple[str, str], list[int]] = {}
    whole = dict.fromkeys(("cuda:0", "cuda:1"), 0)
    for kernel, device, took, category in rows:
        whole[device] += took if category in ("compute", "copy") else 0
        if category == "compute":
            tallies.setdefault((kernel, device), []).append(took)
    table = asked(_run(rows)).kernels
    assert len(table) == len(tallies)
    for row in table.to_dicts():
        times = sorted(tallies[row["kernel"], row["device"]])
        last = len(times) - 1
        expected = (len(times), sum(times), times[0], times[-1])
        assert (row["executions"], row["total_ns"], row["min_ns"], row["max_ns"]) == expected
        assert row["p50_ns"] == round(statistics.median(times))
        assert row["p99_ns"] == times[math.ceil(0.99 * last)]
        worked = whole[row["device"]]
        assert row["share"] == (row["total_ns"] / worked if worked else None)
    assert table["total_ns"].is_sorted(descending=True)


def test_durations_are_counted_by_power_of_two():
    """1023 ns are below 1,024 ns and 1024 are not; powers between that nothing took have rows, too,
    and copies none; all numbers are counted, whatever logarithms round to."""
    rows = [("a", "cuda:0", took, "compute") for took in (1023, 1024, 1025, 5000)]
    rows += [("copy", "cuda:0", 70, "copy"), ("b", "cuda:1", 7, "compute")]
    table = asked(_run(rows)).kernel_durations
    assert table.rows() == [
        ("cuda:0", 512, 1024, 1, 1023),
        ("cuda:0", 1024, 2048, 2, 2049),
        ("cuda:0", 2048, 4096, 0, 0),
        ("cuda:0", 4096, 8192, 1, 5000),
        ("cuda:1", 4, 8, 1, 7),
    ]
    edges = [2**power + more for power in range(1, 40) for more in (-1, 0)]
    table = asked(_run([("a", "cuda:0", took, "compute") for took in edges])).kernel_durations
    inside = [
        sum(low <= took < high for took in edges)
        for low, high in table.select("from_ns", "below_ns").iter_rows()
    ]
    assert table["executions"].to_list() == inside


def test_launch_bound_runs_draw_how_long_kernels_take():
    """A page of a device that waits for launches shows bars that add up to all that ran on it but
    copies; one of a run that waits for nothing has none."""
    analysis = asked(load(_SAMPLES / "sd35_mi300x"))
    (figure,) = figures_of(analysis)
    (trace,) = draw(figure, "light")["data"]
    category = pl.col("category").cast(pl.String)
    aside = category.is_in(["host", "sync", "copy", "dma"]) | (pl.col("duration_ns") <= 0)
    ran = analysis.inputs.run.commands.filter(~aside)
    assert sum(trace["y"]) == len(ran)
    assert figures_of(asked(tiny_run())) == []


def figures_of(analysis):
    """Of the section on kernels."""
    sections = build_report(ReportInput(analysis, 0, 1)).sections
    parts = [part for section in sections if section.key == "kernels" for part in section.parts]
    return [part.figure for part in parts if part.figure]
