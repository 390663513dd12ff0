"""What an analysis finds: small frozen values and Polars frames, the input of every report.

Times are int64 nanoseconds; shares, efficiencies and utilizations are ratios (1.0 is all of it).
The columns of the frames are declared in `profiler.analysis.columns`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import polars as pl

from profiler.analysis.columns import LOSSES, TABLES
from profiler.analysis.findings.columns import FINDINGS
from profiler.analysis.findings.finding import Finding
from profiler.analysis.findings.table import findings_table
from profiler.analysis.kinds import Kinds
from profiler.analysis.roofline.device_profiles import DeviceProfile
from profiler.analysis.selection import Selection
from profiler.errors import InputError
from profiler.events import Loss
from profiler.table.columns import Column, checked, schema
from profiler.table.pandas_frames import to_pandas
from profiler.trace.manifest_fields import (
    Attribution,
    Device,
    Hardware,
    Overhead,
    Recording,
    Setting,
    Submodule,
    Warmup,
)

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Accounting",
    "Analysis",
    "RunSummary",
    "StageAccount",
    "StepSummary",
    "SubmoduleTime",
]


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What ran, as the run's producer told it (`RunInfo`); `settings` with those that differ.

    `started` is the UTC time of the first event, ISO 8601 to the second, "" where the trace's
    clock is not the time of day. `calls`, `traced_calls` (with `ops_traced`) and `commands` count
    the whole run, `selected_calls` and `selected_commands` what `selection` left for the tables.
    """

    run_id: str
    model: str
    pipeline: str
    producer: str
    started: str
    command_line: tuple[str, ...]
    versions: Mapping[str, str]
    hardware: Hardware
    devices: Mapping[str, Device]
    submodules: Mapping[str, Submodule]
    settings: Mapping[str, Setting]
    recording: Recording | None
    overhead: Overhead
    warmup: Warmup | None
    attribution: Mapping[str, Attribution]
    calls: int
    traced_calls: int
    commands: int
    selection: Selection
    selected_calls: int
    selected_commands: int


@dataclass(frozen=True, slots=True)
class StageAccount:
    """Where the time of one stage went: `calls_ns + host_ns + idle_ns`, see `Accounting`."""

    stage: str
    duration_ns: int
    calls_ns: int
    host_ns: int
    idle_ns: int


@dataclass(frozen=True, slots=True)
class SubmoduleTime:
    """Wall union of one submodule's calls in each pipeline call, summed up, and its share of end to
    end; of all its calls where the run has no pipeline span."""

    submodule: str
    wall_ns: int
    share: float


@dataclass(frozen=True, slots=True)
class Accounting:
    """End-to-end time against what the stages account for; always of the whole run.

    Every pipeline call is accounted for by itself, and `end_to_end_ns` is the sum of their times,
    as are all parts. `wall_ns` is the time in which any of them ran: less, where `overlapping` of
    them ran at the same time as another. Where the run does not tell what belongs to which
    (`told_apart` is False: foreign traces, old bundles) all are accounted for as if they were
    one, and `end_to_end_ns` is `wall_ns`. `calls_outside` counts the submodule calls in no
    pipeline call, which are in no stage and not in the end-to-end time; they took
    `calls_outside_ns`.

    `residual_ns = end_to_end_ns - Σ stages (calls_ns + host_ns + idle_ns)`, and it is explained:
    `residual_ns = gap_ns - outside_ns - overlap_ns`, where `gap_ns` is pipeline time in no stage,
    `outside_ns` what sticks out (calls and host work of their stage, stages of the pipeline) and
    `overlap_ns` time that several stages claim. `residual_share` is
    `(gap_ns + outside_ns + overlap_ns) / end_to_end_ns`: errors of opposite sign do not cancel.

    `possible` is False, with the reason in `why_not`, where the run holds no pipeline or stage
    spans; then `stages` is empty and the parts are 0, and so is `end_to_end_ns` without a
    pipeline span. `submodules` is known all the same, longest first.
    """

    end_to_end_ns: int
    pipelines: int
    steps: int
    stages: tuple[StageAccount, ...]
    residual_ns: int
    residual_share: float
    gap_ns: int
    outside_ns: int
    overlap_ns: int
    submodules: tuple[SubmoduleTime, ...]
    possible: bool = True
    why_not: str = ""
    wall_ns: int = 0
    overlapping: int = 0
    told_apart: bool = True
    calls_outside: int = 0
    calls_outside_ns: int = 0


