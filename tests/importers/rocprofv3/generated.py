"""Small recordings whose rows are written down, told in every form of rocprofv3.

    told = Told([Kernel(10, 20, 1)], [Call(5, 8, 1)], marks=[Mark(0, 30, "vae")])
    as_json(told, folder); as_csv(told, folder); as_rocpd(told, folder, times_in_rows=True)
    as_pftrace(told, folder, by_queue=True); as_systems(told, folder, by_queue=True)

Tables of rocpd have the columns of rocpd_tables.sql (ROCm/rocprofiler-sdk) that are read, and those
whose content must not be.
"""

from __future__ import annotations

import csv
import json
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path

PID, TID = 4242, 4243
CPU, GPUS = 37944, (37946, 37947)
KERNEL = "void at::native::mul_kernel<float, 2>(float*, int)"
SECRET = "machine-of-somebody"
KINDS = ("NONE", "HIP_RUNTIME_API_EXT", "MARKER_CORE_RANGE_API", "MEMORY_COPY", "KERNEL_DISPATCH")
DIRECTIONS = ("MEMORY_COPY_NONE", "MEMORY_COPY_HOST_TO_DEVICE", "MEMORY_COPY_DEVICE_TO_HOST")
SUFFIX = "_00001d2c_4b3a_7f10"


@dataclass
class Kernel:
    start: int
    end: int
    correlation: int = 0
    name: str = KERNEL
    gpu: int = 0
    queue: int = 2
    grid: int = 1024
    counters: dict[str, float] = field(default_factory=dict)


@dataclass
class Copy:
    """`direction` indexes DIRECTIONS."""

    start: int
    end: int
    correlation: int
    bytes: int
    direction: int = 1
    gpu: int = 0


@dataclass
class Call:
    start: int
    end: int
    correlation: int
    name: str = "hipLaunchKernel"
    tid: int = TID


@dataclass
class Mark:
    start: int
    end: int
    text: str
    correlation: int = 900
    tid: int = TID


@dataclass
class Told:
    """What one process did."""

    kernels: list[Kernel]
    calls: list[Call] = field(default_factory=list)
    copies: list[Copy] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    pid: int = PID

    def __post_init__(self):
        for number, mark in enumerate(self.marks):
            mark.correlation = 900 + number

    @property
    def names(self) -> list[str]:
        """Names of kernels; a kernel's id is its place and one."""
        return list(dict.fromkeys(kernel.name for kernel in self.kernels))

    @property
    def counters(self) -> list[str]:
        return sorted({name for kernel in self.kernels for name in kernel.counters})


def as_document(*processes: Told) -> dict:
    """The document of JSON."""
    return {"rocprofiler-sdk-tool": [_process(told) for told in processes]}


