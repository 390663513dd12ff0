"""What holds of the analysis of every run, whatever is in it; each function asserts one table's.

Sums are held against the run's own frames, by means that no analysis uses: plain Polars, and unions
of intervals worked out one by one.
"""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl
import pytest

from profiler.analysis import Analysis, Axis, PipelineCalls
from profiler.run import Run

__all__ = ["check_all", "of_the_host"]

DEVICE_WORK = ("compute", "dma", "copy", "collective", "sync", "other")
ROOFED = ("compute", "copy", "other")


def check_all(run: Run, analysis: Analysis) -> None:
    """Every identity of this module holds of `analysis`, that of the whole `run`."""
    for check in (
        accounting,
        calls_and_submodules,
        devices,
        operators,
        partitioning,
        roles,
        roofline,
        shapes,
        fusions,
        steps,
        guidance_and_redundant_work,
        memory,
        idle,
        critical_path,
        device_transitions,
        module_tree,
    ):
        check(run, analysis)


def union(intervals: Iterable[tuple[int, int]]) -> int:
    """Length of the union of intervals, one after the other."""
    total, reached = 0, None
    for start, end in sorted(intervals):
        if reached is None or start > reached:
            total, reached = total + max(end - start, 0), max(end, start)
        elif end > reached:
            total, reached = total + end - reached, end
    return total


def durations(run: Run, *categories: str) -> pl.DataFrame:
    """Commands of some categories (all, without any) with `took` and `end`; unclosed took 0."""
    took = pl.col("duration_ns").clip(0)
    frame = run.commands.with_columns(took=took, end=pl.col("start_ns") + took)
    return frame.filter(pl.col("category").is_in(categories)) if categories else frame


def of_the_host(run: Run) -> pl.Expr:
    """Which commands of a run are the host's: host work, and on a CPU beside accelerators waits."""
    on_cpu = pl.col("device").cast(pl.String).str.starts_with("cpu").fill_null(value=False)
    accelerated = not run.commands.select(on_cpu.or_(pl.col("device").is_null()).all()).item()
    waits = (pl.col("category") == "sync") & on_cpu & accelerated
    return (pl.col("category") == "host") | waits


def spans(frame: pl.DataFrame) -> list[tuple[int, int]]:
    """Begin and end of each row of a frame of calls or commands."""
    end = pl.col("start_ns") + pl.col("duration_ns").clip(0)
    return frame.select("start_ns", end.alias("end")).rows()


def all_at_least(frame: pl.DataFrame, least: float, *columns: str) -> None:
    """No value of the columns that is known is below `least`."""
    for name in columns:
        lowest = frame[name].min()
        assert lowest is None or lowest >= least, f"{name}: {lowest}"


def accounting(run: Run, analysis: Analysis) -> None:
    """End to end = stages + residual; the residual is explained; pipeline calls likewise."""
    found = analysis.accounting
    parts = sum(s.calls_ns + s.host_ns + s.idle_ns for s in found.stages)
    if found.possible:
        assert found.end_to_end_ns == parts + found.unaccounted_ns
        assert found.unaccounted_ns >= 0
    assert min(found.before_after_ns, found.unrecorded_ns) >= 0
    assert found.residual_share >= 0
    assert found.wall_ns <= max(found.end_to_end_ns, found.wall_ns if found.overlapping else 0)
    for row in analysis.pipelines.iter_rows(named=True):
        if row["calls_ns"] is not None:
            parts = row["calls_ns"] + row["host_ns"] + row["idle_ns"]
            assert row["elapsed_ns"] == parts + row["unaccounted_ns"]
    inside = analysis.stages["calls"].sum() + found.calls_outside
    assert inside == len(run.calls)


