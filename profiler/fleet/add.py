"""Add many runs to a data set; analyze or import many, each by itself.

    report = add(open_storage("fleet/"), [Path("traces")], Wishes())

Runs that the data set has already are skipped by key. An unreadable run is a row of the report.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from profiler.analysis.analyze import analyze
from profiler.errors import ProfilerError
from profiler.files import writable
from profiler.fleet.dataset import Addition, asked, commit_batch, counted_runs, scan
from profiler.fleet.storage import Snapshot, Storage, make_dataset
from profiler.fleet.workers import Lost, Workers, mapped
from profiler.tools.metrics import (
    Summary,
    key_of,
    read_summary,
    summarize_analysis,
    summarized,
    write_summary,
)
from profiler.tools.sources import Imports, Kind, load_source, page_path, resolve

_BATCH_RUNS = 500
_BATCH_S = 10.0  # so that little is lost if the process is killed

Say = Callable[[int, int, "Outcome"], None]
"""Receives how many are done, of how many, and the last outcome."""


class State(StrEnum):
    """The outcome of a run."""

    ADDED = "added"
    KNOWN = "known"  # the data set has it
    DONE = "done"  # analyzed or imported
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Wishes:
    """Settings for all runs that are added: their `commit` and `labels`, the importer's `options`;
    the workers, and whether rows keep the places of bundles, which may contain a person's name."""

    commit: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    workers: Workers = field(default_factory=Workers)
    keep_paths: bool = False


class Outcome(Struct, frozen=True):
    """The outcome of the run at `place`, or the `reason` of a failure: its `key` and `summary` if
    it is added; what was `written`, and for an analysis the end-to-end time."""

    place: str
    state: State = State.DONE
    key: str = ""
    reason: str = ""
    summary: Summary | None = None
    written: tuple[str, ...] = ()
    end_to_end_ns: int = 0


def _failed(place: Path | str, reason: object) -> Outcome:
    return Outcome(str(place), State.FAILED, reason=str(reason))


def add(
    storage: Storage,
    paths: Sequence[Path],
    wishes: Wishes = Wishes(),
    *,
    say: Say = lambda *_: None,
    clock: Callable[[], float] = time.monotonic,
) -> list[Outcome]:
    """Add the runs at `paths` to the data set, which is made if there is none; return the outcome
    of each run, in order.

    Raises InputError for a data set of another version and for options that no importer has,
    OutputError if nothing can be written.
    """
    make_dataset(storage)
    places, failed = found_runs(paths, wishes.options)
    writer = _Writer(storage, wishes, clock)
    tasks = [(place, dict(wishes.options)) for place in places]
    known = (asked(storage, lambda files: _known_runs(storage, files)),)
    done = _all(outcome_of, tasks, wishes.workers, say, known, take=writer.take)
    writer.flush()
    return [*failed, *done]


def found_runs(
    paths: Sequence[Path], options: Mapping[str, str]
) -> tuple[list[Path], list[Outcome]]:
    """Find every run at the paths, each once; also returns failures for paths that are no runs."""
    places: dict[Path, None] = {}
    failed: list[Outcome] = []
    for path in paths:
        try:
            (found,) = resolve([[path]])
        except ProfilerError as error:
            failed.append(_failed(path, error))
            continue
        if options and found.newest.foreign is not None:
            resolve([[path]], options)  # raises for options that the importer lacks
        failed += [
            _failed(entry.path, f"the run is not whole ({entry.state})")
            for entry in found.unfinished
        ]
        places |= dict.fromkeys(source.path.absolute() for source in found.sources)
    return list(places), failed


def _known_runs(storage: Storage, files: Snapshot) -> frozenset[str]:
    """Return the keys of all valid runs."""
    rows = scan(storage, "runs", files.runs).select("run", "batch", "time_ns")
    return frozenset(counted_runs(rows, files.removed).select("run").collect()["run"])


def outcome_of(task: tuple[Path, Mapping[str, str]], known: frozenset[str]) -> Outcome:
    """Summarize the run at a path, unless its key is known."""
    path, options = task
    return _tried(path, lambda: _summarized(path, options, known))


