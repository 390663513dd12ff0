"""What each shape costs: matrix products, attention, convolutions, norms and elementwise work."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from profiler.analysis.roofline.codes import Bound
from profiler.analysis.shapes.columns import SHAPES
from profiler.analysis.shapes.costliest import costliest_shapes
from profiler.analysis.timelines import timelines_of
from profiler.report.model import TOP, Part, ReportInput, SectionKind
from profiler.report.peaks import OF_PEAK, with_of_peak
from profiler.report.views import on_devices, table
from profiler.run.columns import Column
from profiler.text import duration, percent, said

__all__ = ["SECTION"]

_HELD = 200  # rows of a table
_SHAPES: tuple[str | Column, ...] = (
    "label",
    "submodule",
    "layers",
    "executions",
    "total_ns",
    "share",
    OF_PEAK,
    "teraflops_per_s",
    "flops_of_peak",
    "gigabytes_per_s",
    "bandwidth_of_peak",
    "above_roofline_ns",
    "bound",
    "kernel",
    "device",
    "kernels",
    "commands",
    "op_type",
    "dtype",
    "shapes",
)


def _parts(of: ReportInput) -> Iterator[Part]:
    """The shapes of devices, where any are known."""
    rows = of.analysis.shapes
    if rows["shapes"].null_count() == len(rows):
        return
    timelines = timelines_of(of.analysis.calls, of.analysis.drops)
    yield Part(
        said("Shapes, by total time"),
        lead=_costliest(costliest_shapes(rows, timelines)),
        table=table(
            "shapes",
            "operators by shape",
            on_devices(_SHAPES, SHAPES, rows, "label"),
            SHAPES,
            rows.pipe(with_of_peak),
            shown=of.rows(TOP),
            held=_HELD,
            search=True,
        ),
        anchor="shapes",
    )


def _costliest(rows: pl.DataFrame) -> str:
    """Which shape costs most, and how much of the device it uses."""
    first = rows.row(0, named=True)
    words = {"shape": first["label"], "time": duration(first["total_ns"])}
    share, peak, bandwidth = (
        None if first[name] is None else percent(first[name])
        for name in ("share", "flops_of_peak", "bandwidth_of_peak")
    )
    words["share"] = share or percent(0)
    if peak is not None and not (bandwidth and first["bound"] == Bound.MEMORY):
        return said(
            "{shape} takes the most time: {time}, {share} of its device's work, at {peak} of the "
            "device's peak.",
            **words,
            peak=peak,
        )
    if bandwidth is not None:
        return said(
            "{shape} takes the most time: {time}, {share} of its device's work, at {bandwidth} of "
            "the memory's bandwidth.",
            **words,
            bandwidth=bandwidth,
        )
    return said(
        "{shape} takes the most time: {time}, {share} of its device's work.",
        **words,
    )


SECTION = SectionKind(
    "shapes",
    45,
    said("Shapes"),
    _parts,
    tables=("shapes",),
)
