"""What each operator shape costs: GEMMs, attention, convolutions by dims and dtype.

Labels are `mm 8192×2432×9728 bf16` (M×K×N) or `attention B2 H38 S4429 D64 bf16`. A row is a
submodule, an op type and the shapes, over all layers; for unknown operators it is the kernel.
Rates are FLOPs and bytes over the time of the commands that have them. Work that is faster than
a peak has no share of it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from profiler.analysis.commands import SUBMODULE, Kinds, ratio, timelines_of
from profiler.analysis.context import Inputs
from profiler.analysis.document import TOP, Part, SectionGroup, SectionKind
from profiler.analysis.flop_shapes import Family, Shapes, Tensor, Work, parse_shapes, whole_text
from profiler.analysis.flops import KindWork, heads_and_lengths, product_sizes
from profiler.analysis.kernels import with_occupancy
from profiler.analysis.question import Table
from profiler.analysis.result import ReportInput
from profiler.analysis.roles import kind_cells
from profiler.analysis.roofline import Bound, as_declared, bound_by, kind_bounds, profiles, works
from profiler.analysis.table_text import on_devices, table
from profiler.grammars.names import KERNEL_PREFIX, UNNAMED_SCOPE
from profiler.run.columns import (
    BYTES,
    DATA_ONLY,
    FLOAT64,
    GIGABYTES,
    INT64,
    LAYER,
    NS,
    SHARE,
    STRING,
    TFLOPS,
    Column,
    col,
    schema,
)
from profiler.run.run import Run
from profiler.text import count, duration, percent, said

# --- The columns of operators by shape.


SHAPES: tuple[Column, ...] = (
    col(
        "label",
        LAYER,
        "operation, its dims and type: M×K×N of products, B H S D of attention",
        label="shape",
    ),
    replace(SUBMODULE, importance=3, key=False),
    col("device", STRING, "device that ran it", True, importance=7),
    col(
        "kernel",
        STRING,
        "full name of its kernel; of several, the one with the longest time, and the number of "
        "the others",
        True,
        importance=8,
    ),
    col("layers", INT64, "layers that have it, if known", True, importance=4),
    col(
        "executions",
        INT64,
        "how often it ran; an execution of several kernels counts once",
        label="executed",
        importance=1,
    ),
    col("total_ns", NS, "sum of the durations of its commands"),
    col(
        "share",
        SHARE,
        "total_ns / total_ns of all work of its device in calls, except waits; if parts were "
        "recorded one by one, only of its own parts",
        True,
        label="of work",
    ),
    col(
        "teraflops_per_s",
        TFLOPS,
        "FLOPs / time, of commands whose FLOPs are known",
        True,
        label="compute",
        importance=3,
    ),
    col(
        "flops_of_peak",
        SHARE,
        "rate / the device's peak for its data type; null above the peak",
        True,
        label="of peak FLOP/s",
        importance=3,
    ),
    col(
        "gigabytes_per_s",
        GIGABYTES,
        "bytes / time, of commands whose bytes are known",
        True,
        label="memory",
        importance=5,
    ),
    col(
        "bandwidth_of_peak",
        SHARE,
        "bytes per second / memory bandwidth of the device; null above that bandwidth",
        True,
        label="of bandwidth",
        importance=3,
    ),
    col(
        "above_roofline_ns",
        NS,
        "total_ns - roofline time, if known: most time that could be saved",
        True,
        label="above roofline",
        importance=2,
    ),
    col("bound", STRING, "what bounds it: " + ", ".join(Bound), True, codes=Bound),
    col(
        "occupancy_share",
        SHARE,
        "estimated occupancy of the first kernel, wherever on the device that ran; null if it was "
        "not recorded",
        True,
        label="occupancy",
        importance=6,
    ),
    col(
        "blocks_per_sm",
        FLOAT64,
        "thread blocks of the first kernel per processor (SM), likewise",
        True,
        label="blocks per SM",
        importance=19,
    ),
    col(
        "warps_per_sm",
        FLOAT64,
        "warps of the first kernel per processor (SM), likewise",
        True,
        label="warps per SM",
        importance=19,
    ),
    col("op_type", STRING, "type of the operation, else the kernel's name", importance=16),
    col("family", STRING, "kind of work: " + ", ".join(Family), True, importance=DATA_ONLY),
    Column(
        "dtype", STRING, "", "type of the arithmetic, else of the first input", True, "", "", 17
    ),
    col("shapes", STRING, "shapes and types as recorded", True, importance=18),
    col("kernels", INT64, "different kernels that it ran", importance=15),
    col("commands", INT64, "its commands: kernels of devices, nodes", importance=16),
    col("flops", INT64, "sum of the FLOPs that are known", True, importance=DATA_ONLY),
    col("bytes", BYTES, "read and written, if known", True, importance=DATA_ONLY),
)


# --- Which rows of shapes count as costliest.


def costliest_shapes(shapes: pl.DataFrame, timelines: pl.DataFrame) -> pl.DataFrame:
    """The rows of `shapes` that calls executed, in their order, all if none did. Of parts of a run
    that were recorded one by one (`timelines_of`), only those with shapes, if any has: an inference
    as a whole is no shape beside its layers."""
    of_calls = shapes.filter(pl.col("submodule").is_not_null())
    rows = shapes if of_calls.is_empty() else of_calls
    if timelines["timeline"].n_unique() < 2:
        return rows
    with_shapes = rows.filter(pl.col("shapes").is_not_null()).join(timelines, on="submodule")
    names = timelines.filter(pl.col("timeline").is_in(with_shapes["timeline"].implode()))
    kept = rows.filter(pl.col("submodule").is_in(names["submodule"].implode()))
    return rows if kept.is_empty() else kept


def once(shapes: pl.DataFrame) -> pl.DataFrame:
    """The rows of shapes, with one row for a shape that several devices ran in a submodule. It is
    the first of them, and its device says how many more there are (`tpu:1, 3 more`); of ranks,
    whose names are long, how many there are (`2 devices`)."""
    own = pl.int_range(pl.len()).over("label", "submodule", "device")  # a label may be several
    key = ["label", "submodule", "own"]
    device, more = pl.col("device").cast(pl.String), pl.len().over(key) - 1
    text = (
        pl.when(more == 0)
        .then(device)
        .when(device.str.starts_with("rank"))
        .then(pl.format("{} devices", more + 1))
        .otherwise(pl.format("{}, {} more", device, more))
    )
    counted = shapes.with_columns(own=own).with_columns(device=text, several=more > 0)
    return counted.unique(key, keep="first", maintain_order=True)


# --- What a shape is called: `mm 8192×2432×9728 bf16`, `attention B2 H38 S4429 D64 bf16`.
#
# A matrix product is M×K×N, with its batch before if each of the batch has matrices of its own.
# Attention has batch, heads, sequence and width, whatever order its operator takes them in; a
# second number is that of keys and values if it differs, and `causal` a mask that is known. A
# convolution is its input, then the channels and the kernel of its result. All others are the dims
# of their different inputs.


_SHOWN = 3  # inputs of an operator that no other rule names
_SHORT = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "float32": "fp32",
    "float64": "fp64",
    "complex64": "c64",
    "complex128": "c128",
}
_MEMBERS = ("tensor", "bits")  # types of tensors of a list, which are not recorded


def dtype_of(shapes: Shapes | None, work: Work | None) -> str | None:
    """The type of the arithmetic, else of the first input; None if not known."""
    known = [work.dtype] if work else [tensor.dtype for tensor in shapes.inputs] if shapes else []
    return next((dtype for dtype in known if not dtype.startswith(_MEMBERS)), None)


def label_of(op_type: str, shapes: Shapes | None, work: Work | None) -> str:
    """Return the name of an operation with its dims and type."""
    words = untyped_label(op_type, shapes, work)
    return " ".join(filter(None, (words, short_type(dtype_of(shapes, work)))))


def untyped_label(op_type: str, shapes: Shapes | None, work: Work | None) -> str:
    """The name of an operation with its dims, without the type of its arithmetic."""
    named = {Family.MATMUL: _product, Family.ATTENTION: _attention, Family.CONVOLUTION: _conv}
    special = named.get(work.family) if work else None
    words = special(op_type, shapes, work) if special and shapes and work else None
    if words is None:
        words = (op_type.removeprefix("aten::"), _inputs(shapes))
    causal = "causal" if shapes and shapes.causal else ""
    return " ".join(filter(None, (*words, causal)))


def _product(op_type: str, shapes: Shapes, work: Work) -> tuple[str, ...] | None:
    """`mm M×K×N`, with the batch before if there is one."""
    sizes = product_sizes(shapes, work)
    if sizes is None:
        return None
    return op_type.removeprefix("aten::"), _times(sizes[1:] if sizes[0] == 1 else sizes)


def _attention(op_type: str, shapes: Shapes, _work: Work) -> tuple[str, ...] | None:
    """`attention B H S D` of torch's operators, whose formulas know their order."""
    found = heads_and_lengths(op_type, shapes)
    if found is None:
        return None
    heads, lengths = (_pair(*pair) for pair in found)
    batch, *_, width = shapes.inputs[0].dims
    return "attention", f"B{batch}", f"H{heads}", f"S{lengths}", f"D{width}"


