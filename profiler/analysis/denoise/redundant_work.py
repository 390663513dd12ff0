"""Operators that compute the same again, and the time that computing it once would save.

What a kind of command gave once, and still has to give in the same pipeline call, branch, or step,
is not computed again when it is hoisted out of the loop: `redundancy_rules` says of which kinds
that holds. Equal kinds have equal shapes. Saved is the median of a kind's executions times those
that need not be, and no more than these took: one slow execution promises nothing. Of what is known
ahead, and so may be computed for all steps as one batch, that is an upper bound.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from profiler.analysis.call_kinds import CallKinds
from profiler.analysis.denoise.codes import Over, RedundancyEvidence
from profiler.analysis.denoise.columns import REDUNDANT_WORK
from profiler.analysis.denoise.redundancy_rules import (
    Redundancy,
    module_path,
    redundancies_of,
)
from profiler.analysis.distinct_commands import Kinds
from profiler.run.columns import schema
from profiler.run.intervals import Codes
from profiler.text import Note, notes_text
from profiler.trace.manifest_fields import Submodule

__all__ = ["RedundantWork", "find_redundant_work"]

_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")
_OVER_STEPS = (Over.STEPS, Over.STEPS_AND_BRANCHES)
_OVER_BRANCHES = (Over.BRANCHES, Over.STEPS_AND_BRANCHES, Over.AHEAD_AND_BRANCHES)
_AHEAD = (Over.AHEAD, Over.AHEAD_AND_BRANCHES)
_EQUAL_SHAPES, _NO_SHAPES = (
    notes_text([Note.of(code)]).removeprefix("[")
    for code in (RedundancyEvidence.EQUAL_SHAPES, RedundancyEvidence.NO_SHAPES)
)
_ROW = ["submodule", "rule", "over", "pattern"]


class RedundantWork(Struct, frozen=True, eq=False):
    """The `table` (`columns.REDUNDANT_WORK`), and whether each kind's inputs do not change from
    step to step, bool [k]."""

    table: pl.DataFrame
    over_steps: npt.NDArray[np.bool_]


def find_redundant_work(
    calls: pl.DataFrame,
    kinds: Kinds,
    roles: pl.DataFrame,
    ran: CallKinds,
    pipeline: Codes,
    submodules: Mapping[str, Submodule],
) -> RedundantWork:
    """What of `kinds`, as they `ran` in `calls`, computes the same again.

    `roles` has a row a kind (`KIND_ROLE`), `pipeline` is the number of the pipeline call of each
    call, `submodules` what the manifest says of them.
    """
    denoisers = calls.filter(pl.col("step") >= 0)["submodule"].cast(pl.String).unique().to_list()
    found = redundancies_of(kinds, roles, denoisers)
    steps = np.array([i is not None and i.over in _OVER_STEPS for i in found], dtype=np.bool_)
    number = np.flatnonzero([i is not None for i in found])
    if not len(number):
        return RedundantWork(pl.DataFrame(schema=schema(REDUNDANT_WORK)), steps)
    known = _known(kinds, [found[i] for i in number.tolist()], number, submodules)
    rows = _executions(calls, ran, pipeline, known)
    return RedundantWork(_table(rows), steps)


def _known(
    kinds: Kinds,
    found: Sequence[Redundancy | None],
    number: npt.NDArray[np.int64],
    submodules: Mapping[str, Submodule],
) -> pl.DataFrame:
    """One row a kind that computes the same again: what is known of it."""
    table = kinds.table[number].select("kind", "submodule", "layer", "place", "op_type", "shapes")
    evidence = [
        notes_text((*redundancy.evidence, *_class(submodules, submodule, place)))
        for redundancy, submodule, place in zip(
            found, table["submodule"], table["place"], strict=True
        )
        if redundancy is not None
    ]
    return table.with_columns(
        rule=pl.Series([i.rule.value for i in found if i is not None]),
        over=pl.Series([i.over.value for i in found if i is not None]),
        evidence=pl.Series(evidence),
        pattern=pl.Series([_NUMBER.sub("*", module_path(place)) for place in table["place"]]),
    )


def _class(submodules: Mapping[str, Submodule], submodule: str, place: str) -> tuple[Note, ...]:
    """The class of a place's module, as a part of the evidence."""
    known = submodules.get(submodule)
    name = known.modules.get(module_path(place)) if known else None
    return (Note.of(RedundancyEvidence.CLASS, name=name),) if name else ()


