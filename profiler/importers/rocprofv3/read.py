"""Files of rocprofv3 → a bundle: JSON, CSV or rocpd.

    import_trace(Path("4242_results.json"), Path("traces"))
    import_trace(Path("out/host"), Path("traces"))          # the CSV files of a run
    import_trace(Path("4242_results.db"), Path("traces"), options={"submodules": "encoder,dit"})

Times are the machine's since its start, and no form tells wall time.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from profiler.drop_reasons import DropReason
from profiler.errors import InputError
from profiler.events import Drop, DropKind
from profiler.importers.gpu.marks import asked_for
from profiler.importers.gpu.run import GpuRun, Source
from profiler.importers.rocprofv3.csv_files import add_csv
from profiler.importers.rocprofv3.forms import Form, files_in, form_of
from profiler.importers.rocprofv3.json_file import add_json
from profiler.importers.rocprofv3.rocpd import add_rocpd
from profiler.importers.rocprofv3.rows import Rows
from profiler.notes import Note

__all__ = ["read_run"]

_ENDINGS = (".gz", ".json", ".csv", ".db", ".sqlite")


def read_run(paths: Sequence[Path], submodules: str = "") -> GpuRun:
    """Read the files of one run, or the folders with them; `submodules` are the texts of the roctx
    ranges that are calls, with commas.

    Raises InputError where a file is damaged or none has work of a device.
    """
    files = [file for path in paths for file in (files_in(path) if path.is_dir() else [path])]
    given = asked_for(submodules)
    rows = Rows()
    chosen = _add(files, rows)
    name = _name(paths[0])
    recorded = rows.recorded(given).timed(name)
    if not len(recorded.work):
        raise InputError(
            f"{paths[0]} holds no kernel and no copy of a GPU: record with "
            "`rocprofv3 --kernel-trace --memory-copy-trace --hip-trace --marker-trace`"
        )
    recorded.marks.check(paths[0], given, "roctx range")
    source = Source("rocprofv3", paths[0], name, chosen)
    return GpuRun.of(source, recorded, rows.machine(recorded.work))


def _add(files: Sequence[Path], rows: Rows) -> int:
    """Read the files of the form that tells most, and say which were left; how many were read."""
    forms = {file: form_of(file) for file in files}
    for form in Form:
        chosen = [file for file in files if forms[file] is form]
        if not chosen:
            continue
        if form is Form.CSV:
            add_csv(chosen, rows)
        else:
            for file in chosen:
                (add_rocpd if form is Form.ROCPD else add_json)(file, rows)
        for file in files:
            if forms[file] is not form:
                note = Note.of(DropReason.TOLD_IN_ANOTHER_FORM)
                rows.drops.append(Drop(DropKind.DROPPED_EVENTS, file.name, 1, "files", note))
        return len(chosen)
    named = ", ".join(map(str, files[:3])) or "the folder"
    raise InputError(f"{named} is nothing that rocprofv3 writes: give its JSON, CSV or rocpd")


def _name(path: Path) -> str:
    if path.is_dir():
        return path.absolute().name
    name = path.name
    for ending in _ENDINGS:
        name = name.removesuffix(ending)
    return name
