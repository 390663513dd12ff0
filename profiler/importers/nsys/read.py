"""An export of Nsight Systems → a bundle.

    import_trace(Path("report.sqlite"), Path("traces"))
    import_trace(Path("report.sqlite"), Path("traces"), options={"submodules": "encoder,dit"})

Times of the file are ns from the session's begin, which the file tells in UTC; where it does not,
they are kept, moved so that none is negative. Names of processes and threads, of the whole machine,
and its environment are not read.
"""

from __future__ import annotations

from pathlib import Path

from profiler.errors import InputError
from profiler.importers.gpu.marks import asked_for
from profiler.importers.gpu.run import GpuRun, Recorded, Source
from profiler.importers.nsys.database import open_nsys
from profiler.importers.nsys.machine import read_machine
from profiler.importers.nsys.nvtx import read_nvtx
from profiler.importers.nsys.recorded import read_api, read_work
from profiler.importers.sqlite_file import SqliteFile

__all__ = ["read_run"]


def read_run(path: Path, submodules: str = "") -> GpuRun:
    """Read an export; `submodules` are the texts of the NVTX ranges that are calls, with commas.

    Raises InputError where the file is none, is damaged, or holds no work of a device.
    """
    with open_nsys(path) as database:
        return _read(path, database, asked_for(submodules))


def _read(path: Path, database: SqliteFile, given: tuple[str, ...]) -> GpuRun:
    recorded = Recorded(read_work(database), read_api(database), read_nvtx(database, given))
    recorded = recorded.timed(path.name)
    if not len(recorded.work):
        raise InputError(
            f"{path} holds no kernel and no copy of a GPU: record with "
            "`nsys profile --trace=cuda,nvtx` and export that"
        )
    recorded.marks.check(path, given, "NVTX range")
    machine = read_machine(database, recorded.work, recorded.api)
    name = path.name.removesuffix(".gz").removesuffix(".sqlite").removesuffix(".db")
    return GpuRun.of(Source("nsys", path, name), recorded, machine)