def _executions(
    calls: pl.DataFrame, ran: CallKinds, pipeline: Codes, known: pl.DataFrame
) -> pl.DataFrame:
    """One row a call and kind that computes the same again, and whether it is `needed` there: in
    the first call of the pipeline call, and of its branch where that makes a difference."""
    of_calls = calls.select(
        "start_ns",
        call=pl.int_range(pl.len(), dtype=pl.Int64),
        branch=pl.col("branch").cast(pl.String),
        pipeline=pl.Series(pipeline),
    )
    executed = pl.DataFrame({"call": ran.call, "kind": ran.kind, "busy": ran.busy})
    rows = (
        executed.with_columns(pl.col("kind").cast(pl.Int32))
        .join(known, on="kind")
        .join(of_calls, on="call", how="left")
    )
    branch = pl.when(~pl.col("over").is_in(_OVER_BRANCHES)).then(pl.col("branch"))
    return (
        rows.with_columns(branch=branch)
        .sort("start_ns", "call", "kind")
        .with_columns(
            minimum_executions=pl.struct("kind", "pipeline", "branch").is_first_distinct()
        )
    )


def _table(rows: pl.DataFrame) -> pl.DataFrame:
    """One row a submodule, rule, and layer with numbers as *."""
    merged = rows.group_by(_ROW, maintain_order=True).agg(
        layers=pl.col("layer").n_unique(),
        first_layer=pl.col("layer").first(),
        calls=pl.col("call").n_unique(),
        minimum_executions=pl.col("call").filter("minimum_executions").n_unique(),
        total_ns=pl.col("busy").sum(),
        evidence=pl.col("evidence").sort_by("busy").last(),
        shapes=pl.col("shapes").is_not_null().any(),
    )
    types = (
        rows.drop_nulls("op_type")
        .group_by(*_ROW, "op_type")
        .agg(pl.col("busy").sum())
        .sort(["busy", "op_type"], descending=[True, False])
        .group_by(_ROW, maintain_order=True)
        .agg(op_types=pl.col("op_type").str.join(", "))
    )
    shapes = pl.when("shapes").then(pl.lit(_EQUAL_SHAPES)).otherwise(pl.lit(_NO_SHAPES))
    table = (
        merged.join(types, on=_ROW, how="left")
        .join(_saved(rows), on=_ROW, how="left")
        .with_columns(
            pl.col("op_types").fill_null(""),
            layer=pl.when(pl.col("layers") == 1)
            .then(pl.col("first_layer"))
            .otherwise(pl.col("pattern")),
            same_over=pl.col("over"),
            estimated=pl.col("over").is_in(_AHEAD),
            evidence=pl.format("{}, {}", pl.col("evidence").str.strip_suffix("]"), shapes),
        )
        .filter(pl.col("saved_ns") > 0)
        .sort(["saved_ns", "submodule", "layer"], descending=[True, False, False])
    )
    return table.select(pl.col(n).cast(t) for n, t in schema(REDUNDANT_WORK).items())


def _saved(rows: pl.DataFrame) -> pl.DataFrame:
    """What hoisting saves (`saved_ns`) by row of the table. Of an even number of executions the
    median is the lower of the middle two: of two, a slow one does not count."""
    median = pl.col("busy").quantile(0.5, interpolation="lower")
    again = pl.col("busy").filter(~pl.col("minimum_executions"))
    kinds = rows.group_by(*_ROW, "kind").agg(
        saved_ns=pl.min_horizontal(median.cast(pl.Int64) * again.len(), again.sum())
    )
    return kinds.group_by(_ROW).agg(pl.col("saved_ns").sum())