def _tried(path: Path, work: Callable[[], Outcome]) -> Outcome:
    """Return the result of `work`, or its error as an outcome: one bad run must not stop
    thousands."""
    try:
        return work()
    except ProfilerError as error:
        return _failed(path, error)
    except Exception as error:  # noqa: BLE001 - a crash is an answer as well, until it is mended
        said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        return _failed(path, f"{path} cannot be read ({said})")


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


class _Writer:
    """Writes runs in batches: after a number of runs, or some seconds."""

    def __init__(self, storage: Storage, wishes: Wishes, clock: Callable[[], float]) -> None:
        self._storage = storage
        self._wishes = wishes
        self._clock = clock
        self._seen: set[str] = set()
        self._pending: list[Addition] = []
        self._last = clock()

    def take(self, outcome: Outcome) -> Outcome:
        """Write the run now or later, if there is one; a second one with the same key is KNOWN."""
        if outcome.summary is None:
            return outcome
        if outcome.key in self._seen:
            return replace(outcome, state=State.KNOWN, summary=None)
        self._seen.add(outcome.key)
        wishes = self._wishes
        place = writable(outcome.place) if wishes.keep_paths else ""
        self._pending.append(Addition(outcome.summary, place, wishes.commit, wishes.labels))
        if len(self._pending) >= _BATCH_RUNS or self._clock() - self._last >= _BATCH_S:
            self.flush()
        return replace(outcome, summary=None)

    def flush(self) -> None:
        """Write the pending runs."""
        if self._pending:
            commit_batch(self._storage, self._pending)
        self._pending.clear()
        self._last = self._clock()


def analyze_many(
    bundles: Sequence[Path], workers: Workers, *, pages: bool = True, say: Say = lambda *_: None
) -> list[Outcome]:
    """Analyze each run and write its page and summary into its bundle; return the outcomes, in
    order."""
    return _all(analyzed, [(bundle, pages) for bundle in bundles], workers, say)


def import_many(
    files: Sequence[Path],
    out: Path,
    options: Mapping[str, str],
    workers: Workers,
    *,
    say: Say = lambda *_: None,
) -> list[Outcome]:
    """Import each file or folder as a run of its own, as a bundle below `out`; return the outcomes,
    in order."""
    if workers.scheduler:  # its workers were started in other folders
        files, out = [path.absolute() for path in files], out.absolute()
    return _all(imported, [(path, out, dict(options)) for path in files], workers, say)


def analyzed(task: tuple[Path, bool]) -> Outcome:
    """Analyze one run."""
    path, page = task
    return _tried(path, lambda: _analyzed(path, page=page))


def imported(task: tuple[Path, Path, Mapping[str, str]]) -> Outcome:
    """Import one path."""
    path, out, options = task
    return _tried(path, lambda: _imported(path, out, options))


def _analyzed(path: Path, *, page: bool) -> Outcome:
    from profiler.report.html.page import write_html

    (found,) = resolve([[path]])
    with Imports() as imports:
        source = imports.ready(found.newest)
        run = load_source(source)
        analysis = analyze(run)
        written = []
        if page:
            written.append(page_path(source, filtered=False, folder=path.parent))
            write_html(run, analysis, written[0], source=source.path)
        summarize_analysis(analysis, source)
    texts, elapsed = tuple(map(str, written)), analysis.accounting.end_to_end_ns
    return Outcome(str(source.place), written=texts, end_to_end_ns=elapsed)


def _imported(path: Path, out: Path, options: Mapping[str, str]) -> Outcome:
    from profiler.importers.importing import import_all

    written = tuple(map(str, import_all([path], out, options=options)))
    return Outcome(str(path), written=written)


def _all(
    work: Callable[..., Outcome],
    tasks: Sequence[tuple[Any, ...]],
    workers: Workers,
    say: Say,
    shared: tuple[Any, ...] = (),
    take: Callable[[Outcome], Outcome] = lambda outcome: outcome,
) -> list[Outcome]:
    """Run `work` on each task, whose first value is a path, and return the outcomes in order;
    `take` gets each when it is done."""
    found: dict[int, Outcome] = {}
    for number, result in mapped(work, tasks, workers, shared):
        place = tasks[number][0]
        found[number] = _failed(place, result.reason) if isinstance(result, Lost) else take(result)
        say(len(found), len(tasks), found[number])
    return [found[number] for number in sorted(found)]
