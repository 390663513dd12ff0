"""The table of operators that are computed again."""

from __future__ import annotations

from profiler.analysis.denoise.columns import REDUNDANT_WORK
from profiler.analysis.denoise.redundant_work import RedundantWork, find_redundant_work
from profiler.analysis.inputs import Inputs, shared
from profiler.analysis.roles.tables import kind_roles
from profiler.analysis.table import Table

__all__ = ["TABLES", "redundant_work"]


@shared
def redundant_work(of: Inputs) -> RedundantWork:
    """The operators of the selected calls that are computed again."""
    return find_redundant_work(
        of.calls,
        of.kinds,
        kind_roles(of),
        of.call_kinds,
        of.pipelines.number_of(of.calls),
        of.run.info.submodules,
    )


TABLES = (
    Table(
        name="redundant_work",
        row="one group of operators that is recomputed although its inputs are the same",
        section="guidance",
        columns=REDUNDANT_WORK,
        make=lambda of: redundant_work(of).table,
        title="Computed again",
        about="Rows are in order of the time that hoisting would save, largest first. "
        "[steps.md](steps.md#redundant-work) describes the rules.",
        rank=("-saved_ns",),
    ),
)
