"""What Ascend's profilers write: torch_npu's `*_ascend_pt` folders, msprof's exports as text or
database."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path

from profiler.importers.importer import SQLITE, Importer, head_of, reader

_FOLDERS = ("ASCEND_PROFILER_OUTPUT", "mindstudio_profiler_output")
_ENDINGS = (".json", ".json.gz", ".csv", ".db")
_STRINGS, _APIS = b"STRING_IDS", (b"PYTORCH_API", b"CANN_API")
_PHASE = re.compile(rb'"ph"\s*:\s*"[XM]"')
_MARKS = re.compile(
    rb'"Ascend Hardware"|"async_npu"|"async_task_queue"|"AscendCL@|"ts"\s*:\s*"\d{13,}(?:\.\d+)?"'
)
_KERNELS = (
    frozenset({"Name", "Type", "Accelerator Core", "Start Time(us)", "Duration(us)"}),
    frozenset({"Op Name", "OP Type", "Task Type", "Task Start Time(us)", "Task Duration(us)"}),
)
_KINETO = re.compile(rb'"cat"\s*:\s*"(?:cuda|hip|xpu|kernel|gpu_)')  # of torch for other devices


class Form(StrEnum):
    """What a file holds."""

    TRACE = "trace"  # trace_view.json, msprof_*.json
    KERNELS = "kernels"  # kernel_details.csv, op_summary_*.csv
    DATABASE = "database"  # ascend_pytorch_profiler_*.db, msprof_*.db


def form_in(head: bytes) -> Form | None:
    """The form of a file with this start, unpacked; None for another's."""
    if head.startswith(SQLITE):
        known = _STRINGS in head and any(table in head for table in _APIS)
        return Form.DATABASE if known else None
    if head.lstrip()[:1] in (b"[", b"{"):
        marked = _PHASE.search(head) and _MARKS.search(head) and not _KINETO.search(head)
        return Form.TRACE if marked else None
    line = head.partition(b"\n")[0].decode("utf-8-sig", "replace")
    names = frozenset(name.strip(' "\r') for name in line.split(","))
    return Form.KERNELS if any(some <= names for some in _KERNELS) else None


def outputs_in(folder: Path) -> list[Path]:
    """The folders with exports in a folder, or in those up to two levels below, by name."""
    if folder.name in _FOLDERS:
        return [folder]
    for pattern in ("*", "*/*"):
        found = sorted(one for one in folder.glob(pattern) if one.name in _FOLDERS and one.is_dir())
        if found:
            return found
    return [folder] if files_in(folder) else []


def files_in(folder: Path) -> dict[Form, Path]:
    """One file of each form that lies in a folder, the first by name."""
    found: dict[Form, Path] = {}
    for path in sorted(folder.iterdir()):
        form = form_in(head_of(path)) if path.name.endswith(_ENDINGS) and path.is_file() else None
        if form is not None:
            found.setdefault(form, path)
    return found


def _recognises(path: Path, head: bytes) -> bool:
    if path.is_dir():
        return any(one.name in _FOLDERS or files_in(one) for one in outputs_in(path))
    return form_in(head) is not None


IMPORTER = Importer(
    name="ascend",
    title="Ascend",
    accepts="a folder of torch_npu's profiler (*_ascend_pt) or of msprof's exports, or one of its "
    "files",
    recognises=_recognises,
    read=reader(__name__),
    capabilities=frozenset({"timeline", "launches", "shapes", "bytes"}),
    seen="torch_npu of 2024 and 2025 by real traces and databases, msprof's exports by "
    "documentation",
)
