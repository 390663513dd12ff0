"""Compare operations of two runs by shape, by kernel or by ONNX node.

    matmul 8944×1024×2816 bf16   4.02 → 5.61 ms   617 → 441 TFLOP/s   sm90_xmma… → Cijk_Alik…

Times are means over the steady samples of a side. Layers that share an ONNX node are one group,
as with TensorRT's `Conv_0 + Relu_1` and ONNX Runtime's `Conv_0`, `Relu_1`. Graphs that were not
run are compared with the same roles and formulas.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from profiler.analysis.commands import kinds_of
from profiler.analysis.flop_shapes import parse_shapes
from profiler.analysis.flops import work_of
from profiler.analysis.role_kernel_names import module_path
from profiler.analysis.roles import roles_of
from profiler.analysis.shapes import short_type
from profiler.compare.measure import AVERAGED, Measurement
from profiler.compare.tables import KERNELS, NODES, SHAPES, Side
from profiler.grammars.names import EngineLayer, engine_layer
from profiler.run.columns import CALLS, COMMANDS, Column, schema, typed
from profiler.trace.manifest_fields import Submodule

# --- Nodes of graphs that were not run: the role and the FLOPs of each, and how two graphs differ.
#
#     base = node_table("transformer", nodes, classes)
#     by_role(base, new)
#
# Roles and formulas are those of commands (`roles`, `work`): a node is what its command would be.


NODE: Mapping[str, pl.DataType] = {
    "submodule": pl.String(),
    "role": pl.String(),
    "module": pl.String(),  # its layer, "" for the model itself
    "type": pl.String(),
    "flops": pl.Int64(),  # null if no formula gives them
}
_LARGEST = (1 << 63) - 1


@dataclass(frozen=True, slots=True, eq=False)
class GraphSide:
    """One ONNX model. `nodes` has the columns of `NODE`; `inputs` are the input shapes of the
    FLOPs, as "dtype[d0,d1,…]" by name; `file_bytes` is its size on disk, data files included."""

    path: str
    file_bytes: int
    weight_bytes: int
    inputs: Mapping[str, str]
    nodes: pl.DataFrame

    @property
    def flops(self) -> int:
        """FLOPs of all nodes with a known formula."""
        return int(self.nodes["flops"].sum())

    @property
    def unknown(self) -> int:
        """Count the nodes without a FLOPs formula."""
        return self.nodes["flops"].null_count()


@dataclass(frozen=True, slots=True, eq=False)
class GraphPair:
    """Two models compared under one name, `submodule`."""

    submodule: str
    base: GraphSide
    new: GraphSide

    def to_json(self) -> dict[str, Any]:
        """Both models, and their nodes by type, role and layer, as a JSON object."""
        sides = {"base": self.base, "new": self.new}
        return {
            "submodule": self.submodule,
            **{
                name: {
                    "model": side.path,
                    "nodes": len(side.nodes),
                    "file_bytes": side.file_bytes,
                    "weight_bytes": side.weight_bytes,
                    "flops": side.flops,
                    "nodes_without_flops": side.unknown,
                    "inputs": dict(side.inputs),
                }
                for name, side in sides.items()
            },
            **{
                f"by_{key}": by_place(self.base.nodes, self.new.nodes, key).to_dicts()
                for key in ("type", "role", "module")
            },
        }


class PlainNode(NamedTuple):
    """One node: `type` is shown, `op_type` decides its role; unknown `shapes` are ""."""

    layer: str
    op_type: str
    type: str
    category: str
    shapes: str


def node_table(
    submodule: str, nodes: Iterable[PlainNode], classes: Mapping[str, str]
) -> pl.DataFrame:
    """Return one row per node (`NODE`), in order; `classes` is the class by module path."""
    rows = list(nodes)
    calls = _filled({"call": [0], "submodule": [submodule]}, CALLS)
    columns: dict[str, list[object]] = {
        "layer": [row.layer for row in rows],
        "op_type": [row.op_type for row in rows],
        "category": [row.category for row in rows],
        "shapes": [row.shapes or None for row in rows],
    }
    commands = _filled(columns, COMMANDS)
    numbers = np.zeros(len(rows), dtype=np.int32)
    kinds = kinds_of(calls, commands, numbers, accelerated=False)
    known = {submodule: Submodule(modules=dict(classes))}
    roles = kinds.spread(roles_of(known, kinds, numbers)["role"].cast(pl.String))
    return pl.DataFrame(
        {
            "submodule": [submodule] * len(rows),
            "role": roles,
            "module": [module_path(row.layer, classes.get("", "")) for row in rows],
            "type": [row.type for row in rows],
            "flops": [_flops(row) for row in rows],
        },
        schema=NODE,
    )


def _filled(columns: Mapping[str, Sequence[object]], table: tuple[Column, ...]) -> pl.DataFrame:
    """Return a frame of a run's table from its known `columns`; the others are null, or 0 or "" if
    they are not nullable."""
    dtypes = schema(table)
    frame = pl.DataFrame(columns, schema={name: dtypes[name] for name in columns})
    for column in (column for column in table if column.name not in columns):
        zero = 0 if column.dtype.is_numeric() or column.dtype == pl.Boolean else ""
        value = pl.lit(None if column.nullable else zero)
        frame = frame.with_columns(value.cast(column.dtype).alias(column.name))
    return frame.select(*dtypes)


def _flops(row: PlainNode) -> int | None:
    """The FLOPs of a node by formula; 0 if it only moves data, None if there is no formula."""
    if row.category == "copy":
        return 0
    work = work_of(row.op_type, parse_shapes(row.shapes))
    value = work.flops if work is not None else None
    return None if value is None or value > _LARGEST else value


def by_place(base: pl.DataFrame, new: pl.DataFrame, *keys: str) -> pl.DataFrame:
    """Count nodes by `keys`, one row per combination, most nodes first: `base_nodes`, `new_nodes`,
    `base_flops`, `new_flops` (null if no node of it has a formula), and `base_types`, `new_types`,
    lists of structs of `type` and `nodes` (null if a side has none)."""
    sides = [_counted(side, keys, name) for name, side in (("base", base), ("new", new))]
    joined = sides[0].join(sides[1], on=keys, how="full", coalesce=True, nulls_equal=True)
    return joined.with_columns(pl.col("base_nodes", "new_nodes").fill_null(0)).sort(
        pl.max_horizontal("base_nodes", "new_nodes"),
        *keys,
        descending=[True, *(False for _ in keys)],
    )


def _counted(nodes: pl.DataFrame, keys: tuple[str, ...], side: str) -> pl.DataFrame:
    flops = pl.when(pl.col("flops").is_not_null().any()).then(pl.col("flops").sum())
    types = pl.col("type").value_counts(sort=True, name="nodes")
    return nodes.group_by(*keys, maintain_order=True).agg(
        pl.len().cast(pl.Int64).alias(f"{side}_nodes"),
        flops.alias(f"{side}_flops"),
        types.alias(f"{side}_types"),
    )


# --- Match the layers of two runs of one ONNX model by the nodes that they run.
#
#     TensorRT   Conv_0 + Relu_1                      0.11 ms
#     ONNX Rt.   Conv_0, Relu_1                       0.95 ms + 0.21 ms
#
# A layer of TensorRT names the nodes that it fused. ONNX Runtime runs nodes under their own names,
# or under those of its fusions. Layers with a node in common form one group, with any number of
# layers on either side. What TensorRT does for a node's tensors (copies into another layout) is
# part of the node's group.


_FUSED = re.compile(
    r"(?:/\w*Fusion\w*/?|/WithoutBiases|_(?:nchwc|nhwc|quant|quantized|token_\d+))$"
)
_NO_WORD = re.compile(r"[^A-Za-z0-9_]")
_OUTPUT = re.compile(r"(?:_output_\d+|:\d+)$")
_MODULE = "/"  # in capture's names, between module and node


@dataclass(frozen=True, slots=True)
class TimedLayer:
    """One layer and its time in ns; layers are in order of execution."""

    name: str
    ns: float


@dataclass(slots=True)
class Group:
    """The layers of both sides that run the same nodes, with their times."""

    base: list[TimedLayer] = field(default_factory=list)
    new: list[TimedLayer] = field(default_factory=list)


def node_groups(
    base: Sequence[TimedLayer], new: Sequence[TimedLayer], producers: tuple[str, str]
) -> list[Group]:
    """The layers of both sides by the nodes that they have in common, in the order of execution; a
    layer without any is a group by itself."""
    sides = (base, new)
    read = [
        [_read(layer.name, producer) for layer in side]
        for side, producer in zip(sides, producers, strict=True)
    ]
    names = [_by_name(side) for side in read]
    joined = _Joined()
    for at in (0, 1):
        for number, layer in enumerate(read[at]):
            joined.find((at, number))
            for node in layer.nodes:
                for other in (0, 1):
                    for found in names[other].get(node, ()):
                        joined.join((at, number), (other, found))
    for at in (0, 1):
        for number, inside in _inside(read, names, at):
            joined.join((at, number), (1 - at, inside))
    groups: dict[tuple[int, int], Group] = {}
    for at, side in enumerate(sides):
        for number, timed in enumerate(side):
            group = groups.setdefault(joined.find((at, number)), Group())
            (group.new if at else group.base).append(timed)
    return [*groups.values()]


def nodes_of(layer: str, producer: str) -> tuple[str, ...]:
    """The possible names, in the model, of the nodes that a layer runs."""
    return _read(layer, producer).nodes


def converted_name(node: str) -> str:
    """The name of a node after Qualcomm's converter: `/a/MatMul_3` → `_a_MatMul_3`."""
    return _NO_WORD.sub("_", node)


