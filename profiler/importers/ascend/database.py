"""Read the SQLite form of Ascend's profilers: `ascend_pytorch_profiler_*.db`, `msprof_*.db`.

    found = read_database(Path("ascend_pytorch_profiler_0.db"))

TASK is what devices did: COMPUTE_TASK_INFO names kernels, COMMUNICATION_TASK_INFO the parts of
collectives, of which COMMUNICATION_OP has the whole. A task of FFTS+ that only holds others is no
work. CANN_API launched it by `connectionId`, which CONNECTION_IDS leads to operators of
PYTORCH_API. Source: Ascend/msprof, docs/zh/msprof_db.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from profiler.importers.chrome_rows import Row, RowArgs
from profiler.importers.sqlite_file import SqliteFile, open_sqlite

_AGAIN = "torch_npu.profiler or msprof, export type Db"
_TIMES = ("startNs", "endNs")
_OPERATORS, _QUEUE, _FRAMES, _RANGES = "op", "queue", "trace", "mstx"
_CATEGORIES = {_OPERATORS: "cpu_op", _FRAMES: "python_function", _RANGES: "user_annotation"}
_API_TYPES = {50001: _OPERATORS, 50002: _QUEUE, 50003: _FRAMES, 50004: _RANGES}
_NO_CONTEXT = 0xFFFFFFFF
_NONE = -1
_SHAPES = re.compile(r'[\d,;\s"]*')
_SCALAR = "0"  # the shape of a tensor without dimensions


@dataclass(frozen=True, slots=True)
class Task:
    """What a device did: its row, whose process is the device, and what is known of a kernel."""

    row: Row
    device: int
    core: str
    shapes: str
    types: str


@dataclass(slots=True)
class Database:
    """The rows of one process: those of the host under torch_npu's categories, calls of CANN, work,
    and by connection the operator that led to it."""

    host: list[Row] = field(default_factory=list)
    runtime: list[Row] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)
    operators: dict[int, Row] = field(default_factory=dict)


def read_database(path: Path) -> Database:
    """Read one file. Raises InputError if it is damaged."""
    found = Database()
    with open_sqlite(path, _AGAIN) as file:
        texts = {
            _number(key): str(value)
            for key, value in file.rows("STRING_IDS", ("id", "value"))
            if value is not None
        }
        _add_host(found, file, texts)
        for api in file.rows("CANN_API", (*_TIMES, "globalTid", "connectionId", "name")):
            *times, thread, connection, name = map(_number, api)
            row = _row("X", texts.get(name, ""), times, _thread(thread))
            row.args = RowArgs(connection=connection)
            found.runtime.append(row)
        found.tasks += _tasks(file, texts)
        found.tasks += _collectives(file, texts, found.tasks)
    return found


def _add_host(found: Database, file: SqliteFile, texts: dict[int, str]) -> None:
    """Add operators, frames and ranges of the program."""
    led: dict[int, list[int]] = {}
    for number, connection in file.rows("CONNECTION_IDS", ("id", "connectionId")):
        led.setdefault(_number(number), []).append(_number(connection))
    kinds = {_number(key): str(name) for key, name in file.rows("ENUM_API_TYPE", ("id", "name"))}
    kinds |= _API_TYPES
    columns = (*_TIMES, "globalTid", "connectionId", "name", "type", "inputShapes", "inputDtypes")
    for api in file.rows("PYTORCH_API", columns):
        *times, thread, number, name, kind, shapes, types = map(_number, api)
        text, kind_name = texts.get(name, ""), kinds.get(kind, _OPERATORS)
        queue = "dequeue" if text.startswith("Dequeue") else "enqueue"
        category = _CATEGORIES.get(kind_name, "cpu_op") if kind_name != _QUEUE else queue
        row = _row(category, text, times, _thread(thread))
        listed = [texts[one] for one in (shapes, types) if one in texts]
        if listed:
            dims, of_type = _inputs(listed)
            row.args = RowArgs(dims=dims, types=of_type)
        found.host.append(row)
        for connection in led.get(number, ()) if category == "cpu_op" else ():
            found.operators.setdefault(connection, row)
    for event in file.rows("MSTX_EVENTS", (*_TIMES, "globalTid", "message")):
        *times, thread, message = map(_number, event)
        if times[1] > times[0]:  # others are moments
            found.host.append(
                _row("user_annotation", texts.get(message, ""), times, _thread(thread))
            )


def _inputs(listed: list[str]) -> tuple[msgspec.Raw, msgspec.Raw]:
    """Shapes and types of what an operator took, as Kineto has them; versions of torch_npu have
    them in each other's columns."""
    dims = of_type = msgspec.Raw(b"")
    for text in listed:
        parts = [part.strip(' "\r\n') for part in text.split(";")]
        if _SHAPES.fullmatch(text):
            sizes = [dims_of(part) if part != _SCALAR else [] for part in parts]
            dims = msgspec.Raw(msgspec.json.encode(sizes))
        else:
            of_type = msgspec.Raw(msgspec.json.encode(parts))
    return dims, of_type


