"""Recognize traces of torch.profiler (Kineto): Chrome JSON or Perfetto packets, plain or packed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from profiler.files import opened
from profiler.importers.importer import Importer, Option, head_of, reader

_LIMIT = 1 << 30  # bytes of an archive in which its trace is looked for
_RANK_FILE_ENDINGS = (".json", ".json.gz")
_JOB = b'"distributedInfo"'
_LOOKED_AT = 64  # files of a folder, before it is none of a job


def traces_in(folder: Path, limit: int | None = None) -> list[Path]:
    """The traces in a folder that name their rank; with a `limit`, at most that many."""
    named = sorted(path for path in folder.iterdir() if path.name.endswith(_RANK_FILE_ENDINGS))
    found = []
    for path in named if limit is None else named[:_LOOKED_AT]:
        if path.is_file() and says_its_rank(path):
            found.append(path)
            if len(found) == limit:
                break
    return found


def says_its_rank(path: Path) -> bool:
    """Whether a trace names its rank in a job."""
    return _JOB in head_of(path)


def _recognises(path: Path, head: bytes) -> bool:
    if path.is_dir():
        return bool(traces_in(path, 1))
    from profiler.kineto import holds_trace, is_trace, packed_as

    if packed_as(head) in ("zip", "tar"):
        with opened(path) as file:
            return holds_trace(file, _LIMIT)
    return is_trace(head)


def _together(paths: Sequence[Path]) -> list[list[Path]]:
    """The files grouped into runs: all traces that name their rank, and each other trace alone."""
    ranks = [path for path in paths if says_its_rank(path)]
    return [*([ranks] if ranks else []), *([path] for path in paths if path not in ranks)]


IMPORTER = Importer(
    name="kineto",
    title="torch.profiler",
    accepts="a torch.profiler trace (.json, .json.gz, .pftrace, or one in a zip or tar), or a "
    "folder of a job's",
    recognises=_recognises,
    read=reader(__name__),
    options=(
        Option("capture", Path, "trace, or folder of traces, of the capture of replayed graphs"),
    ),
    capabilities=frozenset(
        {"timeline", "launches", "shapes", "bytes", "memory", "metrics", "graph_capture"}
    ),
    together=_together,
    seen="torch 1.7 to 2.13, on CUDA, ROCm and the CPU; of 2.14's cupti_monitor a window that "
    "torch's own encoder wrote without a GPU, as JSON and as .pftrace",
)