def as_json(told: Told, folder: Path, name: str = "made_results.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(as_document(told)))
    return path


def _process(told: Told) -> dict:
    functions = list(dict.fromkeys(call.name for call in told.calls))
    return {
        "metadata": {"pid": told.pid, "node": {"hostname": SECRET}, "command": [SECRET]},
        "agents": [
            {"id": {"handle": CPU}, "type": 1, "logical_node_type_id": 0, "product_name": "EPYC"},
            *(
                {"id": {"handle": handle}, "type": 2, "logical_node_type_id": number}
                | {"product_name": f"MI{number}", "cu_count": 304}
                for number, handle in enumerate(GPUS)
            ),
        ],
        "counters": [{"id": {"handle": n}, "name": name} for n, name in enumerate(told.counters)],
        "strings": {
            "buffer_records": [
                {"kind": "NONE", "operations": []},
                {"kind": KINDS[1], "operations": functions},
                {"kind": KINDS[2], "operations": ["roctxThreadRangeA"]},
                {"kind": KINDS[3], "operations": DIRECTIONS},
            ],
            "marker_api": [{"key": mark.correlation, "value": mark.text} for mark in told.marks],
        },
        "kernel_symbols": [
            {"kernel_id": 0, "kernel_name": None, "formatted_kernel_name": None},
            *(
                {"kernel_id": number, "formatted_kernel_name": name}
                for number, name in enumerate(told.names, 1)
            ),
        ],
        "callback_records": {"counter_collection": list(_counted(told))},
        "buffer_records": {
            "kernel_dispatch": [
                _record(kernel, kind=4) | {"dispatch_info": _info(told, number)}
                for number, kernel in enumerate(told.kernels)
            ],
            "memory_copy": [
                _record(copy, kind=3, operation=copy.direction)
                | {"bytes": copy.bytes}
                | {
                    f"{end}_agent_id": {"handle": handle}
                    for end, handle in zip(("src", "dst"), _ends(copy, CPU, GPUS), strict=True)
                }
                for copy in told.copies
            ],
            "marker_api": [
                _record(mark, kind=2, operation=0) | {"thread_id": mark.tid} for mark in told.marks
            ],
            "hip_api": [
                _record(call, kind=1, operation=functions.index(call.name))
                | {"thread_id": call.tid}
                for call in told.calls
            ],
        },
    }


def _record(row, **more) -> dict:
    return {
        "start_timestamp": row.start,
        "end_timestamp": row.end,
        "correlation_id": {"internal": row.correlation, "external": 0},
        **more,
    }


def _info(told: Told, number: int) -> dict:
    kernel = told.kernels[number]
    return {
        "agent_id": {"handle": GPUS[kernel.gpu]},
        "queue_id": {"handle": kernel.queue},
        "kernel_id": told.names.index(kernel.name) + 1,
        "dispatch_id": number + 1,
        "grid_size": {"x": kernel.grid, "y": 1, "z": 1},
    }


def _counted(told: Told):
    for number, kernel in enumerate(told.kernels):
        if kernel.counters:
            yield {
                "dispatch_data": _record(kernel) | {"dispatch_info": _info(told, number)},
                "records": [
                    {"counter_id": {"handle": told.counters.index(name)}, "value": value}
                    for name, value in kernel.counters.items()
                ],
            }


def _ends(copy: Copy, cpu, gpus) -> tuple:
    host = DIRECTIONS[copy.direction].removeprefix("MEMORY_COPY_")
    gpu = gpus[copy.gpu]
    return (cpu, gpu) if host.startswith("HOST") else (gpu, cpu)


def as_csv(told: Told, folder: Path, *, named: bool = True, quoted: bool = True) -> Path:
    """A file for each kind, as versions of ROCm 7 (`Agent 3`, all fields quoted) or of ROCm 6 (node
    numbers, and no quotes but those that are needed) write them."""
    folder.mkdir(exist_ok=True)
    agent = "Agent {}" if named else "{}"

    def write(kind: str, header: tuple[str, ...], rows) -> None:
        with (folder / f"{told.pid}_{kind}.csv").open("w", newline="") as file:
            quoting = csv.QUOTE_ALL if quoted else csv.QUOTE_MINIMAL
            writer = csv.writer(file, quoting=quoting, lineterminator="\n")
            writer.writerows([header, *rows])

    write(
        "agent_info",
        ("Node_Id", "Logical_Node_Id", "Agent_Type", "Cu_Count", "Product_Name"),
        [(0, 0, "CPU", 0, "EPYC"), (2, 2, "GPU", 304, "MI0"), (3, 3, "GPU", 304, "MI1")],
    )
    streams = (("Stream_Id",), (7,)) if named else ((), ())
    _write_kernels(told, write, agent, streams)
    ends = ("Correlation_Id", "Start_Timestamp", "End_Timestamp")
    api = ("Domain", "Function", "Process_Id", "Thread_Id", *ends)
    for kind, domain, rows in (
        ("hip_api_trace", KINDS[1], [(call, call.name) for call in told.calls]),
        ("marker_api_trace", KINDS[2], [(mark, mark.text) for mark in told.marks]),
    ):
        if rows:
            write(
                kind,
                api,
                [
                    (domain, name, told.pid, row.tid, row.correlation, row.start, row.end)
                    for row, name in rows
                ],
            )
    if told.copies:
        write(
            "memory_copy_trace",
            ("Kind", "Direction", "Source_Agent_Id", "Destination_Agent_Id", *ends),
            [
                (
                    *(KINDS[3], DIRECTIONS[row.direction]),
                    *map(agent.format, _ends(row, 0, (2, 3))),
                    *(row.correlation, row.start, row.end),
                )
                for row in told.copies
            ],
        )
    return folder


def _write_kernels(told: Told, write, agent: str, streams: tuple[tuple, tuple]) -> None:
    write(
        "kernel_trace",
        (
            *("Kind", "Agent_Id", "Queue_Id", *streams[0], "Thread_Id", "Dispatch_Id"),
            *("Kernel_Id", "Kernel_Name", "Correlation_Id", "Start_Timestamp", "End_Timestamp"),
            *("Grid_Size_X", "Grid_Size_Y", "Grid_Size_Z"),
        ),
        [
            (
                *(
                    "KERNEL_DISPATCH",
                    agent.format(row.gpu + 2),
                    row.queue,
                    *streams[1],
                    TID,
                    number,
                ),
                *(told.names.index(row.name) + 1, row.name, row.correlation, row.start, row.end),
                *(row.grid, 1, 1),
            )
            for number, row in enumerate(told.kernels, 1)
        ],
    )


_SCHEMA = {
    "metadata": "id, tag, value",
    "string": "id, string",
    "info_node": "id, hash, machine_id, hostname",
    "info_process": "id, nid, ppid, pid, command, environment",
    "info_thread": "id, nid, pid, tid",
    "info_agent": "id, nid, pid, type, absolute_index, logical_index, type_index, product_name, "
    "extdata",
    "info_kernel_symbol": "id, nid, pid, kernel_name, display_name",
    "info_pmc": "id, nid, pid, agent_id, name, symbol",
    "event": "id, category_id, stack_id, parent_stack_id, correlation_id, extdata",
    "pmc_event": "id, event_id, pmc_id, value",
    "track": "id, nid, pid, tid, agent_id, queue_id, stream_id",
}
_TIMES_IN_ROWS = {
    "region": "id, nid, pid, tid, start, end, name_id, event_id",
    "kernel_dispatch": "id, nid, pid, tid, agent_id, kernel_id, dispatch_id, queue_id, stream_id, "
    "grid_size_x, grid_size_y, grid_size_z, start, end, event_id",
    "memory_copy": "id, nid, pid, tid, start, end, name_id, dst_agent_id, src_agent_id, size, "
    "event_id",
}
_TIMES_BY_ID = {
    "info_category": "id, name",
    "timestamp": "id, value, phase, track_id",
    "region": "id, track_id, name_id, start_id, end_id, event_id",
    "kernel_dispatch": "id, track_id, kernel_id, dispatch_id, grid_size_x, grid_size_y, "
    "grid_size_z, start_id, end_id, event_id",
    "memory_copy": "id, track_id, start_id, end_id, name_id, dst_agent_id, src_agent_id, size, "
    "event_id",
}
_PROCESS, _HOST, _FIRST_GPU = 1, 0, 2  # ids of rows


class _Rocpd:
    def __init__(self, told: Told, path: Path, suffix: str, *, times_in_rows, keyed) -> None:
        self.told, self.suffix, self.times_in_rows = told, suffix, times_in_rows
        self.database = sqlite3.connect(path)
        self.ids: dict[str, int] = {}
        self.texts: dict[str, int] = {}
        self.tracks: dict[tuple, int] = {}
        for table, columns in {
            **_SCHEMA,
            **(_TIMES_IN_ROWS if times_in_rows else _TIMES_BY_ID),
        }.items():
            quoted = ", ".join(f'"{name}"' for name in columns.split(", "))
            quoted = quoted.replace(
                '"id"', '"id" INTEGER NOT NULL PRIMARY KEY' if keyed else '"id"'
            )
            self.database.execute(f'CREATE TABLE "rocpd_{table}{suffix}" ({quoted})')
            self.database.execute(
                f'CREATE VIEW IF NOT EXISTS "rocpd_{table}_view" AS '
                f'SELECT * FROM "rocpd_{table}{suffix}"'
            )

    def insert(self, table: str, **row) -> int:
        number = row.setdefault("id", self.ids.get(table, 0) + 1)
        self.ids[table] = number
        columns = ", ".join(f'"{name}"' for name in row)
        places = ", ".join("?" * len(row))
        self.database.execute(
            f'INSERT INTO "rocpd_{table}{self.suffix}" ({columns}) VALUES ({places})',
            list(row.values()),
        )
        return number

    def text(self, text: str) -> int:
        if text not in self.texts:
            self.texts[text] = self.insert("string", string=text)
        return self.texts[text]

    def event(self, row, category: str, extra: dict | None = None) -> int:
        if self.times_in_rows:
            number = self.text(category)
        else:
            number = self.texts.get(f"category {category}", 0)
            if not number:
                number = self.insert("info_category", name=category.lower())
                self.texts[f"category {category}"] = number
        return self.insert(
            "event",
            category_id=number,
            stack_id=row.correlation,
            correlation_id=0,
            extdata=json.dumps(extra or {}),
        )

    def placed(self, table: str, row, **more) -> None:
        """A row with its times and place, in the layout."""
        place = {"nid": 1, "pid": _PROCESS, "tid": getattr(row, "tid", TID)}
        if "agent_id" in more:
            place |= {"agent_id": more.pop("agent_id"), "queue_id": row.queue, "stream_id": 1}
        if self.times_in_rows:
            self.insert(table, **place, start=row.start, end=row.end, **more)
            return
        key = tuple(place.items())
        if key not in self.tracks:
            self.tracks[key] = self.insert("track", **place)
        track = self.tracks[key]
        times = {
            f"{name}_id": self.insert("timestamp", value=value, phase=phase, track_id=track)
            for phase, (name, value) in enumerate((("start", row.start), ("end", row.end)), 1)
        }
        self.insert(table, track_id=track, **times, **more)


def as_rocpd(
    told: Told, folder: Path, *, times_in_rows: bool, suffix: str = SUFFIX, keyed: bool = True
) -> Path:
    """A file in the layout with times in the rows, or in the one with `rocpd_timestamp`; `keyed`
    says whether ids are primary keys, as rocprofv3 makes them."""
    path = folder / "made.db"
    made = _Rocpd(told, path, suffix, times_in_rows=times_in_rows, keyed=keyed)
    made.insert("metadata", tag="schema_version", value="3")
    made.insert("info_node", id=1, hash=7, machine_id=SECRET, hostname=SECRET)
    made.insert(
        "info_process", id=_PROCESS, nid=1, pid=told.pid, command=SECRET, environment=SECRET
    )
    for tid in {row.tid for row in (*told.calls, *told.marks)} | {TID}:
        made.insert("info_thread", id=tid, nid=1, pid=_PROCESS, tid=tid)
    agent = {"nid": 1, "pid": _PROCESS, "extdata": '{"cu_count": 304}'}
    made.insert("info_agent", id=_HOST, type="CPU", type_index=0, product_name="EPYC", **agent)
    for number in range(len(GPUS)):
        made.insert(
            "info_agent",
            id=_FIRST_GPU + number,
            type="GPU",
            type_index=number,
            product_name=f"MI{number}",
            **agent,
        )
    for number, kernel in enumerate(told.names, 1):
        made.insert("info_kernel_symbol", id=number, nid=1, pid=_PROCESS, display_name=kernel)
    for number, counter in enumerate(told.counters, 1):
        made.insert("info_pmc", id=number, nid=1, pid=_PROCESS, name=counter, symbol=counter)
    _add_rows(made, told)
    made.database.commit()
    made.database.close()
    return path


def _add_rows(made: _Rocpd, told: Told) -> None:
    for number, kernel in enumerate(told.kernels, 1):
        event = made.event(kernel, KINDS[4])
        made.placed(
            "kernel_dispatch",
            kernel,
            agent_id=_FIRST_GPU + kernel.gpu,
            kernel_id=told.names.index(kernel.name) + 1,
            dispatch_id=number,
            grid_size_x=kernel.grid,
            grid_size_y=1,
            grid_size_z=1,
            event_id=event,
        )
        for name, value in kernel.counters.items():
            made.insert(
                "pmc_event", event_id=event, pmc_id=told.counters.index(name) + 1, value=value
            )
    for copy in told.copies:
        source, target = _ends(copy, _HOST, (_FIRST_GPU, _FIRST_GPU + 1))
        made.placed(
            "memory_copy",
            copy,
            name_id=made.text(DIRECTIONS[copy.direction]),
            dst_agent_id=target,
            src_agent_id=source,
            size=copy.bytes,
            event_id=made.event(copy, KINDS[3]),
        )
    for call in told.calls:
        event = made.event(call, KINDS[1])
        made.placed("region", call, name_id=made.text(call.name), event_id=event)
    for mark in told.marks:
        function = "roctxThreadRangeA"
        name, said = (function, mark.text) if made.times_in_rows else (mark.text, function)
        event = made.event(mark, KINDS[2], {"message": said})
        made.placed("region", mark, name_id=made.text(name), event_id=event)


# --- The Perfetto form, and that of rocprofiler-systems: tracks and annotations as their sources
# name them.


_PROCESS_TRACK, _FIRST_TRACK = 1, 10
_GPU_AGENT = 4  # of the first GPU; 0 to 3 are the host's


class _Slices:
    def __init__(self, pid: int) -> None:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2

        self.trace = perfetto_trace_pb2.Trace()
        self.tracks: dict[str, int] = {}
        self.events: list[tuple] = []
        first = self._packet()
        first.sequence_flags = 1
        first.track_descriptor.uuid = _PROCESS_TRACK
        first.track_descriptor.process.pid = pid

    def _packet(self):
        packet = self.trace.packet.add()
        packet.trusted_packet_sequence_id = 1
        return packet

    def track(self, name: str) -> int:
        if name not in self.tracks:
            self.tracks[name] = _FIRST_TRACK + len(self.tracks)
            described = self._packet().track_descriptor
            described.uuid, described.name = self.tracks[name], name
            described.parent_uuid = _PROCESS_TRACK
        return self.tracks[name]

    def add(self, category: str, name: str, track: str, row, **annotations) -> None:
        values = {"corr_id": row.correlation, **annotations}
        self.events.append((row.start, self.track(track), category, name, values))
        self.events.append((row.end, self.track(track), category, "", {}))

    def write(self, path: Path) -> Path:
        for time, track, category, name, values in self.events:
            packet = self._packet()
            packet.timestamp, packet.track_event.track_uuid = time, track
            packet.track_event.type = 1 if name else 2
            packet.track_event.categories.append(category)
            if name:
                packet.track_event.name = name
            for key, value in values.items():
                annotation = packet.track_event.debug_annotations.add()
                annotation.name = key
                if isinstance(value, str):
                    annotation.string_value = value
                else:
                    annotation.uint_value = value
        path.write_bytes(self.trace.SerializeToString())
        return path


def as_pftrace(told: Told, folder: Path, *, by_queue: bool) -> Path:
    """Grouped by queues, or by streams as it is by default."""
    made = _Slices(told.pid)
    for call in told.calls:
        thread = f"THREAD {call.tid - TID} ({call.tid})"
        made.add("hip_api", call.name, thread, call, tid=call.tid)
    for mark in told.marks:
        thread = f"THREAD {mark.tid - TID} ({mark.tid})"
        made.add("marker_api", mark.text, thread, mark, tid=mark.tid)
    for copy in told.copies:
        source, target = _ends(copy, 0, (_GPU_AGENT, _GPU_AGENT + 1))
        kind = "CPU" if target == 0 else "GPU"
        place = "THREAD [0]" if by_queue else "STREAM [1]"
        track = f"COPY to AGENT [{target}] {place} ({kind})"
        ends = {"src_agent": f"Agent-{source}", "dst_agent": f"Agent-{target}"}
        name = DIRECTIONS[copy.direction]
        made.add("memory_copy", name, track, copy, copy_bytes=copy.bytes, **ends)
    for kernel in told.kernels:
        agent = _GPU_AGENT + kernel.gpu
        by_stream = f"COMPUTE AGENT [{agent}] STREAM [{kernel.queue}] (GPU)"
        track = f"COMPUTE Agent [{agent}] QUEUE [{kernel.queue}] GPU" if by_queue else by_stream
        more = {"agent": f"Agent-{agent}", "queue": kernel.queue, "grid_size": kernel.grid}
        made.add("kernel_dispatch", kernel.name, track, kernel, **more)
    return made.write(folder / "made.pftrace")


def as_systems(told: Told, folder: Path, *, by_queue: bool) -> Path:
    """What rocprof-sys writes: `perfetto-trace-….proto`."""
    made = _Slices(told.pid)
    for call in told.calls:
        made.add("rocm_hip_api", call.name, f"THREAD 0 ({call.tid})", call)
    for mark in told.marks:
        made.add("rocm_marker_api", mark.text, f"THREAD 0 ({mark.tid})", mark)
    for copy in told.copies:
        source, target = _ends(copy, 0, (_GPU_AGENT, _GPU_AGENT + 1))
        track, category = f"GPU Memory Copy to Agent [{target}] Thread 0", "rocm_memory_copy"
        if not by_queue:
            track, category = "HIP Activity Stream 1", "rocm_hip_stream"
        ends = {"src_agent_id": source, "dst_agent_id": target}
        made.add(category, DIRECTIONS[copy.direction], track, copy, bytes=copy.bytes, **ends)
    for kernel in told.kernels:
        track, category = f"GPU Kernel Dispatch [{kernel.gpu}] Queue {kernel.queue}", KINDS[4]
        category = f"rocm_{category.lower()}"
        if not by_queue:
            track, category = f"HIP Activity Stream {kernel.queue}", "rocm_hip_stream"
        more = {"queue": kernel.queue, "grid_size": f"({kernel.grid},1,1)"}
        made.add(category, kernel.name, track, kernel, **more)
    return made.write(folder / "perfetto-trace-4242.proto")
