"""Tables of a report as JSON, as `templates/tables.js` takes them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import polars as pl
from msgspec import to_builtins

from profiler.report.html.partials import rule_json
from profiler.report.model import TableView
from profiler.report.patterns import WEIGHT, folding
from profiler.report.views import worded
from profiler.run.columns import MINOR, Column, Key
from profiler.text import said

__all__ = ["described", "folding_json", "plain_values", "table_json"]

# Columns by which the page's choice filters rows, shown or not (`templates/selection.js`), of
# tables that do not declare which columns are keys.
_DIMENSIONS = {
    "stage": "stage",
    "submodule": "submodule",
    "branch": "branch",
    "step": "step",
    "device": "device",
    "role": "role",
    "layer": "operator",
    "call": "call",
}


def table_json(view: TableView) -> dict[str, Any]:
    """Columns with their meanings, values by column, and what the page does with them."""
    frame, names = view.rows, {column.name for column in view.columns}
    declared = any(isinstance(column.combine, Key) for column in view.columns)
    keys = {
        dimension: frame[name].to_list()
        for name, dimension in _DIMENSIONS.items()
        if name in frame.columns and name not in names and not declared
    }
    document: dict[str, Any] = {
        "name": said(view.name),
        "columns": described(view.columns),
        "values": _values(view, frame),
        "shown": view.shown,
        "search": view.search,
        "keys": keys,
    }
    words = _words(view, frame)
    if view.sort:
        document["sort"] = view.sort
    if len(frame) < len(view.frame):
        document["total"] = len(view.frame)
    if view.totals is not None:
        document["totals"] = _values(view, view.totals)
        words += map(said, view.totals[view.columns[0].name])
    if words:
        document["words"] = words
    if view.selected is not None:
        document["selected"] = to_builtins(view.selected)
    if view.opens:
        document["opens"] = view.opens.value
    if view.folded:
        document["folding"] = folding_json(view.columns)
    if view.nested:
        document["nested"] = True
        document["values"] |= {name: frame[name].to_list() for name in ("depth", "name")}
    if view.variants:
        document["variants"] = [
            {"label": said(label), "values": _values(view, rows)}
            for label, rows in ((view.label, frame), *view.variants)
        ]
    return document


def described(columns: Sequence[Column]) -> list[dict[str, Any]]:
    """The columns as the page's scripts take them."""
    return [
        {
            "name": column.name,
            "label": said(column.label),
            "kind": column.kind,
            "meaning": said(column.meaning),
            "minor": column.importance >= MINOR,
            "rank": column.importance,
            "nullable": column.nullable,
            "combine": rule_json(column.combine),
        }
        for column in columns
    ]


def folding_json(columns: Sequence[Column]) -> dict[str, Any]:
    """How the scripts fold rows of repeated blocks."""
    return {"columns": folding(column.name for column in columns), "weight": WEIGHT}


def _values(view: TableView, frame: pl.DataFrame) -> dict[str, list[Any]]:
    return {column.name: plain_values(column, frame[column.name]) for column in view.columns}


def _words(view: TableView, frame: pl.DataFrame) -> list[str]:
    """What columns of words say, each once: the page gets their languages with these."""
    columns = [column for column in view.columns if column.kind == "word"]
    said_once = {text for column in columns for text in worded(column, frame[column.name].unique())}
    return sorted(text for text in said_once if text)


def plain_values(column: Column, values: pl.Series) -> list[Any]:
    """Values as JSON has them: what is no number is null; reals with five digits."""
    if values.dtype.is_nested():
        return [_listed(value) for value in values.to_list()]
    if not values.dtype.is_float():
        return worded(column, values)
    return [
        None if value is None or not math.isfinite(value) else float(f"{value:.5g}")
        for value in values.to_list()
    ]


def _listed(values: Any) -> str | None:
    """What a list holds, in one text."""
    return None if values is None else ", ".join(map(str, values))
