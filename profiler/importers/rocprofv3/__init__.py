"""What AMD's rocprofv3 writes: JSON, CSV files of a run, or rocpd."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profiler.importers.importer import Importer, Option
from profiler.importers.rocprofv3.forms import files_in, form_in

if TYPE_CHECKING:
    from profiler.importers.gpu.run import GpuRun

__all__ = ["IMPORTER"]


def _recognises(path: Path, head: bytes) -> bool:
    return bool(files_in(path)) if path.is_dir() else form_in(head) is not None


def _read(paths: Sequence[Path], options: Mapping[str, Any]) -> GpuRun:
    from profiler.importers.rocprofv3.read import read_run

    return read_run(paths, **options)


IMPORTER = Importer(
    name="rocprofv3",
    title="rocprofv3",
    accepts="what rocprofv3 writes (JSON, the CSV files of a run, rocpd), or a folder with it",
    recognises=_recognises,
    read=_read,
    options=(
        Option(
            "submodules",
            str,
            "the roctx ranges that are calls of submodules, with commas (text_encoder,dit,vae); "
            "ranges with the names that diffusers gives to components where it is left out",
        ),
    ),
    capabilities=frozenset({"timeline", "launches", "shapes", "bytes", "metrics"}),
    seen="ROCm 7 (JSON, CSV); rocpd and the CSV of ROCm 6 by their sources alone",
)
