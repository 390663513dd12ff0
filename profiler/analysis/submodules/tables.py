"""The tables of submodules, of their branches and of their calls."""

from __future__ import annotations

import numpy as np
import polars as pl

from profiler.analysis.accounting.tables import accounting
from profiler.analysis.first_calls import unsteady_calls
from profiler.analysis.inputs import Inputs
from profiler.analysis.operators.tables import folds
from profiler.analysis.partials import Partials
from profiler.analysis.roles.tables import cell_partials
from profiler.analysis.submodules.calls import (
    DeviceTime,
    Share,
    branch_table,
    call_table,
    overhead_ratios,
    submodule_table,
)
from profiler.analysis.submodules.columns import BRANCHES, CALLS, SUBMODULES
from profiler.analysis.submodules.device_time import device_time
from profiler.analysis.submodules.partials import call_parts
from profiler.analysis.table import Table
from profiler.analysis.waiting.kernels_of_calls import before_first_kernels
from profiler.analysis.waiting.tables import gaps_of, kernels_of
from profiler.run.intervals import Codes, positions

__all__ = ["TABLES"]


def _submodules(of: Inputs) -> pl.DataFrame:
    of_devices = ~np.array(folds(of).host, dtype=np.bool_)
    submodule = pl.DataFrame({"submodule": folds(of).submodules}, schema={"submodule": pl.String})
    submodule = submodule.filter(pl.Series(of_devices))
    factors = overhead_ratios(of.run.info.submodules)
    return submodule_table(of.table("calls"), submodule, _share(of), _device_time(of), factors)


def _branches(of: Inputs) -> pl.DataFrame:
    return branch_table(of.table("calls"), _share(of), _device_time(of))


def _share(of: Inputs) -> Share:
    """The share of the end-to-end time that calls, by their rows in the table, take."""
    axis, total = of.axis, accounting(of).end_to_end_ns
    rows = positions(of.calls["call"].to_numpy(), of.run.calls["call"].to_numpy())
    told = of.pipelines.apart

    def share(own: Codes) -> float | None:
        return axis.taken(rows[own], told=told) / total if total else None

    return share


def _device_time(of: Inputs) -> DeviceTime:
    """How long the work of calls, by their rows in the table, ran on devices."""
    rows = positions(of.calls["call"].to_numpy(), of.run.calls["call"].to_numpy())
    calls = len(of.run.calls)

    def times(groups: list[Codes]) -> list[int]:
        code = np.full(calls, -1)
        for number, own in enumerate(groups):
            code[rows[own]] = number
        found: list[int] = device_time(of, code, len(groups)).tolist()
        return found

    return times


def _calls(of: Inputs) -> pl.DataFrame:
    first, total = unsteady_calls(of.run), accounting(of).end_to_end_ns
    tiles, commands = of.run.tiles.calls, of.commands.call
    before = before_first_kernels(gaps_of(of), of.run, kernels_of(of))
    found = folds(of)
    on_device = ~np.array(found.host, dtype=np.bool_)[found.key]
    return call_table(of.calls, tiles, commands, found.call[on_device], first, before, total)


def _partials(of: Inputs) -> tuple[Partials, ...]:
    return call_parts(of), cell_partials(of)


TABLES = (
    Table(
        name="submodules",
        row="one submodule",
        section="time",
        columns=SUBMODULES,
        make=_submodules,
        title="Submodules",
        about="Rows are in order of first calls. If a submodule has more than one call, its "
        "steady calls are all except the first, which pays for initialization. Calls that "
        "another thread began while the first one ran, and calls that compiled "
        "([compilations](#compilations)), are not steady either. `overhead_ratio` is the factor "
        "in the manifest where capture measured one. It is 1, and times count as traced, where "
        "the measured interval contains 1.",
        reads=("calls",),
        partials=_partials,
    ),
    Table(
        name="branches",
        row="one branch of a submodule",
        section="time",
        columns=BRANCHES,
        make=_branches,
        title="Submodules by branch",
        about="A denoiser works for `cond`, `uncond`, `skip_layers` or `batched`, an encoder for "
        "one of the prompts. Steady calls are those of [submodules](#submodules).",
        reads=("calls",),
        partials=lambda of: (call_parts(of),),
    ),
    Table(
        name="calls",
        row="one call, with what its commands add up to",
        section="calls",
        columns=CALLS,
        make=_calls,
        title="Calls",
        about="Rows are in order of calls. The time of a call is its tile on its device's axis; "
        "`duration_ns` is how long its caller waited.",
        shown=15,
        partials=_partials,
    ),
)
