"""Recognize the output of AMD's rocprofv3: JSON, CSV files of a run, rocpd, or a Perfetto trace."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path

from profiler.importers.importer import SQLITE, Importer, Option, head_of, reader

# --- Which form of rocprofv3's output a file is, by its begin.


_ROCPD = b"rocpd_kernel_dispatch"
_TOOL = b'"rocprofiler-sdk-tool"'
_NAMES = 1 << 16  # bytes within which JSON's first key stands
_ENDINGS = (".csv", ".csv.gz", ".json", ".json.gz", ".db", ".sqlite", ".db.gz", ".pftrace")
_PERFETTO = re.compile(  # in a trace that is not of our own
    rb"(?:COMPUTE|COPY to) A(?:GENT|gent) \[|"
    rb"rocm_(?:hip_api|hsa_api|kernel_dispatch|memory_copy|hip_stream|marker_api)"
)
_OURS = b"profile-sd3"
_MARKS = (  # of a header of CSV: the columns that one of the kinds has
    frozenset((b"Kernel_Name", b"Agent_Id")),
    frozenset((b"Domain", b"Function", b"Start_Timestamp")),
    frozenset((b"Direction", b"Source_Agent_Id")),
    frozenset((b"Node_Id", b"Agent_Type")),
)


class Form(StrEnum):
    """The forms of rocprofv3's output, the most complete first."""

    ROCPD = "rocpd"
    JSON = "json"
    CSV = "csv"
    PERFETTO = "pftrace"


def form_in(head: bytes) -> Form | None:
    """The form of a file with this start, unpacked; None for other files."""
    if head.startswith(SQLITE):
        return Form.ROCPD if _ROCPD in head else None
    if head[:1] == b"\n" and _PERFETTO.search(head) and _OURS not in head:
        return Form.PERFETTO
    if head.lstrip()[:1] == b"{":
        return Form.JSON if _TOOL in head[:_NAMES] else None
    line = head.partition(b"\n")[0].strip().removeprefix(b"\xef\xbb\xbf")
    names = frozenset(name.strip(b'"') for name in line.split(b","))
    return Form.CSV if any(mark <= names for mark in _MARKS) else None


def files_in(folder: Path) -> list[Path]:
    """The files of rocprofv3 in a folder, or in its direct subfolders, by name."""
    for pattern in ("*", "*/*"):
        named = (path for path in folder.glob(pattern) if path.name.endswith(_ENDINGS))
        found = sorted(path for path in named if path.is_file() and form_in(head_of(path)))
        if found:
            return found
    return []


# --- What AMD's rocprofv3 writes: JSON, CSV files of a run, or rocpd.


def _recognises(path: Path, head: bytes) -> bool:
    return bool(files_in(path)) if path.is_dir() else form_in(head) is not None


IMPORTER = Importer(
    name="rocprofv3",
    title="rocprofv3",
    accepts="what rocprofv3 writes (JSON, CSV, rocpd, pftrace), or its folder; traces of "
    "rocprofiler-systems",
    recognises=_recognises,
    read=reader(__name__),
    options=(
        Option(
            "submodules",
            str,
            "the roctx ranges that are calls of submodules, with commas (text_encoder,dit,vae); "
            "ranges with the names that diffusers gives to components if it is left out",
        ),
    ),
    capabilities=frozenset({"timeline", "launches", "shapes", "bytes", "metrics"}),
    seen="ROCm 7 (JSON, CSV); rocpd, pftrace, the CSV of ROCm 6 and rocprofiler-systems by their "
    "sources alone",
)