def _read(name: str, producer: str) -> EngineLayer:
    if producer == AVERAGED:
        return engine_layer(name)
    return EngineLayer(tuple(dict.fromkeys(_node_names(name))))


def _node_names(name: str) -> Iterator[str]:
    """Yield the names that a node of ONNX Runtime may have in the model: its own, without the
    suffixes of fusions and layouts, without an output's suffix, as Qualcomm's converter writes it,
    without the path of its module."""
    yield name
    bare = _FUSED.sub("", name)
    yield bare
    yield _OUTPUT.sub("", bare)
    if bare.startswith(_MODULE):
        yield converted_name(bare)
    module, _, last = bare.rpartition(_MODULE)
    if module and not bare.startswith(_MODULE):
        yield last


def _by_name(layers: Sequence[EngineLayer]) -> dict[str, list[int]]:
    """The layers that run each node or prepare its tensors, by node name."""
    found: dict[str, list[int]] = {}
    for number, layer in enumerate(layers):
        for node in (*layer.nodes, *filter(None, (layer.last,))):
            found.setdefault(node, []).append(number)
    return found


def _inside(
    read: Sequence[Sequence[EngineLayer]], names: Sequence[Mapping[str, list[int]]], at: int
) -> Iterator[tuple[int, int]]:
    """Pair each layer that covers a range of nodes (first to last) with the other side's layers in
    that range, except those that another layer names. If the other side does not run an end of the
    range (a constant), the neighbouring layers limit it."""
    others, own = read[1 - at], names[1 - at]
    named = [_places(layer.nodes, own) for layer in read[at]]
    for number, layer in enumerate(read[at]):
        if not layer.last:
            continue
        before = [place for places in named[:number] for place in places]
        behind = [place for places in named[number + 1 :] for place in places]
        first = min(_places(layer.nodes, own), default=max(before, default=-1) + 1)
        last = max(_places((layer.last,), own), default=min(behind, default=len(others)) - 1)
        apart = {*before, *behind}
        yield from ((number, place) for place in range(first, last + 1) if place not in apart)


