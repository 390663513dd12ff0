"""What trtexec exports of a TensorRT engine: profile, times, layers, summary; or folders of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profiler.importers.importer import Importer, Option
from profiler.importers.tensorrt.files import exports_in, kind_of

if TYPE_CHECKING:
    from profiler.importers.placed import PlacedRun

__all__ = ["IMPORTER"]


def _recognises(path: Path, head: bytes) -> bool:
    return bool(exports_in(path)) if path.is_dir() else kind_of(head) is not None


def _read(paths: Sequence[Path], options: Mapping[str, Any]) -> PlacedRun:
    from profiler.importers.tensorrt.read import read_run

    return read_run(paths, **options)


IMPORTER = Importer(
    name="tensorrt",
    title="TensorRT",
    accepts="what trtexec exports of an engine (--exportProfile, --exportTimes, "
    "--exportLayerInfo), or a folder with it",
    recognises=_recognises,
    read=_read,
    options=(
        Option(
            "warmup",
            int,
            "the milliseconds at the begin of the times that are warm-up (trtexec --warmUp); what "
            "the summary beside them says where it is left out, else 200",
        ),
    ),
    capabilities=frozenset({"timeline", "averages", "shapes", "bytes"}),
    seen="those of NVIDIA's trt-engine-explorer (A100 and RTX 3090)",
)
