"""The sessions whose profiles were given: whose each file is, and when it began.

ONNX Runtime's times count from the begin of a session's profile, and wall time stands in the
file's name alone, to the millisecond (`vae_decoder_2026-05-01_10-11-12_301.json`), in older
versions to the second.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from profiler.errors import InputError
from profiler.importers.components import component
from profiler.importers.onnxruntime import profiles_in
from profiler.importers.onnxruntime.devices import launching_device
from profiler.importers.onnxruntime.kernels import Launched, add_kernels
from profiler.ort_profiles.event import Unread
from profiler.ort_profiles.nodes import NodeKind
from profiler.ort_profiles.profile import EVENT_CAP, ProfiledRun, read_profile

__all__ = ["Session", "read_sessions"]

_NAMED = re.compile(r"(?P<name>.*?)_*(?P<time>\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d)(?:_(?P<ms>\d{3}))?")
_SECOND, _MILLISECOND = 1_000_000_000, 1_000_000
_DEFAULT = "onnxruntime_profile"


@dataclass(frozen=True, slots=True)
class Session:
    """One profile: `name` is what the session is called, `begin_ns` when its profile began by the
    file's name, to within `within_ns`; None where that does not tell. `damaged` lines are no
    events, and a `full` profile has as many as ONNX Runtime records. The runs stand in `launched`,
    with what GPUs executed in them."""

    path: Path
    name: str
    begin_ns: int | None
    within_ns: int
    launched: Launched
    damaged: int
    full: bool

    @property
    def runs(self) -> tuple[ProfiledRun, ...]:
        return self.launched.runs

    @property
    def kinds(self) -> Sequence[NodeKind]:
        """Its nodes, each once."""
        return self.runs[0].nodes.kinds if self.runs else ()


def read_sessions(paths: Sequence[Path]) -> list[Session]:
    """The sessions in some files and folders, in order of their begins.

    Raises InputError where none has a run, or where of several one does not tell when it began.
    """
    files = [file for path in paths for file in (profiles_in(path) if path.is_dir() else [path])]
    sessions = [_read(path) for path in files]
    with_runs = [session for session in sessions if session.runs]
    if not with_runs:
        named = ", ".join(map(str, paths[:3]))
        damaged = sum(session.damaged for session in sessions)
        if damaged:
            raise InputError(
                f"{named} holds no whole session.run, and what is no event ({damaged}): "
                "copy it again, or record again"
            )
        raise InputError(
            f"{named} holds no session.run: end profiling after the runs that are to be seen"
        )
    if len(with_runs) > 1:
        for session in with_runs:
            if session.begin_ns is None:
                raise InputError(
                    f"{session.path} does not tell when its session began, which places it among "
                    "the others: keep the names that ONNX Runtime gave, or import each alone"
                )
    with_runs.sort(key=lambda session: (session.begin_ns or 0, session.path.name))
    return _numbered(with_runs)


def _read(path: Path) -> Session:
    unread = Unread()
    try:
        runs = _named(list(read_profile(path, unread)))
    except OSError as error:
        raise InputError(f"cannot read {path} ({error.strerror or error}): give a file") from error
    stem = path.name.removesuffix(".gz").removesuffix(".json")
    found = _NAMED.fullmatch(stem)
    name = _plain(found["name"] if found else stem)
    begin = _time_of(found["time"]) if found else None
    within = _SECOND
    if begin is not None and found and found["ms"]:
        begin, within = begin + int(found["ms"]) * _MILLISECOND, _MILLISECOND
    launched = add_kernels(runs, unread.kernels, launching_device)
    full = unread.events >= EVENT_CAP
    return Session(path, name, begin, within, launched, unread.lines, full)


def _named(runs: list[ProfiledRun]) -> tuple[ProfiledRun, ...]:
    """The runs with a name for each node: those that old versions left without one are called after
    their type and their place in the run."""
    kinds = list(runs[0].nodes.kinds) if runs else []
    nameless = np.array([not kind.name for kind in kinds], dtype=np.bool_)
    if not nameless.any():
        return tuple(runs)
    codes: dict[tuple[int, int], int] = {}
    found = []
    for run in runs:
        of_kind = run.nodes.kind.copy()
        for place in np.flatnonzero(nameless[of_kind]).tolist():
            which = int(of_kind[place]), place
            if which not in codes:
                codes[which] = len(kinds)
                one = kinds[which[0]]
                kinds.append(replace(one, name=f"{one.op_type or 'node'}_{place}"))
            of_kind[place] = codes[which]
        found.append(replace(run, nodes=replace(run.nodes, kinds=kinds, kind=of_kind)))
    return tuple(found)


def _plain(name: str) -> str:
    if name in ("", _DEFAULT):
        return "session"
    return component(name) or name


def _time_of(text: str) -> int | None:
    """UTC is assumed: names have the time of a zone that they do not tell."""
    try:
        begun = datetime.strptime(text, "%Y-%m-%d_%H-%M-%S").replace(tzinfo=UTC)
    except ValueError:
        return None
    return int(begun.timestamp()) * _SECOND


def _numbered(sessions: list[Session]) -> list[Session]:
    """The sessions with names that differ: `session`, `session_2`, …"""
    seen: Counter[str] = Counter()
    found = []
    for session in sessions:
        seen[session.name] += 1
        count = seen[session.name]
        found.append(replace(session, name=f"{session.name}_{count}") if count > 1 else session)
    return found
