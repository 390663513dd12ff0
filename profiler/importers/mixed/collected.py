"""What an importer writes, kept in memory: so that times can be moved and commands left out.

part = collected(importer, files, run)
part.moved(offset_ns)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from msgspec import structs

from profiler.events import Call, Span
from profiler.importers.importer import ForeignRun, Importer, Landmarked
from profiler.trace.bundle import BundleWriter
from profiler.trace.columns import (
    TEXT_COLUMNS,
    CommandBuilder,
    CommandColumns,
    Counter,
    number_within,
)
from profiler.trace.manifest import RunInfo
from profiler.trace.manifest_ranks import Job

__all__ = ["Part", "Written", "collected", "joined", "selected"]

_BY_ROW = (
    "track",
    "layer",
    "command_index",
    "op_type",
    "role",
    "shapes",
    "stage",
    "step",
    "start_ns",
    "duration_ns",
    "bytes_read",
    "bytes_written",
    "flops",
)
_OPTIONAL = ("pipeline", "kernel", "module", "name")


@dataclass(frozen=True, slots=True, eq=False)
class Written:
    """A call, or `None` for what stands in `host.pb`, with its commands and samples."""

    call: Call | None
    commands: CommandColumns
    counters: tuple[Counter, ...] = ()

    def moved(self, offset_ns: int) -> Written:
        """The same `offset_ns` later."""
        call, commands = self.call, self.commands
        if call is not None:
            call = replace(call, start_ns=call.start_ns + offset_ns)
        commands = replace(commands, start_ns=commands.start_ns + offset_ns)
        counters = tuple(replace(one, times_ns=one.times_ns + offset_ns) for one in self.counters)
        return Written(call, commands, counters)

    def on(self, names: Mapping[str, str]) -> Written:
        """The same with other names of devices."""
        call, commands = self.call, self.commands
        if call is not None:
            call = replace(call, device=names.get(call.device, call.device))
        tracks = tuple(replace(t, device=names.get(t.device, t.device)) for t in commands.tracks)
        counters = tuple(
            replace(one, device=names.get(one.device, one.device)) for one in self.counters
        )
        return Written(call, replace(commands, tracks=tracks), counters)


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """The files that one importer read as one run, and all that it wrote. `writings` are its calls
    and, last, what is in none; `landmarks` what else happened at moments that another recorder may
    have seen, too: names with times."""

    importer: str
    files: tuple[Path, ...]
    name: str
    info: RunInfo
    capabilities: frozenset[str]
    writings: tuple[Written, ...]
    spans: tuple[Span, ...]
    landmarks: tuple[tuple[str, int], ...] = ()

    @property
    def label(self) -> str:
        """What to call it: its file, the first of several."""
        return self.files[0].name

    @property
    def calls(self) -> list[Call]:
        """Its calls, in order."""
        return [one.call for one in self.writings if one.call is not None]

    def extent(self) -> tuple[int, int]:
        """When the first of what it recorded began, and the last ended; (0, 0) for nothing."""
        commands = [one.commands for one in self.writings if len(one.commands)]
        begins = [int(one.start_ns.min()) for one in commands]
        ends = [int(one.end_ns.max()) for one in commands]
        begins += [call.start_ns for call in self.calls]
        ends += [call.start_ns + max(call.duration_ns, 0) for call in self.calls]
        return (min(begins), max(ends)) if begins else (0, 0)

    def moved(self, offset_ns: int) -> Part:
        """The same `offset_ns` later."""
        if not offset_ns:
            return self
        return replace(
            self,
            info=_moved(self.info, offset_ns),
            writings=tuple(one.moved(offset_ns) for one in self.writings),
            spans=tuple(replace(span, start_ns=span.start_ns + offset_ns) for span in self.spans),
            landmarks=tuple((name, time + offset_ns) for name, time in self.landmarks),
        )

    def on(self, names: Mapping[str, str]) -> Part:
        """The same with other names of devices."""
        if all(name == other for name, other in names.items()):
            return self

        def named(devices: Iterable[str]) -> dict[str, str]:
            return {name: names.get(name, name) for name in devices}

        info = self.info
        of_devices = named(info.devices)
        of_shares = named(info.attribution)
        info = structs.replace(
            info,
            devices={of_devices[name]: one for name, one in info.devices.items()},
            attribution={of_shares[name]: one for name, one in info.attribution.items()},
            submodules={
                name: structs.replace(one, device=names.get(one.device, one.device))
                for name, one in info.submodules.items()
            },
        )
        return replace(self, info=info, writings=tuple(one.on(names) for one in self.writings))


class _Kept(BundleWriter):
    """Takes what an importer writes, and writes nothing."""

    def __init__(self) -> None:
        super().__init__(Path())
        self.writings: list[Written] = []
        self.spans: tuple[Span, ...] = ()
        self.host = Written(None, CommandBuilder().build())

    def begin(self, info: RunInfo) -> None:
        pass

    def write_call(
        self, call: Call, commands: CommandColumns, counters: Sequence[Counter] = ()
    ) -> Path:
        self.writings.append(Written(call, commands, tuple(counters)))
        return self.directory / call.file_name

    def add_host(self, commands: CommandColumns, device: str) -> None:
        del device
        self.writings.append(Written(None, commands))

    def write_host(
        self,
        spans: Iterable[Span],
        commands: CommandColumns,
        device: str,
        counters: Sequence[Counter] = (),
    ) -> Path:
        del device
        self.spans = tuple(spans)
        self.host = Written(None, commands, tuple(counters))
        return self.directory


def collected(importer: Importer, files: Sequence[Path], run: ForeignRun) -> Part:
    """All that `run` would write into a bundle."""
    kept = _Kept()
    info = run.write(kept)
    return Part(
        importer=importer.name,
        files=tuple(files),
        name=run.name,
        info=info,
        capabilities=frozenset(run.capabilities),
        writings=(*kept.writings, kept.host),
        spans=kept.spans,
        landmarks=tuple(run.landmarks()) if isinstance(run, Landmarked) else (),
    )


def _moved(info: RunInfo, offset_ns: int) -> RunInfo:
    """What of the manifest has times."""
    return structs.replace(
        info,
        host_activities=tuple(
            structs.replace(one, start_ns=one.start_ns + offset_ns) for one in info.host_activities
        ),
        job=_moved_job(info.job, offset_ns) if info.job is not None else None,
    )


def _moved_job(job: Job, offset_ns: int) -> Job:
    return structs.replace(
        job,
        ranks=tuple(
            structs.replace(rank, offset_ns=rank.offset_ns + offset_ns) for rank in job.ranks
        ),
        collectives=tuple(
            structs.replace(
                one, members=tuple((rank, begin + offset_ns) for rank, begin in one.members)
            )
            for one in job.collectives
        ),
    )


def selected(commands: CommandColumns, kept: npt.NDArray[np.bool_]) -> CommandColumns:
    """The commands that are `kept`, bool [n], with the flows between them."""
    if kept.all():
        return commands
    rows = {name: getattr(commands, name)[kept] for name in _BY_ROW}
    for name in _OPTIONAL:
        column = getattr(commands, name)
        rows[name] = None if column is None else column[kept]
    position = np.cumsum(kept) - 1
    flows = commands.flows
    if len(flows):
        flows = position[flows[kept[flows].all(axis=1)]]
    return replace(commands, flows=flows, **rows)


def joined(parts: Sequence[CommandColumns]) -> CommandColumns:
    """The commands of several files as those of one, in order of their begins."""
    parts = [one for one in parts if len(one)]
    if len(parts) < 2:
        return parts[0] if parts else CommandBuilder().build()
    tracks: dict[object, int] = {}
    strings = {"": 0}
    columns: dict[str, list[npt.NDArray[np.int64]]] = {n: [] for n in (*_BY_ROW, *_OPTIONAL)}
    flows, before = [], 0
    for one in parts:
        track = np.array([tracks.setdefault(t, len(tracks)) for t in one.tracks], dtype=np.int64)
        text = np.array([strings.setdefault(t, len(strings)) for t in one.strings], dtype=np.int64)
        for name, found in columns.items():
            column = getattr(one, name)
            if column is None:
                column = np.full(len(one), -1 if name == "pipeline" else 0)
            elif name in TEXT_COLUMNS:
                column = text[column]
            found.append(track[column] if name == "track" else column)
        flows.append(one.flows + before)
        before += len(one)
    order = np.argsort(np.concatenate(columns["start_ns"]), kind="stable")
    position = np.empty(before, dtype=np.int64)
    position[order] = np.arange(before)
    wide = {"start_ns", "duration_ns", "bytes_read", "bytes_written", "flops"}
    rows = {
        name: np.concatenate(found)[order].astype(np.int64 if name in wide else np.int32)
        for name, found in columns.items()
    }
    rows["command_index"] = number_within(rows["layer"].astype(np.int32))
    return CommandColumns(
        tracks=tuple(tracks),  # type: ignore[arg-type]
        strings=tuple(strings),
        flows=position[np.concatenate(flows)],
        **rows,  # type: ignore[arg-type]
    )