def _pair(of_queries: int, of_keys: int) -> str:
    return f"{of_queries}" if of_queries == of_keys else f"{of_queries}/{of_keys}"


def _conv(op_type: str, shapes: Shapes, work: Work) -> tuple[str, ...] | None:
    """`conv 1×128×1024×1024 → 128 3×3`."""
    x, weight = shapes.inputs[:2]
    channels = work.writes[0].dims[1:2] if work.writes else ()
    if not channels:
        return None
    name = "conv transposed" if "transpose" in op_type.lower() else "conv"
    return name, _times(x.dims), "→", str(channels[0]), _times(weight.dims[2:])


def _inputs(shapes: Shapes | None) -> str:
    """The dims of different inputs, in their order; those of one element are left out."""
    tensors = [tensor for tensor in shapes.inputs if tensor.dims] if shapes else []
    larger: list[Tensor] = [tensor for tensor in tensors if tensor.size != 1] or tensors
    texts = list(dict.fromkeys(_times(tensor.dims) for tensor in larger))
    more = ", …" if len(texts) > _SHOWN else ""
    return ", ".join(texts[:_SHOWN]) + more


def _times(sizes: tuple[int, ...]) -> str:
    return "×".join(map(str, sizes))


def short_type(dtype: str | None) -> str:
    """`bf16`, `fp32`, `i8`; the type itself if it has no short name."""
    if not dtype:
        return ""
    if dtype.startswith("float8"):
        return "fp8"
    whole = dtype.removeprefix("uint").removeprefix("int")
    if whole.isdecimal():
        return f"{'u' if dtype.startswith('u') else 'i'}{whole}"
    return _SHORT.get(dtype, dtype)


