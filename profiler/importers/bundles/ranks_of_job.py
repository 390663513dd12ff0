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
    job: Job | None = None


def job_of(bundle: Path) -> Job | None:
    """The job of which a bundle has one rank; None for other bundles and paths."""
    manifest = bundle / MANIFEST_NAME
    if not manifest.is_file():
        return None
    try:
        with opened(manifest) as file:
            job = decoded(file.read(_LARGEST), _OfJob).job
    except (OSError, InputError, ValueError, RecursionError):  # whoever loads it says so
        return None
    return job if job is not None and len(job.ranks) == 1 else None


def ranks_of_newest(bundles: Sequence[Path]) -> list[Path]:
    """The bundles that are one run with the first of `bundles`, which are the newest first: ranks
    of its job, up to one that is there again, as an earlier run of the same job has it."""
    own = job_of(bundles[0])
    if own is None:
        return [bundles[0]]
    found: dict[int, Path] = {}
    for bundle in bundles:
        job = job_of(bundle)
        if job is None or (job.name, job.world_size) != (own.name, own.world_size):
            continue
        if job.ranks[0].rank in found:
            break
        found[job.ranks[0].rank] = bundle
    return [found[rank] for rank in sorted(found)]


def ranks_in(path: Path) -> list[Path]:
    """The bundles of one run at a path: itself, if it is of a rank, else those in a folder if the
    newest is; none for other paths."""
    if job_of(path) is not None:
        return [path]
    whole = search(path).whole if path.is_dir() else ()
    found = ranks_of_newest(whole) if whole else []
    return found if len(found) > 1 else []