def _places(nodes: Iterable[str], names: Mapping[str, list[int]]) -> list[int]:
    return [place for node in nodes for place in names.get(node, ())]


class _Joined:
    """Disjoint sets of layers (union-find), each represented by one of them."""

    def __init__(self) -> None:
        self._of: dict[tuple[int, int], tuple[int, int]] = {}

    def find(self, one: tuple[int, int]) -> tuple[int, int]:
        above = self._of.setdefault(one, one)
        while above != self._of[above]:
            above = self._of[above] = self._of[self._of[above]]
        self._of[one] = above
        return above

    def join(self, one: tuple[int, int], other: tuple[int, int]) -> None:
        first, second = sorted((self.find(one), self.find(other)))
        self._of[second] = first


# --- Compare the work of two sides by shape, kernel or graph node: times, rates and kernels.
#
# Times are means: sums over the steady samples of all runs of a side, divided by the number of
# steps, pipeline calls or single calls (`details.samples`).


_SIDES = tuple(Side)
_KEY = ("submodule", "what")
_SUMS = ("executions", "total_ns", "flops", "rated_ns")


def sums_of(side: Sequence[Measurement]) -> pl.DataFrame:
    """Sum up the operations of a side's runs (`details.OPERATIONS`), per sample."""
    parts = []
    for run in side:
        samples = run.details.samples
        counts = {
            name: sum(other.details.samples.get(name, 0) for other in side) for name in samples
        }
        share = pl.col("submodule").replace_strict(counts, default=0, return_dtype=pl.Float64)
        parts.append(
            run.details.operations.filter(share > 0).with_columns(
                pl.col(name).cast(pl.Float64) / share for name in _SUMS
            )
        )
    return pl.concat(parts)


