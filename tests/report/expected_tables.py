"""What the tables of a page should hold of a selection, and where they may lack a value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from profiler.analysis.overview import extent
from profiler.analysis.table_text import by_pattern, pattern, with_rates
from profiler.run.run import Run
from tests.report.selections import Pick, analysis_of, cut_operators, matching

__all__ = ["Expected"]

_ROW = tuple[Any, ...]


class Expected:
    """What the page should have of a selection: the analysis of it, beside that of the run."""

    def __init__(self, run: Run, pick: Pick) -> None:
        self.pick = pick
        self.run = run
        self.analysis = analysis_of(run, pick)
        self.cut = cut_operators(run, pick)
        place = pl.col("submodule", "branch", "device", "stage").cast(pl.String)
        self.calls = run.calls.with_columns(
            place, found=pl.col("call").is_in(self.analysis.calls["call"].to_list())
        )
        self.commands = run.commands.with_columns(
            pl.col("layer", "device", "role").cast(pl.String),
            host=pl.col("category") == "host",
            found=matching(run, pick),
        ).join(self.calls.select("call", "submodule", "branch"), on="call", how="left")

    def tables(self) -> Iterator[tuple[str, pl.DataFrame, tuple[str, ...]]]:
        """The page's tables (with the place of a variant), their rows, and their keys."""
        of = self.analysis
        operators = of.operators.filter(~pl.col("host"))
        yield "operators", by_pattern(operators), ("submodule", "layer")
        yield "operators/1", operators.with_columns(layers=pl.lit(1)), ("submodule", "layer")
        yield "host", by_pattern(of.operators.filter("host")), ("submodule", "layer")
        positive = pl.col("total_ns") > 0
        named = of.roles.filter(positive, pl.col("submodule").is_not_null())
        yield "roles", named, ("submodule", "role")
        yield "blocks", of.blocks.filter(positive), ("submodule", "block")
        yield "submodules", of.submodules, ("submodule",)
        yield "branches", of.branches, ("submodule", "branch")
        begin, _ = extent(self.run)
        yield "calls", of.calls.with_columns(pl.col("start_ns") - begin), ("call",)
        yield "devices", of.devices, ("device",)
        yield "roofline", with_rates(of.roofline), ("submodule", "layer", "device")
        yield "roofline_roles", with_rates(of.roofline_roles), ("submodule", "role", "device")

    def parts(self, table: str, keys: tuple[str, ...]) -> dict[_ROW, bool]:
        """By key whether all calls and commands of a row match; of a pattern those of all of its
        layers that have any. Rows that this does not tell are left out."""
        if table == "blocks":
            return {}
        frames = []
        for frame in (self.calls, self.commands):
            if all(key in frame.columns for key in keys):
                kept = frame if table not in ("host", "operators", "operators/1") else frame.filter(
                    pl.col("host") == (table == "host")
                )  # fmt: skip
                frames.append(kept.select(*keys, "found"))
        rows = (
            pl.concat(frames).group_by(keys).agg(pl.col("found").all(), any=pl.col("found").any())
        )
        if table in ("host", "operators"):
            folded = rows.filter("any").with_columns(layer=pattern(pl.col("layer")))
            rows = folded.group_by(keys).agg(pl.col("found").all())
        return {tuple(row[key] for key in keys): row["found"] for row in rows.to_dicts()}

    def cut_rows(self, table: str) -> set[_ROW]:
        """Submodule and layer of operators whose wall time is not known."""
        host = table == "host"
        single = {key[:2] for key in self.cut if key[2] == host}
        if table not in ("host", "operators"):
            return single
        layers = pl.Series([layer for _, layer in single], dtype=pl.String)
        patterns = pl.select(pattern(pl.lit(layers))).to_series().to_list() if single else []
        return single | {(key[0], name) for key, name in zip(single, patterns, strict=True)}
