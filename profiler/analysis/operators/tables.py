"""The tables of operators and of the parts of those that were split."""

from __future__ import annotations

import polars as pl

from profiler.analysis.inputs import Inputs, shared
from profiler.analysis.operators.columns import GEOMETRY, OPERATORS
from profiler.analysis.operators.folds import Folds, fold
from profiler.analysis.operators.geometry import geometry_table
from profiler.analysis.operators.table import operator_table
from profiler.analysis.table import FigureSpec, Table

__all__ = ["TABLES", "folds"]


@shared
def folds(of: Inputs) -> Folds:
    """The selected commands, folded into operators."""
    return fold(of.calls, of.frame, of.commands)


def _operators(of: Inputs) -> pl.DataFrame:
    calibration = of.table("submodules").select("submodule", "calibration")
    return operator_table(folds(of), of.frame, of.commands, calibration)


def _geometry(of: Inputs) -> pl.DataFrame:
    return geometry_table(folds(of), of.calls, of.frame, of.commands)


TABLES = (
    Table(
        name="operators",
        row="one operator of a submodule, its commands folded",
        section="time",
        columns=OPERATORS,
        make=_operators,
        title="Operators",
        about="All of them are there, longest `busy_sum_ns` first. Commands of category `host` "
        "(what launched an operator) stand apart from those of devices, as `host` says. The "
        "shares of all operators with `host` false add up to 1, and so do those with `host` "
        "true. [operators.md](operators.md) says more.",
        reads=("submodules",),
        rank=("-busy_sum_ns",),
        shown=15,
        figure=FigureSpec("bars", {"label": ("layer",), "values": ("busy_sum_ns",)}),
    ),
    Table(
        name="geometry",
        row="one part of a split operator",
        section="time",
        columns=GEOMETRY,
        make=_geometry,
        title="Split operators",
        about="Operators that were split over tracks or devices, or compute and move data, longest "
        "first: the whole, its computing and its data movement by themselves, its part on "
        "each device. [operators.md](operators.md) says more.",
    ),
)
