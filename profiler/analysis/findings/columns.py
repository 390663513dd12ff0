"""The columns of findings as a frame."""

from __future__ import annotations

import polars as pl

from profiler.table.columns import Column

__all__ = ["FINDINGS"]

_TEXT, _INT32, _INT64, _REAL = pl.String(), pl.Int32(), pl.Int64(), pl.Float64()

FINDINGS: tuple[Column, ...] = (
    Column("rule", _TEXT, "", "name of the rule, which is its heading in findings.md"),
    Column("severity", _TEXT, "", "high, medium or low"),
    Column(
        "cost_ns",
        _INT64,
        "ns",
        "most time that the recommendation can save; costs do not add up",
        True,
    ),
    Column("cost_share", _REAL, "ratio", "cost_ns / end-to-end time", True),
    Column("evidence", _TEXT, "", "the evidence as a JSON object"),
    Column("submodule", _TEXT, "", "submodule that the finding is about", True),
    Column("layer", _TEXT, "", "layer, where the finding is about one", True),
    Column("device", _TEXT, "", "device that the finding is about", True),
    Column("pipeline", _INT32, "", "number of the pipeline call", True),
    Column("step", _INT32, "", "denoising step", True),
    Column("calls", _TEXT, "", "numbers of a few of its calls, joined with commas"),
)
