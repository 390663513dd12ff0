"""The columns of `runs` and `metrics`, declared once; `docs/decisions/0084-fleet-data-set.md` has
what they are for."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from profiler.run.columns import FLOAT64, INT64, STRING, Column

__all__ = [
    "DISTINGUISHING",
    "IDENTITY",
    "METRICS",
    "NONE",
    "RUNS",
    "SCHEMA_VERSION",
    "VALUE_COLUMNS",
    "schema_of",
]

SCHEMA_VERSION = 1
NONE = "none"
"""The value of a setting that a run is known not to have."""


def _column(
    name: str, dtype: pl.DataType, meaning: str, unit: str = "", *, null: bool = True
) -> Column:
    return Column(name, dtype, unit, meaning, nullable=null)


RUNS: tuple[Column, ...] = (
    _column("run", STRING, "key: of the SHA-256 of its calls", null=False),
    _column("batch", STRING, "the batch that added it", null=False),
    _column("schema_version", pl.Int32(), "version of these columns", null=False),
    _column("run_id", STRING, "name of the bundle", null=False),
    _column("time_ns", INT64, "begin of the run since 1970, UTC", "ns", null=False),
    _column("time_from", STRING, "what tells the time: trace, manifest, file", null=False),
    _column("added_ns", INT64, "when it was added", "ns", null=False),
    _column("commit", STRING, "commit of the program that ran"),
    _column("labels", STRING, "JSON object of texts", null=False),
    _column("place", STRING, "where the bundle or file is", null=False),
    _column("producer", STRING, "what recorded it"),
    _column("pipeline", STRING, "class of the pipeline"),
    _column("model", STRING, "name of the model"),
    _column("weights", STRING, "types of weights by submodule"),
    _column("adapters", STRING, "adapters by submodule; none"),
    _column("steps", INT64, "denoising steps of a pipeline call"),
    _column("resolution", STRING, "width and height in pixels"),
    _column("batch_size", INT64, "images or videos of a pipeline call"),
    _column("frames", INT64, "frames of a video; 0: it makes none"),
    _column("guidance", FLOAT64, "guidance scale; 0: it has none"),
    _column("attention", STRING, "what computes attention"),
    _column("cache", STRING, "step caches by submodule; none"),
    _column("compile", STRING, "torch.compile by submodule; none"),
    _column("offload", STRING, "offload by submodule; none"),
    _column("hardware", STRING, "devices that ran calls, with their number"),
    _column("software", STRING, "versions that decide speed"),
    _column("python", STRING, "version of Python"),
    _column("system", STRING, "operating system"),
    _column("cpu", STRING, "the machine's CPU"),
    _column("cores", INT64, "processors that the run might use"),
    _column("memory_bytes", INT64, "the machine's memory", "bytes"),
    _column("versions", STRING, "JSON object: all versions", null=False),
    _column("settings", STRING, "JSON object: arguments of the pipeline", null=False),
    _column("pipelines", INT64, "pipeline calls", null=False),
    _column("calls", INT64, "calls of submodules", null=False),
    _column("commands", INT64, "commands", null=False),
    _column("drops", INT64, "drops by which time is missing", null=False),
    _column("drop_kinds", STRING, "kinds of all drops", null=False),
    _column("residual", FLOAT64, "largest share of a pipeline call without account", "ratio"),
    _column("tracing_cost", FLOAT64, "what tracing added, of the time without it", "ratio"),
    _column("quality", STRING, "empty: good; else what is bad", null=False),
)
"""One row a run. Null is unknown: nobody recorded it."""

METRICS: tuple[Column, ...] = (
    _column("run", STRING, "of which run", null=False),
    _column("batch", STRING, "the batch that added it", null=False),
    _column("stage", STRING, "of which stage"),
    _column("submodule", STRING, "of which submodule"),
    _column("step", pl.Int32(), "of which step"),
    _column("role", STRING, "of which role"),
    _column("shape", STRING, "of which operator shape"),
    _column("device", STRING, "of which device"),
    _column("metric", STRING, "name of the metric", null=False),
    _column("value", FLOAT64, "a pipeline call's, in `unit`", null=False),
    _column("low", FLOAT64, "lower end of the value's 95 % interval"),
    _column("high", FLOAT64, "upper end of the value's 95 % interval"),
    _column("unit", STRING, "ns, bytes, ratio, count", null=False),
)
"""One row a number. A null `stage`, `submodule`, … : the number is not by this."""

DISTINGUISHING = ("stage", "submodule", "step", "role", "shape", "device")
"""What a metric may be of."""
VALUE_COLUMNS = (*DISTINGUISHING, "metric", "value", "low", "high", "unit")
"""What a metric says beside whose it is."""

IDENTITY: dict[str, tuple[str, ...]] = {
    "workload": ("pipeline", "model"),
    "variant": ("weights", "adapters"),
    "recipe": (
        "steps",
        "resolution",
        "batch_size",
        "frames",
        "guidance",
        "attention",
        "cache",
        "compile",
        "offload",
    ),
    "hardware": ("hardware",),
    "software": ("software",),
}
"""The columns of `runs` that must agree for two runs to be comparable."""


def schema_of(columns: Sequence[Column]) -> dict[str, pl.DataType]:
    """Names and dtypes of columns."""
    return {column.name: column.dtype for column in columns}
