"""`analyze`: turn one run into every table that its reports show.

Each command is annotated with its role, FLOPs and bytes once. All tables read the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType

import polars as pl

from profiler.analysis.commands import Kinds
from profiler.analysis.context import Inputs, Selection, shared
from profiler.analysis.device_profiles import DeviceProfile
from profiler.analysis.end_to_end import accounting
from profiler.analysis.findings import find, findings_table
from profiler.analysis.flops import kind_work, work_of_commands
from profiler.analysis.gains import replay_gains, whole_replay
from profiler.analysis.idle import device_works, timeline_of
from profiler.analysis.provenance import run_settings
from profiler.analysis.question import Table, tables
from profiler.analysis.result import FINDINGS, Analysis, Finding, RunSummary
from profiler.analysis.roles import kind_roles, kinds_and_roles, roles_of_commands
from profiler.analysis.roofline import profiles
from profiler.analysis.steps import summary
from profiler.errors import InputError
from profiler.run.run import Run

# --- What an analysis knows of every command: its role, FLOPs and bytes.


@dataclass(slots=True, eq=False)
class AnnotatedCommands:
    """Commands as recorded, their kinds, and a role per kind; `frame` is made on first use."""

    commands: pl.DataFrame
    kinds: Kinds
    roles: pl.DataFrame
    _made: pl.DataFrame | None = field(default=None, init=False, repr=False)

    @property
    def frame(self) -> pl.DataFrame:
        """The commands, same rows and columns, with `role`, and with `flops`, `bytes_read` and
        `bytes_written` (int64, bytes) filled in if not recorded. They follow from the formulas of
        `analysis.flops`; if an operator launched several kernels, each has a share of its work.
        Null if no formula fits."""
        if self._made is None:
            role = roles_of_commands(self.commands["role"], self.kinds, self.roles)
            works = _works(self.kinds, self.commands)
            self._made = self.commands.with_columns(role=role).with_columns(works)
        return self._made


def _works(kinds: Kinds, commands: pl.DataFrame) -> Iterator[pl.Series]:
    """FLOPs and bytes of each command, as recorded, else by formula."""
    for name, each in work_of_commands(kind_work(kinds, commands).works).items():
        recorded = commands[name]
        yield recorded.zip_with(recorded.is_not_null(), kinds.spread(each)).alias(name)


def annotated_commands(run: Run) -> pl.DataFrame:
    """`run.commands` with roles, FLOPs and bytes (`AnnotatedCommands.frame`)."""
    return AnnotatedCommands(run.commands, *kinds_and_roles(run)).frame


# --- From `Inputs` to an `Analysis` of some of its tables.


_TIME_OF_DAY = 946_684_800_000_000_000  # 2000-01-01: clocks that count from boot stay below


def assembled(of: Inputs, names: Iterable[str], findings: tuple[Finding, ...] = ()) -> Analysis:
    """Return an `Analysis` that has the tables of these `names`, and no others."""
    frames = {name: of.table(name) for name in names}
    return Analysis(
        run=_summary(of),
        accounting=accounting(of),
        step_summary=summary(of),
        device_profiles=profiles(of),
        kinds=of.kinds,
        kind_roles=kind_roles(of),
        drops=of.run.drops,
        findings=findings,
        annotated=AnnotatedCommands(of.frame, of.kinds, kind_roles(of)),
        inputs=of,
        frames=frames,
    )


def _summary(inputs: Inputs) -> RunSummary:
    run, info = inputs.run, inputs.run.info
    return RunSummary(
        run_id=run.run_id,
        model=info.model,
        pipeline=info.pipeline,
        producer=info.producer,
        started=_started(run),
        command_line=info.command_line,
        versions=info.versions,
        hardware=info.hardware,
        devices=info.devices,
        submodules=info.submodules,
        settings=run_settings(info.settings, info.pipeline_settings),
        submodule_settings=info.submodule_settings,
        generations=info.generations,
        recording=info.recording,
        overhead=info.overhead,
        coverage=info.coverage,
        warmup=info.warmup,
        attribution=info.attribution,
        calls=len(run.calls),
        traced_calls=int(run.calls["ops_traced"].sum()),
        commands=len(run.commands),
        selection=inputs.selection,
        selected_calls=len(inputs.calls),
        selected_commands=len(inputs.frame),
    )


def _started(run: Run) -> str:
    frames = (run.spans, run.calls, run.commands)
    firsts = [frame["start_ns"].min() for frame in frames if len(frame)]
    first = min((int(ns) for ns in firsts if isinstance(ns, int)), default=0)
    if first < _TIME_OF_DAY:
        return ""
    moment = datetime.fromtimestamp(first // 1_000_000_000, UTC)
    return moment.isoformat(timespec="seconds")


# --- The table of findings.


@shared
def found(of: Inputs) -> tuple[Finding, ...]:
    """Return the findings of all rules, worst first."""
    return find(assembled(of, _read_by_rules()), lambda: replay_gains(of))


def _read_by_rules() -> list[str]:
    return [table.name for table in tables() if table.name not in ("findings", "contradictions")]


TABLES = (
    Table(
        name="findings",
        row="one finding: what stands out, and what to do",
        section="findings",
        columns=FINDINGS,
        make=lambda of: findings_table(found(of)),
        title="Findings",
        about="The worst come first; the table is empty if no rule found evidence. "
        "`analysis.findings` has the same findings as objects, and so does JSON: see "
        "[findings](json.md#findings). CSV, Parquet and SQL also have the sentences of reports: "
        "`title`, `caveat` and `recommendation`. [findings.md](findings.md) describes the rules.",
    ),
)


# --- `analyze`: one run → everything its reports show.


_MOST = {"device": 1_024, "track": 100_000, "layer": 200_000, "kernel": 200_000, "op_type": 200_000}
"""Max number of different values per column of a run's commands. Usual are a few thousand."""


def _check_size(run: Run) -> None:
    """Raises InputError if a run has more devices or names than an analysis can take time for."""
    for name, most in _MOST.items():
        values = run.commands[name]
        if len(values) > most and (count := values.n_unique()) > most:
            raise InputError(
                f"{run.run_id} has {count:,} different values of {name}, more than the {most:,} "
                "that are analyzed: record less, or query its commands by `profile-sd3 query`"
            )


def analyze(
    run: Run,
    selection: Selection = Selection(),  # noqa: B008 (frozen)
    measured: Sequence[DeviceProfile] = (),
    device_memory: Mapping[str, int] = MappingProxyType({}),
) -> Analysis:
    """Analyze `run`, its tables limited to `selection`.

    The accounting and the stages stay those of the whole run. `measured` are measured profiles of
    its devices, which come before published ones; `device_memory` is bytes of memory by device, ""
    for all others. Raises InputError if the selection names what the run does not have, or the run
    has more names than can be analyzed.
    """
    _check_size(run)
    inputs = Inputs(run, selection, measured, device_memory)
    device_works(inputs)  # first: making it takes the most memory
    for name in _read_by_rules():
        inputs.table(name)
    analysis = assembled(inputs, [table.name for table in tables()], found(inputs))
    inputs.release(device_works, timeline_of, whole_replay, replay_gains)
    return analysis