# --- Which row of the table a command belongs to, and the times of each row's kernels.
#
# A row is a submodule, an op type and the shapes that the operator took; if the operator of a
# command is unknown, it is the kernel. Which layer it is in makes no difference.


_WAITING = ("host", "sync")
_MOVES = ("dma", "copy")
_COLLECTIVE = "collective"
_CUT = "…"  # if the name of a kernel was too long


class Rows(Struct, frozen=True, eq=False):
    """`cells` has one line per kind, device and kernel of what devices computed: kind, row, device,
    kernel, commands, total_ns. `names` has one line per row: row, submodule, timeline, op_type,
    shapes (of the whole operator), kind (one of them), collective. `busy` is the time of all work
    of calls by device and timeline (`timelines_of`): device, timeline, busy_ns.
    """

    cells: pl.DataFrame
    names: pl.DataFrame
    busy: pl.DataFrame


def _find_rows(of: Inputs) -> Rows:
    """The rows of the selected commands."""
    kinds, of_kinds = of.kinds, kind_cells(of)
    worked = np.isin(kinds.table["category"], _WAITING, invert=True)
    texts = [None if text is None else whole_text(text) for text in kinds.table["shapes"]]
    table = kinds.table.select(
        "kind",
        "submodule",
        pl.col("op_type").fill_null(pl.col("layer")),
        pl.Series("shapes", texts, dtype=pl.String),
        moves=pl.col("category").cast(pl.String).is_in(_MOVES),
        collective=pl.col("category").cast(pl.String) == _COLLECTIVE,
    ).join(
        timelines_of(of.run.calls, of.run.drops), on="submodule", how="left", maintain_order="left"
    )
    key_of_cell = ("kind", "device", "kernel")
    cells = (
        of_kinds.filter(pl.Series(worked[of_kinds["kind"].to_numpy()]))
        .group_by(key_of_cell)
        .agg(pl.col("commands", "total_ns").sum())
        .sort(key_of_cell, nulls_last=True)
    )
    cells = cells.join(table, on="kind", maintain_order="left")
    of_calls = cells.filter(pl.col("timeline").is_not_null())
    busy = of_calls.group_by("device", "timeline").agg(busy_ns=pl.col("total_ns").sum())
    key = ("submodule", "timeline", "op_type", "shapes", "collective", "_own")
    own = pl.when(_is_kernels_name()).then("kernel")
    cells = cells.filter(~pl.col("moves")).with_columns(_own=own)
    names = (
        cells.group_by(key, maintain_order=True)
        .agg(pl.col("kind").first())
        .with_row_index("row")
        .with_columns(pl.col("row").cast(pl.Int64))
    )
    cells = cells.join(names.drop("kind"), on=key, nulls_equal=True, maintain_order="left")
    return Rows(
        cells.select("kind", "row", "device", "kernel", "commands", "total_ns"),
        names.drop("_own"),
        busy,
    )


