"""Adding runs to a data set: found, summarized by whoever works, written in batches.

    report = add(Dataset-to-be, [Path("traces")], Wishes())

What is there already is left out by its key; what cannot be read is a row of the report.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

import polars as pl

from profiler.errors import InputError, ProfilerError
from profiler.fleet.dataset import counted_runs, scan
from profiler.fleet.layout import make_dataset, snapshot
from profiler.fleet.rows import Addition, commit_batch
from profiler.fleet.storage import Storage
from profiler.fleet.workers import Lost, Workers, mapped
from profiler.metrics import Summary, key_of, read_summary, summarized, write_summary
from profiler.sources import Imports, Kind, resolve

__all__ = ["Outcome", "State", "Wishes", "add", "found_runs", "known_runs", "outcome_of"]

_BATCH_RUNS = 500
_ATTEMPTS = 5  # snapshots, until no compaction removes a file of one
_BATCH_S = 10.0  # so that little is lost when this is killed


class State(StrEnum):
    """What became of a run."""

    ADDED = "added"
    KNOWN = "known"  # the data set has it
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the user says of all runs that are added: their `commit` and `labels`, the importer's
    `options`; and who works."""

    commit: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    workers: Workers = field(default_factory=Workers)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the run at `place`: its `key` and `summary`, or the `reason` why not."""

    place: str
    state: State
    key: str = ""
    reason: str = ""
    summary: Summary | None = None


def add(
    storage: Storage,
    paths: Sequence[Path],
    wishes: Wishes = Wishes(),
    *,
    say: Callable[[int, int, Outcome], None] = lambda *_: None,
    clock: Callable[[], float] = time.monotonic,
) -> list[Outcome]:
    """Add the runs at `paths` to the data set, which is made where there is none; what became of
    each, in their order. `say` is told of each how many are done, of how many.

    Raises InputError for a data set of another version and for options that no importer has,
    OutputError where nothing can be written.
    """
    make_dataset(storage)
    places, outcomes = found_runs(paths, wishes.options)
    known = known_runs(storage)
    writer = _Writer(storage, wishes, clock)
    tasks = [(place, dict(wishes.options)) for place in places]
    found: dict[int, Outcome] = {}
    for number, result in mapped(outcome_of, tasks, wishes.workers, (known,)):
        outcome = _told(result, str(places[number]))
        if outcome.summary is not None:
            outcome = writer.take(outcome)
        found[number] = outcome
        say(len(found), len(places), outcome)
    writer.flush()
    return [*outcomes, *(found[number] for number in sorted(found))]


def found_runs(
    paths: Sequence[Path], options: Mapping[str, str]
) -> tuple[list[Path], list[Outcome]]:
    """Every run that the paths stand for, each once; and those that are known not to be any."""
    places: dict[Path, None] = {}
    failed: list[Outcome] = []
    for path in paths:
        try:
            (found,) = resolve([[path]])
        except ProfilerError as error:
            failed.append(Outcome(str(path), State.FAILED, reason=str(error)))
            continue
        if options and found.newest.foreign is not None:
            resolve([[path]], options)  # refuses what its importer does not know
        failed += [
            Outcome(str(entry.path), State.FAILED, reason=f"the run is not whole ({entry.state})")
            for entry in found.unfinished
        ]
        for source in found.sources:
            places.setdefault(source.path.absolute())
    return list(places), failed


def known_runs(storage: Storage) -> frozenset[str]:
    """The keys of all runs that count."""
    for _ in range(_ATTEMPTS):
        try:
            files = snapshot(storage)
            rows = scan(storage, "runs", files.runs).select("run", "batch", "time_ns")
            return frozenset(counted_runs(rows, files.removed).select("run").collect()["run"])
        except FileNotFoundError:
            continue
        except pl.exceptions.PolarsError as error:
            said = " ".join(str(error).split())[:200]
            raise InputError(f"a file of {storage.place} cannot be read ({said})") from error
    raise InputError(f"files of {storage.place} go while they are read: try again")


def outcome_of(task: tuple[Path, Mapping[str, str]], known: frozenset[str]) -> Outcome:
    """The summary of the run at a path, unless its key is known; what goes wrong is an outcome, for
    one bad run among thousands stops nothing."""
    path, options = task
    try:
        return _summarized(path, options, known)
    except ProfilerError as error:
        return Outcome(str(path), State.FAILED, reason=str(error))
    except Exception as error:  # of an importer, or a file beyond all checks
        said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        return Outcome(str(path), State.FAILED, reason=f"{path} cannot be read ({said})")


def _summarized(path: Path, options: Mapping[str, str], known: frozenset[str]) -> Outcome:
    (found,) = resolve([[path]])
    if options and found.newest.foreign is not None:
        names = {option.name for option in found.newest.foreign.importer.options}
        (found,) = resolve([[path]], {k: v for k, v in options.items() if k in names})
    with Imports() as imports:
        source = imports.ready(found.newest)
        place = str(source.place)
        key = key_of(source)
        if key in known:
            return Outcome(place, State.KNOWN, key or "")
        summary = read_summary(source.path) if source.kind is Kind.BUNDLE else None
        if summary is None:
            summary = summarized(source)
            if source.kind is Kind.BUNDLE and source.origin is None:
                write_summary(source.path, summary)
    key = str(summary.run["run"])
    if key in known:
        return Outcome(place, State.KNOWN, key)
    return Outcome(place, State.ADDED, key, summary=summary)


def _told(result: Outcome | Lost, place: str) -> Outcome:
    return (
        result if isinstance(result, Outcome) else Outcome(place, State.FAILED, "", result.reason)
    )


class _Writer:
    """Writes what it takes in batches: of so many runs, or after so long."""

    def __init__(self, storage: Storage, wishes: Wishes, clock: Callable[[], float]) -> None:
        self._storage = storage
        self._wishes = wishes
        self._clock = clock
        self._seen: set[str] = set()
        self._pending: list[Addition] = []
        self._last = clock()

    def take(self, outcome: Outcome) -> Outcome:
        """Write the run, now or later; a second one of the same key is known."""
        if outcome.key in self._seen:
            return replace(outcome, state=State.KNOWN, summary=None)
        assert outcome.summary is not None
        self._seen.add(outcome.key)
        wishes = self._wishes
        self._pending.append(Addition(outcome.summary, outcome.place, wishes.commit, wishes.labels))
        if len(self._pending) >= _BATCH_RUNS or self._clock() - self._last >= _BATCH_S:
            self.flush()
        return replace(outcome, summary=None)

    def flush(self) -> None:
        """Write what has been taken."""
        if self._pending:
            commit_batch(self._storage, self._pending)
        self._pending.clear()
        self._last = self._clock()
