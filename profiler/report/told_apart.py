"""Rows of one label, told apart by the template arguments of their kernels."""

from __future__ import annotations

import polars as pl

from profiler.grammars.names import telling_apart

__all__ = ["with_template_arguments"]

_ALIKE = ("label", "submodule", "device")


def with_template_arguments(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows of shapes with the fewest template arguments behind each label that another row of the
    same submodule and device has, too: `mul_mat_vec_q<13>`."""
    labels = rows["label"].to_list()
    numbered = rows.with_row_index("row").filter(pl.col("kernel").is_not_null())
    for _, alike in numbered.group_by(_ALIKE, maintain_order=True):
        if len(alike) > 1:
            kernels = [kernel.rpartition(" +")[0] or kernel for kernel in alike["kernel"]]
            for row, told in zip(alike["row"], telling_apart(kernels), strict=True):
                labels[row] += f"<{told}>" if told else ""
    return rows.with_columns(pl.Series("label", labels, dtype=pl.String))
