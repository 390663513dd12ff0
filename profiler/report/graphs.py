"""The report of two ONNX graphs: nodes by type, role and layer, sizes, FLOPs.

print_report(Console(highlight=False), graphs_report(pair, top=15))
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from profiler.analysis.comparison.graph_nodes import GraphPair, by_place
from profiler.report.model import TOP, Fact, Part, Report, Section, Summary
from profiler.report.patterns import pattern
from profiler.report.views import table
from profiler.run.columns import FLOAT64, INT64, STRING, Column
from profiler.text import size

__all__ = ["graphs_report"]

_FLOPS = (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3))
_ITSELF = "(the model itself)"
_COLUMNS = (
    Column("type", STRING, "", "what the nodes are", kind="layer"),
    Column("role", STRING, "", "what they are for", kind="layer"),
    Column("module", STRING, "", "their layer, that of equal blocks once", label="layer"),
    Column("base_nodes", INT64, "", "nodes of base", label="base"),
    Column("new_nodes", INT64, "", "nodes of new", label="new"),
    Column("base_mflops", FLOAT64, "", "FLOPs of base", label="base MFLOPs", importance=2),
    Column("new_mflops", FLOAT64, "", "FLOPs of new", label="new MFLOPs", importance=2),
    Column("changed", pl.List(STRING), "", "types whose number differs", label="nodes"),
)
_COUNTS = ("base_nodes", "new_nodes")


def graphs_report(pair: GraphPair, *, top: int = TOP) -> Report:
    """How two graphs differ, `top` rows of each table but that of roles."""
    base, new = pair.base, pair.new
    facts = [
        Fact("base", base.path),
        Fact("new", new.path),
        Fact("FLOPs for", ", ".join(f"{name} {text}" for name, text in base.inputs.items())),
    ]
    if base.unknown or new.unknown:
        unknown = f"{base.unknown} nodes of base and {new.unknown} of new"
        facts.append(Fact("FLOPs unknown", f"{unknown}: no formula, or no shapes"))
    parts = tuple(part for part in _parts(pair, top) if part.shows_something)
    return Report(Summary(_headline(pair), facts=tuple(facts)), (Section("graphs", parts=parts),))


def _headline(pair: GraphPair) -> str:
    base, new = pair.base, pair.new
    return (
        f"{pair.submodule}: {len(base.nodes):,} → {len(new.nodes):,} nodes, "
        f"{size(base.file_bytes)} → {size(new.file_bytes)} on disk, "
        f"weights {size(base.weight_bytes)} → {size(new.weight_bytes)}, "
        f"{_flops(base.flops)} → {_flops(new.flops)}"
    )


def _flops(number: int) -> str:
    for prefix, factor in _FLOPS:
        if number >= factor:
            return f"{number / factor:.3g}\N{NO-BREAK SPACE}{prefix}FLOPs"
    return f"{number}\N{NO-BREAK SPACE}FLOPs"


def _parts(pair: GraphPair, top: int) -> Iterator[Part]:
    frames = pair.base.nodes, pair.new.nodes
    types = by_place(*frames, "type")
    differing = types.filter(pl.col("base_nodes") != pl.col("new_nodes"))
    title = f"Nodes by type, {len(differing)} of {len(types)} differ"
    yield _part(title, _most_different(differing), ("type", *_COUNTS), top)
    roles = _with_flops(by_place(*frames, "role"))
    other = roles.filter(pl.col("base_nodes") != pl.col("new_nodes"))
    title = f"Nodes by role, {len(other)} of {len(roles)} differ"
    columns = ("role", *_COUNTS, "base_mflops", "new_mflops")
    yield _part(title, _most_different(roles), columns, len(roles))
    yield _layers(*frames, top)


def _layers(base: pl.DataFrame, new: pl.DataFrame, top: int) -> Part:
    """Layers, and what differs in each."""
    named = pl.when(pl.col("module") == "").then(pl.lit(_ITSELF)).otherwise(pl.col("module"))
    base, new = (side.with_columns(module=pattern(named)) for side in (base, new))
    layers = by_place(base, new, "module")
    changed = pl.Series([_changed(row) for row in layers.to_dicts()], dtype=pl.List(STRING))
    rows = layers.with_columns(changed=changed).filter(pl.col("changed").list.len() > 0)
    title = f"Layers, {len(rows)} of {len(layers)} differ"
    return _part(title, _most_different(rows), ("module", *_COUNTS, "changed"), top)


def _part(title: str, rows: pl.DataFrame, columns: tuple[str, ...], shown: int) -> Part:
    key = columns[0]
    return Part(title, table=table(f"nodes_by_{key}", key, columns, _COLUMNS, rows, shown=shown))


def _with_flops(rows: pl.DataFrame) -> pl.DataFrame:
    sides = ("base", "new")
    return rows.with_columns(
        **{f"{side}_mflops": pl.col(f"{side}_flops").cast(FLOAT64) / 1e6 for side in sides}
    )


def _most_different(rows: pl.DataFrame) -> pl.DataFrame:
    apart = (pl.col("new_nodes") - pl.col("base_nodes")).abs()
    return rows.sort(apart, descending=True, maintain_order=True)


def _changed(row: Mapping[str, Any]) -> list[str]:
    """`"Softmax 4 → 0"`, `"MatMul 8 → 6"`: the types whose number differs, most first."""
    base, new = (
        Counter({entry["type"]: entry["nodes"] for entry in row[f"{side}_types"] or ()})
        for side in ("base", "new")
    )
    names = sorted({*base, *new}, key=lambda name: (-abs(new[name] - base[name]), name))
    return [
        f"{name.rpartition('.')[2]} {base[name]} → {new[name]}"
        for name in names
        if base[name] != new[name]
    ]