def calls_and_submodules(run: Run, analysis: Analysis) -> None:
    """Calls add up to branches and submodules; a call is busy no longer than its commands ran."""
    calls = analysis.calls
    assert calls["commands"].sum() == (run.commands["call"] >= 0).sum()
    assert calls["duration_ns"].sum() == run.calls["duration_ns"].clip(0).sum()
    by_call = dict(
        durations(run, *DEVICE_WORK).group_by("call").agg(pl.col("took").sum()).iter_rows()
    )
    working = durations(run).filter(
        ~pl.col("category").is_in(["host", "sync"]) & pl.col("device").is_not_null()
    )
    for call, busy in calls.select("call", "busy_ns").iter_rows():
        assert 0 <= busy <= by_call.get(call, 0)
    all_at_least(
        calls, 0, "elapsed_ns", "hidden_ns", "unrecorded_ns", "queue_lead_ns", "launch_bound_ns"
    )
    assert (calls["launch_bound_ns"] <= calls["idle_inside_ns"]).all()
    assert (calls["idle_inside_ns"] <= calls["elapsed_ns"]).all()
    assert (calls["hidden_ns"] <= calls["busy_ns"]).all()
    assert (calls["end_ns"] - calls["begin_ns"] - calls["unrecorded_ns"]).equals(
        calls["elapsed_ns"].rename("end_ns")
    )
    for table in (analysis.submodules, analysis.branches):
        for name in ("elapsed_ns", "duration_ns"):
            assert table[name].sum() == calls[name].sum()
        for row in table.iter_rows(named=True):
            keys = [
                pl.col(name).eq_missing(row[name])
                for name in ("submodule", "branch")
                if name in row
            ]
            own = run.tiles.calls.filter(
                pl.col("call").is_in(calls.filter(*keys)["call"].to_list())
            )
            by_device = own.group_by("tile_device").agg("call")["call"].to_list()
            assert row["busy_ns"] == sum(
                union(spans(working.filter(pl.col("call").is_in(here)))) for here in by_device
            )
        assert table["calls"].sum() == len(calls)
        assert (table["min_ns"] <= table["median_ns"]).all()
        assert (table["median_ns"] <= table["max_ns"]).all()
        taken = pl.max_horizontal("elapsed_ns", "span_ns")  # of calls hidden under others, the span
        assert table.select((pl.col("max_ns") <= taken).all()).item()
        assert (table["first_ns"] <= table["elapsed_ns"]).all()
        assert (table["share"].fill_null(0) <= 1 + 1e-9).all()


def devices(run: Run, analysis: Analysis) -> None:
    """Union ≤ sum of unions of categories, each ≤ union ≤ span; idle, busy and work outside of the
    end-to-end time are the span."""
    parts = [f"{name}_ns" for name in DEVICE_WORK if name != "sync"]
    frame = durations(run)
    for row in analysis.devices.iter_rows(named=True):
        assert max(row[name] for name in parts) <= row["busy_ns"]
        assert row["busy_ns"] <= sum(row[name] for name in parts)
        assert max(row["busy_ns"], row["host_ns"], row["calls_ns"]) <= row["span_ns"]
        of_device = frame.filter(pl.col("device").cast(pl.String) == row["device"])
        working = of_device.filter(~pl.col("category").is_in(["host", "sync"]))
        assert row["commands"] == len(of_device)
        worked = row["busy_ns"] + row["before_after_ns"]
        assert worked == union(spans(working))
        if row["idle_ns"] is not None:
            assert row["idle_ns"] + worked + row["unrecorded_ns"] == row["span_ns"]
            assert 0 <= row["utilization"] <= 1


def operators(run: Run, analysis: Analysis) -> None:
    """Operators hold every command once; shares add up to 1; union ≤ sum ≤ union of all
    tracks, where no command lies within another on its track."""
    table = analysis.operators
    assert table["commands"].sum() == len(run.commands)
    for host in (True, False):
        some = table.filter(pl.col("host") == host)
        frame = durations(run).filter(of_the_host(run) == host)
        assert some["total_ns"].sum() == frame["took"].sum()
        if some["self_ns"].sum():
            assert some["share"].sum() == pytest.approx(1)
        if not host:
            assert some["self_ns"].equals(some["total_ns"].rename("self_ns"))
    assert (table["self_ns"] <= table["total_ns"]).all()
    assert (table["waited_ns"] <= table["self_ns"]).all()
    all_at_least(table, 0, "self_ns", "waited_ns")
    assert (table["wall_ns"] <= table["total_ns"]).all()
    assert (table["calls"] <= table["commands"]).all()
    all_at_least(table, 0, "gap_ns", "wall_ns", "first_ns", "median_ns")
    _even(table)
    assert (table["parallel_utilization"].fill_null(0) <= 1).all()


