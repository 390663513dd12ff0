"""Import rocprofv3 output: JSON, CSV, rocpd (SQLite) or a Perfetto trace.

    import_trace(Path("4242_results.json"), Path("traces"))
    import_trace(Path("out/host"), Path("traces"))          # the CSV files of a run
    import_trace(Path("4242_results.db"), Path("traces"), options={"submodules": "encoder,dit"})

Times count from the machine's start, and no form contains wall time. Both layouts of rocpd have the
same version number, so they are distinguished by columns. Command lines and environments are not
read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np

from profiler.errors import InputError
from profiler.files import decoded
from profiler.importers.foreign_run import ForeignRunBuilder
from profiler.importers.gpu_calls import NO_TIME, Bools, asked_for, may_be_host_only
from profiler.importers.gpu_run import gpu_run
from profiler.importers.importer import head_of
from profiler.importers.rocprofv3 import Form, files_in, form_in
from profiler.importers.rocprofv3.rows import NO_ID, Agent, Agents, Rows, Times
from profiler.importers.rocprofv3.text_files import add_csv, add_json
from profiler.importers.sqlite_file import Lead, SqliteFile, open_sqlite
from profiler.trace.columns import ARG_KINDS, Int64s, TraceColumns, TrackRow, read_trace
from profiler.trace.events import DropKind, DropReason

# --- rocpd: the SQLite file that rocprofv3 writes by default since ROCm 7, in both of its layouts.
#
# Source: ROCm/rocprofiler-sdk, source/share/rocprofiler-sdk-rocpd/rocpd_tables.sql. The tables are
# read, not the views, whose inner joins leave out rows that lead nowhere. Names end with the id of
# a recording, of which a file may have several. Layouts call themselves by the same version, so
# columns tell: a row has its times, process, thread and queue, or ids of `rocpd_timestamp` and
# `rocpd_track`. `rocpd_info_node`, and command and environment in `rocpd_info_process`, are not
# read.


_TABLE = re.compile(r"rocpd_kernel_dispatch([\w-]*)")
_FUNCTION = "roctx"  # the older layout names a region after it
_AGAIN = "`rocprofv3 --output-format rocpd`"
_TRACK = ("pid", "tid", "queue_id", "agent_id")
_ROW = {
    **dict.fromkeys(("start", "end"), NO_TIME),
    **dict.fromkeys(("start_id", "end_id", "event_id", *_TRACK, "track_id"), NO_ID),
}


_LEADS = {  # by id, another table's column, and what stands where there is none
    "correlation": ("event_id", "event", "stack_id", NO_ID),
    "category": ("event_id", "event", "category_id", NO_ID),
}
_STAMPS = {
    "start": ("start_id", "timestamp", "value", NO_TIME),
    "end": ("end_id", "timestamp", "value", NO_TIME),
}


class _Bank(msgspec.Struct):
    size_in_bytes: int = 0


class _Extra(msgspec.Struct):
    """The JSON texts of an agent, or of a roctx message."""

    cu_count: int = 0
    mem_banks: tuple[_Bank, ...] = ()
    message: str = ""


def add_rocpd(path: Path, rows: Rows) -> None:
    """Read one file into `rows`. Raises InputError if it is damaged or not rocpd."""
    with open_sqlite(path, _AGAIN) as database:
        found = [_TABLE.fullmatch(name) for name in database.tables]
        suffixes = [one[1] for one in found if one]
        if not suffixes:
            raise InputError(f"{path} has no table of dispatches: give what {_AGAIN} writes")
        for suffix in suffixes:
            _Recording(database, suffix, rows).add()


class _Recording:
    """One recording of a file: the tables whose names end with its id."""

    def __init__(self, database: SqliteFile, suffix: str, rows: Rows) -> None:
        self._database = database
        self._suffix = suffix
        self._rows = rows
        self._processes = self._table("info_process", {"id": NO_ID, "pid": NO_TIME})
        self._threads = self._table("info_thread", {"id": NO_ID, "tid": NO_TIME})
        self._tracks = self._table("track", dict.fromkeys(("id", *_TRACK), NO_ID))
        self._agents = Agents.of(self._read_agents())

    def add(self) -> None:
        self._rows.devices.update(self._agents.devices())
        self._add_kernels()
        self._add_copies()
        self._add_regions()
        self._add_samples()

    def _name(self, table: str) -> str:
        return f"rocpd_{table}{self._suffix}"

    def _table(self, table: str, columns: Mapping[str, int]) -> dict[str, Int64s]:
        return self._database.numbers(self._name(table), columns)

    def _texts(self, table: str, column: str, ids: Int64s, what: str) -> tuple[list[str], Int64s]:
        """The distinct texts of the ids, and the index of each row's text."""
        unique, place = np.unique(ids, return_inverse=True)
        texts = self._database.texts(self._name(table), column, unique.tolist())
        return [texts.get(one) or f"{what} {one}" for one in unique.tolist()], place.reshape(-1)

    def _placed(self, table: str, columns: Mapping[str, int]) -> dict[str, Int64s]:
        """Rows of a table, of either layout, with times, process, thread, queue and agent."""
        name = self._name(table)
        by_id = "start_id" in self._database.columns_of(name)
        leads = {
            led: Lead(key, self._name(other), column, missing)
            for led, (key, other, column, missing) in (_LEADS | (_STAMPS if by_id else {})).items()
        }
        quick = {led: lead for led, lead in leads.items() if self._database.keyed(lead.table)}
        found = self._database.numbers(name, {**_ROW, **columns}, quick)
        for led, lead in leads.items():
            if led not in quick:  # a table without unique ids
                columns = {"id": NO_ID, lead.column: lead.missing}
                other = self._database.numbers(lead.table, columns)
                found[led] = _led(found[lead.key], other, lead.column, lead.missing)
        if by_id:
            found |= {one: _led(found["track_id"], self._tracks, one, NO_ID) for one in _TRACK}
        found["pid"] = _led(found["pid"], self._processes, "pid", found["pid"])
        found["tid"] = _led(found["tid"], self._threads, "tid", found["tid"])
        return found

    def _add_kernels(self) -> None:
        grid = {f"grid_size_{axis}": NO_ID for axis in "xyz"}
        found = self._placed("kernel_dispatch", {"kernel_id": NO_ID, **grid})
        names = self._texts("info_kernel_symbol", "display_name", found["kernel_id"], "kernel")
        device = self._agents.of_kernels(found["agent_id"])
        sizes = [found[name] for name in grid]
        self._rows.add_kernels(_times(found), device, found["queue_id"], *names, sizes)

    def _add_copies(self) -> None:
        ids = {"name_id": NO_ID, "size": NO_ID, "dst_agent_id": NO_ID, "src_agent_id": NO_ID}
        found = self._placed("memory_copy", ids)
        names = self._texts("string", "string", found["name_id"], "copy")
        device = self._agents.either(found["dst_agent_id"], found["src_agent_id"])
        self._rows.add_copies(_times(found), device, found["size"], *names)

    def _add_regions(self) -> None:
        """Add runtime calls and roctx marks, which are distinguished by category."""
        found = self._placed("region", {"name_id": NO_ID})
        names, place = self._texts("string", "string", found["name_id"], "region")
        apart = bool(self._database.columns_of(self._name("info_category")))
        of_category = ("info_category", "name") if apart else ("string", "string")
        texts, of = self._texts(*of_category, found["category"], "category")
        marked = np.array(["marker" in text.lower() for text in texts], dtype=np.bool_)[of]
        calls, marks = np.flatnonzero(~marked), np.flatnonzero(marked)
        self._rows.add_api(_times(found, calls), found["tid"][calls], names, place[calls])
        # messages given to roctx, in the older layout
        events = found["event_id"][marks].tolist()
        details = self._database.texts(self._name("event"), "extdata", events)
        said = {
            event: message for event, text in details.items() if (message := _extra(text).message)
        }
        functions = [names[name] for name in place[marks].tolist()]
        texts = [
            said.get(event, name) if name.startswith(_FUNCTION) else name
            for event, name in zip(events, functions, strict=True)
        ]
        self._rows.add_marks(_times(found, marks), found["tid"][marks], texts)

    def _add_samples(self) -> None:
        """Add values of hardware counters, at the start of the dispatch with their event."""
        values = self._database.rows(self._name("pmc_event"), ("event_id", "pmc_id", "value"))
        numbers = [row for row in values if all(isinstance(one, int | float) for one in row)]
        if not numbers:
            return
        event = np.array([int(str(row[0])) for row in numbers], dtype=np.int64)
        counter = np.array([int(str(row[1])) for row in numbers], dtype=np.int64)
        value = np.array([float(str(row[2])) for row in numbers], dtype=np.float64)
        found = self._placed("kernel_dispatch", {})
        found["id"] = found["event_id"]
        time = _led(event, found, "start", NO_TIME)
        agent = _led(event, found, "agent_id", NO_ID)
        kept = time != NO_TIME
        names = self._texts("info_pmc", "name", counter[kept], "counter")
        device = self._agents.of_kernels(agent[kept])
        self._rows.add_samples(time[kept], device, *names, value[kept])

    def _read_agents(self) -> Iterable[Agent]:
        columns = ("id", "type", "type_index", "product_name", "name", "extdata")
        for number, kind, index, product, name, extra in self._database.rows(
            self._name("info_agent"), columns
        ):
            if isinstance(number, int):
                more = _extra(extra)
                yield Agent(
                    id=number,
                    gpu=kind == "GPU",
                    number=index if isinstance(index, int) else number,
                    name=str(product or name or ""),
                    memory_bytes=sum(bank.size_in_bytes for bank in more.mem_banks),
                    compute_units=more.cu_count,
                )


