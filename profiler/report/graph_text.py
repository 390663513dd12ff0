"""Two ONNX graphs side by side in the terminal: nodes by type, role and layer, sizes, FLOPs.

print_graphs(Console(highlight=False), pair, top=15)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from textwrap import wrap
from typing import Any

import polars as pl
from rich.console import Console
from rich.text import Text

from profiler.analysis.comparison.graph_nodes import GraphPair, by_place
from profiler.report.patterns import pattern
from profiler.report.terminal.layout import Drawn, clean, numbers, table, texts
from profiler.report.units import size

__all__ = ["print_graphs"]

_FLOPS = (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3))
_GAP = 2  # blanks between columns
_ROOM = 20  # characters at least for what differs in a layer
_ITSELF = "(the model itself)"
_Section = tuple[str, list[Drawn]]


def print_graphs(console: Console, pair: GraphPair, *, top: int = 15) -> None:
    """Print how two graphs differ, `top` rows of each table."""
    for at, line in enumerate(_lines(pair)):
        style = "dim" if at else "bold"
        parts = wrap(clean(line), console.width, subsequent_indent="  ", break_on_hyphens=False)
        for part in parts:
            console.print(Text(part.replace("\N{NO-BREAK SPACE}", " "), style=style))
    for title, columns in _sections(pair, top, console.width):
        console.print()
        console.print(Text(title, style="bold"))
        console.print(table(columns, console.width))


def _lines(pair: GraphPair) -> Iterator[str]:
    base, new = pair.base, pair.new
    yield (
        f"{pair.submodule}: {len(base.nodes):,} → {len(new.nodes):,} nodes, "
        f"{size(base.file_bytes)} → {size(new.file_bytes)} on disk, "
        f"weights {size(base.weight_bytes)} → {size(new.weight_bytes)}, "
        f"{_flops(base.flops)} → {_flops(new.flops)}"
    )
    yield f"base: {base.path}"
    yield f"new: {new.path}"
    yield "FLOPs for " + ", ".join(f"{name} {text}" for name, text in base.inputs.items())
    if base.unknown or new.unknown:
        yield f"no formula, or no shapes, for {base.unknown} nodes of base and {new.unknown} of new"


def _flops(number: int) -> str:
    for prefix, factor in _FLOPS:
        if number >= factor:
            return f"{number / factor:.3g}\N{NO-BREAK SPACE}{prefix}FLOPs"
    return f"{number}\N{NO-BREAK SPACE}FLOPs"


def _sections(pair: GraphPair, top: int, width: int) -> Iterator[_Section]:
    frames = pair.base.nodes, pair.new.nodes
    types = by_place(*frames, "type")
    if (types["base_nodes"] != types["new_nodes"]).any():
        yield _section("Nodes by type", types, "type", top, flops=False)
    roles = by_place(*frames, "role")
    yield _section("Nodes by role", roles, "role", len(roles), flops=True)
    named = pl.when(pl.col("module") == "").then(pl.lit(_ITSELF)).otherwise(pl.col("module"))
    base, new = (side.with_columns(module=pattern(named)) for side in frames)
    layers = by_place(base, new, "module")
    differing = layers.filter(pl.Series([bool(_changed(row)) for row in layers.to_dicts()]))
    shown = _most_different(differing).head(top)
    if len(shown):
        columns = _counts(shown, "layer", "module")
        room = max(width - sum(column.width + _GAP for column in columns), _ROOM)
        changes = [_listed(_changed(row), room) for row in shown.to_dicts()]
        title = f"Layers that differ, {len(shown)} of {len(differing)}; {len(layers)} in all"
        yield title, [*columns, texts("nodes", changes, shrink=_ROOM)]


def _section(title: str, rows: pl.DataFrame, key: str, top: int, *, flops: bool) -> _Section:
    differing = rows.filter(pl.col("base_nodes") != pl.col("new_nodes"))
    shown = _most_different(rows if flops else differing).head(top)
    columns = _counts(shown, key, key)
    if flops:
        for side in ("base", "new"):
            values = (None if v is None else v / 1e6 for v in shown[f"{side}_flops"])
            columns.append(numbers(f"{side} MFLOPs", values, rank=2))
    if not flops:
        return f"{title}, {len(shown)} of {len(differing)} that differ; {len(rows)} in all", columns
    return f"{title}, {len(differing)} of {len(rows)} differ", columns


def _most_different(rows: pl.DataFrame) -> pl.DataFrame:
    apart = (pl.col("new_nodes") - pl.col("base_nodes")).abs()
    return rows.sort(apart, descending=True, maintain_order=True)


def _counts(rows: pl.DataFrame, header: str, key: str) -> list[Drawn]:
    return [
        texts(header, rows[key], shrink=24),
        numbers("base", rows["base_nodes"]),
        numbers("new", rows["new_nodes"]),
    ]


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


def _listed(changed: list[str], room: int) -> str:
    """As many of them as there is room for, one at least, and how many more there are."""
    text = ""
    for count in range(len(changed), 0, -1):
        more = [f"{len(changed) - count} more"] if count < len(changed) else []
        text = ", ".join(changed[:count] + more)
        if len(text) <= room:
            break
    return text
