"""Nodes of graphs that nobody has run: the role and the FLOPs of each, and how two graphs differ.

    base = node_table("transformer", nodes, classes)
    by_role(base, new)

Roles and formulas are those of commands (`roles`, `work`): a node is what its command would be.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from profiler.analysis.distinct_commands import kinds_of
from profiler.analysis.roles.of_kinds import roles_of
from profiler.analysis.roles.places import module_path
from profiler.analysis.work.formulas import work_of
from profiler.analysis.work.shapes import parse_shapes
from profiler.run.columns import CALLS, COMMANDS, Column, schema
from profiler.trace.manifest_fields import Submodule

__all__ = ["NODE", "GraphPair", "GraphSide", "PlainNode", "by_place", "node_table"]

NODE = pl.Schema(
    {
        "submodule": pl.String(),
        "role": pl.String(),
        "module": pl.String(),  # its layer, "" for the model itself
        "type": pl.String(),
        "flops": pl.Int64(),  # null where no formula gives them
    }
)
_LARGEST = (1 << 63) - 1


@dataclass(frozen=True, slots=True, eq=False)
class GraphSide:
    """A model: `nodes` has the columns of `NODE`, `inputs` are those that FLOPs are for, as
    "dtype[d0,d1,…]" by name; bytes are those on disk, data files included, and of its weights."""

    path: str
    file_bytes: int
    weight_bytes: int
    inputs: Mapping[str, str]
    nodes: pl.DataFrame

    @property
    def flops(self) -> int:
        """The sum over the nodes whose formula is known."""
        return int(self.nodes["flops"].sum())

    @property
    def unknown(self) -> int:
        """Nodes of which no formula gives FLOPs."""
        return self.nodes["flops"].null_count()


@dataclass(frozen=True, slots=True, eq=False)
class GraphPair:
    """Two models that are compared as `submodule`."""

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
    """A node: `type` is shown, `op_type` decides; `shapes` is "" where they are not known."""

    layer: str
    op_type: str
    type: str
    category: str
    shapes: str


def node_table(
    submodule: str, nodes: Iterable[PlainNode], classes: Mapping[str, str]
) -> pl.DataFrame:
    """One row a node (`NODE`), in their order; `classes` is the class by module path."""
    rows = list(nodes)
    calls = _filled({"call": [0], "submodule": [submodule]}, CALLS)
    told: dict[str, list[object]] = {
        "layer": [row.layer for row in rows],
        "op_type": [row.op_type for row in rows],
        "category": [row.category for row in rows],
        "shapes": [row.shapes or None for row in rows],
    }
    commands = _filled(told, COMMANDS)
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


def _filled(told: Mapping[str, Sequence[object]], table: tuple[Column, ...]) -> pl.DataFrame:
    """A frame of the table of a run, of which these columns are told: in the others nothing, or 0
    or "" where each row has a value."""
    dtypes = schema(table)
    frame = pl.DataFrame(told, schema={name: dtypes[name] for name in told})
    untold = (column for column in table if column.name not in told)
    return frame.with_columns(
        pl.lit(_absent(column)).cast(column.dtype).alias(column.name) for column in untold
    ).select(*dtypes)


def _absent(column: Column) -> int | str | None:
    if column.nullable:
        return None
    return 0 if column.dtype.is_numeric() or column.dtype == pl.Boolean else ""


def _flops(row: PlainNode) -> int | None:
    """What a node computes by formula; nothing where it only moves."""
    if row.category == "copy":
        return 0
    work = work_of(row.op_type, parse_shapes(row.shapes))
    value = work.flops if work is not None else None
    return None if value is None or value > _LARGEST else value


def by_place(base: pl.DataFrame, new: pl.DataFrame, *keys: str) -> pl.DataFrame:
    """One row a combination of `keys` of `NODE`: `base_nodes`, `new_nodes`, `base_flops` and
    `new_flops` (null where no node of it has a formula), and `base_types`, `new_types`, lists of
    structs of `type` and `nodes` (null where a side has none); those with most nodes first."""
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
