"""Compaction: the many small files of a data set as few large ones, without a moment in which a
reader misses or counts something twice."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
import polars as pl
from msgspec import Struct

from profiler.errors import InputError
from profiler.fleet.dataset import counted_runs, scan
from profiler.fleet.layout import (
    TABLES,
    Generation,
    Snapshot,
    check_dataset,
    file_name,
    generation_name,
    grouped,
    last_part,
    merged_number,
    snapshot,
)
from profiler.fleet.rows import ORDER, parquet_bytes
from profiler.fleet.storage import Storage

__all__ = ["GRACE_S", "TARGET_BYTES", "Compacted", "compact"]

TARGET_BYTES = 256 << 20
GRACE_S = 3600
"""How long replaced files stay for readers that have just listed them."""
_KEPT = 3  # generations, for readers that have just listed them
_ABANDONED_S = 86_400  # after which nobody writes the runs of metrics that are there any more


class Compacted(Struct, frozen=True):
    """What a compaction did: files before and after, and those that it deleted, which earlier ones
    had replaced."""

    before: int
    after: int
    deleted: int
    generation: int


class _Merge(Struct, frozen=True):
    """Files of one partition that become one of each table."""

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

    Raises InputError where another compaction was faster, which has then done the work, OutputError
    where nothing can be written.
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
    """Let a generation count; False where there is one of its number. Raises OutputError where
    nobody knows whether it counts: then its files stay, and a later compaction deletes them if it
    does not."""
    return storage.create(generation_name(generation.number), msgspec.json.encode(generation))


def _number(files: Snapshot) -> int:
    return len(files.runs) + len(files.metrics)


def _delete_old(storage: Storage, files: Snapshot, now: int, grace_s: int) -> set[str]:
    """Delete what was replaced long enough ago, before the generation that forgets it: while a file
    is there, a generation says that it does not count. With it goes what killed writers and
    compactions have left. Returns all names."""
    dated = {**files.generation.replaced, **files.generation.applied}
    old = [name for name, at in dated.items() if now - at >= grace_s]
    left = [*_of_lost_compactions(files), *_of_killed_writers(files, now)]
    storage.remove([*old, *left])
    return {*old, *left}


def _of_lost_compactions(files: Snapshot) -> Iterator[str]:
    """Merged files that no generation names, of a generation that another compaction has made: who
    wrote them cannot let them count any more."""
    for name in files.orphans:
        number = merged_number(name)
        if number is not None and number <= files.generation.number:
            yield name


def _of_killed_writers(files: Snapshot, now: int) -> Iterator[str]:
    """Metrics whose runs were not written within a day: nobody reads them."""
    written = {last_part(name) for name in files.runs}
    for name in files.metrics:
        stem = last_part(name)
        if stem not in written and stem.startswith("b"):
            began = int(stem[1:17], 16) // 1_000_000_000
            if now - began >= _ABANDONED_S:
                yield name


def _merges(storage: Storage, files: Snapshot, target_bytes: int) -> Iterator[_Merge]:
    """Which files of each partition become one: as many as make about `target_bytes`. A file that
    is large enough, or alone, stays as it is, unless a removed run is in it."""
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
    """The files of runs that hold one which was removed."""
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
    """Write the files of a merge; their names, none where nothing is left of them. A run that
    stands in a file outside of the merge, too, stays in both: readers count it once."""
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
