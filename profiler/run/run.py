"""`Run`: one profiled execution as immutable Polars frames, and as a folder of Parquet files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import polars as pl
from msgspec import structs

from profiler.errors import InputError
from profiler.files import (
    appearing,
    folder_appearing,
    json_text,
    opened,
    paired,
    read_file,
    write_atomically,
)
from profiler.run.columns import ARGS, TABLES, Column, checked, empty, schema
from profiler.run.device_timeline import Axes, RunTiles, axes_of, tiles_of
from profiler.run.intervals import CommandTimes
from profiler.trace.columns import TrackRow
from profiler.trace.events import NO_ITERATION, NO_PIPELINE, NO_RANK, Drop
from profiler.trace.manifest import FORMAT_VERSION, RunInfo, info_document, parse_info

if TYPE_CHECKING:
    import pandas as pd


# --- Polars frames as pandas frames, exact to the nanosecond.


def to_pandas(frame: pl.DataFrame) -> pd.DataFrame:
    """Return `frame` as a pandas frame; categorical text stays categorical.

    If there are nulls, integers are pandas' `Int64`, so that nanoseconds never pass through a
    float, and truth values `boolean`.
    """
    found = frame.to_pandas()
    for name, dtype in frame.schema.items():
        nullable = "boolean" if dtype == pl.Boolean else "Int64"
        if frame[name].null_count() and (dtype.is_integer() or dtype == pl.Boolean):
            values = frame[name].to_pandas(use_pyarrow_extension_array=True)
            found[name] = values.astype(nullable)
    return found


# --- `Run`: one profiled execution as immutable Polars frames.


class Closeable(Protocol):
    """A resource that a run needs while it is used, such as a temporary folder."""

    def close(self) -> None:
        """Release the resource; again without effect."""


class _Derived:
    """What is computed from a run on first use. It is no field, so that copies do not take it
    over."""

    __slots__ = ("_tiles",)
    _tiles: RunTiles


@dataclass(frozen=True, slots=True, eq=False)
class Run(_Derived):
    """One run. Frames have the columns of `docs/columns.md`; times are int64 ns.

    `calls` has one row per call, `commands` one per command in order of call and start, `counters`
    one per sample, `flows` one per dependency between two rows of `commands`, `spans` the pipeline,
    stage and step spans. `args` has one row per argument (debug annotation) that another producer
    gave to a command, and is lazy: `run.args.filter(pl.col("key") == …).collect()`. `info` is what
    the manifest says, `drops` everything that was executed but is not in the frames. `others` names
    the older runs of the folder that was loaded; `held` lives as long as the run and its copies do.
    """

    run_id: str
    calls: pl.DataFrame
    commands: pl.DataFrame
    counters: pl.DataFrame
    flows: pl.DataFrame
    spans: pl.DataFrame
    info: RunInfo
    drops: tuple[Drop, ...] = ()
    args: pl.LazyFrame = field(default_factory=lambda: empty(ARGS).lazy())
    others: tuple[str, ...] = ()
    held: Closeable | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name, columns in TABLES.items():
            object.__setattr__(self, name, checked(getattr(self, name), columns))
        found = self.args.collect_schema()
        if found != schema(ARGS):
            raise ValueError(f"columns differ from their declaration: {found} != {schema(ARGS)}")

    def __repr__(self) -> str:
        return (
            f"Run({self.run_id!r}: {len(self.calls):,} calls, {len(self.commands):,} commands, "
            f"{len(self.counters):,} counter samples, {len(self.flows):,} flows)"
        )

    def _repr_html_(self) -> str:
        """The summary that notebooks show: what ran, and its submodules."""
        # Layers above this one are imported by name, when they are asked for.
        html: str = import_module("profiler.report.files").as_html(self)
        return html

    @property
    def tiles(self) -> RunTiles:
        """Which part of the devices' time each call takes, computed on first use."""
        if not hasattr(self, "_tiles"):
            self.axes_of(CommandTimes.of(self.commands, self.calls))
        return self._tiles

    def axes_of(self, times: CommandTimes) -> Axes:
        """Return when each device worked; `times` are those of the commands. The axes are not kept,
        for their size, but the tiles are computed from them."""
        axes = axes_of(self.commands, self.flows, times, self.calls, self.info)
        if not hasattr(self, "_tiles"):
            object.__setattr__(self, "_tiles", tiles_of(self.calls, axes))
        return axes

    def with_role(self, role: pl.Series) -> Run:
        """Return the run with `role` as its commands' column of that name, and the same tiles."""
        found = replace(self, commands=self.commands.with_columns(role=role))
        if hasattr(self, "_tiles"):
            object.__setattr__(found, "_tiles", self._tiles)
        return found

    def close(self) -> None:
        """Remove the files imported for this run; its frames stay. Again without effect."""
        if self.held is not None:
            self.held.close()

    def to_pandas(self) -> pd.DataFrame:
        """Return commands joined with their call, one row per command, strings as categoricals.

        `role`, `flops`, `bytes_read` and `bytes_written` are those of an analysis if the producer
        recorded none; `commands` itself has only what was recorded.

        Adds to the columns of `commands`: `submodule`, `branch`, `call_device`, `call_start_ns`,
        `call_duration_ns` and `ops_traced`, null for commands of no call. If there are nulls,
        integers are pandas' `Int64`, so that nanoseconds never pass through a float, and truth
        values `boolean`.
        """
        renamed = {name: f"call_{name}" for name in ("device", "start_ns", "duration_ns")}
        calls = self.calls.drop("pipeline", "stage", "step", "input_shapes").rename(renamed)
        commands = import_module("profiler.analysis.analyze").annotated_commands(self)
        return to_pandas(commands.join(calls, on="call", how="left", maintain_order="left"))


