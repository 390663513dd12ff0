"""Operators of repeated blocks, folded: `transformer_blocks.7.ff` → `transformer_blocks.*.ff`.

A transformer of 24 equal blocks fills the top of an operator table with 24 equal rows. Folding
the numbers in layer names shows the operation once, with how many layers it stands for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum

import polars as pl

__all__ = ["WEIGHT", "Fold", "by_pattern", "folding", "pattern"]

_INDEX = r"(^|[^0-9A-Za-z])[0-9]+($|[^0-9A-Za-z])"


class Fold(StrEnum):
    """What a column of several operators has for all of them. One that has no value for one of them
    has none for all."""

    SUM = "sum"
    MOST = "most"
    FIRST = "first"  # of the one with the most time
    NAMES = "names"  # all names of all of them, sorted
    MEAN = "mean"  # weighed by the wall time
    SINGLE = "single"  # does not add up: of a single one alone


_SUMMED = ("layers", "commands", "wall_ns", "total_ns", "self_ns", "waited_ns", "gap_ns")
_FOLDS: Mapping[str, Fold] = {
    **dict.fromkeys(_SUMMED, Fold.SUM),
    **dict.fromkeys(("share", "first_ns", "median_ns", "corrected_ns"), Fold.SUM),
    **dict.fromkeys(("tracks", "calls"), Fold.MOST),
    **dict.fromkeys(("op_types", "role", "track_names"), Fold.FIRST),
    "devices": Fold.NAMES,
    **dict.fromkeys(("parallelism", "parallel_utilization"), Fold.MEAN),
    "imbalance": Fold.SINGLE,
}
WEIGHT = "wall_ns"
"""The column that weighs means."""


def pattern(layer: pl.Expr) -> pl.Expr:
    """Layer names with every number that stands alone replaced by `*`; `conv1` stays."""
    replaced = layer.str.replace_all(_INDEX, "${1}*${2}")
    return replaced.str.replace_all(_INDEX, "${1}*${2}")  # "0.1": neighbours share a separator


def folding(columns: Iterable[str]) -> dict[str, Fold]:
    """How those of `columns` fold that differ between the operators of one pattern."""
    return {name: _FOLDS[name] for name in columns if name in _FOLDS}


def by_pattern(operators: pl.DataFrame) -> pl.DataFrame:
    """`Analysis.operators` with one row a submodule, pattern and host.

    Adds `layers`, how many layers a row stands for; the other columns as `folding` says. A row that
    stands for one layer keeps its name.
    """
    folds = folding(operators.columns)
    folded = (
        operators.with_columns(_pattern=pattern(pl.col("layer")))
        .group_by("submodule", "_pattern", "host", maintain_order=True)
        .agg(
            pl.len().alias("layers"),
            *(_AGGREGATED[fold](name).alias(name) for name, fold in folds.items()),
            layer=pl.when(pl.len() == 1)
            .then(pl.col("layer").first())
            .otherwise(pl.col("_pattern").first()),
        )
        .with_columns(commands_per_call=pl.col("commands") / pl.col("calls"))
    )
    ordered = folded.sort("total_ns", descending=True, maintain_order=True)
    return ordered.select(*operators.columns, "layers")


def _mean(name: str) -> pl.Expr:
    weight = pl.col(WEIGHT)
    return pl.when(weight.sum() > 0).then((pl.col(name) * weight).sum() / weight.sum())


_AGGREGATED: Mapping[Fold, Callable[[str], pl.Expr]] = {
    Fold.SUM: lambda name: pl.when(pl.col(name).is_not_null().all()).then(pl.col(name).sum()),
    Fold.MOST: lambda name: pl.col(name).max(),
    Fold.FIRST: lambda name: pl.col(name).first(),
    Fold.NAMES: lambda name: pl.col(name).str.split(", ").explode().unique().sort().str.join(", "),
    Fold.MEAN: _mean,
    Fold.SINGLE: lambda name: pl.when(pl.len() == 1).then(pl.col(name).first()),
}
