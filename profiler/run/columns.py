"""Columns of a `Run`: dtype, unit, meaning, nullability, and how values add up.

`docs/columns.md` is generated from these declarations, and `checked` validates a frame against
them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NamedTuple

import polars as pl
from msgspec import Struct
from msgspec.structs import force_setattr, replace

from profiler.trace.events import BRANCHES, CATEGORIES, ROLES, Call, Span, rank_of_device

# --- How a column's values add up, for pages that show them of what a reader selects.


class Adds(Struct, frozen=True):
    """How a column is computed: the sum of `of` over the cells of a row (`profiler.analysis.cells`:
    `commands`, `total_ns`, `bytes`, `flops`), only those with `role` if it is given. With `within`
    it is a share: of the sum over all rows with the same values in these columns, all rows for
    `()`."""

    of: str
    role: str = ""
    within: tuple[str, ...] | None = None


# --- Every column of a `Run`, declared once: dtype, unit, meaning and whether it may be null.


TEXT = pl.Categorical()
STRING, INT32, INT64 = pl.String(), pl.Int32(), pl.Int64()
FLOAT64, BOOL = pl.Float64(), pl.Boolean()


class Type(NamedTuple):
    """What the values of a column are: their dtype, their unit and how reports write them."""

    dtype: pl.DataType
    unit: str = ""
    kind: str = ""


NS, BYTES = Type(INT64, "ns"), Type(INT64, "bytes")
SHARE, RATIO, FACTOR = (Type(FLOAT64, "ratio", kind) for kind in ("share", "", "factor"))
TFLOPS, GIGABYTES = Type(FLOAT64, "TFLOP/s"), Type(FLOAT64, "GB/s")
LAYER, STEP = Type(STRING, "", "layer"), Type(INT32, "", "step")
CATEGORY = pl.Enum(CATEGORIES)
ROLE = pl.Enum(ROLES)


DATA_ONLY = -1
"""The `importance` of a column that no report shows."""
MINOR = 10
"""A page shows a column of this `importance` or higher on demand only, and paper never."""

_KINDS = {  # by unit
    **{unit: unit for unit in ("ns", "bytes", "ratio")},
    "TFLOP/s": "flop_rate",
    "GB/s": "byte_rate",
}
_UNITS = ("_ns", "_bytes")


class Column(Struct, frozen=True):
    """One column: its Polars `dtype`, `unit` ("" for none), `meaning`, and whether it may be null.

    The rest says how reports show it: `label` is its heading, by default its name without the unit;
    `kind` how its values are written (`text`, `word` of `codes`, `list` of names, `layer`, `ns`,
    `instant` of the run, `count`, `number`, `flop_rate` of values in TFLOP/s, `byte_rate` in GB/s,
    `bytes`, `ratio`, `share` of a whole, `factor`, `overhead_ratio` with 1 as within noise,
    `change` with its sign, `flag`, `step`, `figure` for the text of a value with its own unit,
    `file` for a path from the page that links to it), by default as unit and dtype have it.
    `importance` is 0 if it is always shown; if space is short, columns with the highest are dropped
    first, and from `MINOR` on they are shown on demand. `DATA_ONLY` columns are in files and frames
    only. `codes` are the words of the column if they are a closed set. A column with `hide_if_zero`
    is shown if any value is not 0. Values of a `signed` column, such as changes and offsets, may be
    below 0. A `key` column identifies rows: a page keeps rows by it. `adds` is how its values add
    up over parts of the run; None if they do not.
    """

    name: str
    dtype: pl.DataType
    unit: str
    meaning: str
    nullable: bool = False
    label: str = ""
    kind: str = ""
    importance: int = 0
    codes: type[StrEnum] | None = None
    key: bool = False
    adds: Adds | None = None
    hide_if_zero: bool = False
    signed: bool = False

    def __post_init__(self) -> None:
        force_setattr(self, "label", self.label or _label(self.name))
        own = _kind(self.dtype, self.unit) if self.codes is None else "word"
        force_setattr(self, "kind", self.kind or own)


def col(
    name: str, holds: Type | pl.DataType, meaning: str, nullable: bool = False, **options: Any
) -> Column:
    """Returns a `Column` that `holds` values of a dtype, or of one with a unit (`NS`, `SHARE`, …);
    the `options` are those of `Column`."""
    held = holds if isinstance(holds, Type) else Type(holds)
    return Column(name, held.dtype, held.unit, meaning, nullable, **{"kind": held.kind, **options})


def column_of(columns: Sequence[Column], name: str, **changes: Any) -> Column:
    """Return the declared column `name` with `changes` for one table: `meaning`, `nullable`,
    `label`, `kind`, `importance`. Raises KeyError for a name that is not declared."""
    declared = {column.name: column for column in columns}
    return replace(declared[name], **changes)


def _label(name: str) -> str:
    bare = next((name.removesuffix(unit) for unit in _UNITS if name.endswith(unit)), name)
    return bare.replace("_", " ")


def _kind(dtype: pl.DataType, unit: str) -> str:
    if unit in _KINDS:
        return _KINDS[unit]
    if dtype == pl.Boolean:
        return "flag"
    if dtype.is_nested():
        return "list"
    return "count" if dtype.is_integer() else "number" if dtype.is_numeric() else "text"


_PIPELINE = col(
    "pipeline",
    INT32,
    "number of the pipeline call to which it belongs, from 0; -1 outside every pipeline "
    "call, or if unknown",
)

_RANK = col("rank", INT32, "process of the job, from 0; -1 in a run of a single process")

CALLS: tuple[Column, ...] = (
    col("call", INT32, "number of the call in its run, from 0, in the order of returns"),
    _PIPELINE,
    col("stage", TEXT, "phase of the pipeline: encode, denoise, decode"),
    col("submodule", TEXT, "named part of the pipeline that was invoked"),
    col("branch", TEXT, ", ".join(BRANCHES), True),
    col("step", INT32, "denoising step from the scheduler, from 0; -1 outside denoise"),
    col(
        "iteration", INT32, "pass of a loop other than denoising, from 0; -1 outside of such loops"
    ),
    _RANK,
    col("device", TEXT, "where the submodule is placed"),
    col("start_ns", NS, "begin of the invocation, on the run's clock"),
    col("duration_ns", NS, "wall time of the invocation, as its caller saw it"),
    col(
        "device_lag_ns",
        NS,
        "from its start to when its device started on it, as the device noted it in its queue; "
        "null if it was not asked to",
        True,
        importance=DATA_ONLY,
    ),
    col(
        "device_duration_ns",
        NS,
        "from there to when the device was done with it, noted likewise",
        True,
        importance=DATA_ONLY,
    ),
    col("ops_traced", BOOL, "whether commands were recorded for this call"),
    col("input_shapes", STRING, 'inputs, as "name: dtype[d0,d1]; …"'),
)

COMMANDS: tuple[Column, ...] = (
    col("call", INT32, "the call it belongs to; -1 for work of no call"),
    _PIPELINE,
    col("stage", TEXT, "stage of its call, or of the host work itself", True),
    col("step", INT32, "denoising step; -1 outside denoise"),
    _RANK,
    col("device", TEXT, "where it was executed", True),
    col("track", TEXT, "queue of the device, under its producer's own name"),
    col("category", CATEGORY, "what the track does"),
    col("layer", TEXT, "tensor-level operation: path of a node, or of a module"),
    col("module", TEXT, "path of the module to which it belongs, if known", True),
    col("command_index", INT32, "position among its layer's commands in its call, from 0"),
    col("op_type", TEXT, "ONNX op type, or launching operator, or else the kernel's name", True),
    col("kernel", TEXT, "function or copy that the device ran, in its full name", True),
    col("role", ROLE, "what the operator is for in a diffusion model", True),
    col("start_ns", NS, "begin, on the run's clock"),
    col("duration_ns", NS, "wall time; 0 for an instant, -1 if it never ended"),
    col(
        "recorded_ns",
        NS,
        "wall time as the file has it, if that is impossible and `duration_ns` was corrected",
        True,
        importance=DATA_ONLY,
    ),
    col("bytes_read", BYTES, "read by the command, if known", True),
    col("bytes_written", BYTES, "written by the command, if known", True),
    col("flops", INT64, "floating-point operations, if known", True),
    col("shapes", TEXT, "shapes and types of inputs and outputs, if known", True),
)

COUNTERS: tuple[Column, ...] = (
    col("call", INT32, "the call whose file has the sample; -1 for none"),
    col("device", TEXT, "the device that the counter belongs to", True),
    col("name", TEXT, "what is counted"),
    col("unit", TEXT, "unit of `value`: bytes, count", True),
    col("time_ns", NS, "time, on the run's clock"),
    Column("value", pl.Float64(), "unit", "the value from then on"),
)

FLOWS: tuple[Column, ...] = (
    Column("source", INT64, "row", "row in `commands` on which the target depends"),
    Column("target", INT64, "row", "row in `commands` that depends on the source"),
)

ARGS: tuple[Column, ...] = (
    Column("command", INT64, "row", "row in `commands` that it belongs to"),
    col("key", TEXT, "its name; for nested arguments, their path, such as debug.tensor.shape[0]"),
    col("value", STRING, "its value as text", True),
)

SPANS: tuple[Column, ...] = (
    col("kind", TEXT, "pipeline, stage, step, or profiler: our own work"),
    _PIPELINE,
    col("name", TEXT, "name of the pipeline, stage, step or work"),
    col("stage", TEXT, "the stage it is or lies in", True),
    col("step", INT32, "denoising step; -1 for all other kinds"),
    col("start_ns", NS, "begin, on the run's clock"),
    col("duration_ns", NS, "wall time"),
)

TABLES: dict[str, tuple[Column, ...]] = {
    "calls": CALLS,
    "commands": COMMANDS,
    "counters": COUNTERS,
    "flows": FLOWS,
    "spans": SPANS,
}


def schema(columns: Sequence[Column]) -> pl.Schema:
    """The Polars schema of a declaration."""
    return pl.Schema({column.name: column.dtype for column in columns})


def typed(columns: Sequence[Column]) -> list[pl.Expr]:
    """Return expressions that select the declared columns of a frame, cast to their dtypes."""
    return [pl.col(column.name).cast(column.dtype) for column in columns]


def empty(columns: Sequence[Column]) -> pl.DataFrame:
    """A frame with no rows and the declared columns."""
    return pl.DataFrame(schema=schema(columns))


def checked(frame: pl.DataFrame, columns: Sequence[Column]) -> pl.DataFrame:
    """Return `frame` with the declared columns in order. Raises ValueError if it lacks one, or
    dtypes or nulls differ from the declaration."""
    expected, found = [column.name for column in columns], frame.schema
    if any(found.get(column.name) != column.dtype for column in columns):
        raise ValueError(f"columns differ from their declaration: {found} != {schema(columns)}")
    if frame.columns != expected:
        frame = frame[expected]
    nulls = frame.null_count().row(0)
    for column, count in zip(columns, nulls, strict=True):
        if count and not column.nullable:
            raise ValueError(f"column {column.name} holds nulls but is declared without")
    return frame


def frame_of_calls(calls: Sequence[Call], alone: int) -> pl.DataFrame:
    """The table of calls; `alone` is the rank of all, `NO_RANK` if devices tell it."""
    columns = {name: [getattr(call, name, None) for call in calls] for name in schema(CALLS)}
    columns["call"] = [call.index for call in calls]
    columns["branch"] = [call.branch or None for call in calls]
    columns["rank"] = [max(rank_of_device(call.device), alone) for call in calls]
    for name in ("device_lag_ns", "device_duration_ns"):
        columns[name] = [getattr(call, name) if _is_on_device(call) else None for call in calls]
    columns["input_shapes"] = [
        "; ".join(f"{name}: {shape}" for name, shape in call.input_shapes.items()) for call in calls
    ]
    return pl.DataFrame(columns, schema=schema(CALLS)).sort("call")


_LONGEST_NS = 1 << 60  # the longest that a file may state: sums of three fit an int64


def _is_on_device(call: Call) -> bool:
    """Whether the device noted the call's start and length, as numbers within bounds."""
    noted = (call.device_lag_ns, call.device_duration_ns)
    return all(0 <= each < _LONGEST_NS for each in noted) and abs(call.start_ns) < 1 << 62


