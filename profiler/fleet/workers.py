"""Work over many items: in this process, in processes on this machine, or on a Dask cluster.

    for number, result in mapped(work, items, Workers(local=2)):

Results come as they are done. Items go to a worker in batches; those whose worker dies are done
again by another one. An item whose workers die repeatedly is `Lost`, without loss of the others.
If no worker is left and none comes back, or Dask itself fails, an InputError says so.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from profiler.errors import InputError, ProfilerError, needing

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_AHEAD = 4  # batches queued ahead for each worker
_MOST = 16  # items of a batch
_SHARES = 8  # batches per worker, if there are many items
_PATIENCE_S = 30  # for the scheduler's answer
_GONE_S = 300.0  # without any worker, before giving up
_LOOK_S = 0.1  # between polls for results; Dask's own iterator polls as often
_ASK_S = 1.0  # between requests to the scheduler
_ENDED = frozenset({"closing", "closed", "failed"})  # states of a nanny that restarts no worker
_FETCH_S = 60.0  # for one result to arrive
_AGAIN = (
    "run the command again with fewer --workers, and look whether there is memory enough for them"
)
_RESTART = "1 hour"  # for a dead local worker to restart; Dask gives up after 15 s


@dataclass(frozen=True, slots=True)
class Workers:
    """The workers: `local` processes on this machine (0: this process), or those of the Dask
    scheduler at an address."""

    local: int = 0
    scheduler: str = ""

    def __post_init__(self) -> None:
        if self.local and self.scheduler:
            raise InputError(
                "--workers starts processes here, --scheduler uses a cluster: give one"
            )


@dataclass(frozen=True, slots=True)
class Lost:
    """A missing result: the workers that had the item died or cannot run it; see `reason`."""

    reason: str


def mapped(
    work: Callable[..., _Result],
    items: Sequence[_Item],
    workers: Workers,
    shared: tuple[Any, ...] = (),
) -> Iterator[tuple[int, _Result | Lost]]:
    """Yield the number and result of `work(item, *shared)` for each item, in order of completion.

    `work` is a function of a module, and raises nothing. Raises InputError if no cluster can be
    reached, MissingPackageError without Dask.
    """
    if not workers.scheduler and workers.local < 1:
        for number, item in enumerate(items):
            yield number, work(item, *shared)
        return
    with needing("fleet", "work in several processes", "distributed"):
        import distributed
    try:
        with _client(distributed, workers) as cluster:
            yield from _of_cluster(distributed, cluster, work, items, shared)
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
    # Sent once per worker, as tasks: if a worker dies, they are recomputed.
    given = [client.submit(_itself, value, pure=False) for value in shared]
    batches: dict[str, range] = {}

    def submit(batch: range, *, alone: bool = False) -> Any:
        own = [items[number] for number in batch]
        digest = hashlib.sha256(repr(own).encode()).hexdigest()[:16]
        key = f"profile-sd3-{batch.start}-{batch.stop}-{digest}{'-alone' if alone else ''}"
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
    for batch in suspects:  # Dask blames all items of a dead worker: each once more, alone
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
    """A client and its workers; waits end if no worker is left."""

    client: Any
    scheduler: str = ""  # of a given cluster; "" for local processes
    nannies: Callable[[], Iterable[Any]] = tuple  # restart the local workers
    asked: float = 0.0
    seen: float = field(default_factory=time.monotonic)  # when a worker was last seen

    def workers(self) -> int:
        """Count the workers."""
        return len(self.client.scheduler_info(n_workers=-1)["workers"])

    def look(self) -> None:
        """Raises InputError if no worker is left, and none comes back."""
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
        """Return the exception of a task once it is done; waits if its results died with a worker,
        because they are recomputed."""
        error: BaseException | None = self._waited(future.exception, _ASK_S)
        return error

    def result(self, future: Any) -> Any:
        """Return the result of a task without an exception."""
        return self._waited(future.result, _FETCH_S)

    def _waited(self, ask: Callable[..., Any], timeout_s: float) -> Any:
        while True:
            try:
                return ask(timeout=timeout_s)
            except TimeoutError:
                self.look()


def batches_of(items: int, workers: int) -> list[range]:
    """Split the numbers of the items into batches for workers: several items each if there are
    many, because each message costs the leading process some ms; few enough that all workers end at
    about the same time."""
    size = max(min(items // (_SHARES * workers), _MOST), 1)
    return [range(begin, min(begin + size, items)) for begin in range(0, items, size)]


def _each(work: Callable[..., _Result], items: Sequence[_Item], *shared: Any) -> list[_Result]:
    """Return the results of a batch; runs as a task."""
    return [work(item, *shared) for item in items]


@contextmanager
def _client(distributed: Any, workers: Workers) -> Iterator[_Cluster]:
    """Yield a cluster with its client; it ends with the block if it was started for it."""
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
            try:  # without workers it would keep all items forever
                client.wait_for_workers(1, timeout=_PATIENCE_S)
            except TimeoutError as error:
                raise InputError(
                    f"the Dask scheduler at {workers.scheduler} has no workers: start some with "
                    f"`dask worker {workers.scheduler}`, or use --workers"
                ) from error
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
            dashboard_address="127.0.0.1:0",  # None is port 8787, which may be taken
            silence_logs=50,  # a dead worker is no news: its items are repeated
            env={"POLARS_MAX_THREADS": threads},
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield _Cluster(client, nannies=lambda: tuple(cluster.workers.values()))


def _itself(value: _Item) -> _Item:
    return value


def _killed(error: BaseException | None) -> bool:
    """Whether Dask gave up because workers died."""
    return type(error).__name__ == "KilledWorker"


def _why(error: BaseException | None) -> str:
    if _killed(error):
        return "the workers that read it died: is there memory enough for it?"
    return f"a worker could not read it ({_reason(error)})"


def _reason(error: BaseException | None) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200].rstrip(": ")