def _is_kernels_name() -> pl.Expr:
    """Whether an op type is the start of a kernel's name, up to its template or parameters, since
    the operator is unknown. XLA's operator `fusion` ran `fusion` and `fusion_6`."""
    name, cut = pl.col("op_type"), pl.col("op_type").str.ends_with(_CUT)
    bare = pl.col("kernel").str.replace_all(UNNAMED_SCOPE, "").str.replace(KERNEL_PREFIX, "")
    shown = name.str.strip_suffix(_CUT)
    ends = bare.str.slice(shown.str.len_chars()).str.contains(r"^\W") | cut
    return pl.col("shapes").is_null() & (bare.str.starts_with(shown) & ends).fill_null(value=False)


def executions(cells: pl.DataFrame, kinds: Kinds) -> pl.DataFrame:
    """Return how often each row ran on each device: row, device, executions. All kernels that an
    operator launched are one execution."""
    numbers = pl.col("shapes").str.extract_groups(r" part (\d+)/(\d+)$")
    part, whole = (numbers.struct[at].cast(pl.Int64).fill_null(1) for at in (0, 1))
    parts = kinds.table.select("kind", part=part, parts=whole)
    return (
        cells.join(parts, on="kind")
        .group_by("row", "device", "parts", "part")
        .agg(pl.col("commands").sum())
        .group_by("row", "device", "parts")
        .agg(pl.col("commands").max())
        .group_by("row", "device")
        .agg(executions=pl.col("commands").sum())
    )


# --- What each shape costs: operators of the same type, dims and dtype as one row over all layers.
#
# Rates are FLOPs and bytes of `profiler.analysis.flops` over the time of the commands that have
# them. The peaks are those of the device's profile, the terms of the roofline and the rule of the
# bound those of `profiler.analysis.roofline`. What was faster than a peak did not run against it (a
# cache, a part of a tensor, a profile that is too low): its part of the peak is not known.


_KEY = ["row", "device"]


def _shapes(of: Inputs) -> pl.DataFrame:
    """One row per shape and device, longest total first."""
    rows, kinds = _find_rows(of), of.kinds
    named = kinds.table.filter(pl.col("layer") != pl.col("op_type")).select("kind", "layer")
    layers = rows.cells.join(named, on="kind")
    table = (
        rows.cells.group_by(_KEY)
        .agg(pl.col("commands", "total_ns").sum())
        .pipe(_with, layers.group_by(_KEY).agg(layers=pl.col("layer").n_unique()))
        .pipe(_with, executions(rows.cells, kinds))
        .pipe(_with, _kernels(rows.cells, of.run))
        .pipe(_with, _against(of, rows))
        .join(_named(rows.names, works(of)), on="row")
        .join(rows.busy, on=["device", "timeline"], how="left")
        .with_columns(share=ratio(pl.col("total_ns"), pl.col("busy_ns")))
        .sort(
            ["total_ns", "submodule", "label", "device", "row"],
            descending=[True, False, False, False, False],
            nulls_last=True,
        )
    )
    return table.select(as_declared(name, dtype) for name, dtype in schema(SHAPES).items())


