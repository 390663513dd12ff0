"""Bundles of ours that are ranks of one job: together they are one run."""

from __future__ import annotations

from pathlib import Path

from profiler.importers.importer import Importer, reader


def _recognises(path: Path, _head: bytes) -> bool:
    from profiler.importers.bundles.ranks_of_job import ranks_in

    return bool(ranks_in(path))


IMPORTER = Importer(
    name="bundles",
    title="ranks of a job, of profile-sd3",
    accepts="the bundles of a job's ranks, which profile-sd3 recorded, or their folder",
    recognises=_recognises,
    read=reader(__name__),
    capabilities=frozenset({"timeline", "launches", "shapes", "bytes", "memory"}),
    seen="bundles of format 2",
)