def partitioning(run: Run, analysis: Analysis) -> None:
    """Parts add up to the whole, twice: computing and moving data; devices."""
    table = analysis.partitioning
    _even(table)
    all_at_least(table, 1 - 1e-9, "device_imbalance")
    all_at_least(table, 0, "gap_ns")
    assert (table["wall_ns"] <= table["total_ns"]).all()
    for _, rows in table.group_by("submodule", "layer"):
        whole = rows.filter(pl.col("part") == "whole")
        assert len(whole) == 1
        on_devices = rows.filter(pl.col("part") == "device")
        by_category = rows.filter(pl.col("part").is_in(["compute", "movement"]))
        for parts in (on_devices, by_category):
            if len(parts):
                assert len(parts) > 1
                for name in ("commands", "total_ns"):
                    assert parts[name].sum() == whole[name].item()
                assert (parts["wall_ns"] <= whole["wall_ns"].item()).all()
    assert (table["parallel_utilization"].fill_null(0) <= 1).all()


def _even(table: pl.DataFrame) -> None:
    """Imbalance is from 1 (all tracks alike) to the number of tracks (one does everything)."""
    all_at_least(table, 1 - 1e-9, "imbalance")
    assert (table["imbalance"].fill_null(1) <= table["tracks"] + 1e-9).all()
    all_at_least(table, 1e-12, "parallel_utilization")


def roles(run: Run, analysis: Analysis) -> None:
    """Roles hold the time of every device command but waits; blocks no more; shares are of 1."""
    table = analysis.roles
    frame = durations(run, "compute", "dma", "copy", "collective", "other")
    assert table["commands"].sum() == len(frame)
    assert table["total_ns"].sum() == frame["took"].sum()
    for _, some in table.group_by("submodule"):
        if some["total_ns"].sum():
            assert some["share"].sum() == pytest.approx(1)
    for some in (table, analysis.blocks):
        streams = some["image_stream_ns"].fill_null(0) + some["text_stream_ns"].fill_null(0)
        assert (streams <= some["total_ns"]).all()
    blocks = analysis.blocks
    assert (blocks["norm_ns"] + blocks["modulation_ns"] <= blocks["total_ns"]).all()
    assert blocks["total_ns"].sum() <= table["total_ns"].sum()


def roofline(run: Run, analysis: Analysis) -> None:
    """Operators and roles hold the same commands; what is not known is no more than there is."""
    frame = durations(run, *ROOFED)
    for table in (analysis.roofline, analysis.roofline_roles):
        assert table["commands"].sum() == len(frame)
        assert table["total_ns"].sum() == frame["took"].sum()
        assert (table["unknown_ns"] <= table["total_ns"]).all()
        assert (table["unknown_commands"] <= table["commands"]).all()
        for name in ("flops_ns", "bytes_ns"):
            assert (table["total_ns"] - table["unknown_ns"] <= table[name]).all()
            assert (table[name] <= table["total_ns"]).all()
        all_at_least(table, 0, "flops", "bytes", "flops_per_byte", "roofline_ns", "of_roofline")
        assert (table["of_roofline"].drop_nulls() <= 1).all()
        assert (table["roofline_ns"] + table["excess_ns"] <= table["total_ns"]).drop_nulls().all()
        known = pl.Series(["compute", "memory", "launch", "host"])
        assert table["bound"].drop_nulls().is_in(known.implode()).all()
        late = table.filter(pl.col("bound") == "host")
        assert (late["wait_ns"] > late["total_ns"]).all()
    for device, waited in analysis.roofline.group_by("device").agg(pl.col("wait_ns").sum()).rows():
        row = analysis.devices.filter(pl.col("device").eq_missing(pl.lit(device, pl.String)))
        if len(row):
            assert 0 <= waited <= row["span_ns"].item() - row["busy_ns"].item()
    for name in ("flops", "bytes"):
        sums = [table[name].sum() for table in (analysis.roofline, analysis.roofline_roles)]
        assert sums[0] == pytest.approx(sums[1], abs=len(analysis.roofline) + 1)


