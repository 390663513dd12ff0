"""The columns of `runs` and `metrics`, declared once; `docs/decisions/0084-fleet-data-set.md` has
what they are for."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from profiler.table.columns import Column

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

_TEXT, _WHOLE, _REAL = pl.String(), pl.Int64(), pl.Float64()


def _column(
    name: str, dtype: pl.DataType, meaning: str, unit: str = "", *, null: bool = True
) -> Column:
    return Column(name, dtype, unit, meaning, nullable=null)


RUNS: tuple[Column, ...] = (
    _column("run", _TEXT, "key: of the SHA-256 of its calls", null=False),
    _column("batch", _TEXT, "the batch that added it", null=False),
    _column("schema_version", pl.Int32(), "version of these columns", null=False),
    _column("run_id", _TEXT, "name of the bundle", null=False),
    _column("time_ns", _WHOLE, "begin of the run since 1970, UTC", "ns", null=False),
    _column("time_from", _TEXT, "what tells the time: trace, manifest, file", null=False),
    _column("added_ns", _WHOLE, "when it was added", "ns", null=False),
    _column("commit", _TEXT, "commit of the program that ran"),
    _column("labels", _TEXT, "JSON object of texts", null=False),
    _column("place", _TEXT, "where the bundle or file is", null=False),
    _column("producer", _TEXT, "what recorded it"),
    _column("pipeline", _TEXT, "class of the pipeline"),
    _column("model", _TEXT, "name of the model"),
    _column("weights", _TEXT, "types of weights by submodule"),
    _column("adapters", _TEXT, "adapters by submodule; none"),
    _column("steps", _WHOLE, "denoising steps of a pipeline call"),
    _column("resolution", _TEXT, "width and height in pixels"),
    _column("batch_size", _WHOLE, "images or videos of a pipeline call"),
    _column("frames", _WHOLE, "frames of a video; 0: it makes none"),
    _column("guidance", _REAL, "guidance scale; 0: it has none"),
    _column("attention", _TEXT, "what computes attention"),
    _column("cache", _TEXT, "step caches by submodule; none"),
    _column("compile", _TEXT, "torch.compile by submodule; none"),
    _column("offload", _TEXT, "offload by submodule; none"),
    _column("hardware", _TEXT, "devices that ran calls, with their number"),
    _column("software", _TEXT, "versions that decide speed"),
    _column("python", _TEXT, "version of Python"),
    _column("system", _TEXT, "operating system"),
    _column("cpu", _TEXT, "the machine's CPU"),
    _column("cores", _WHOLE, "processors that the run might use"),
    _column("memory_bytes", _WHOLE, "the machine's memory", "bytes"),
    _column("versions", _TEXT, "JSON object: all versions", null=False),
    _column("settings", _TEXT, "JSON object: arguments of the pipeline", null=False),
    _column("pipelines", _WHOLE, "pipeline calls", null=False),
    _column("calls", _WHOLE, "calls of submodules", null=False),
    _column("commands", _WHOLE, "commands", null=False),
    _column("drops", _WHOLE, "drops by which time is missing", null=False),
    _column("drop_kinds", _TEXT, "kinds of all drops", null=False),
    _column("residual", _REAL, "largest share of a pipeline call without account", "ratio"),
    _column("tracing_cost", _REAL, "what tracing added, of the time without it", "ratio"),
    _column("quality", _TEXT, "empty: good; else what is bad", null=False),
)
"""One row a run. Null is unknown: nobody recorded it."""

METRICS: tuple[Column, ...] = (
    _column("run", _TEXT, "of which run", null=False),
    _column("batch", _TEXT, "the batch that added it", null=False),
    _column("stage", _TEXT, "of which stage"),
    _column("submodule", _TEXT, "of which submodule"),
    _column("step", pl.Int32(), "of which step"),
    _column("role", _TEXT, "of which role"),
    _column("shape", _TEXT, "of which operator shape"),
    _column("device", _TEXT, "of which device"),
    _column("metric", _TEXT, "name of the metric", null=False),
    _column("value", _REAL, "a pipeline call's, in `unit`", null=False),
    _column("low", _REAL, "lower end of the value's 95 % interval"),
    _column("high", _REAL, "upper end of the value's 95 % interval"),
    _column("unit", _TEXT, "ns, bytes, ratio, count", null=False),
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
