"""Add many runs to a data set, and compact it; analyze or import many, each by itself.

    report = add(open_storage("fleet/"), [Path("traces")], Wishes())

Runs that the data set has already are skipped by key. An unreadable run is a row of the report.
"""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from profiler.analysis.analyze import analyze
from profiler.errors import InputError, OutputError, ProfilerError
from profiler.files import writable
from profiler.fleet.dataset import asked, counted_runs, scan
from profiler.fleet.storage import (
    TABLES,
    Generation,
    Snapshot,
    Storage,
    batch_name,
    check_dataset,
    file_name,
    generation_name,
    grouped,
    last_part,
    make_dataset,
    merged_number,
    partition,
    snapshot,
)
from profiler.fleet.workers import Lost, Workers, mapped
from profiler.run.columns import schema
from profiler.tools.metrics import (
    METRICS,
    RUNS,
    SCHEMA_VERSION,
    VALUE_COLUMNS,
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


def _caught(work: Callable[..., Outcome]) -> Callable[..., Outcome]:
    """Return `work` on a task, whose first value is a path, with its error as an outcome: one bad
    run must not stop thousands."""

    @wraps(work)
    def caught(task: tuple[Any, ...], *shared: Any) -> Outcome:
        path = task[0]
        try:
            return work(task, *shared)
        except ProfilerError as error:
            return _failed(path, error)
        except Exception as error:  # noqa: BLE001 - the other files are read
            said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            return _failed(path, f"{path} cannot be read ({said})")

    return caught


@_caught
def outcome_of(task: tuple[Path, Mapping[str, str]], known: frozenset[str]) -> Outcome:
    """Summarize the run at a path, unless its key is known."""
    path, options = task
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


@_caught
def analyzed(task: tuple[Path, bool]) -> Outcome:
    """Analyze one run."""
    from profiler.report.html.page import write_html

    path, page = task
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


@_caught
def imported(task: tuple[Path, Path, Mapping[str, str]]) -> Outcome:
    """Import one path."""
    from profiler.importers.importing import import_all

    path, out, options = task
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


# --- Write summaries of runs as the rows and files of a batch.


ORDER = ("metric", "stage", "submodule", "role", "shape", "device", "step", "run")
"""The sort order of the rows in a file of metrics, by which readers skip rows."""
_ROW_GROUP = 64_000  # rows


@dataclass(frozen=True, slots=True)
class Addition:
    """A run to add: its summary, place ("" if not kept), and the user's commit and labels."""

    summary: Summary
    place: str
    commit: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> str:
        """The partition of its rows."""
        run = self.summary.run
        return partition(run["pipeline"], run["hardware"], run["time_ns"])


def commit_batch(storage: Storage, additions: Sequence[Addition]) -> None:
    """Write a batch of runs: of each partition the metrics, then the runs, which makes them count.
    Raises OutputError."""
    by_folder: dict[str, list[Addition]] = {}
    for one in additions:
        by_folder.setdefault(one.folder, []).append(one)
    for folder, of in by_folder.items():
        batch = batch_name()
        runs = runs_frame(of, batch, time.time_ns())
        frames = {"metrics": metrics_frame(of, batch), "runs": runs}
        for table, frame in frames.items():  # in this order
            name = file_name(table, folder, batch)
            if not storage.create(name, parquet_bytes(frame)):
                raise OutputError(f"{storage.place}/{name} is there already: add the runs again")


def runs_frame(additions: Sequence[Addition], batch: str, added_ns: int) -> pl.DataFrame:
    """The rows of `runs`."""
    rows = [
        {
            **one.summary.run,
            "batch": batch,
            "schema_version": SCHEMA_VERSION,
            "added_ns": added_ns,
            "commit": one.commit or one.summary.run["commit"],
            "labels": json.dumps(dict(one.labels), sort_keys=True),
            "place": one.place,
        }
        for one in additions
    ]
    return pl.DataFrame(rows, schema=schema(RUNS), orient="row").sort("time_ns", "run")


def metrics_frame(additions: Sequence[Addition], batch: str) -> pl.DataFrame:
    """Return the rows of `metrics`, sorted by `ORDER`."""
    values: dict[str, list[object]] = {name: [] for name in VALUE_COLUMNS}
    runs: list[str] = []
    for one in additions:
        runs += [one.summary.run["run"]] * len(one.summary.metrics)
        for name, column in values.items():
            column.extend(getattr(measure, name) for measure in one.summary.metrics)
    columns = {"run": runs, "batch": [batch] * len(runs), **values}
    return pl.DataFrame(columns, schema=schema(METRICS)).sort(ORDER)


def parquet_bytes(frame: pl.DataFrame) -> bytes:
    """Encode the frame as a Parquet file, with statistics by which readers skip rows."""
    file = io.BytesIO()
    frame.write_parquet(file, compression="zstd", statistics=True, row_group_size=_ROW_GROUP)
    return file.getvalue()


# --- Compaction: merge the many small files of a data set into few large ones, so that readers
# never miss a run or count it twice.


TARGET_BYTES = 256 << 20
GRACE_S = 3600
"""How long replaced files are kept for readers that have just listed them, in seconds."""
_KEPT = 3  # generations, for readers that have just listed them
_ABANDONED_S = 86_400  # age from which metrics without runs are abandoned


class Compacted(Struct, frozen=True):
    """The result of a compaction: the number of files before and after, and of those it deleted
    because earlier ones had replaced them."""

    before: int
    after: int
    deleted: int
    generation: int


class _Merge(Struct, frozen=True):
    """The files of one partition that are merged into one file per table."""

    folder: str
    runs: tuple[str, ...]
    metrics: tuple[str, ...]


def compact(
    storage: Storage,
    *,
    target_bytes: int = TARGET_BYTES,
    grace_s: int = GRACE_S,
    clock: Callable[[], float] = time.time,
) -> Compacted:
    """Merge the files of each partition into files of about `target_bytes`, leave out what was
    removed, and delete what earlier compactions replaced more than `grace_s` ago.

    Raises InputError if another compaction was faster, which has then done the work, OutputError if
    nothing can be written.
    """
    check_dataset(storage)
    files = snapshot(storage)
    now, before = int(clock()), files.generation
    deleted = _delete_old(storage, files, now, grace_s)
    merges = list(_merges(storage, files, target_bytes))
    applied = {
        name: before.applied.get(name, now) for name in files.removals if name not in deleted
    }
    kept = {name: at for name, at in before.replaced.items() if name not in deleted}
    if not merges and (kept, applied) == (before.replaced, before.applied):
        return Compacted(_number(files), _number(files), len(deleted), before.number)
    number = before.number + 1
    made: list[str] = []
    try:
        for merge in merges:
            made += _merged(storage, merge, files, number)
    except BaseException:
        storage.remove(made)
        raise
    gone = {name for merge in merges for name in (*merge.runs, *merge.metrics)}
    generation = Generation(
        number=number,
        files=(*(name for name in before.files if name not in gone), *made),
        replaced=kept | dict.fromkeys(sorted(gone), now),
        applied=applied,
    )
    if not _commit(storage, generation):
        storage.remove(made)
        raise InputError(
            f"another compaction of {storage.place} has just ended: compact again if there is need"
        )
    storage.remove(generation_name(n) for n in range(max(number - 2 * _KEPT, 1), number - _KEPT))
    return Compacted(_number(files), _number(files) - len(gone) + len(made), len(deleted), number)


def _commit(storage: Storage, generation: Generation) -> bool:
    """Make a generation valid; return False if there is one with its number. Raises OutputError if
    it is not known whether it is valid: then its files stay, and a later compaction deletes them if
    it is not."""
    return storage.create(generation_name(generation.number), msgspec.json.encode(generation))


def _number(files: Snapshot) -> int:
    return len(files.runs) + len(files.metrics)


def _delete_old(storage: Storage, files: Snapshot, now: int, grace_s: int) -> set[str]:
    """Delete files that were replaced long enough ago, before the generation that no longer lists
    them: as long as a file exists, a generation says that it is not valid. Also deletes what killed
    writers and compactions have left. Returns all names."""
    dated = {**files.generation.replaced, **files.generation.applied}
    old = {name for name, at in dated.items() if now - at >= grace_s}
    # Merged files that no generation lists, for a generation that another compaction has made:
    # their writer can no longer make them valid.
    newest = files.generation.number
    old |= {name for name in files.orphans if (merged_number(name) or newest + 1) <= newest}
    # Metrics whose runs were not written within a day: they are never read.
    written = {last_part(name) for name in files.runs}
    lone = (name for name in files.metrics if last_part(name) not in written)
    batches = [name for name in lone if last_part(name).startswith("b")]
    begun = {name: int(last_part(name)[1:17], 16) // 1_000_000_000 for name in batches}
    old |= {name for name, at in begun.items() if now - at >= _ABANDONED_S}
    storage.remove(sorted(old))
    return old


def _merges(storage: Storage, files: Snapshot, target_bytes: int) -> Iterator[_Merge]:
    """Yield the files of each partition to merge: as many as make about `target_bytes`. A file that
    is large enough, or alone, is unchanged, unless it contains a removed run."""
    dirty = _with_removed(storage, files)
    runs, metrics = grouped(files.runs), grouped(files.metrics)
    for folder, names in runs.items():
        by_stem = {last_part(name): name for name in metrics.get(folder, ())}
        chosen: list[tuple[str, str | None]] = []
        size = 0
        for name in names:
            partner = by_stem.get(last_part(name))
            own = storage.size(partner or name)
            if own >= target_bytes and name not in dirty:
                continue
            chosen.append((name, partner))
            size += own
            if size >= target_bytes:
                yield from _merge_of(folder, chosen, dirty)
                chosen, size = [], 0
        yield from _merge_of(folder, chosen, dirty)


def _merge_of(
    folder: str, chosen: Sequence[tuple[str, str | None]], dirty: frozenset[str]
) -> Iterator[_Merge]:
    if len(chosen) < 2 and not any(name in dirty for name, _ in chosen):
        return
    partners = tuple(partner for _, partner in chosen if partner is not None)
    yield _Merge(folder, tuple(name for name, _ in chosen), partners)


def _with_removed(storage: Storage, files: Snapshot) -> frozenset[str]:
    """Return the files of runs that contain a removed run."""
    if not files.removed:
        return frozenset()
    gone = pl.DataFrame(list(files.removed), schema=["run", "batch"], orient="row")
    found = []
    for name in files.runs:
        rows = scan(storage, "runs", [name]).select("run", "batch").collect()
        if len(rows.join(gone, on=["run", "batch"], how="semi")):
            found.append(name)
    return frozenset(found)


def _merged(storage: Storage, merge: _Merge, files: Snapshot, number: int) -> list[str]:
    """Write the files of a merge and return their names; empty if no run is left. A run that is
    also in a file outside of the merge stays in both: readers count it once."""
    runs = counted_runs(scan(storage, "runs", merge.runs), files.removed).collect()
    if runs.is_empty():
        return []
    pairs = runs.select("run", "batch").lazy()
    rows = scan(storage, "metrics", merge.metrics).join(pairs, on=["run", "batch"], how="semi")
    frames: Mapping[str, pl.DataFrame] = {"runs": runs, "metrics": rows.sort(ORDER).collect()}
    stem = f"g{number:08d}-{os.urandom(8).hex()}"
    names = []
    for table in reversed(TABLES):
        name = file_name(table, merge.folder, stem)
        storage.create(name, parquet_bytes(frames[table]))
        names.append(name)
    return names
