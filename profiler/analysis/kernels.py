"""Which kernels take the time: executions, medians and shares per device."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from profiler.analysis.commands import are_apart
from profiler.analysis.context import Inputs
from profiler.analysis.document import TOP, Part, SectionGroup, SectionKind
from profiler.analysis.question import FigureSpec, Table, table_named
from profiler.analysis.result import ReportInput
from profiler.analysis.table_text import declared_drawing, on_devices, table
from profiler.run.columns import FLOAT64, INT64, LAYER, NS, SHARE, STRING, Column, col, schema
from profiler.run.run import Run
from profiler.text import count, duration, percent, said

# --- How kernels fill their device, which some producers estimate.


OCCUPANCY: tuple[Column, ...] = (
    col(
        "occupancy_share",
        SHARE,
        "estimated share of the warps that the processors can hold, the mean of its executions by "
        "time; null if it was not recorded",
        True,
        label="occupancy",
        importance=5,
    ),
    col(
        "blocks_per_sm",
        FLOAT64,
        "thread blocks per processor (SM), likewise",
        True,
        label="blocks per SM",
        importance=9,
    ),
    col(
        "warps_per_sm",
        FLOAT64,
        "warps per processor (SM), likewise",
        True,
        label="warps per SM",
        importance=9,
    ),
)
_NAMES = tuple(column.name for column in OCCUPANCY)


def with_occupancy(rows: pl.DataFrame, run: Run) -> pl.DataFrame:
    """`rows` of kernels on devices, with the columns `OCCUPANCY` of the kernel."""
    recorded = [
        (one.device, one.kernel, *(getattr(one, n) for n in _NAMES)) for one in run.info.occupancy
    ]
    names = ("device", "kernel")
    found = pl.DataFrame(
        recorded, schema={**dict.fromkeys(names, STRING), **schema(OCCUPANCY)}, orient="row"
    )
    return rows.join(found.unique(names), on=names, how="left", maintain_order="left")


# --- The columns of kernels.


KERNELS: tuple[Column, ...] = (
    col("kernel", LAYER, "name of the kernel in full"),
    col("device", STRING, "device that ran it", True, importance=5),
    col("executions", INT64, "how often it ran", label="executed"),
    col("total_ns", NS, "sum of its executions"),
    col(
        "share",
        SHARE,
        "total_ns / total_ns of all work of the device except waits; if parts were recorded "
        "one by one, only of the parts in which it ran",
        True,
        label="of work",
    ),
    col("mean_ns", NS, "mean of its executions", label="mean", importance=2),
    col("p50_ns", NS, "median of its executions", label="p50"),
    col("p99_ns", NS, "99 of 100 took no longer", label="p99"),
    col("min_ns", NS, "shortest execution", label="shortest", importance=3),
    col("max_ns", NS, "longest execution", label="longest", importance=1),
    col("layers", INT64, "layers that ran it", importance=4),
    *OCCUPANCY,
)


KERNEL_DURATIONS: tuple[Column, ...] = (
    col("device", STRING, "device that ran them", True),
    col("from_ns", NS, "shortest duration that counts here", label="from"),
    col("below_ns", NS, "durations from here on count in the next row", label="below"),
    col("executions", INT64, "kernels and other work that took so long, without copies"),
    col("total_ns", NS, "sum of their durations"),
)


# --- The table of kernels.


_NO_WORK = ("host", "sync")
_NO_KERNELS = ("dma", "copy")  # copies and fills run no function


def kernel_table(commands: pl.DataFrame, *, apart: bool = False) -> pl.DataFrame:
    """One row per kernel and device (`KERNELS` without `OCCUPANCY`), of commands whose kernel was
    recorded. A quantile is the time of an execution; a command that never closed took none.
    `apart`: pipeline calls are parts that were recorded one by one (`are_apart`)."""
    took = pl.col("duration_ns").clip(0)
    work = commands.lazy().filter(~pl.col("category").is_in(_NO_WORK))
    ran = work.filter(pl.col("kernel").is_not_null(), ~pl.col("category").is_in(_NO_KERNELS))
    keys = ["device", "kernel"] if apart else ["device"]
    if apart:
        parts = work.group_by("device", "pipeline").agg(whole_ns=took.sum())
        places = ran.select("device", "kernel", "pipeline").unique()
        ran_in = places.join(parts, on=["device", "pipeline"], nulls_equal=True)
        whole = ran_in.group_by(keys).agg(pl.col("whole_ns").sum())
    else:
        whole = work.group_by(keys).agg(whole_ns=took.sum())
    rows = (
        ran.group_by("device", "kernel")
        .agg(
            executions=pl.len(),
            total_ns=took.sum(),
            mean_ns=took.mean().round(),
            p50_ns=took.median().round(),
            p99_ns=took.quantile(0.99, "higher"),
            min_ns=took.min(),
            max_ns=took.max(),
            layers=pl.col("layer").n_unique(),
        )
        .join(whole, on=keys, how="left", nulls_equal=True)
        .with_columns(
            pl.col("device", "kernel").cast(pl.String),
            share=pl.when(pl.col("whole_ns") > 0).then(pl.col("total_ns") / pl.col("whole_ns")),
        )
        .sort(["total_ns", "kernel", "device"], descending=[True, False, False], nulls_last=True)
    )
    declared = schema(KERNELS)
    own = (pl.col(n).cast(dtype) for n, dtype in declared.items() if n not in _NAMES)
    return rows.select(own).collect()


def duration_table(of: Inputs) -> pl.DataFrame:
    """Return how many kernels took how long: one row per device and power of two, without gaps
    (`KERNEL_DURATIONS`)."""
    ran = of.frame.lazy().filter(
        ~pl.col("category").is_in([*_NO_WORK, *_NO_KERNELS]), pl.col("duration_ns") > 0
    )
    two = pl.lit(2, dtype=pl.Int64)
    power = pl.col("duration_ns").log(2).floor().cast(pl.Int64)
    # Logarithms of large numbers are rounded: 2^power may be one too far.
    power = power - (two.pow(power) > pl.col("duration_ns")).cast(pl.Int64)
    counted = (
        ran.group_by(pl.col("device").cast(pl.String), power=power)
        .agg(executions=pl.len().cast(pl.Int64), total_ns=pl.col("duration_ns").sum())
        .collect()
    )
    if counted.is_empty():
        return pl.DataFrame(schema=schema(KERNEL_DURATIONS))
    every = counted.group_by("device").agg(
        power=pl.int_ranges(pl.col("power").min(), pl.col("power").max() + 1)
    )
    rows = (
        every.explode("power")
        .join(counted, on=["device", "power"], how="left", nulls_equal=True)
        .with_columns(pl.col("executions", "total_ns").fill_null(0), from_ns=two.pow("power"))
        .with_columns(below_ns=2 * pl.col("from_ns"))
        .sort("device", "from_ns")
    )
    return rows.select(pl.col(name).cast(dtype) for name, dtype in schema(KERNEL_DURATIONS).items())


TABLES = (
    Table(
        name="kernel_durations",
        row="the kernels of a device that took between one power of two and the next",
        section="kernels",
        columns=KERNEL_DURATIONS,
        make=duration_table,
        title="Durations",
        about="Reports draw it if devices wait for the host to launch: launching takes "
        "some microseconds, and shorter kernels end before the next one is there.",
        figure=FigureSpec(
            "histogram",
            {
                "series": ("device",),
                "from": ("from_ns",),
                "below": ("below_ns",),
                "count": ("executions",),
                "total": ("total_ns",),
            },
        ),
    ),
    Table(
        name="kernels",
        row="one kernel on a device",
        section="kernels",
        columns=KERNELS,
        make=lambda of: with_occupancy(
            kernel_table(of.frame, apart=are_apart(of.run.drops)), of.run
        ),
        title="Kernels",
        about="Kernels of all operators and submodules are listed by their full names, longest "
        "`total_ns` first. Only some producers record kernels: those of GPUs do, but nodes of "
        "ONNX Runtime are not kernels. [shapes](#shapes) and [operators](#operators) show what "
        "the kernels belong to.",
        rank=("-total_ns",),
        shown=15,
    ),
)


# --- How long each kernel takes: its executions, one against the other.


_HELD = 200  # rows of a table
_LAUNCH_BOUND = 0.05  # of the spans of devices
_SHORT_NS = 8192  # about what launching takes


def _parts(of: ReportInput) -> Iterator[Part]:
    """The kernels of devices, if any are known."""
    rows = of.analysis.kernels
    if rows.is_empty():
        return
    yield Part(
        lead=_most(rows),
        table=table(
            "kernels",
            "kernels",
            on_devices(KERNELS, KERNELS, rows, "kernel"),
            KERNELS,
            rows,
            shown=of.rows(TOP),
            held=_HELD,
            search=True,
            sort="total_ns",
        ),
    )
    yield from _durations(of)


def _durations(of: ReportInput) -> Iterator[Part]:
    """How long kernels take, if devices wait for the host to launch them."""
    idle, rows = of.analysis.idle, of.analysis.kernel_durations
    spans = int(idle["span_ns"].sum())
    if rows.is_empty() or not spans or int(idle["launch_ns"].sum()) < _LAUNCH_BOUND * spans:
        return
    short = rows.filter(pl.col("below_ns") <= _SHORT_NS)
    lead = said(
        "Devices wait for launches: {share} of {executions} executions take less than {time}, with "
        "{part} of the time.",
        share=percent(int(short["executions"].sum()) / int(rows["executions"].sum())),
        executions=count(int(rows["executions"].sum())),
        time=duration(_SHORT_NS),
        part=percent(int(short["total_ns"].sum()) / max(int(rows["total_ns"].sum()), 1)),
    )
    figure = declared_drawing(table_named("kernel_durations"), rows)
    yield Part(said("How long kernels take"), lead=lead, figure=figure)


def _most(rows: pl.DataFrame) -> str:
    """The sentence about the kernel with most time, and its executions."""
    first = rows.row(0, named=True)
    return said(
        "{kernels} kernels. {kernel} takes the most time: {count} executions with a median of "
        "{median}, {time} in all, {share} of its device's work.",
        kernels=count(len(rows)),
        kernel=first["kernel"],
        count=count(first["executions"]),
        median=duration(first["p50_ns"]),
        time=duration(first["total_ns"]),
        share=percent(first["share"] or 0),
    )


SECTION = SectionKind(
    "kernels",
    65,
    said("Kernels"),
    _parts,
    tables=("kernels", "kernel_durations"),
    group=SectionGroup.DEVICE,
)