def dims_of(text: str) -> list[int]:
    """The sizes in a text such as `32,3,224,224`; none if it is another."""
    sizes = [one.strip() for one in text.split(",")]
    return [int(one) for one in sizes] if all(one.isdecimal() for one in sizes) else []


def _tasks(file: SqliteFile, texts: dict[int, str]) -> list[Task]:
    """Tasks that are no part of a collective and hold no others."""
    kernels = {
        _number(key): tuple(texts.get(_number(one), "") for one in values)
        for key, *values in file.rows(
            "COMPUTE_TASK_INFO",
            ("globalTaskId", "name", "taskType", "inputShapes", "inputDataTypes"),
        )
    }
    parts = {_number(key) for (key,) in file.rows("COMMUNICATION_TASK_INFO", ("globalTaskId",))}
    columns = ("deviceId", "connectionId", "globalTaskId", "taskType", "contextId", "streamId")
    rows = [tuple(map(_number, one)) for one in file.rows("TASK", (*_TIMES, *columns, "taskId"))]
    holders = {(one[2], one[7], one[8]) for one in rows if one[6] not in (_NO_CONTEXT, _NONE)}
    found = []
    for start, end, device, connection, key, kind, context, stream, number in rows:
        holds = context in (_NO_CONTEXT, _NONE) and (device, stream, number) in holders
        if key in parts or (holds and key not in kernels):
            continue
        task = texts.get(kind, "")
        name, core, shapes, types = kernels.get(key, (task, task, "", ""))
        row = _row("", name, (start, end), (f"npu {device}", stream))
        row.args = RowArgs(connection=connection, task=core)
        found.append(Task(row, device, core, shapes, types))
    return found


def _collectives(file: SqliteFile, texts: dict[int, str], tasks: list[Task]) -> Iterator[Task]:
    """Yield collectives as wholes; old files do not say their device, which is the only one."""
    alone = {task.device for task in tasks}
    groups: dict[int, int] = {}
    columns = (*_TIMES, "opName", "connectionId", "groupName", "deviceId")
    for operation in file.rows("COMMUNICATION_OP", columns):
        start, end, name, connection, group, device = map(_number, operation)
        device = device if device >= 0 else min(alone, default=0)
        stream = groups.setdefault(group, len(groups))
        row = _row("", texts.get(name, ""), (start, end), (f"npu {device}", f"group {stream}"))
        row.args = RowArgs(connection=connection)
        yield Task(row, device, "", "", "")


def _row(category: str, name: str, times: Any, thread: tuple[Any, Any]) -> Row:
    start, end = times
    made = Row("X", category, name, *thread)
    made.ts, made.dur = (msgspec.Raw(_microseconds(one)) for one in (start, end - start))
    return made


def _microseconds(time_ns: int) -> bytes:
    sign, time_ns = ("-" if time_ns < 0 else ""), abs(time_ns)
    return f"{sign}{time_ns // 1000}.{time_ns % 1000:03d}".encode()


def _thread(number: int) -> tuple[int, int]:
    """Process and thread of a global one."""
    return number >> 32, number & 0xFFFFFFFF


def _number(value: object) -> int:
    """A whole number, which some columns have as text; -1 for none."""
    try:
        return int(value) if isinstance(value, int | float | str) else _NONE
    except (ValueError, OverflowError):
        return _NONE