def shapes(run: Run, analysis: Analysis) -> None:
    """Shapes hold what devices computed and exchanged, each command once, and their shares are
    parts of all that the device did."""
    frame, table = durations(run, "compute", "collective", "other"), analysis.shapes
    assert table["commands"].sum() == len(frame)
    assert table["total_ns"].sum() == frame["took"].sum()
    assert (table["executions"] <= table["commands"]).all()
    assert (table["executions"] >= 1).all()
    all_at_least(table, 0, "share", "flops", "bytes", "flops_of_peak", "bandwidth_of_peak")
    for _, rows in table.group_by("device"):
        assert rows["share"].sum() <= 1 + 1e-9


def fusions(run: Run, analysis: Analysis) -> None:
    """Fusing saves no more than the chains took."""
    table = analysis.fusions
    all_at_least(table, 0, "saved_bytes", "saved_ns")
    assert (table["saved_ns"].fill_null(0) <= table["total_ns"]).all()


def steps(run: Run, analysis: Analysis) -> None:
    """Operators of a step add up to its submodules, and these to the commands of their calls."""
    cells = analysis.step_times
    key = ["pipeline", "step", "submodule"]
    sums = (
        cells.filter(~pl.col("level").is_in(["step", "submodule"]))
        .group_by(key)
        .agg(pl.col("commands", "total_ns").sum())
        .sort(key)
    )
    whole = cells.filter(pl.col("level") == "submodule").select(*key, "commands", "total_ns")
    assert sums.equals(whole.sort(key))
    in_steps = durations(run).filter(~of_the_host(run), pl.col("call") >= 0, pl.col("step") >= 0)
    assert whole["total_ns"].sum() <= in_steps["took"].sum()
    in_order = analysis.steps.select("pipeline", "step").to_struct().implode()
    denoising = run.calls.filter(pl.col("step") >= 0)
    all_there = denoising.select(pl.struct("pipeline", "step").is_in(in_order)).to_series().all()
    if analysis.accounting.told_apart and all_there and denoising["ops_traced"].all():
        assert whole["total_ns"].sum() == in_steps["took"].sum()
    table = analysis.step_operators
    part = ["level", "submodule", "layer", "role"]
    totals = cells.group_by(part).agg(pl.col("total_ns").sum(), n=pl.len())
    joined = table.join(totals, on=part, how="left", nulls_equal=True)
    assert (joined["total_ns"] == joined["total_ns"]).all()
    assert (joined["steps"] == joined["n"]).all()
    assert (table["warmup_steps"] <= table["steps"]).all()
    assert (table["drift_low_ns"] <= table["drift_high_ns"]).all()
    all_at_least(table, 0, "median_ns", "spread", "warmup_ns", "outlier_ns")
    late = analysis.step_outliers
    assert (late["excess_ns"] <= late["total_ns"]).all()
    assert (late["excess_ns"] > 0).all()
    for row in analysis.steps.iter_rows(named=True):
        assert min(row["calls_ns"], row["host_ns"], row["idle_ns"], row["busy_ns"]) >= 0
        assert row["calls_ns"] + row["host_ns"] + row["idle_ns"] == row["elapsed_ns"]


