"""Figures that tables declare as data, drawn by the modules of `charts.declared`."""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType

import polars as pl

import profiler.report.charts.declared
from profiler.analysis.table import Table
from profiler.report.model import Bars, Figure

__all__ = ["declared_figure", "drawer"]


def declared_figure(
    table: Table, frame: pl.DataFrame, bars: tuple[Bars, ...] = ()
) -> Figure | None:
    """The figure that a table declares, drawn by the module of `charts.declared` that its kind
    names; None where there is none. `bars` are what a terminal shows of it."""
    spec = table.figure
    module = drawer(spec.kind) if spec else None
    if spec is None or module is None:
        return None
    return Figure(table.name, lambda theme: module.draw(spec.columns, frame, theme), bars)


def drawer(kind: str) -> ModuleType | None:
    """The module that draws figures of a kind, None where there is none."""
    place = f"{profiler.report.charts.declared.__name__}.{kind}"
    return importlib.import_module(place) if importlib.util.find_spec(place) else None
