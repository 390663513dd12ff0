"""Add many runs to a data set, in local processes or on a Dask cluster.

    report = add(dataset, [Path("traces")], Wishes())
    for number, result in mapped(work, items, Workers(local=2)):

Runs that the data set has already are skipped by key. An unreadable run is a row of the report.
An item whose workers die repeatedly is `Lost`, without loss of the others.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

import polars as pl
from msgspec import Struct

from profiler.analysis.analyze import analyze
from profiler.errors import InputError, ProfilerError, needing
from profiler.files import scratch_folder
from profiler.fleet.dataset import Addition, commit_batch, counted_runs, scan
from profiler.fleet.storage import Storage, make_dataset, snapshot
from profiler.metrics import (
    Summary,
    key_of,
    read_summary,
    summarize_analysis,
    summarized,
    write_summary,
)
from profiler.sources import Imports, Kind, load_source, page_path, resolve
from profiler.trace.bundle import place_bundle

# --- Work over many items: in this process, in processes on this machine, or on a Dask cluster.
#
#     for number, result in mapped(work, items, Workers(local=2)):
#
# Results come as they are done. Items go to a worker in batches; those whose worker dies are done
# again by another one, and an item whose workers die again and again is a `Lost`, alone. Where no
# worker is left and none comes back, or Dask itself fails, an InputError says so.


_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_AHEAD = 4  # batches for each worker that it need not ask for
_MOST = 16  # items of a batch
_SHARES = 8  # batches of a worker, where items are many
_PATIENCE_S = 30  # for a scheduler to answer
_GONE_S = 300.0  # without any worker, until nothing is waited for any more
_LOOK_S = 0.1  # between looks for results; Dask's own iterator looks as often
_ASK_S = 1.0  # between questions to the scheduler
_ENDED = frozenset({"closing", "closed", "failed"})  # of a nanny that restarts no worker
_FETCH_S = 60.0  # for one result to come
_AGAIN = (
    "run the command again with fewer --workers, and look whether there is memory enough for them"
)
_RESTART = "1 hour"  # for a local worker that died to be there again; Dask gives it up after 15 s


@dataclass(frozen=True, slots=True)
class Workers:
    """Who does the work: `local` processes of this machine, 0: this process; or those of the Dask
    scheduler at an address."""

    local: int = 0
    scheduler: str = ""

    def __post_init__(self) -> None:
        if self.local and self.scheduler:
            raise InputError(
                "--workers starts processes here, --scheduler uses a cluster: give one"
            )

    @property
    def here(self) -> bool:
        """Whether this process does it."""
        return not self.scheduler and self.local < 1


@dataclass(frozen=True, slots=True)
class Lost:
    """No result: the workers that had the item have died, or cannot run it; `reason` says how."""

    reason: str


def mapped(
    work: Callable[..., _Result],
    items: Sequence[_Item],
    workers: Workers,
    shared: tuple[Any, ...] = (),
) -> Iterator[tuple[int, _Result | Lost]]:
    """`work(item, *shared)` of each item, with its number, in the order in which they are done.

    `work` is a function of a module, and raises nothing. Raises InputError where no cluster can be
    reached, MissingPackageError without Dask.
    """
    if workers.here:
        for number, item in enumerate(items):
            yield number, work(item, *shared)
        return
    with needing("fleet", "work in several processes", "distributed"):
        import distributed
    with _dask_failures(), _client(distributed, workers) as cluster:
        yield from _of_cluster(distributed, cluster, work, items, shared)


@contextmanager
def _dask_failures() -> Iterator[None]:
    """Raises InputError in place of what Dask raises in the block."""
    try:
        yield
    except ProfilerError:
        raise
    except (Exception, asyncio.CancelledError) as error:
        raise InputError(
            f"Dask failed ({_reason(error)}): run the command again, or leave out --workers and "
            "--scheduler"
        ) from error


def _of_cluster(
    distributed: Any,
    cluster: _Cluster,
    work: Callable[..., _Result],
    items: Sequence[_Item],
    shared: tuple[Any, ...],
) -> Iterator[tuple[int, _Result | Lost]]:
    client = cluster.client
    given = [client.submit(_itself, value, pure=False) for value in shared]  # sent once a worker
    batches: dict[str, range] = {}

    def submit(batch: range, *, alone: bool = False) -> Any:
        own = [items[number] for number in batch]
        key = f"profile-sd3-{batch.start}-{batch.stop}-{_digest(own)}{'-alone' if alone else ''}"
        batches[key] = batch
        return client.submit(_each, work, own, *given, key=key, retries=0, pure=False)

    workers = max(cluster.workers(), 1)
    rest = iter(batches_of(len(items), workers))
    first = [submit(batch) for _, batch in zip(range(_AHEAD * workers), rest, strict=False)]
    done = distributed.as_completed(first, loop=client.loop)
    suspects: list[range] = []
    for future in _as_done(done, cluster):
        batch = batches.pop(future.key)
        error = cluster.exception(future)
        if error is None:
            yield from zip(batch, cluster.result(future), strict=True)
        elif len(batch) > 1:  # one of them is lost, the others are not
            for number in batch:
                done.add(submit(range(number, number + 1)))
        elif _killed(error):
            suspects.append(batch)
        else:
            yield batch.start, Lost(_why(error))
        future.release()
        following = next(rest, None)
        if following is not None:
            done.add(submit(following))
    for batch in suspects:  # Dask blames all that a dead worker had: each once more, by itself
        future = submit(batch, alone=True)
        error = cluster.exception(future)
        yield batch.start, Lost(_why(error)) if error is not None else cluster.result(future)[0]
        future.release()


def _as_done(done: Any, cluster: _Cluster) -> Iterator[Any]:
    """Futures as they are done, as long as there is a worker or one may come back."""
    while not done.is_empty():
        ready = done.next_batch(block=False)
        yield from ready
        if not ready:
            cluster.look()
            with done.thread_condition:
                done.thread_condition.wait(timeout=_LOOK_S)


@dataclass(slots=True)
class _Cluster:
    """A client, and what it waits for: nothing is waited for that no worker will do."""

    client: Any
    scheduler: str = ""  # of others; "" where the workers are processes of this machine
    nannies: Callable[[], Iterable[Any]] = tuple  # who restart the workers of this machine
    asked: float = 0.0
    seen: float = field(default_factory=time.monotonic)  # when there was a worker

    def workers(self) -> int:
        """How many there are."""
        return len(self.client.scheduler_info(n_workers=-1)["workers"])

    def look(self) -> None:
        """Raises InputError where no worker is left, and none comes back."""
        now = time.monotonic()
        if now - self.asked < _ASK_S:
            return
        self.asked = now
        if self.workers():
            self.seen = now
            return
        if not self.scheduler and all(one.status.name in _ENDED for one in self.nannies()):
            raise InputError(f"all workers have died and none could be restarted: {_AGAIN}")
        if now - self.seen > _GONE_S:
            where = f" at {self.scheduler}" if self.scheduler else ""
            raise InputError(
                f"the Dask scheduler{where} has had no worker for {_GONE_S:g} s: "
                + (f"start some with `dask worker {self.scheduler}`" if where else _AGAIN)
            )

    def exception(self, future: Any) -> BaseException | None:
        """Of a task, once it is done; waits where a worker died with its results, which are made
        again."""
        error: BaseException | None = self._waited(lambda: future.exception(timeout=_ASK_S))
        return error

    def result(self, future: Any) -> Any:
        """Of a task that has no exception."""
        return self._waited(lambda: future.result(timeout=_FETCH_S))

    def _waited(self, ask: Callable[[], Any]) -> Any:
        while True:
            try:
                return ask()
            except TimeoutError:
                self.look()


def batches_of(items: int, workers: int) -> list[range]:
    """The numbers of the items that go to a worker at once: several where there are many, because
    each message takes some ms of the process that leads; few enough that all workers end at about
    the same time."""
    size = max(min(items // (_SHARES * workers), _MOST), 1)
    return [range(begin, min(begin + size, items)) for begin in range(0, items, size)]


def _each(work: Callable[..., _Result], items: Sequence[_Item], *shared: Any) -> list[_Result]:
    """A task: the results of a batch."""
    return [work(item, *shared) for item in items]


@contextmanager
def _client(distributed: Any, workers: Workers) -> Iterator[_Cluster]:
    """A cluster with its client, which ends with the block where it was started for it."""
    if workers.scheduler:
        try:
            client = distributed.Client(
                workers.scheduler, timeout=_PATIENCE_S, set_as_default=False
            )
        except (OSError, ValueError) as error:
            raise InputError(
                f"no Dask scheduler answers at {workers.scheduler} ({_reason(error)}): start one "
                "with `dask scheduler`, or use --workers"
            ) from error
        with client:
            _wait_for_workers(client, workers.scheduler)
            yield _Cluster(client, workers.scheduler)
        return
    import dask

    threads = str(max((os.cpu_count() or 1) // workers.local, 1))
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": _RESTART}),
        distributed.LocalCluster(
            n_workers=workers.local,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",  # None is port 8787, which another one may have
            silence_logs=50,  # a worker that dies is no news, its items are done again
            env={"POLARS_MAX_THREADS": threads},
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield _Cluster(client, nannies=lambda: tuple(cluster.workers.values()))


def _wait_for_workers(client: Any, scheduler: str) -> None:
    """Raises InputError where the scheduler has none: it would keep all items for ever."""
    try:
        client.wait_for_workers(1, timeout=_PATIENCE_S)
    except TimeoutError as error:
        raise InputError(
            f"the Dask scheduler at {scheduler} has no workers: start some with `dask worker "
            f"{scheduler}`, or use --workers"
        ) from error


def _itself(value: _Item) -> _Item:
    """A task, so that what a worker took with it is made again."""
    return value


def _digest(item: object) -> str:
    return hashlib.sha256(repr(item).encode()).hexdigest()[:16]


def _killed(error: BaseException | None) -> bool:
    """Whether Dask gave up because workers died."""
    return type(error).__name__ == "KilledWorker"


def _why(error: BaseException | None) -> str:
    if _killed(error):
        return "the workers that read it died: is there memory enough for it?"
    return f"a worker could not read it ({_reason(error)})"


def _reason(error: BaseException | None) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200].rstrip(": ")


# --- Adding runs to a data set: found, summarized by whoever works, written in batches.
#
#     report = add(Dataset-to-be, [Path("traces")], Wishes())
#
# What is there already is left out by its key; what cannot be read is a row of the report.


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


def add(  # one argument a column
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
        outcome = _outcome(result, str(places[number]))
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
    except Exception as error:  # noqa: BLE001 - a crash is an answer as well, until it is mended
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


def _outcome(result: Outcome | Lost, place: str) -> Outcome:
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


# --- `import` and `analyze` of many: each item by itself, in one process or on many workers.


_Task = TypeVar("_Task")


class Done(Struct, frozen=True):
    """What became of one item: what was `written`, and of an analysis the end-to-end time; or the
    `reason` why nothing could be done."""

    place: str
    written: tuple[str, ...] = ()
    end_to_end_ns: int = 0
    reason: str = ""


def analyze_many(
    bundles: Sequence[Path],
    workers: Workers,
    *,
    pages: bool = True,
    say: Callable[[int, int, Done], None] = lambda *_: None,
) -> list[Done]:
    """Analyze each run; its page and its summary go into its bundle. In their order."""
    return _all(analyzed, [(bundle, pages) for bundle in bundles], workers, say)


def import_many(
    files: Sequence[Path],
    out: Path,
    options: Mapping[str, str],
    workers: Workers,
    *,
    say: Callable[[int, int, Done], None] = lambda *_: None,
) -> list[Done]:
    """Import each file or folder as a run of its own, as a bundle below `out`. In their order."""
    if workers.scheduler:  # whose workers were started elsewhere
        files, out = [path.absolute() for path in files], out.absolute()
    return _all(imported, [(path, out, dict(options)) for path in files], workers, say)


def analyzed(task: tuple[Path, bool]) -> Done:
    """The report of one run; what goes wrong is said in what is returned."""
    path, page = task
    return _done(path, lambda: _analyzed(path, page=page))


def imported(task: tuple[Path, Path, Mapping[str, str]]) -> Done:
    """One import; what goes wrong is said in what is returned."""
    path, out, options = task
    return _done(path, lambda: _imported(path, out, options))


def _analyzed(path: Path, *, page: bool) -> Done:
    from profiler.report.html.page import write_html

    (found,) = resolve([[path]])
    with Imports() as imports:
        source = imports.ready(found.newest)
        run = load_source(source)
        analysis = analyze(run)
        written = []
        if page:
            written.append(page_path(source, filtered=False))
            write_html(run, analysis, written[0], source=source.path)
        summarize_analysis(analysis, source)
    time = analysis.accounting.end_to_end_ns
    return Done(str(source.place), tuple(map(str, written)), time)


def _imported(path: Path, out: Path, options: Mapping[str, str]) -> Done:
    """Written aside and moved when it is whole: what a killed worker leaves is no run of `out`."""
    from profiler.importers.importing import import_all

    with scratch_folder(out / "import") as folder:
        bundles = import_all([path], folder, options=options)
        return Done(str(path), tuple(str(place_bundle(bundle, out)) for bundle in bundles))


def _done(path: Path, work: Callable[[], Done]) -> Done:
    try:
        return work()
    except ProfilerError as error:
        return Done(str(path), reason=str(error))
    except Exception as error:  # noqa: BLE001 - a crash is an answer as well, until it is mended
        said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        return Done(str(path), reason=f"{path} cannot be read ({said})")


def _all(
    work: Callable[[_Task], Done],
    tasks: Sequence[_Task],
    workers: Workers,
    say: Callable[[int, int, Done], None],
) -> list[Done]:
    found: dict[int, Done] = {}
    for number, result in mapped(work, tasks, workers):
        place = str(tasks[number][0])  # type: ignore[index]
        done = Done(place, reason=result.reason) if isinstance(result, Lost) else result
        found[number] = done
        say(len(found), len(tasks), done)
    return [found[number] for number in sorted(found)]
