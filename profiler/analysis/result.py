"""`Analysis`: the tables and values that an analysis returns and every report reads.

    Finding("unfused_attention", {"saved_ns": 160_000_000}, Where("transformer"))

Times are int64 nanoseconds. Shares and utilizations are ratios (1.0 is 100 %). Each table is
declared in the folder of its question.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import polars as pl
from msgspec import Struct, field

from profiler.analysis.commands import Kinds
from profiler.analysis.context import Inputs, Selection
from profiler.analysis.question import table_named
from profiler.errors import InputError
from profiler.run.columns import COMMANDS, INT32, NS, RATIO, STRING, Column, col
from profiler.run.run import to_pandas
from profiler.text import Note, NoteCode, Value
from profiler.trace.events import Drop
from profiler.trace.manifest_fields import (
    Attribution,
    Coverage,
    Device,
    Generation,
    Hardware,
    Overhead,
    Recording,
    Setting,
    Submodule,
    SubmoduleSettings,
    Warmup,
)

if TYPE_CHECKING:
    import pandas as pd

    from profiler.analysis.device_profiles import DeviceProfile


# --- Words that several questions share: closed sets.


class StepSource(StrEnum):
    """What steps were measured by."""

    STEP_SPANS = "step_spans"
    CALLS = "calls"


class StepSummary(Struct, frozen=True):
    """Statistics over the rows of `steps`; times are 0 if there are none.

    `median_ns` is that of the steady steps, in which no submodule is called for the first time or
    compiles; of all if fewer than two are. `diff` compares these, too. If a step cache was on,
    `full_steps` are those in which it skipped nothing, `skipping_steps` the others, with their own
    medians; None if no cache was on, and if there is no such step. `outliers` are the steps (`"7"`,
    or `"1:7"` for step 7 of pipeline call 1 if there are several) that `rule` singles out.
    `measured_by` says how steps were found: by `step_spans`, or by `calls` if the run has no such
    spans.
    """

    count: int
    min_ns: int
    median_ns: int
    max_ns: int
    mean_ns: int
    outliers: tuple[str, ...]
    rule: Note
    measured_by: StepSource
    full_steps: int | None = None
    full_median_ns: int | None = None
    skipping_steps: int | None = None
    skipping_median_ns: int | None = None


class HasFrame(Protocol):
    """An object that makes its `frame` on first use."""

    @property
    def frame(self) -> pl.DataFrame: ...


class StageAccount(Struct, frozen=True):
    """Where the time of one stage went: `elapsed_ns = calls_ns + host_ns + idle_ns`. `idle_ns` is
    None if it was not recorded when commands ran."""

    stage: str
    elapsed_ns: int
    calls_ns: int
    host_ns: int
    idle_ns: int | None


class SubmoduleTime(Struct, frozen=True):
    """Union of the tiles of one submodule's calls in each pipeline call, summed up, and its share
    of end to end; of all its calls if the run has no pipeline span."""

    submodule: str
    wall_ns: int
    share: float


class Accounting(Struct, frozen=True):
    """End-to-end time against what the stages account for; always of the whole run.

    Times are on the devices' axis: a pipeline call lasts to the end of the last command that was
    launched for it. Every pipeline call is accounted for by itself, and `end_to_end_ns` is the sum
    of their times, as are all parts. `wall_ns` is the time in which any of them ran: less, if
    `overlapping` of them ran at the same time as another. If it is unknown which work belongs to
    which (`told_apart` is False: foreign traces, old bundles), all are accounted for as one, and
    `end_to_end_ns` is `wall_ns`. `calls_outside` counts the submodule calls in no pipeline call,
    which are in no stage and not in the end-to-end time; they took `calls_outside_ns`.

    `unaccounted_ns = end_to_end_ns - Σ stages elapsed_ns`. `before_after_ns` is
    how long tiles were outside of their pipeline call, in no stage. `residual_share` is
    `(unaccounted_ns + before_after_ns) / end_to_end_ns`. `unrecorded_ns` lies in the pipeline
    calls' time and counts neither there nor in a stage: nothing was recorded though work waited.
    Nor does `carried_over_ns`, in which only what had been launched before the recording ran, or
    `profiler_ns`, in which the pipeline waited for the profiler's own work.

    `possible` is False, with the reason in `why_not`, if the run holds no pipeline or stage
    spans; then `stages` is empty and the parts are 0. `iterations` are passes of loops that are not
    denoising, over all pipeline calls. Without a pipeline span `end_to_end_ns` lasts
    from the first tile or command of a device to the last. `submodules` is known all the same,
    longest first.
    """

    end_to_end_ns: int
    pipelines: int
    steps: int
    stages: tuple[StageAccount, ...]
    unaccounted_ns: int
    residual_share: float
    before_after_ns: int
    unrecorded_ns: int
    submodules: tuple[SubmoduleTime, ...]
    carried_over_ns: int = 0
    possible: bool = True
    why_not: Note | None = None
    wall_ns: int = 0
    overlapping: int = 0
    told_apart: bool = True
    calls_outside: int = 0
    calls_outside_ns: int = 0
    profiler_ns: int = 0
    iterations: int = 0

    @property
    def in_iterations(self) -> bool:
        """Whether reports describe the run by its iterations: it has several, at most one pipeline
        call, and no steps."""
        return self.iterations > 1 and self.pipelines <= 1 and not self.steps


class SettingNote(NoteCode):
    """How a setting differs between the pipeline calls of a run."""

    RANGE = "range"
    DIFFERS = "differs"
    IN_SOME_CALLS = "in_some_calls"


# --- Words of the evidence of findings: closed sets.


class Recorded(StrEnum):
    """What was recorded that slows the host most."""

    PYTHON_STACKS = "python_stacks"
    OPERATORS = "operators"


# --- The columns of findings as a frame.


FINDINGS: tuple[Column, ...] = (
    col("rule", STRING, "name of the rule, which is its heading in findings.md"),
    col("severity", STRING, "high, medium or low"),
    col("cost_ns", NS, "most time that the recommendation can save; costs do not add up", True),
    col("cost_share", RATIO, "cost_ns / end-to-end time", True),
    col("evidence", STRING, "the evidence as a JSON object"),
    col("submodule", STRING, "submodule that the finding is about", True),
    col("layer", STRING, "layer, if the finding is about one", True),
    col("device", STRING, "device that the finding is about", True),
    col("pipeline", INT32, "number of the pipeline call", True),
    col("step", INT32, "denoising step", True),
    col("calls", STRING, "numbers of a few of its calls, joined with commas"),
)


# --- Findings of rules, as data.
#
# Finding("unfused_attention", {"saved_ns": 160_000_000}, Where("transformer"))


Severity = Literal["high", "medium", "low"]
SEVERITIES: tuple[Severity, ...] = ("high", "medium", "low")

Evidence = Mapping[str, Value]


class Where(Struct, frozen=True):
    """What a finding is about; None and empty for what does not apply.

    `calls` are numbers of calls (a few of them), in order of time.
    """

    submodule: str | None = None
    layer: str | None = None
    device: str | None = None
    pipeline: int | None = None
    step: int | None = None
    calls: tuple[int, ...] = ()


class Effect(Struct, frozen=True):
    """What following a finding removes from the device work of submodules: `less_ns` of work, and
    `launches` with the mean host time of a launch, or `launches_of` operators, by op type, with the
    host's time for those. Or it removes all calls of `without_branch`, while the others have
    `grown` times the work."""

    submodules: tuple[str, ...]
    less_ns: float = 0.0
    launches: float = 0.0
    launches_of: Mapping[str, float] = field(default_factory=dict)
    without_branch: str | None = None
    grown: float = 1.0


class Finding(Struct, frozen=True):
    """One finding of one rule, in codes and numbers; its rule has the words.

    `evidence` maps names to numbers, whose unit ends the name (`_ns`, `_bytes`, `_share`: 1.0 is
    all; none: a count or ratio), and to names, codes and notes. `cost_ns` is what following it
    saves at most of the run's end-to-end time, None if unknown, and `cost_share` its share of that
    time; costs of several findings may be the same time, they do not add up. `severity` follows
    from `cost_ns` if that is known. If launches were recorded `effect` is replayed: `cost_ns` is
    what is gained with the host as it was recorded.
    """

    rule: str
    evidence: Evidence
    where: Where = field(default_factory=Where)
    cost_ns: int | None = None
    cost_share: float | None = None
    severity: Severity = "low"
    effect: Effect | None = None


# --- What an analysis finds: tables and small frozen values, the input of every report.
#
# Times are int64 nanoseconds; shares and utilizations are ratios (1.0 is all of it).
# Each table is declared in the folder of its question; `profiler.analysis.question` has them all.


_COMMANDS = "commands"


class RunSummary(Struct, frozen=True):
    """What ran, as recorded (`RunInfo`); `settings` that differ between pipeline calls are notes
    (`SettingNote`).

    `started` is the UTC time of the first event, ISO 8601 to the second, "" if the trace's
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
    settings: Mapping[str, Setting | Note]
    submodule_settings: Mapping[str, tuple[SubmoduleSettings, ...]]
    generations: tuple[Generation, ...]
    recording: Recording | None
    overhead: Overhead
    coverage: Coverage | None
    warmup: Warmup | None
    attribution: Mapping[str, Attribution]
    calls: int
    traced_calls: int
    commands: int
    selection: Selection
    selected_calls: int
    selected_commands: int