def _led(ids: Int64s, table: Mapping[str, Int64s], column: str, missing: int | Int64s) -> Int64s:
    """The value of a table's column for each id, `missing` for ids that are not in the table."""
    keys, values = table["id"], table[column]
    if not len(keys):
        return np.broadcast_to(missing, ids.shape).astype(np.int64)
    order = np.argsort(keys, kind="stable")
    place = np.minimum(np.searchsorted(keys[order], ids), len(keys) - 1)
    row = order[place]
    return np.where(keys[row] == ids, values[row], missing)


def _times(found: Mapping[str, Int64s], kept: Int64s | None = None) -> Times:
    rows = slice(None) if kept is None else kept
    return Times(*(found[name][rows] for name in ("start", "end", "pid", "correlation")))


def _extra(text: object) -> _Extra:
    try:
        return decoded(text if isinstance(text, str) else "{}", _Extra)
    except msgspec.DecodeError:
        return _Extra()


# --- The Perfetto form (`--output-format pftrace`), and traces of rocprofiler-systems.
#
# A category says what a slice is (`kernel_dispatch`, `memory_copy`, `hip_api`, `marker_api`, …),
# its track on which agent and queue it was (`COMPUTE Agent [4] QUEUE [1] GPU`, `COPY to AGENT [4]
# STREAM [0] (CPU)`). Work and its launch have `corr_id` in common, if annotations were written.
# Source: ROCm/rocprofiler-sdk, source/lib/output/generatePerfetto.cpp.
#
# Categories of rocprofiler-systems begin with `rocm_`. Its tracks are `GPU Kernel Dispatch [0]
# Queue 1`, with the number of the GPU, `GPU Memory Copy to Agent [4] Thread 0`, and by default
# `HIP Activity Stream 1`, which names no GPU and has kernels, copies and scratch memory. Source:
# ROCm/rocprofiler-systems, source/lib/core/trace_cache.


