"""A profile of QNN as CSV: executions with their nodes, and what was done around them.

ONNX Runtime writes 0 as `Msg Timestamp`, qnn-profile-viewer the microsecond in which the message
ended, with loading and unloading ahead of all executions. The words under `Message` differ, too:
only those of loading are the same in both, so other rows are told by level and identifier.

Backends that do not tell times have `UNKNOWN` for them, and identifiers of their own or `NULL`:
there `EXECUTE` begins an execution, and `NODE` is one of its nodes, in whatever unit
(microsoft/onnxruntime, core/providers/qnn/builder/qnn_profile_serializer.cc). No such file of a GPU
or CPU was found.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import isfinite

from profiler.importers.qnn import HEADER

__all__ = ["Execution", "Node", "Profile", "Step", "read_profile"]

_LINE = re.compile(r"\r?\n|\r")
_COLUMNS = 7  # newer versions of ONNX Runtime have more behind them
_LINES = 10
_NODE = re.compile(r"(.+?)(?:\s+|:)OpId_(\d+)\s*(?:\((cycles|us)\))?$")
_UNIT = re.compile(r"\s*\((?:cycles|us)\)$")
_GRAPH = re.compile(r"Graph \d+: (.+)")
_BEFORE = re.compile(r"\((?:finalize|init|load binary|compose graphs|deinit|de-init)\)", re.I)
_LOADING = frozenset({"INIT", "COMPOSE GRAPHS", "FINALIZE", "DE-INIT", "DEINIT"})  # messages
_NETRUN = "NETRUN"  # qnn-net-run's own times, around those of QNN
_NAMELESS = frozenset({"null", "NULL"})
_VERSION = re.compile(r"Backend version\s*,\s*v?(\d{1,4}(?:\.\d{1,12}){1,5})\s*$")
_END = "QNN (execute) time"
_EXECUTE, _NODE_MESSAGE = "EXECUTE", "NODE"  # of ONNX Runtime
_UNTOLD = "UNKNOWN"
_LARGEST = 1 << 50
_LARGEST_US = 10**12  # 11 days


@dataclass(frozen=True, slots=True)
class Node:
    """`amount` counts cycles, or microseconds where `timed`."""

    name: str
    op_id: int
    amount: int
    timed: bool


@dataclass(slots=True)
class Execution:
    """`times_us` and `counts` are by identifier; `end_us` is 0 where the file does not tell. `led`:
    its own time comes before what it consists of, else behind."""

    graph: str = ""
    end_us: int = 0
    times_us: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    ended: bool = False
    led: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """Loading or unloading; `end_us` is 0 where the file does not tell when it ended."""

    name: str
    time_us: int
    end_us: int


@dataclass(slots=True)
class Profile:
    """`steps` are the outermost of loading and unloading in the order of the file; `unread` counts
    rows that are no rows, `cut` says whether the last execution has no end; `version` is that of
    the backend, "" where not told."""

    executions: list[Execution] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    unread: int = 0
    cut: bool = False
    version: str = ""


@dataclass(frozen=True, slots=True)
class _Row:
    time_us: int
    message: str
    value: int
    unit: str
    source: str
    level: str
    name: str


def read_profile(text: str) -> Profile:
    """The rows below the header, in executions."""
    profile = Profile()
    current: Execution | None = None
    loading: list[_Row] = []
    for row in _rows(text, profile):
        if row.message == _EXECUTE and row.level == "ROOT" and row.name in _NAMELESS:
            current = Execution(times_us={_END: row.value}, ended=True, led=True)
            profile.executions.append(current)
            continue
        node = _node(row, 0 if current is None else len(current.nodes))
        if _is_loading(row, node is not None, current is not None):
            loading += [row] * (row.unit == "US" and row.level == "ROOT")
            continue
        if current is None or _ends(current, row):
            current = Execution(end_us=row.time_us)
            profile.executions.append(current)
        _take(current, row, node)
        if current.ended and not row.time_us and not current.led:
            current = None
    profile.steps = list(_outermost(loading))
    profile.executions = [one for one in profile.executions if one.times_us or one.nodes]
    profile.cut = bool(profile.executions) and not profile.executions[-1].ended
    return profile


def _is_loading(row: _Row, node: bool, executing: bool) -> bool:
    """Whether a row tells of loading or unloading: by its message, or by its name."""
    if row.message in _LOADING:
        return True
    return not node and (bool(_BEFORE.search(row.name)) or (row.level != "ROOT" and not executing))


def _outermost(rows: Sequence[_Row]) -> Iterator[Step]:
    """qnn-net-run's time of a message, else QNN's own, which has the others in it."""
    around = {row.time_us for row in rows if row.source == _NETRUN}
    for row in rows:
        if row.source == _NETRUN or (row.name.startswith("QNN (") and row.time_us not in around):
            named = row.name in _NAMELESS or _GRAPH.match(row.name)
            yield Step(row.message if named else row.name, row.value, row.time_us)


def _ends(current: Execution, row: _Row) -> bool:
    """Whether a row is of the next execution: of another message, or of the next graph."""
    if row.time_us != current.end_us:
        return True
    return current.ended and _GRAPH.match(row.name) is not None


def _node(row: _Row, place: int) -> Node | None:
    """The node that a row tells of; one without an id is known by its place."""
    if row.level != "SUB-EVENT":
        return None
    named, timed = _NODE.match(row.name), row.unit == "US"
    if named is not None:
        return Node(named[1], int(named[2][:9]), row.value, timed)
    if row.message == _NODE_MESSAGE and row.unit in ("US", "CYCLES"):
        return Node(_UNIT.sub("", row.name), place, row.value, timed)
    return None


def _take(current: Execution, row: _Row, node: Node | None) -> None:
    graph = _GRAPH.match(row.name)
    if node is not None:
        current.nodes.append(node)
    elif graph is not None:
        current.graph = graph[1]
        current.times_us["Graph"] = row.value
    elif row.unit == "US":
        current.times_us[row.name] = row.value
        current.ended |= row.name == _END
    elif row.unit in ("CYCLES", "COUNT"):
        current.counts[row.name] = row.value


def _rows(text: str, profile: Profile) -> Iterator[_Row]:
    """Rows with a value; objects and rates are none. The header may come again: ONNX Runtime
    appends to its file."""
    lines = _LINE.split(text)
    head = islice(lines, _LINES)
    skip = next((n for n, line in enumerate(head) if HEADER.match(line.encode())), 0)
    told = (found for line in lines[:skip] if (found := _VERSION.match(line)))
    profile.version = next((found[1] for found in told), "")
    for line in islice(lines, skip, None):
        if not line.strip() or HEADER.match(line.encode()):
            continue
        row = _row(_cells(line))
        if row is None:
            profile.unread += 1
        elif row.unit in ("US", "CYCLES", "COUNT"):
            yield row


def _cells(line: str) -> list[str]:
    """The cells of a line, none where it is no CSV."""
    try:
        return [cell.strip() for cell in next(csv.reader([line], skipinitialspace=True))]
    except (csv.Error, StopIteration):
        return []


def _row(cells: Sequence[str]) -> _Row | None:
    """A row; of an unknown unit where its value is none (`UNKNOWN`, `INF/SEC`)."""
    if len(cells) < _COLUMNS:
        return None
    stamp = 0 if cells[0] == _UNTOLD else _number(cells[0])
    value = _number(cells[2])
    unit, source, level, name = cells[3:_COLUMNS]
    known = unit in ("US", "CYCLES", "COUNT")
    if stamp is None or (known and value is None) or not name:
        return None
    if unit == "US" and value is not None and value >= _LARGEST_US:
        return None
    return _Row(stamp, cells[1], value or 0, unit, source, level, name)


def _number(text: str) -> int | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return int(value) if isfinite(value) and 0 <= value < _LARGEST else None