def _with(table: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
    """`table` with the columns of `other` by row and device; a device may be null."""
    return table.join(other, on=_KEY, how="left", nulls_equal=True)


def _named(names: pl.DataFrame, work: KindWork) -> pl.DataFrame:
    """Each row with its label, family and dtype."""
    shapes = [parse_shapes(text) for text in names["shapes"]]
    works = [work.works[kind] for kind in names["kind"]]
    together = list(zip(names["op_type"], shapes, works, strict=True))
    labels = pl.Series("label", [label_of(*one) for one in together], dtype=pl.String)
    marked = pl.format("collective {}", labels)
    return names.drop("kind").with_columns(
        label=pl.when("collective").then(marked).otherwise(labels),
        family=pl.Series([w.family.value if w else None for w in works], dtype=pl.String),
        dtype=pl.Series([dtype_of(*one[1:]) for one in together], dtype=pl.String),
    )


def _kernels(cells: pl.DataFrame, run: Run) -> pl.DataFrame:
    """Return for each row its number of kernels, the one with most time (and how many others there
    are), and how that one fills the device."""
    by = ["total_ns", "kernel"]
    named = cells.drop_nulls("kernel").group_by(*_KEY, "kernel").agg(pl.col("total_ns").sum())
    found = (
        named.sort(by, descending=[True, False])
        .group_by(_KEY, maintain_order=True)
        .agg(pl.col("kernel").first(), kernels=pl.len())
    )
    found = with_occupancy(found.with_columns(pl.col("kernel").cast(pl.String)), run)
    others = pl.format("{} +{}", "kernel", pl.col("kernels") - 1)
    kernel = pl.when(pl.col("kernels") > 1).then(others).otherwise("kernel")
    every = _with(cells.select(_KEY).unique(), found)
    return every.with_columns(kernel=kernel, kernels=pl.col("kernels").fill_null(0))


def _against(of: Inputs, rows: Rows) -> pl.DataFrame:
    """The rates of each row, its bound and its time above the roofline."""
    single = rows.cells.select("kind", "row").unique().filter(pl.col("kind").is_unique())
    summed = _terms(kind_bounds(of).join(single, on="kind"))
    bandwidths = {device: one.memory_bandwidth for device, one in profiles(of).items()}
    bandwidth = pl.DataFrame(
        [*bandwidths.items()], {"device": pl.String, "bandwidth": pl.Float64}, orient="row"
    )
    total, known = pl.col("total_ns"), pl.col("memory_ns").is_not_null()
    known &= pl.col("compute_ns").is_not_null() | (pl.col("flops").fill_null(0) == 0)
    longest = pl.max_horizontal(*_TERMS.values())
    from_memory = pl.col("bytes") / pl.col("bandwidth") * 1e9
    return (
        summed.join(bandwidth, on="device", how="left")
        .with_columns(memory_ns=pl.coalesce("memory_ns", from_memory))
        .with_columns(roofline_ns=pl.when(known & (longest > 0) & (longest <= total)).then(longest))
        .select(
            *_KEY,
            "flops",
            "bytes",
            teraflops_per_s=_part("flops", pl.col("computed_ns")) / 1e3,
            flops_of_peak=_at_most_all(_part("compute_ns", total)),
            gigabytes_per_s=_part("bytes", pl.col("moved_ns")),
            bandwidth_of_peak=_at_most_all(_part("bytes", total) / pl.col("bandwidth") * 1e9),
            above_roofline_ns=(total - pl.col("roofline_ns")).round(),
            bound=bound_by(
                _TERMS,
                known=pl.col("roofline_ns").is_not_null(),
                host=pl.col("blamed_ns") > total,
                took=total,
            ),
        )
    )


def _terms(keyed: pl.DataFrame) -> pl.DataFrame:
    """Return for each row FLOPs and bytes, the time of commands that have them, and the terms of
    its roofline, null unless known for all. The commands of a row have the same work, so the
    longest term of all is that of each."""
    took = pl.col("total_ns")
    return keyed.group_by(_KEY).agg(
        pl.col("commands", "total_ns", "blamed_ns", "graph_ns", "cpu_ns").sum(),
        *(_sum_if(name, pl.col(name).is_not_null().any()) for name in ("flops", "bytes")),
        *(_sum_if(name, pl.col(name).is_not_null().all()) for name in _TERMS.values()),
        computed_ns=took.filter(pl.col("flops").is_not_null()).sum(),
        moved_ns=took.filter(pl.col("bytes").is_not_null()).sum(),
    )


def _sum_if(name: str, known: pl.Expr) -> pl.Expr:
    return pl.when(known).then(pl.col(name).sum()).alias(name)


def _part(name: str, whole: pl.Expr) -> pl.Expr:
    """Return the column over `whole`; null unless both are above 0."""
    return pl.when((pl.col(name) > 0) & (whole > 0)).then(pl.col(name) / whole)


def _at_most_all(part: pl.Expr) -> pl.Expr:
    """Return the share, null above 1: the peak was then not what limited it."""
    return pl.when(part <= 1).then(part)


_TERMS = {Bound.LAUNCH: "launch_ns", Bound.MEMORY: "memory_ns", Bound.COMPUTE: "compute_ns"}


# --- The table of operators by shape.


TABLES = (
    Table(
        name="shapes",
        row="one operation of one shape in a submodule, over all of its layers",
        section="shapes",
        columns=SHAPES,
        make=_shapes,
        title="Operators by shape",
        about="Operators of the same type, with inputs of the same dims and types, are one row, "
        "however many layers have them; the longest `total_ns` comes first. Collectives have "
        "rows by name. Copies and dma have no rows, but count in the total that `share` refers "
        "to. Work outside every call, such as work launched before the recording started, has no "
        "share and counts in none. If the operator of a kernel is not known, the row is the "
        "kernel's. A rate above the device's peak is not shown as a part of it: the data came "
        "from a cache, or less than whole tensors was read. [roofline.md](roofline.md) has the "
        "formulas.",
        rank=("-total_ns",),
        shown=15,
    ),
)


# --- What part a shape reaches of the peak that bounds it, as one column.


OF_PEAK = col(
    "of_peak",
    SHARE,
    "of the peak that bounds it: FLOP/s, or the memory's bandwidth; else the larger of the two",
    True,
    label="of peak",
)


def with_of_peak(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows of `analysis.shapes` with the column `OF_PEAK`."""
    return rows.with_columns(
        of_peak=pl.when(bound=Bound.COMPUTE)
        .then("flops_of_peak")
        .when(bound=Bound.MEMORY)
        .then("bandwidth_of_peak")
        .otherwise(pl.max_horizontal("flops_of_peak", "bandwidth_of_peak"))
    )


# --- What each shape costs: matrix products, attention, convolutions, norms and elementwise work.


_HELD = 200  # rows of a table
_SHAPES: tuple[str | Column, ...] = (
    "label submodule layers executions total_ns share",
    OF_PEAK,
    "teraflops_per_s flops_of_peak gigabytes_per_s bandwidth_of_peak above_roofline_ns bound",
    "kernel occupancy_share blocks_per_sm warps_per_sm",
    "device kernels commands op_type dtype shapes",
)


def _parts(of: ReportInput) -> Iterator[Part]:
    """The shapes of devices, if any are known."""
    rows = of.analysis.shapes
    if rows["shapes"].null_count() == len(rows):
        return
    timelines = timelines_of(of.analysis.calls, of.analysis.drops)
    yield Part(
        said("Shapes, by total time"),
        lead=_costliest(costliest_shapes(rows, timelines)),
        table=table(
            "shapes",
            "operators by shape",
            on_devices(_SHAPES, SHAPES, rows, "label"),
            SHAPES,
            rows.pipe(with_of_peak),
            shown=of.rows(TOP),
            held=_HELD,
            search=True,
        ),
        notes=tuple(_counted(rows, costliest_shapes(rows, timelines))),
        anchor="shapes",
    )


def _counted(rows: pl.DataFrame, costliest: pl.DataFrame) -> Iterator[str]:
    """Yield how many shapes these rows are, if the first screen counts fewer: it has only the
    `costliest` ones, and counts several devices once."""
    shapes = len(once(costliest))
    if shapes < len(costliest):
        yield said(
            "Shapes of calls: {shapes}, in {rows} rows: each device that ran one has its own row.",
            rows=count(len(costliest)),
            shapes=count(shapes),
        )
    outside = rows["submodule"].null_count() if len(costliest) < len(rows) else 0
    if outside:
        yield said("Rows of work in no call: {rows}.", rows=count(outside))
    if rest := len(rows) - len(costliest) - outside:
        yield said("Rows of parts whose shapes were not recorded: {rows}.", rows=count(rest))


def _costliest(rows: pl.DataFrame) -> str:
    """Return the sentence about the shape that costs most, and its share of the peak, as in the
    table."""
    first = rows.head(1).pipe(with_of_peak).row(0, named=True)
    share, reached = first["share"], first[OF_PEAK.name]
    words = {
        "shape": first["label"],
        "time": duration(first["total_ns"]),
        "share": percent(0 if share is None else share),
    }
    if reached is None:
        return said(
            "{shape} takes the most time: {time}, {share} of its device's work in calls.", **words
        )
    if reached == first["flops_of_peak"]:
        return said(
            "{shape} takes the most time: {time}, {share} of its device's work in calls, at "
            "{peak} of the device's peak.",
            **words,
            peak=percent(reached),
        )
    return said(
        "{shape} takes the most time: {time}, {share} of its device's work in calls, at "
        "{bandwidth} of the memory's bandwidth.",
        **words,
        bandwidth=percent(reached),
    )


SECTION = SectionKind(
    "shapes", 55, said("Shapes"), _parts, tables=("shapes",), group=SectionGroup.DEVICE
)
