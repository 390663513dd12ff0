"""Where in a model a command lies: its place, whatever its producer calls a layer.

A layer that is the path of an operation in its module lies in that module; any other layer says by
itself where it lies.
"""

from __future__ import annotations

import polars as pl

__all__ = ["place_of", "places_by_layer"]


def place_of(layer: pl.Expr, module: pl.Expr) -> pl.Expr:
    """The module of a layer that is a path in it, as those of ONNX nodes are, else the layer.

    The name of a node may be such a path by itself: `/conv_in/Conv` of the module `conv_in`.
    """
    within = layer.str.starts_with(module + "/") | layer.str.starts_with("/")
    return pl.when(within & module.is_not_null()).then(module).otherwise(layer)


def places_by_layer(commands: pl.DataFrame) -> dict[str, str]:
    """The place of each layer among `commands`, by the first module that one of them tells."""
    layers = commands.group_by("layer").agg(pl.col("module").drop_nulls().first())
    texts = layers.select(pl.col("layer", "module").cast(pl.String))
    rows = texts.select("layer", place_of(pl.col("layer"), pl.col("module")).alias("place")).rows()
    return dict(rows)