_ROCM = "rocm_"  # before each category of rocprofiler-systems
_KERNELS, _COPIES, _STREAMS = "kernel_dispatch", "memory_copy", "hip_stream"
_MARKS = ("marker_api", "user")
_APIS = ("hip_api", "hsa_api", "hip_runtime_api", "hip_compiler_api", "rccl_api")
_AGENT = re.compile(r"(?:AGENT|Agent) \[(\d{1,6})\]")
_GPU = re.compile(r"GPU Kernel Dispatch \[(\d{1,6})\]")
_OF_HOST = re.compile(r"\(?CPU\)?$")
_QUEUE = re.compile(r"(?:QUEUE|STREAM) \[(\d{1,9})\]|(?:Queue|Stream) (\d{1,9})")
_THREAD = re.compile(r"THREAD \d{1,9} \((\d{1,9})\)|THREAD (\d{1,9})")
_NUMBERS = re.compile(r"\d{1,6}")
_COPIED, _SCRATCH = "MEMORY_COPY_", "SCRATCH_MEMORY_"  # before the names of such slices
_TO_HOST, _ENDS = "_DEVICE_TO_HOST", ("src", "dst")
_CORRELATIONS = ("debug.corr_id", "debug.stack_id", "corr_id")
_SIZES = ("debug.copy_bytes", "debug.bytes", "copy_bytes")
_GRIDS, _QUEUES, _THREADS = ("debug.grid_size",), ("debug.queue",), ("debug.tid",)
_SOURCES, _TARGETS = (tuple(f"debug.{end}_agent{more}" for more in ("", "_id")) for end in _ENDS)
_WHOLE = tuple(ARG_KINDS.index(kind) for kind in ("int", "uint"))
_TEXT = ARG_KINDS.index("string")