# --- Which device a track of a trace belongs to, and what the track is called.


def track_names(tracks: Sequence[TrackRow]) -> tuple[list[str], list[str]]:
    """For each track the name of its device, "" for none, and its own name.

    The device is the process that the track belongs to, else the root above it; a root that
    belongs to no process is on no device.
    """
    roots = _roots(tracks)
    devices = [
        _process(track) or (tracks[root].name if root != own else "")
        for own, (track, root) in enumerate(zip(tracks, roots, strict=True))
    ]
    return devices, [track.name for track in tracks]


def _process(track: TrackRow) -> str:
    return track.process or ("" if track.pid is None else f"process {track.pid}")


def _roots(tracks: Sequence[TrackRow]) -> list[int]:
    """Return the root above each track; if its parents form a cycle, a track of the cycle."""
    roots = [-1] * len(tracks)
    for own in range(len(tracks)):
        path, at = {own: None}, own
        while roots[at] < 0 and tracks[at].parent >= 0 and tracks[at].parent not in path:
            at = tracks[at].parent
            path[at] = None
        root = roots[at] if roots[at] >= 0 else at
        for track in path:
            roots[track] = root
    return roots


# --- `Run` ↔ a folder of Parquet files: one file per frame, the manifest beside them.


_RUN_NAME = "run.json"
_LARGEST_RUN = 256 << 20
_ARGS_NAME = "args.parquet"
FILES = frozenset({_RUN_NAME, _ARGS_NAME, *(f"{name}.parquet" for name in TABLES)})
_LATER = {  # columns, by what is unknown
    "pipeline": NO_PIPELINE,
    "kernel": None,
    "module": None,
    "rank": NO_RANK,
    "iteration": NO_ITERATION,
    "device_lag_ns": None,
    "device_duration_ns": None,
    "recorded_ns": None,
}
_UNREADABLE = (OSError, pl.exceptions.PolarsError, KeyError, TypeError, ValueError, AttributeError)