def by_shape(base: pl.DataFrame, new: pl.DataFrame) -> pl.DataFrame:
    """Compare operations whose shapes are known (`columns.SHAPES`), largest difference first. Types
    are distinguished if both sides have the same types for a shape."""
    sides = [side.filter(pl.col("label") != "") for side in (base, new)]
    types = [
        side.group_by("submodule", "label").agg(pl.col("dtype").unique().sort()) for side in sides
    ]
    alike = (
        types[0]
        .join(types[1], on=["submodule", "label"], how="full", coalesce=True)
        .select(
            "submodule",
            "label",
            apart=pl.col("dtype").eq(pl.col("dtype_right")).fill_null(value=True),
        )
    )
    named = [
        side.join(alike, on=["submodule", "label"], how="left").with_columns(
            what=pl.when("apart").then(_typed()).otherwise("label")
        )
        for side in sides
    ]
    return _compared(named, SHAPES)


def by_kernel(base: pl.DataFrame, new: pl.DataFrame) -> pl.DataFrame:
    """Compare operations by kernel name (`columns.KERNELS`), largest difference first."""
    named = [
        side.filter(pl.col("kernel") != "").with_columns(what="kernel") for side in (base, new)
    ]
    return _compared(named, KERNELS)


def by_node(base: Sequence[Measurement], new: Sequence[Measurement]) -> pl.DataFrame:
    """Compare groups of layers with common nodes (`columns.NODES`), largest difference first, then
    layers that only one side has."""
    sides = (base, new)
    producers = (base[0].info.producer, new[0].info.producer)
    names = dict.fromkeys(name for side in sides for run in side for name in run.details.samples)
    rows = []
    for submodule in names:
        layers = [_layers(side, submodule) for side in sides]
        for group in node_groups(layers[0], layers[1], producers):
            both = (group.base, group.new)
            times = [sum(one.ns for one in found) if found else None for found in both]
            known = [", ".join(dict.fromkeys(one.name for one in found)) or None for found in both]
            rows.append((submodule, _name(*both), *known, *map(len, both), *times))
    columns = ("submodule", "what", "base_layers", "new_layers", "base_count", "new_count")
    dtypes: dict[str, pl.DataType] = {name: schema(NODES)[name] for name in columns}
    dtypes |= {"base_ns": pl.Float64(), "new_ns": pl.Float64()}
    return _ranked(pl.DataFrame(rows, schema=dtypes, orient="row"), NODES)