def add_perfetto(path: Path, rows: Rows) -> None:
    """Read one file into `rows`. Raises InputError if it is not a Perfetto trace."""
    trace = read_trace(path)
    slices, track = trace.slices, trace.slices.track
    correlation, size = (_argument(trace, names) for names in (_CORRELATIONS, _SIZES))
    ids = [
        (
            _number(_AGENT, one),
            _number(_GPU, one),
            _number(_QUEUE, one),
            NO_ID if one.pid is None else one.pid,
            _number(_THREAD, one) if one.tid is None else one.tid,
        )
        for one in trace.tracks
    ]
    agent, gpu, queue, pid, tid = np.array(ids, dtype=np.int64).reshape(-1, 5).T[:, track]
    queue, tid = (
        np.where(asked == NO_ID, known, asked)
        for asked, known in ((_argument(trace, _QUEUES), queue), (_argument(trace, _THREADS), tid))
    )
    ends = np.where(slices.duration_ns < 0, NO_TIME, slices.start_ns + slices.duration_ns)
    kernels, copies = _work_of(trace)
    source, target = (_argument(trace, names)[copies] for names in (_SOURCES, _TARGETS))
    target = np.where(agent[copies] == NO_ID, target, agent[copies])
    to_host = _named(trace, copies, lambda name: name.endswith(_TO_HOST))
    on_host = np.array([bool(_OF_HOST.search(one.name)) for one in trace.tracks], dtype=np.bool_)
    of_copy = np.where(to_host | on_host[track[copies]], source, target)
    known = _agents(agent[kernels], gpu[kernels], of_copy)
    rows.devices.update(known.devices())

    def times(found: Int64s) -> Times:
        return Times(slices.start_ns[found], ends[found], pid[found], correlation[found])

    def names(found: Int64s) -> tuple[list[str], Int64s]:
        used, place = np.unique(slices.name[found], return_inverse=True)
        return [trace.strings[code] for code in used.tolist()], place.reshape(-1)

    first = min([*known.devices(), *gpu[kernels][gpu[kernels] != NO_ID].tolist()], default=0)
    named = np.where(gpu[kernels] == NO_ID, first, gpu[kernels])
    device = np.where(agent[kernels] == NO_ID, named, known.of_kernels(agent[kernels]))
    grid = [_argument(trace, _GRIDS)[kernels]]
    rows.add_kernels(times(kernels), device, queue[kernels], *names(kernels), grid)
    rows.add_copies(times(copies), known.numbers(of_copy), size[copies], *names(copies))
    calls = _of_categories(trace, _APIS)
    rows.add_api(times(calls), tid[calls], *names(calls))
    marks = _of_categories(trace, _MARKS)
    texts = [trace.strings[code] for code in slices.name[marks].tolist()]
    rows.add_marks(times(marks), tid[marks], texts)
    for drop in trace.drops:
        rows.drop(drop.count, drop.unit, DropReason.DAMAGED, path.name)


def _work_of(trace: TraceColumns) -> tuple[Int64s, Int64s]:
    """The rows of kernels and of copies. A stream of rocprofiler-systems has both."""
    either = _of_categories(trace, (_STREAMS,))
    copied = _named(trace, either, lambda name: name.startswith(_COPIED))
    other = copied | _named(trace, either, lambda name: name.startswith(_SCRATCH))
    kernels = np.append(_of_categories(trace, (_KERNELS,)), either[~other])
    copies = np.append(_of_categories(trace, (_COPIES,)), either[copied])
    return np.sort(kernels), np.sort(copies)


def _agents(of_kernels: Int64s, gpus: Int64s, of_copies: Int64s) -> Agents:
    """The GPUs, in order of their agents. Kernels of rocprofiler-systems have the number of a GPU,
    copies its agent: both in the same order."""
    agents = sorted({*of_kernels.tolist(), *of_copies.tolist()} - {NO_ID})
    numbers = sorted({*gpus.tolist()} - {NO_ID})
    if len(numbers) < len(agents):
        numbers = [*range(len(agents))]
    pairs = zip(agents, numbers, strict=False)
    return Agents.of(Agent(id=one, gpu=True, number=number) for one, number in pairs)


