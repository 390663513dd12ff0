"""Why a part of a step took longer than usual, as far as the rest of the trace can tell.

The first that holds of: it is in the warm-up; it ran other commands than usual; other work ran at
the same time on another track or device, or in another pipeline call; it is the first step of its
pipeline call; of whole steps also, which of their parts grew. Overlap counts beyond what is usual:
with w the time in which the part ran, o that of it in which a track was busy, and f the median of
o / w in reference steps, `o - f w` must be at least half of what the part took too long. A track
that is always busy explains nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import polars as pl
from msgspec import Struct

from profiler.analysis.arrays import CommandArrays
from profiler.analysis.call_kinds import rows_by_call
from profiler.analysis.denoise.codes import OutlierCause
from profiler.analysis.denoise.columns import STEP_OUTLIERS
from profiler.analysis.denoise.step_matrix import StepMatrix
from profiler.analysis.denoise.trends import medians
from profiler.analysis.distinct_commands import Kinds
from profiler.analysis.waiting.busy_tracks import (
    BusySource,
    BusyTracks,
    Place,
    Tracks,
    Window,
    merged,
    places,
)
from profiler.run.columns import empty, schema
from profiler.run.intervals import Codes, Times, ends, order_by, positions
from profiler.run.run import Run

__all__ = ["outlier_table"]

_LEAST = 0.001  # of a step, for a row
_ROWS = 50
_EXPLAINS = 0.5  # of what was too long
_REFERENCES = 3  # steps
_BUDGET = 5_000_000  # commands that are looked at
_NONE = np.zeros(0, dtype=np.int64)


class _Cause(Struct, frozen=True):
    """What explains an outlier; columns of the table."""

    cause: OutlierCause | None = None
    cause_ns: int | None = None
    cause_device: str | None = None
    cause_track: str | None = None
    cause_layer: str | None = None


def outlier_table(
    matrix: StepMatrix,
    run: Run,
    everything: CommandArrays,
    calls: pl.DataFrame,
    frame: pl.DataFrame,
    commands: CommandArrays,
    kinds: Kinds,
) -> pl.DataFrame:
    """One row an outlier (`columns.STEP_OUTLIERS`), most time beyond the usual first.

    `everything` are all commands of `run`; `frame` holds those of the selected `calls`, `commands`
    their arrays, of `kinds`.
    Outliers of less than a thousandth of a step are left out, and all but the first 50.
    """
    median = medians(matrix.usual)
    excess = matrix.time - median[:, None]
    least = _LEAST * median[0] if len(matrix.steps) else 0.0
    row, column = np.nonzero(matrix.outlier & (excess >= least))
    order = np.argsort(-excess[row, column], kind="stable")[:_ROWS]
    row, column = row[order], column[order]
    if not len(row):
        return empty(STEP_OUTLIERS)
    source = BusySource.of(run, everything)
    looked = _Looked(matrix, calls, commands, Tracks.of(frame["track"]), kinds, source)
    causes = [
        looked.cause(part, step, int(excess[part, step]))
        for part, step in zip(row.tolist(), column.tolist(), strict=True)
    ]
    found = pl.concat(
        [matrix.parts[row], matrix.steps.select("pipeline", "step")[column]], how="horizontal"
    ).with_columns(
        total_ns=pl.Series(matrix.time[row, column]),
        excess_ns=pl.Series(np.rint(excess[row, column])),
        **{
            name: pl.Series([getattr(cause, name) for cause in causes], dtype=dtype)
            for name, dtype in schema(STEP_OUTLIERS).items()
            if name in _Cause.__struct_fields__
        },
    )
    return found.select(pl.col(n).cast(t) for n, t in schema(STEP_OUTLIERS).items())


@dataclass(slots=True)
class _Looked:
    """Looks for causes; what it has looked at once it keeps. `commands` are the selected ones,
    with their `tracks` and `kinds`; `source` has all commands of the run."""

    matrix: StepMatrix
    calls: pl.DataFrame
    commands: CommandArrays
    tracks: Tracks
    kinds: Kinds
    source: BusySource
    _in_run: Codes = field(init=False)
    _rows: dict[int, slice | Times] = field(default_factory=dict)
    _by_part: dict[int, tuple[Times, Times]] = field(default_factory=dict)
    _busy: dict[int, BusyTracks | None] = field(default_factory=dict)
    _left: int = _BUDGET

    def __post_init__(self) -> None:
        of_run = self.source.run.calls["call"].to_numpy()
        self._in_run = positions(self.calls["call"].to_numpy(), of_run)

    def cause(self, part: int, step: int, excess: int) -> _Cause:
        """Why `part` took `excess` ns longer than usual in the step of a column."""
        matrix = self.matrix
        first_of_run = matrix.steps["pipeline"][step] == matrix.steps["pipeline"][0]
        if first_of_run and step < matrix.warm[part]:
            return _Cause(OutlierCause.WARM_UP)
        if part and np.isnan(matrix.usual[part, step]):
            return _Cause(OutlierCause.COMMANDS)
        found = self._overlap(part, step, excess)
        if found is not None:
            return found
        steps = matrix.steps["pipeline"].to_numpy()
        if step == int(np.argmax(steps == steps[step])):
            return _Cause(OutlierCause.FIRST_STEP)
        return self._parts(step, excess) if part == 0 else _Cause()

    def _overlap(self, part: int, step: int, excess: int) -> _Cause | None:
        """The track whose work overlapped most, beyond what is usual; None where it was too
        little."""
        here = self._window(part, step)
        if here is None:
            return None
        usual: dict[Place, list[float]] = {}
        references = [*self._references(part)]
        for other in references:
            window = self._window(part, other)
            if window is not None:
                for track, overlap in window.overlaps().items():
                    usual.setdefault(track, []).append(overlap / max(window.length, 1))
        if not references:
            return None
        best, most = None, _EXPLAINS * excess
        for track, overlap in here.overlaps().items():
            shares = usual.get(track, [])
            shares = shares + [0.0] * (len(references) - len(shares))
            beyond = overlap - float(np.median(shares)) * here.length
            if beyond >= most:
                best, most = track, beyond
        if best is None:
            return None
        return _Cause(OutlierCause.OVERLAP, int(most), best[0] or None, best[1], here.longest(best))

    def _references(self, part: int) -> Iterator[int]:
        """Usual steps of a part: nearest to the median step."""
        time = self.matrix.time[0]
        usual = ~self.matrix.outlier[0] & ~self.matrix.outlier[part]
        usual &= ~np.isnan(self.matrix.usual[part])
        usual[: self.matrix.warm[part]] = False
        order = np.argsort(np.abs(time - np.median(time)), kind="stable")
        yield from order[usual[order]][:_REFERENCES].tolist()

    def _window(self, part: int, step: int) -> Window | None:
        """When a part ran in a step, and what else did; None where there is too much to look at."""
        calls = np.flatnonzero(self.matrix.step_of_call == step)
        busy = self._busy_tracks(calls, step)
        if busy is None:
            return None
        if part == 0:
            rows = np.concatenate([_NONE, *map(self._rows_of, calls.tolist())])
            spans = merged(self.calls["start_ns"].to_numpy()[calls], ends(self.calls)[calls])
        else:
            rows = np.concatenate([_NONE, *(self._of_part(part, c) for c in calls.tolist())])
            spans = merged(self.commands.start[rows], self.commands.end[rows])
        return Window(busy, *spans, places(self.commands, self.tracks, rows))

    def _busy_tracks(self, calls: Times, step: int) -> BusyTracks | None:
        """Every track while the calls of a step ran."""
        if step not in self._busy and len(calls):
            own = self._in_run[calls]
            start, end = int(self.source.first[own].min()), int(self.source.last[own].max())
            found = self.source.between(start, end, {*own.tolist()}, self._left)
            self._left -= found.looked_at if found else 0
            self._busy[step] = found
        return self._busy.get(step)

    def _rows_of(self, call: int) -> Times:
        """The rows of a call's commands."""
        if not self._rows:
            self._rows.update(rows_by_call(self.commands.call, len(self.calls)))
        rows = self._rows.get(call, slice(0, 0))
        return np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows

    def _of_part(self, part: int, call: int) -> Times:
        """The rows of a part's commands in a call."""
        if call not in self._by_part:
            rows = self._rows_of(call)
            parts = len(self.matrix.parts)
            code = self.matrix.part_of_kind[self.kinds.of_command[rows]] + 1  # 0: of none
            bounds = np.append(0, np.cumsum(np.bincount(code, minlength=parts + 1)))
            self._by_part[call] = rows[order_by(code, parts + 1)], bounds
        rows, bounds = self._by_part[call]
        some = [rows[bounds[p + 1] : bounds[p + 2]] for p in self._operators(part)]
        return np.concatenate([_NONE, *some])

    def _operators(self, part: int) -> list[int]:
        """The parts that kinds belong to, of a submodule all that lie in it."""
        parts = self.matrix.parts
        if parts["level"][part] != "submodule":
            return [part]
        inside = (parts["submodule"] == parts["submodule"][part]).fill_null(value=False)
        return np.flatnonzero(inside.to_numpy()).tolist()

    def _parts(self, step: int, excess: int) -> _Cause:
        """Which part of a whole step grew by at least half of what was too long."""
        parts = (
            (OutlierCause.HOST_WORK, "host_ns"),
            (OutlierCause.IDLE, "idle_ns"),
            (OutlierCause.CALLS, "calls_ns"),
        )
        for name, column in parts:
            values = self.matrix.steps[column]
            more = int(values[step] - np.median(values.to_numpy()))
            if more >= _EXPLAINS * excess:
                return _Cause(name, more)
        return _Cause()
