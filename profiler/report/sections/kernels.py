"""How long each kernel takes: its executions, one against the other."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from profiler.analysis.kernels.columns import KERNELS
from profiler.report.model import TOP, Part, ReportInput, SectionKind
from profiler.report.views import on_devices, table
from profiler.text import count, duration, percent, said

__all__ = ["SECTION"]

_HELD = 200  # rows of a table
_COLUMNS = tuple(column.name for column in KERNELS)


def _parts(of: ReportInput) -> Iterator[Part]:
    """The kernels of devices, where any are known."""
    rows = of.analysis.kernels
    if rows.is_empty():
        return
    yield Part(
        lead=_most(rows),
        table=table(
            "kernels",
            "kernels",
            on_devices(_COLUMNS, KERNELS, rows, "kernel"),
            KERNELS,
            rows,
            shown=of.rows(TOP),
            held=_HELD,
            search=True,
            sort="total_ns",
        ),
    )


def _most(rows: pl.DataFrame) -> str:
    """The kernel with most time, and how far its executions lie apart."""
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
    tables=("kernels",),
)
