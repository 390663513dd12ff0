"""Work over many items: in this process, in processes on this machine, or on a Dask cluster.

    for number, result in mapped(work, items, Workers(local=2)):

Results come as they are done. An item whose worker dies is done again by another one; an item whose
workers die again and again is a `Lost`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from profiler.errors import InputError
from profiler.extras import needing

__all__ = ["Lost", "Workers", "mapped"]

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_AHEAD = 32  # items for each worker that it need not ask for
_PATIENCE_S = 30  # for a scheduler to answer


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
    with _client(distributed, workers) as client:
        yield from _of_cluster(distributed, client, work, items, shared)


def _of_cluster(
    distributed: Any,
    client: Any,
    work: Callable[..., _Result],
    items: Sequence[_Item],
    shared: tuple[Any, ...],
) -> Iterator[tuple[int, _Result | Lost]]:
    given = [client.submit(_itself, value, pure=False) for value in shared]  # sent once a worker
    numbers: dict[str, int] = {}

    def submit(number: int) -> Any:
        key = f"profile-sd3-{number}-{_digest(items[number])}"
        numbers[key] = number
        return client.submit(work, items[number], *given, key=key, retries=0, pure=False)

    rest = iter(range(len(items)))
    ahead = _AHEAD * max(len(client.scheduler_info(n_workers=-1)["workers"]), 1)
    first = [submit(number) for _, number in zip(range(ahead), rest, strict=False)]
    done = distributed.as_completed(first, loop=client.loop)
    for future in done:
        number = numbers.pop(future.key)
        if future.status == "finished":
            yield number, future.result()
        else:
            yield number, Lost(_why(future.exception()))
        future.release()
        following = next(rest, None)
        if following is not None:
            done.add(submit(following))


@contextmanager
def _client(distributed: Any, workers: Workers) -> Iterator[Any]:
    """A client of the cluster, which ends with the block where it was started for it."""
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
            yield client
        return
    threads = str(max((os.cpu_count() or 1) // workers.local, 1))
    with (
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
        yield client


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


def _why(error: BaseException | None) -> str:
    if type(error).__name__ == "KilledWorker":
        return "the workers that read it died: is there memory enough for it?"
    return f"a worker could not read it ({_reason(error)})"


def _reason(error: BaseException | None) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]
