"""Tables that have more to say than their columns: with sentences for people, or another form in
JSON.

A module of this package, or of a package in it, declares one as `WORDED`. It is found by being
here, and whoever writes tables asks for it by the table's name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import polars as pl
from msgspec import Struct

from profiler.analysis.registry import question_modules
from profiler.analysis.result import Analysis
from profiler.run.columns import Column

__all__ = ["WordedTable", "worded_tables_by_name"]


class WordedTable(Struct, frozen=True):
    """A table of the analysis as files and SQL have it: its `columns`, its `frame` with these, and
    its `rows` as JSON has them."""

    table: str
    columns: tuple[Column, ...]
    frame: Callable[[Analysis], pl.DataFrame]
    rows: Callable[[Analysis], list[dict[str, Any]]]


@lru_cache
def worded_tables_by_name() -> Mapping[str, WordedTable]:
    """What the modules of this package declare, by table."""
    found: dict[str, WordedTable] = {}
    for module in question_modules():
        declared = getattr(module, "WORDED", None)
        if declared is not None:
            found[declared.table] = declared
    return found