def is_parquet_run(path: Path) -> bool:
    """Whether `write_parquet` wrote this folder."""
    return (path / _RUN_NAME).is_file() and (path / "commands.parquet").is_file()


def write_parquet(run: Run, directory: Path) -> None:
    """Write `run` to a new or empty `directory`. Raises OutputError if that cannot be; then
    nothing of it stays."""
    with folder_appearing(directory, over=False) as folder:
        for name in TABLES:
            write_frame(getattr(run, name), folder / f"{name}.parquet")
        write_frame(run.args.collect(), folder / _ARGS_NAME)
        info = info_document(structs.replace(run.info, drops=run.drops))
        document = {"format_version": FORMAT_VERSION, "run_id": run.run_id, "info": info}
        write_atomically(folder / _RUN_NAME, json_text(document, indent=None).encode())


def write_frame(frame: pl.DataFrame, path: Path) -> None:
    """Write a frame as Parquet. Raises OutputError."""
    with appearing(path) as file:
        try:
            frame.write_parquet(file)
        except pl.exceptions.ComputeError as error:  # what Polars makes of a full disk
            raise OSError(str(error)) from error


def _declared_frame(frame: pl.DataFrame, columns: Sequence[Column]) -> pl.DataFrame:
    """A frame with the dtypes of its declaration; of columns that older exports lack, nothing is
    known."""
    expected = schema(columns)
    lacking = [name for name in _LATER if name in expected and name not in frame.columns]
    frame = frame.with_columns(pl.lit(_LATER[name], expected[name]).alias(name) for name in lacking)
    return frame.select(expected.names()).cast(expected)


def _parquet(path: Path) -> pl.DataFrame:
    with opened(path) as file:
        return pl.read_parquet(file)


def read_parquet(directory: Path) -> Run:
    """Read what `write_parquet` wrote. Raises InputError if a file is missing or foreign."""
    try:
        document = json.loads(paired(read_file(directory / _RUN_NAME, _LARGEST_RUN).decode()))
        version = document.get("format_version", 1)
        if version != FORMAT_VERSION:
            raise ValueError(f"format {version!r:.40}, this one reads {FORMAT_VERSION}")
        info = parse_info(document["info"])
        frames: dict[str, Any] = {
            name: _declared_frame(_parquet(directory / f"{name}.parquet"), columns)
            for name, columns in TABLES.items()
        }
        opened(directory / _ARGS_NAME).close()  # it is read when it is asked for
        args = pl.scan_parquet(directory / _ARGS_NAME).cast(schema(ARGS))
        run = Run(
            run_id=str(document["run_id"]),
            info=structs.replace(info, drops=()),
            drops=info.drops,
            args=args,
            **frames,
        )
    except _UNREADABLE as error:
        message = f"{directory} is not a run written as Parquet ({error}): export it again"
        raise InputError(message) from error
    return sound(run, directory)


# --- What no part of a run may be, whoever wrote it: tables count on it.


_LARGEST_SUM = 1 << 62
_SUMMED = ("duration_ns", "bytes_read", "bytes_written", "flops")


def sound(run: Run, path: Path) -> Run:
    """The run. Raises InputError if a number of a call stands for two, or if times or sizes add
    up to more than an int64 holds."""
    calls = run.calls["call"]
    if calls.n_unique() < len(calls):
        twice = calls.filter(calls.is_duplicated())[0]
        raise InputError(
            f"{path} has several calls of the number {twice}: it is two runs in one, or damaged; "
            "write it again"
        )
    for frame in (run.calls, run.commands):
        for name in _SUMMED:
            largest: Any = frame[name].max() if name in frame.columns else None
            if largest is None or largest * len(frame) < _LARGEST_SUM:
                continue
            if frame[name].clip(lower_bound=0).cast(pl.Float64).sum() >= _LARGEST_SUM:
                raise InputError(
                    f"{path} is damaged: its {name} add up to more than 64 bits hold (one is "
                    f"{largest}); copy it again, or record again"
                )
    return run