@dataclass(frozen=True, slots=True, eq=False)
class Analysis:
    """Everything that a report shows.

    Every table of the registry is an attribute under its name, a Polars frame:
    `analysis.operators`. `tables()` has them all; `describe(name)` says what their columns are, and
    `docs/tables.md` what each is about. `findings` and `drops` are objects, one per row of the
    tables of these names: findings of the rules, worst first, and what was executed but is not in
    the trace.

    `accounting` describes the whole run, `step_summary` the selected steps. `kind_roles` has the
    role of each of the `kinds` of the selected commands, and what decided; `commands` has them one
    by one. `device_profiles` are those of the devices that are known. `inputs` are what the tables
    were made from.
    """

    run: RunSummary
    accounting: Accounting
    step_summary: StepSummary
    device_profiles: Mapping[str, DeviceProfile]
    kinds: Kinds
    kind_roles: pl.DataFrame
    drops: tuple[Drop, ...]
    findings: tuple[Finding, ...]
    annotated: HasFrame
    inputs: Inputs
    frames: Mapping[str, pl.DataFrame]

    @property
    def commands(self) -> pl.DataFrame:
        """The selected commands as recorded, with `role`, and with `flops`, `bytes_read` and
        `bytes_written` filled in if not recorded; made when first asked for. Not one of the
        `tables`."""
        return self.annotated.frame

    def __getattr__(self, name: str) -> pl.DataFrame:
        """The table of that name."""
        if name != "frames" and name in self.frames:  # not there while this is being copied
            return self.frames[name]
        raise AttributeError(f"an analysis has no {name!r}")

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *self.frames})

    def __repr__(self) -> str:
        calls, commands = self.run.selected_calls, self.run.selected_commands
        return f"Analysis({self.run.run_id!r}: {calls:,} calls, {commands:,} commands)"

    def tables(self) -> dict[str, pl.DataFrame]:
        """Every table by name, in the order of `docs/tables.md`."""
        return dict(self.frames)

    def to_pandas(self, table: str) -> pd.DataFrame:
        """One of the `tables`, or `commands`, for pandas, integers with nulls as `Int64`.

        Raises InputError if there is no such table.
        """
        if table == _COMMANDS:
            return to_pandas(self.commands)
        if table not in self.frames:
            names = ", ".join(self.frames)
            raise InputError(f"an analysis has no table {table!r}: there is {names}")
        return to_pandas(self.frames[table])

    def figure(self, name: str, **options: Any) -> Any:
        """A plotly figure of the report, for notebooks: `icicle`, `steps`, … as
        `profiler.report.figures` has them; `theme` is `light` or `dark`.

        Raises InputError if there is no such figure.
        """
        # The layer above this one is imported by name, when it is asked for.
        return import_module("profiler.report.figures").figure(self, name, **options)

    def _repr_html_(self) -> str:
        """The summary that notebooks show: headline, submodules, the worst findings."""
        html: str = import_module("profiler.report.files").as_html(self)
        return html

    @staticmethod
    def describe(table: str) -> pl.DataFrame:
        """The columns of one of the `tables`, or of `commands`: `column, dtype, unit, null,
        meaning`, a row each.

        Raises InputError if there is no such table.
        """
        columns = COMMANDS if table == _COMMANDS else table_named(table).columns
        rows = [(c.name, str(c.dtype), c.unit, c.nullable, c.meaning) for c in columns]
        names = ("column", "dtype", "unit", "null", "meaning")
        return pl.DataFrame(rows, schema=names, orient="row")


# --- What a report consists of, in every renderer: a report of sections, a section of parts.
#
# Terminal, page and notebook render these values and decide nothing about them: headings, the order
# of parts, the columns of a table and the rows that are shown at first are the same everywhere. A
# renderer may leave out what its place has no room for: columns by their importance, and figures.
# Every text is plain; each renderer escapes it for its format.


class ReportInput(Struct, frozen=True, eq=False):
    """What sections are made of. `begin_ns` to `end_ns` is the extent of the run on its clock,
    `source` its bundle or file, `against` how it compares with a baseline. `top` is how many rows
    each table shows, 0 leaves out those that rank something; None: as many as each declares."""

    analysis: Analysis
    begin_ns: int
    end_ns: int
    against: Any = None
    source: Path | None = None
    top: int | None = None

    @property
    def span_ns(self) -> int:
        return self.end_ns - self.begin_ns

    def rows(self, shown: int) -> int:
        """Return how many rows a table shows: `top`, or `shown` if that is not given."""
        return shown if self.top is None else self.top

    def most(self, shown: int) -> int:
        """Return how many rows a table shows that has room for `shown` rows and no more."""
        return shown if self.top is None else min(self.top, shown)
