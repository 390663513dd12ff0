"""RBLN's importer by itself, whatever a file begins with."""

from __future__ import annotations

from pathlib import Path

from profiler.importers.importing import import_all_with
from profiler.importers.rbln import IMPORTER


def import_rbln(path: Path, out: Path, name: str | None = None, **options: object) -> Path:
    """The bundle that the importer makes of a folder or file with these options."""
    (bundle,) = import_all_with(IMPORTER, [path], options, out, name)
    return bundle
