"""Which rows of a comparison a report shows together: the whole, modules, what one side lacks."""

from __future__ import annotations

import re
from collections.abc import Iterable

import polars as pl

from profiler.analysis.comparison.codes import Side
from profiler.report.patterns import pattern
from profiler.report.sentences.changes import CALLED, row_name

__all__ = ["largest", "of_whole", "only_in", "with_blocks_together"]

_WHOLE = ("end_to_end", "stage", "step", "submodule", "branch", "busy")
_PROMPTS = ("prompt", "negative_prompt")  # an encoder does the same for both
_DIGITS = 9  # of a number in a path
_NUMBER = re.compile(r"(?<![0-9A-Za-z])[0-9]+(?![0-9A-Za-z])", re.ASCII)


def of_whole() -> pl.Expr:
    """Whether a metric is of the whole, a stage, a submodule or a branch that does its own work."""
    of_prompt = pl.col("branch").is_in(_PROMPTS).fill_null(value=False)
    return pl.col("level").is_in(_WHOLE) & pl.col("step").is_null() & ~of_prompt


def largest(rows: pl.DataFrame) -> pl.DataFrame:
    """Those that differ most first, those beyond noise before all."""
    order = (pl.col("verdict").is_in(CALLED), pl.col("difference_ns").abs())
    return rows.sort(order, descending=True, maintain_order=True)


def with_blocks_together(rows: pl.DataFrame, apart: pl.Expr | None = None) -> pl.DataFrame:
    """Modules, those of equal blocks taken together where they are, but for those that stay
    `apart`."""
    together = rows.filter(pl.col("level") == "modules")
    single = rows.filter(pl.col("level") == "module")
    folded = single.with_columns(module=pattern(pl.col("module")))
    keys = ["submodule", "role", "module"]
    known = folded.join(together, on=keys, how="semi")["metric"].to_list()
    alone = ~pl.col("metric").is_in(known)
    return pl.concat([together, single.filter(alone if apart is None else alone | apart)])


def only_in(metrics: pl.DataFrame, side: Side) -> pl.DataFrame:
    """What only one side has, longest first: `what` and `ns`, modules of equal blocks as one with
    the numbers of these in `blocks`, and of what the other side lacks as a whole nothing but
    itself."""
    rows = metrics.filter((pl.col("verdict") == side.alone.value) & pl.col("step").is_null())
    for whole in ("submodule", "busy"):
        lacking = rows.filter(pl.col("level") == whole)["submodule"].to_list()
        inside = pl.col("submodule").is_in(lacking) & ~pl.col("level").is_in(("submodule", whole))
        rows = rows.filter(~inside.fill_null(value=False))
    folded = rows.with_columns(module=pattern(pl.col("module")))
    names = [row_name(row) for row in folded.iter_rows(named=True)]
    named = folded.with_columns(what=pl.Series(names, dtype=pl.String))
    sums = named.group_by("what", maintain_order=True).agg(ns=pl.col(f"{side}_ns").sum())
    blocks = _blocks(metrics, side)
    found = sums.with_columns(
        blocks=pl.Series([blocks.get(what) for what in sums["what"]], dtype=pl.String)
    )
    return found.sort("ns", descending=True, maintain_order=True)


def _blocks(metrics: pl.DataFrame, side: Side) -> dict[str, str]:
    """By what they are of, which equal blocks only one side has where the other has some, too:
    `"4, 5; base 0 to 3"`."""
    rows = metrics.filter((pl.col("level") == "module") & pl.col("step").is_null())
    folded = rows.with_columns(path=pl.col("module"), module=pattern(pl.col("module")))
    paths: tuple[dict[str, list[list[int]]], dict[str, list[list[int]]]] = ({}, {})
    for row in folded.iter_rows(named=True):
        of_other = row["verdict"] != side.alone.value
        numbers = [int(number[-_DIGITS:]) for number in _NUMBER.findall(row["path"] or "")]
        if numbers:
            paths[of_other].setdefault(row_name(row), []).append(numbers)
    return {
        what: _told_apart(own, paths[1][what], side.other)
        for what, own in paths[0].items()
        if what in paths[1]
    }


def _told_apart(own: list[list[int]], others: list[list[int]], other: str) -> str:
    """The numbers at the place in the paths where they differ."""
    places = zip(zip(*own, strict=False), zip(*others, strict=False), strict=False)
    columns = [({*mine}, {*theirs}) for mine, theirs in places]
    mine, theirs = next((pair for pair in columns if pair[0] - pair[1]), columns[0])
    return f"{_listed(mine)}; {other} {_listed(theirs)}"


def _listed(numbers: Iterable[int]) -> str:
    """`"0 to 3, 5"`."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(
        f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs
    )