def guidance_and_redundant_work(run: Run, analysis: Analysis) -> None:
    """Guidance costs no more than its calls took, hoisting saves no more than its operators."""
    calls = analysis.calls
    for row in analysis.guidance.iter_rows(named=True):
        own = calls.filter(pl.col("submodule") == row["submodule"])
        own = own.filter(pl.col("branch") == row["branch"])
        assert row["calls"] == len(own)
        assert 0 <= row["busy_ns"] <= own["busy_ns"].sum() + 1
        assert 0 <= row["elapsed_ns"] <= own["elapsed_ns"].sum() + 1
    wall, found = analysis.guidance["elapsed_ns"].sum(), analysis.accounting
    if found.possible and not found.overlapping and not found.calls_outside and found.told_apart:
        assert wall <= calls["elapsed_ns"].sum() + len(analysis.guidance)
    table = analysis.redundant_work
    assert (table["saved_ns"] <= table["total_ns"]).all()
    assert (table["minimum_executions"] <= table["calls"]).all()
    all_at_least(table, 1, "minimum_executions", "saved_ns")
    busy = dict(analysis.roles.group_by("submodule").agg(pl.col("total_ns").sum()).iter_rows())
    for name, saved in table.group_by("submodule").agg(pl.col("total_ns").sum()).iter_rows():
        assert saved <= busy[name]


def memory(run: Run, analysis: Analysis) -> None:
    """The peak is the most of the timeline; what is held is what is needed."""
    for row in analysis.memory_devices.iter_rows(named=True):
        device = pl.col("device") == row["device"]
        course = analysis.memory_timeline.filter(device)
        held = analysis.memory.filter(device)
        if row["peak_bytes"] is not None:
            assert course["bytes"].max() == row["peak_bytes"]
            assert row["min_bytes"] <= row["peak_bytes"] <= row["required_bytes"]
            assert row["required_bytes"] >= 0
            assert held["retained_bytes"].sum() == row["required_bytes"]
            assert course["time_ns"].is_sorted()
        if row["headroom_bytes"] is not None:
            assert row["headroom_bytes"] == row["size_bytes"] - row["required_bytes"]
        if held["share"].null_count() < len(held):
            assert held["share"].sum() <= 1 + 1e-9


def idle(run: Run, analysis: Analysis) -> None:
    """Every moment of a device's span counts once; idle is what the table of devices says, of its
    span and of the end-to-end time."""
    in_tiles = ("launch_ns", "unknown_cause_ns", "sync_ns", "queue_ns")
    causes = (*in_tiles, "copy_wait_ns", "other_device_ns", "host_ns", "before_after_ns")
    total = Axis.of(run, PipelineCalls.of(run)).counted.length
    for row in analysis.idle.iter_rows(named=True):
        device = analysis.devices.filter(pl.col("device") == row["device"]).row(0, named=True)
        assert row["span_ns"] == device["span_ns"]
        parts = ("computing_ns", "exposed_ns", "data_ns", "idle_ns", "unrecorded_ns")
        assert sum(row[name] for name in parts) == row["span_ns"]
        assert sum(row[name] for name in causes) == row["idle_ns"]
        assert row["waiting_ns"] == row["idle_ns"] + row["data_ns"] + row["exposed_ns"]
        assert row["exposed_ns"] <= row["collective_ns"]
        assert min(row[name] for name in (*parts, *causes, "unallocated_ns")) >= 0
        assert 0 <= row["host_work_ns"] <= row["host_ns"]
        assert 0 <= row["idle_inside_ns"] <= row["idle_ns"] - row["before_after_ns"]
        assert row["transfer_ns"] - row["overlapped_ns"] == row["data_ns"]
        assert row["overlap_share"] is None or 0 <= row["overlap_share"] <= 1
        assert row["long_gap_ns"] <= row["idle_ns"] - row["before_after_ns"]
        assert (row["idle_ns"], row["unrecorded_ns"]) == (
            device["idle_ns"],
            device["unrecorded_ns"],
        )
        assert row["idle_share"] == device["idle_share"]
        if row["idle_share"] is not None:
            part = row["idle_ns"] - row["before_after_ns"] + row["unallocated_ns"]
            assert part == row["idle_of_run_ns"] == pytest.approx(row["idle_share"] * total)
        here = durations(run, "compute", "other", "dma", "copy", "collective")
        here = here.filter(pl.col("device").cast(pl.String) == row["device"])
        moves = pl.col("category").is_in(["dma", "copy"])
        communicates = pl.col("category") == "collective"
        computed = union(spans(here.filter(~moves & ~communicates)))
        assert row["computing_ns"] == computed
        assert row["collective_ns"] == union(spans(here.filter(communicates)))
        assert row["exposed_ns"] == union(spans(here.filter(~moves))) - computed
        assert row["transfer_ns"] == union(spans(here.filter(moves)))