def _name(base: Sequence[TimedLayer], new: Sequence[TimedLayer]) -> str:
    """The name of a group: its longest-running layer, as named by the side with the longer name,
    which lists more nodes."""
    longest = [max(side, key=lambda layer: layer.ns).name for side in (base, new) if side]
    return max(longest, key=len)


def _layers(side: Sequence[Measurement], submodule: str) -> list[TimedLayer]:
    """The layers of a submodule with mean times per sample, ordered as in the run with most
    layers."""
    samples = sum(run.details.samples.get(submodule, 0) for run in side)
    if not samples:
        return []
    frames = [run.details.layers.filter(pl.col("submodule") == submodule) for run in side]
    frames.sort(key=len, reverse=True)
    summed = pl.concat(frames).group_by("layer", maintain_order=True).agg(pl.col("total_ns").sum())
    return [TimedLayer(name, total / samples) for name, total in summed.iter_rows()]


def _typed() -> pl.Expr:
    """The label of an operation with its arithmetic type."""
    short = pl.col("dtype").map_elements(short_type, return_dtype=pl.String)
    return pl.concat_str("label", short, separator=" ").str.strip_chars_end()


def _compared(named: Sequence[pl.DataFrame], columns: tuple[Column, ...]) -> pl.DataFrame:
    sides = [_side(frame, side) for frame, side in zip(named, _SIDES, strict=True)]
    return _ranked(sides[0].join(sides[1], on=_KEY, how="full", coalesce=True), columns)


def _side(named: pl.DataFrame, side: Side) -> pl.DataFrame:
    """Sum up one side by submodule and `what`, with the kernel that took most of its time."""
    longest = pl.col("kernel").sort_by("total_ns", descending=True).first()
    rate = pl.when(pl.col("rated_ns") > 0).then(pl.col("flops") / pl.col("rated_ns") / 1e3)
    return (
        named.group_by(*_KEY, "kernel", maintain_order=True)
        .agg(pl.col(*_SUMS).sum(), pl.col("dtype").first())
        .group_by(*_KEY, maintain_order=True)
        .agg(
            pl.col(*_SUMS).sum(),
            pl.when(longest != "").then(longest).alias("kernel"),
            kernels=(pl.col("kernel") != "").sum().cast(pl.Int64),
        )
        .with_columns(rate=pl.when(rate > 0).then(rate))
        .select(
            *_KEY,
            pl.col("total_ns").alias(f"{side}_ns"),
            pl.col("executions").alias(f"{side}_executions"),
            pl.col("rate").alias(f"{side}_teraflops_per_s"),
            pl.col("kernel").alias(f"{side}_kernel"),
            pl.col("kernels").alias(f"{side}_kernels"),
        )
    )


def _ranked(found: pl.DataFrame, columns: tuple[Column, ...]) -> pl.DataFrame:
    """Add difference and change; sort by size of the difference, with rows of one side last."""
    difference = pl.col("new_ns") - pl.col("base_ns")
    change = pl.when(pl.col("base_ns") > 0).then(difference / pl.col("base_ns"))
    longest = pl.max_horizontal("base_ns", "new_ns")
    return (
        found.with_columns(difference_ns=difference, change=change)
        .sort(
            difference.is_null(),
            difference.abs().fill_null(0),
            longest,
            descending=[False, True, True],
            maintain_order=True,
        )
        .with_columns(pl.col("^.*_ns$").round())
        .select(typed(columns))
    )