def frame_of_spans(spans: Sequence[Span]) -> pl.DataFrame:
    """The table of spans, in the order given."""
    columns = {name: [getattr(span, name) for span in spans] for name in schema(SPANS)}
    columns["stage"] = [stage or None for stage in columns["stage"]]
    return pl.DataFrame(columns, schema=schema(SPANS))


def column_item(column: Column) -> str:
    """Return a column as an item of a Markdown list, for generated pages: name, dtype if it is not
    Int64, unit if the name does not end with it, null, meaning."""
    dtype = _dtype_name(column.dtype)
    unit = "" if column.name.endswith(f"_{column.unit}") else column.unit
    parts = ("" if dtype == "Int64" else dtype, unit, "null" if column.nullable else "")
    kinds = ", ".join(part for part in parts if part)
    return f"- `{column.name}`{kinds and f' ({kinds})'}: {column.meaning}"


def _dtype_name(dtype: pl.DataType) -> str:
    """Return a dtype's name for readers: without categories, with the dtype inside a list."""
    if isinstance(dtype, pl.List):
        inner = dtype.inner
        return f"List({_dtype_name(inner)})" if isinstance(inner, pl.DataType) else "List"
    return str(dtype).split("(")[0]


def markdown() -> str:
    """Return the text of `docs/columns.md`."""
    lines = [
        "# Columns",
        "",
        "Look up the frames of a `profiler.Run` here. This page is generated:",
        "`python -m profiler.run.columns > docs/columns.md`. Behind a name stand the dtype (Int64",
        "if there is none), the unit if the name does not end with it, and `null` if values may be",
        "unknown.",
        "",
        "`run.to_pandas()` gives `commands` joined with their calls: besides the columns below it",
        "has `submodule`, `branch`, and the call's own `call_device`, `call_start_ns` and",
        "`call_duration_ns`. If the producer did not record `role`, `flops`, `bytes_read` or",
        "`bytes_written`, an analysis fills them in. `commands` itself has only what was recorded.",
    ]
    for name, columns in {**TABLES, "args": ARGS}.items():
        lines += ["", f"## {name}", ""]
        if name == "args":
            lines += [
                "Arguments that other producers recorded for their commands: a `pl.LazyFrame`.",
                "",
            ]
        lines += map(column_item, columns)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(markdown())
