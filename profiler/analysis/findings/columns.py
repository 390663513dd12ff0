"""The columns of findings as a frame."""

from __future__ import annotations

from profiler.run.columns import FLOAT64, INT32, INT64, STRING, Column

__all__ = ["FINDINGS"]


FINDINGS: tuple[Column, ...] = (
    Column("rule", STRING, "", "name of the rule, which is its heading in findings.md"),
    Column("severity", STRING, "", "high, medium or low"),
    Column(
        "cost_ns",
        INT64,
        "ns",
        "most time that the recommendation can save; costs do not add up",
        True,
    ),
    Column("cost_share", FLOAT64, "ratio", "cost_ns / end-to-end time", True),
    Column("evidence", STRING, "", "the evidence as a JSON object"),
    Column("submodule", STRING, "", "submodule that the finding is about", True),
    Column("layer", STRING, "", "layer, where the finding is about one", True),
    Column("device", STRING, "", "device that the finding is about", True),
    Column("pipeline", INT32, "", "number of the pipeline call", True),
    Column("step", INT32, "", "denoising step", True),
    Column("calls", STRING, "", "numbers of a few of its calls, joined with commas"),
)
