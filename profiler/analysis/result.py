"""What an analysis finds: tables and small frozen values, the input of every report.

Times are int64 nanoseconds; shares and utilizations are ratios (1.0 is all of it).
Each table is declared in the folder of its question; `profiler.analysis.registry` has them all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from profiler.analysis.distinct_commands import Kinds
from profiler.analysis.findings.finding import Finding
from profiler.analysis.inputs import Inputs
from profiler.analysis.registry import table_named
from profiler.analysis.selection import Selection
from profiler.errors import InputError
from profiler.run import drawn, shown_as_html
from profiler.run.columns import COMMANDS
from profiler.run.run import to_pandas
from profiler.text import Note
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

    from profiler.analysis.accounting.identity import Accounting
    from profiler.analysis.annotation import AnnotatedCommands
    from profiler.analysis.roofline.device_profile import DeviceProfile
    from profiler.analysis.steps.summary import StepSummary

__all__ = ["Analysis", "RunSummary"]

_COMMANDS = "commands"


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What ran, as the run's producer told it (`RunInfo`); `settings` with notes
    (`SettingNote`) of those that differ.

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
    `analysis.operators`. `tables()` has them all; `describe(name)` says what their columns are,
    and `docs/tables.md` what each is about. `findings` and `drops` are the values that the tables
    of these names have a row each of: what rules make of all this, worst first, and what was
    executed but is not in the trace.

    `accounting` describes the whole run, `step_summary` the selected steps. `kind_roles` has the
    role of each of the `kinds` of the selected commands, and what decided; `commands` has them
    one by one. `device_profiles` are those of the devices that are known. `inputs` are what the
    tables were made from, for what else is made of it.
    """

    run: RunSummary
    accounting: Accounting
    step_summary: StepSummary
    device_profiles: Mapping[str, DeviceProfile]
    kinds: Kinds
    kind_roles: pl.DataFrame
    drops: tuple[Drop, ...]
    findings: tuple[Finding, ...]
    annotated: AnnotatedCommands
    inputs: Inputs
    frames: Mapping[str, pl.DataFrame]

    @property
    def commands(self) -> pl.DataFrame:
        """The selected commands as recorded, with `role`, `flops`, `bytes_read` and `bytes_written`
        where their producer told none; made when first asked for. Not one of the `tables`."""
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

        Raises InputError where there is no such table.
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

        Raises InputError where there is no such figure.
        """
        return drawn(self, name, **options)

    def _repr_html_(self) -> str | None:
        """The summary that notebooks show: headline, submodules, the worst findings."""
        return shown_as_html(self)

    @staticmethod
    def describe(table: str) -> pl.DataFrame:
        """The columns of one of the `tables`, or of `commands`: `column, dtype, unit, null,
        meaning`, a row each.

        Raises InputError where there is no such table.
        """
        columns = COMMANDS if table == _COMMANDS else table_named(table).columns
        rows = [(c.name, str(c.dtype), c.unit, c.nullable, c.meaning) for c in columns]
        names = ("column", "dtype", "unit", "null", "meaning")
        return pl.DataFrame(rows, schema=names, orient="row")