def _number(pattern: re.Pattern[str], track: TrackRow) -> int:
    found = pattern.search(track.name)
    return int(found[found.lastindex or 1]) if found else NO_ID


def _named(trace: TraceColumns, rows: Int64s, test: Callable[[str], bool]) -> Bools:
    """Which of these rows have a name that passes the test."""
    names, place = np.unique(trace.slices.name[rows], return_inverse=True)
    passed = np.array([test(trace.strings[code]) for code in names.tolist()], dtype=np.bool_)
    found: Bools = passed[place.reshape(-1)]
    return found


def _of_categories(trace: TraceColumns, names: Sequence[str]) -> Int64s:
    codes = [code for code, text in enumerate(trace.strings) if text.removeprefix(_ROCM) in names]
    return np.flatnonzero(np.isin(trace.slices.category, codes))


def _argument(trace: TraceColumns, names: Sequence[str]) -> Int64s:
    """The value of the annotation with one of these names for each slice, -1 if it has none; of a
    text (`Agent-4`, `(64,2,1)`) the product of its first three numbers."""
    found = np.full(len(trace.slices), NO_ID, dtype=np.int64)
    args = trace.args
    codes = [code for code, text in enumerate(trace.strings) if text in names]
    named = np.isin(args.key, codes)
    rows = np.flatnonzero(named & np.isin(args.kind, _WHOLE))
    found[args.slice[rows]] = args.value[rows]
    rows = np.flatnonzero(named & (args.kind == _TEXT))
    used, place = np.unique(args.value[rows], return_inverse=True)
    texts = [_NUMBERS.findall(trace.strings[code])[:3] for code in used.tolist()]
    products = [math.prod(map(int, text)) if text else NO_ID for text in texts]
    found[args.slice[rows]] = np.array(products, dtype=np.int64)[place.reshape(-1)]
    return found


# --- Files of rocprofv3 → a bundle: JSON, CSV or rocpd.
#
# Times are the machine's since its start, and no form tells wall time.


_ENDINGS = (".gz", ".json", ".csv", ".db", ".sqlite", ".pftrace")


def read_run(paths: Sequence[Path], submodules: str = "") -> ForeignRunBuilder:
    """Read the files of one run, or the folders with them; `submodules` are the texts of the roctx
    ranges that are calls, with commas.

    Raises InputError if a file is damaged or none has work of a device.
    """
    files = [file for path in paths for file in (files_in(path) if path.is_dir() else [path])]
    given = asked_for(submodules)
    rows = Rows()
    chosen = _add(files, rows)
    name = _name(paths[0])
    recorded = rows.recorded(given).timed(name)
    if not len(recorded.work) and not may_be_host_only(recorded.work, recorded.api):
        if any(drop.kind == DropKind.TRUNCATED_FILE for drop in rows.drops):
            raise InputError(f"{paths[0]} is cut before the first kernel or copy: copy it again")
        raise InputError(
            f"{paths[0]} holds no kernel and no copy of a GPU: record with "
            "`rocprofv3 --kernel-trace --memory-copy-trace --hip-trace --marker-trace`"
        )
    recorded.marks.check(paths[0], given, "roctx range")
    run = ForeignRunBuilder("rocprofv3", name, paths[0], chosen)
    return gpu_run(run, recorded, rows.machine(recorded.work))


def _add(files: Sequence[Path], rows: Rows) -> int:
    """Read the files of the most complete form, and report the others. Return how many were
    read."""
    forms = {file: form_in(head_of(file)) for file in files}
    for form in Form:
        chosen = [file for file in files if forms[file] is form]
        if not chosen:
            continue
        if form is Form.CSV:
            add_csv(chosen, rows)
        else:
            for file in chosen:
                _READERS[form](file, rows)
        for file in files:
            if forms[file] is not form:
                rows.drop(1, "files", DropReason.TOLD_IN_ANOTHER_FORM, file.name)
        return len(chosen)
    named = ", ".join(map(str, files[:3])) or "the folder"
    raise InputError(
        f"{named} is nothing that rocprofv3 writes: give its JSON, CSV, rocpd or pftrace"
    )


_READERS = {Form.ROCPD: add_rocpd, Form.JSON: add_json, Form.PERFETTO: add_perfetto}


def _name(path: Path) -> str:
    if path.is_dir():
        return path.absolute().name
    name = path.name
    for ending in _ENDINGS:
        name = name.removesuffix(ending)
    return name
