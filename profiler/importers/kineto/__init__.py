"""Traces of torch.profiler (Kineto): Chrome JSON, plain or packed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profiler.errors import InputError
from profiler.importers.importer import Importer, Option, only_path
from profiler.trace.events import GRAPH_CAPTURE

if TYPE_CHECKING:
    from profiler.importers.kineto.read import JobRun, KinetoRun


__all__ = ["IMPORTER"]


_ACCEPTS = (
    "a torch.profiler trace (Chrome JSON: .json, .json.gz, or one in a zip or tar), or a folder of "
    "a job's"
)
_LIMIT = 1 << 30  # bytes of an archive in which its trace is looked for


def _recognises(path: Path, head: bytes) -> bool:
    from profiler.kineto import KEYS, holds_trace, packed_as

    if path.is_dir():
        from profiler.importers.kineto.read import traces_in

        return bool(traces_in(path, 1))
    if packed_as(head) in ("zip", "tar"):
        with path.open("rb") as file:
            return holds_trace(file, _LIMIT)
    return head.lstrip()[:1] == b"{" and any(key in head for key in KEYS)


def _read(paths: Sequence[Path], options: Mapping[str, Any]) -> KinetoRun | JobRun:
    from profiler.importers.kineto.read import read_run

    capture = options.get("capture")
    if len(paths) > 1 or paths[0].is_dir():
        from profiler.importers.kineto.read import read_job, traces_in

        files = [one for path in paths for one in (traces_in(path) if path.is_dir() else (path,))]
        if len(files) > 1:
            if capture:
                raise InputError(
                    f"--capture {capture} is for one trace, and {len(files)} are given: leave it "
                    "out, or put captures into capture_traces/ beside the traces"
                )
            return read_job(files)
        paths = files
    return read_run(only_path(paths, _ACCEPTS), (capture,) if capture else ())


def _together(paths: Sequence[Path]) -> list[list[Path]]:
    """The traces that say of which rank they are; each of the others alone."""
    from profiler.importers.kineto.read import says_its_rank

    ranks = [path for path in paths if says_its_rank(path)]
    return [*([ranks] if ranks else []), *([path] for path in paths if path not in ranks)]


IMPORTER = Importer(
    name="kineto",
    title="torch.profiler",
    accepts=_ACCEPTS,
    recognises=_recognises,
    read=_read,
    options=(
        Option("capture", Path, "trace, or folder of traces, of the capture of replayed graphs"),
    ),
    capabilities=frozenset({"timeline", "launches", "shapes", "bytes", "memory", GRAPH_CAPTURE}),
    together=_together,
    seen="torch 1.8 to 2.13, on CUDA, ROCm and the CPU",
)
