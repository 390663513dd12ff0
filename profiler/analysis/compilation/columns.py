"""The columns of compilations."""

from __future__ import annotations

import polars as pl

from profiler.table.columns import DATA_ONLY, Column

__all__ = ["COMPILATIONS"]

_TEXT = pl.String()
_INT32, _INT64 = pl.Int32(), pl.Int64()

COMPILATIONS: tuple[Column, ...] = (
    Column("compilation", _TEXT, "", "the compiler's own number for the frame and its version"),
    Column(
        "call", _INT32, "", "the call in which it began; -1 in a pipeline call outside of calls"
    ),
    Column("submodule", _TEXT, "", "submodule of the call", True),
    Column("step", _INT32, "", "denoising step of the call; -1 outside denoise", kind="step"),
    Column("function", _TEXT, "", "what was compiled, by its name in the program"),
    Column("start_ns", _INT64, "ns", "begin, on the run's clock", importance=3),
    Column("duration_ns", _INT64, "ns", "how long it took"),
    Column(
        "recompile_reason",
        _TEXT,
        "",
        "why earlier compilations could not be used; null for a first compilation",
        True,
    ),
    Column("graph_breaks", _INT64, "", "how often it ended a graph before the end of the code"),
    Column(
        "graph_break_reason", _TEXT, "", "why it ended them, and at which line of the program", True
    ),
    Column("failure", _TEXT, "", "why the compilation failed, so that the code ran as it is", True),
    Column(
        "forgotten",
        _INT64,
        "",
        "earlier compilations of which the compiler kept only the time",
        importance=DATA_ONLY,
    ),
    Column(
        "forgotten_ns",
        _INT64,
        "ns",
        "total time of these earlier compilations",
        importance=DATA_ONLY,
    ),
)