@dataclass(frozen=True, slots=True)
class StepSummary:
    """Statistics over the rows of `steps`; times are 0 where there are none.

    `outliers` are the steps (`"7"`, or `"1:7"` for step 7 of pipeline call 1 where there are
    several) that `rule` singles out. `measured_by` is `"step spans"`, or `"calls"` where the run
    has no step spans and a step is taken to last from its first call's begin to its last's end.
    """

    count: int
    min_ns: int
    median_ns: int
    max_ns: int
    mean_ns: int
    outliers: tuple[str, ...]
    rule: str
    measured_by: str


@dataclass(frozen=True, slots=True, eq=False)
class Analysis:
    """Everything that a report shows.

    `accounting`, `pipelines` and `stages` describe the whole run, `steps` the selected steps as
    they were in the whole run, the other tables what `run.selection` left. `operators` is sorted by
    `busy_sum_ns`, longest first, and holds all of them, `geometry` the parts of those that were
    split; `pipelines`, `stages`, `submodules`, `branches`, `calls` and `steps` are in order of
    time, `devices` by name. `roofline`, `roofline_roles` and `fusions` hold operators against the
    `device_profiles` of their devices, as far as these are known. `step_operators` says how the
    parts of steps change from step to step, `step_times` has their time in each, `step_outliers`
    why some stand out; `guidance` what guidance costs, `invariants` what is computed again.
    `memory_devices`, `memory` and `memory_timeline` say what memory the whole run needed. `idle`
    says what devices waited for and `critical_path` what the time of pipeline calls consists of,
    both of the whole run; `boundaries` and `stranded` what several providers in a session cost.
    `roles` and `blocks` say what the time is for; `kind_roles` has the role of each of the `kinds`
    of the selected commands, and what decided. `losses` is what was executed but is not in the
    trace. `findings` is what rules make of all this, worst first.
    """

    run: RunSummary
    accounting: Accounting
    pipelines: pl.DataFrame
    stages: pl.DataFrame
    devices: pl.DataFrame
    submodules: pl.DataFrame
    branches: pl.DataFrame
    calls: pl.DataFrame
    steps: pl.DataFrame
    step_summary: StepSummary
    operators: pl.DataFrame
    geometry: pl.DataFrame
    roles: pl.DataFrame
    blocks: pl.DataFrame
    roofline: pl.DataFrame
    roofline_roles: pl.DataFrame
    fusions: pl.DataFrame
    step_operators: pl.DataFrame
    step_times: pl.DataFrame
    step_outliers: pl.DataFrame
    guidance: pl.DataFrame
    invariants: pl.DataFrame
    memory_devices: pl.DataFrame
    memory: pl.DataFrame
    memory_timeline: pl.DataFrame
    idle: pl.DataFrame
    critical_path: pl.DataFrame
    boundaries: pl.DataFrame
    stranded: pl.DataFrame
    device_profiles: Mapping[str, DeviceProfile]
    kinds: Kinds
    kind_roles: pl.DataFrame
    losses: tuple[Loss, ...]
    findings: tuple[Finding, ...]

    def __post_init__(self) -> None:
        for name, columns in TABLES.items():
            object.__setattr__(self, name, checked(getattr(self, name), columns))

    def __repr__(self) -> str:
        calls, commands = self.run.selected_calls, self.run.selected_commands
        return f"Analysis({self.run.run_id!r}: {calls:,} calls, {commands:,} commands)"

    def tables(self) -> dict[str, pl.DataFrame]:
        """Every table by name, those of `docs/dataframes.md` in their order; `losses` and
        `findings` as well."""
        return {name: self._table(name) for name in _DECLARED}

    def to_pandas(self, table: str) -> pd.DataFrame:
        """One of the `tables` for pandas, integers with nulls as `Int64`.

        Raises InputError where there is no such table.
        """
        _columns_of(table)
        return to_pandas(self._table(table))

    def _table(self, name: str) -> pl.DataFrame:
        if name == "losses":
            return pl.DataFrame([asdict(loss) for loss in self.losses], schema=schema(LOSSES))
        if name == "findings":
            return findings_table(self.findings)
        frame: pl.DataFrame = getattr(self, name)
        return frame

    @staticmethod
    def describe(table: str) -> pl.DataFrame:
        """The columns of one of the `tables`: `column, dtype, unit, null, meaning`, a row each.

        Raises InputError where there is no such table.
        """
        rows = [(c.name, str(c.dtype), c.unit, c.nullable, c.meaning) for c in _columns_of(table)]
        names = ("column", "dtype", "unit", "null", "meaning")
        return pl.DataFrame(rows, schema=names, orient="row")


_DECLARED = {**TABLES, "losses": LOSSES, "findings": FINDINGS}


def _columns_of(table: str) -> tuple[Column, ...]:
    """The declaration of a table of an analysis; raises InputError for another name."""
    if table not in _DECLARED:
        raise InputError(f"an analysis has no table {table!r}: there is {', '.join(_DECLARED)}")
    return _DECLARED[table]
