"""Traces of RBLN's profiler: a folder of numbered files, or one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profiler.importers.importer import Importer, Option, only_path
from profiler.importers.rbln.files import is_capture

if TYPE_CHECKING:
    from profiler.importers.rbln.read import RblnRun

__all__ = ["IMPORTER"]

_ACCEPTS = "a folder of RBLN's rbln_<date>_<time>_<n>.pb, or one of them"


def _read(paths: Sequence[Path], options: Mapping[str, Any]) -> RblnRun:
    from profiler.importers.rbln.read import read_run

    return read_run(only_path(paths, _ACCEPTS), **options)


IMPORTER = Importer(
    name="rbln",
    title="RBLN",
    accepts=_ACCEPTS,
    recognises=is_capture,
    read=_read,
    options=(
        Option(
            "pipeline",
            str,
            "what ran, to label its calls by: sd3, sd3-no-guidance, sdxl, flux, …, or a YAML file "
            "(docs/rbln.md); guessed from the files where it is left out",
        ),
        Option("steps", int, "denoising steps", least=1),
        Option("skip", int, "leading calls that were warm-up"),
        Option(
            "run",
            Path,
            "the bundle of the same run as profile-sd3 recorded it, to label its calls by, instead "
            "of pipeline and steps",
        ),
    ),
    capabilities=frozenset({"timeline", "bytes", "cycles"}),
    seen="the formats of 0.11 and 0.12, by their documentation",
)