def critical_path(run: Run, analysis: Analysis) -> None:
    """A path is at most the time of its pipeline call on the devices' axis, at least its longest
    tile there."""
    table = analysis.critical_path
    all_at_least(table, 1, "path_ns", "pieces")
    pipelines = PipelineCalls.of(run)
    axis = Axis.of(run, pipelines)
    for code, number in enumerate(pipelines.numbers.tolist() or [-1]):
        counted = axis.counted_in(code if len(pipelines.numbers) else None)
        rows = table.filter(pl.col("pipeline") == number)
        own = axis.code == code if len(pipelines.numbers) else slice(None)
        longest = counted.within(axis.begin[own], axis.end[own]).max(initial=0)
        assert longest <= rows["path_ns"].sum() <= counted.length
        assert rows["share"].sum() <= 1 + 1e-9
        if len(rows):
            assert rows["wall_ns"].unique().to_list() == [counted.length]


def device_transitions(run: Run, analysis: Analysis) -> None:
    """Switches and copies cost no negative time; CPU fallback nodes are no more than there are."""
    table = analysis.device_transitions
    all_at_least(table, 0, "calls", "switches", "copies", "bytes", "copy_ns", "gap_ns")
    assert analysis.cpu_fallback["nodes"].sum() <= len(run.commands)


def module_tree(run: Run, analysis: Analysis) -> None:
    """Every node is itself and what is in it; submodules, the run and the device work are those of
    other tables."""
    tree = analysis.module_tree
    assert tree.is_empty() == run.calls.is_empty()
    if tree.is_empty():
        return
    inner = tree.group_by(node="parent").agg(pl.col("elapsed_ns").sum().alias("inner_ns"))
    joined = tree.join(inner.cast({"node": pl.Int32}), on="node", how="left")
    whole = pl.col("self_ns") + pl.col("inner_ns").fill_null(0)
    assert joined.select((pl.col("elapsed_ns") == whole).all()).item()
    assert tree["node"].to_list() == list(range(len(tree)))
    assert (tree["parent"] < tree["node"]).all()
    kinds = {kind: rows for (kind,), rows in tree.group_by("kind")}
    of_submodules = kinds["submodule"].group_by("submodule").agg(pl.col("elapsed_ns").sum())
    expected = analysis.submodules.select("submodule", "elapsed_ns")
    assert sorted(of_submodules.rows()) == sorted(expected.rows())
    root = tree.row(0, named=True)
    if analysis.accounting.possible:
        beside = analysis.submodules["elapsed_ns"].sum() - (analysis.stages["calls_ns"].sum() or 0)
        assert root["elapsed_ns"] == analysis.accounting.end_to_end_ns + beside
    worked = durations(run, *(name for name in DEVICE_WORK if name != "sync"))
    worked = worked.filter((pl.col("call") >= 0) & ~of_the_host(run))
    operators = kinds.get("operator", tree.clear())
    for of in (root, operators):
        for name, known in (("total_ns", worked["took"].sum()), ("commands", len(worked))):
            assert (of[name] if of is root else of[name].sum()) == known
    all_at_least(tree, 0, "total_ns", "commands", "executions", "min_ns", "flops_of_peak")
    all_at_least(operators, 0, "self_ns")
    blocks = tree.filter(pl.col("min_ns").is_not_null())
    sums = blocks.filter(
        (pl.col("count") * pl.col("min_ns") > pl.col("elapsed_ns"))
        | (pl.col("count") * pl.col("max_ns") < pl.col("elapsed_ns"))
        | ~pl.col("median_ns").is_between("min_ns", "max_ns")
    )
    assert sums.is_empty()
