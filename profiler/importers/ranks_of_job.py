"""Which bundles of ours are ranks of one job, and of which run of it.

ranks_in(Path("traces"))    # of the newest run, by rank
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from profiler.errors import InputError
from profiler.files import decoded, opened
from profiler.trace.bundle import search
from profiler.trace.manifest import MANIFEST_NAME
from profiler.trace.manifest_fields import Job

_LARGEST = 256 << 20  # bytes of a manifest


class _OfJob(msgspec.Struct, frozen=True):
    run_id: str = ""
    created: str = ""
    job: Job | None = None


def job_of(bundle: Path) -> Job | None:
    """The job of which a bundle has one rank; None for other bundles and paths."""
    return _rank_of(bundle).job


def _rank_of(bundle: Path) -> _OfJob:
    """What a manifest says of its job; nothing if it is no bundle of one rank."""
    manifest = bundle / MANIFEST_NAME
    if not manifest.is_file():
        return _OfJob()
    try:
        with opened(manifest) as file:
            found = decoded(file.read(_LARGEST), _OfJob)
    except (OSError, InputError, ValueError, RecursionError):  # whoever loads it says so
        return _OfJob()
    return found if found.job is not None and len(found.job.ranks) == 1 else _OfJob()


def ranks_of_newest(bundles: Sequence[Path]) -> list[Path]:
    """The bundles that are one run with the first of `bundles`, which are the newest first: ranks
    of its job, up to one that is there again, as an earlier run of the same job has it. A copy of a
    bundle is no earlier run: it is left out."""
    own = job_of(bundles[0])
    if own is None:
        return [bundles[0]]
    found: dict[int, Path] = {}
    known: dict[int, _OfJob] = {}
    for bundle in bundles:
        one = _rank_of(bundle)
        job = one.job
        if job is None or (job.name, job.world_size) != (own.name, own.world_size):
            continue
        rank = job.ranks[0].rank
        if one == known.get(rank):
            continue
        if rank in found:
            break
        found[rank], known[rank] = bundle, one
    return [found[rank] for rank in sorted(found)]


def ranks_in(path: Path) -> list[Path]:
    """The bundles of one run at a path: itself, if it is of a rank, else those in a folder if the
    newest is; none for other paths."""
    if job_of(path) is not None:
        return [path]
    whole = search(path).whole if path.is_dir() else ()
    found = ranks_of_newest(whole) if whole else []
    return found if len(found) > 1 else []
