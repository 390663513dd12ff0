"""Import Qualcomm QNN profiles: executions, nodes and HTP summaries.

    import_trace(Path("qnn_profile.csv"), Path("traces"))
    import_trace([Path("qnn_profile.csv"), Path("qhas.json")], Path("traces"))

An execution is a call: `QNN (execute) time` on the host, `Accelerator (execute) time` on `qnn:0`.
Nodes have only cycles, spent by concurrent threads. Their times are estimated as shares of the
execution time without waiting, in file order, and reports say so.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from profiler.errors import InputError
from profiler.importers.foreign_run import ForeignRunBuilder, component
from profiler.importers.formats import QNN_HEADER, is_qnn_summary
from profiler.importers.importer import content_of, head_of, real
from profiler.text import Note
from profiler.trace.columns import CommandBuilder, Counter
from profiler.trace.events import ROOT_DEVICE, RUN_STAGE, UNKNOWN, DropKind, DropReason, Track
from profiler.trace.manifest_fields import Device

# --- A profile of QNN as CSV: executions with their nodes, and what was done around them.
#
# ONNX Runtime writes 0 as `Msg Timestamp`, qnn-profile-viewer the microsecond in which the message
# ended, with loading and unloading ahead of all executions. The words under `Message` differ, too:
# only those of loading are the same in both, so other rows are identified by level and identifier.
#
# Backends that do not tell times have `UNKNOWN` for them, and identifiers of their own or `NULL`:
# there `EXECUTE` starts an execution, and `NODE` is one of its nodes, in whatever unit
# (microsoft/onnxruntime, core/providers/qnn/builder/qnn_profile_serializer.cc). No such file of a
# GPU or CPU was found.


_LINE = re.compile(r"\r?\n|\r")
_COLUMNS = 7  # newer versions of ONNX Runtime append more
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
_EXECUTE_EVENT, _NODE_MESSAGE = "EXECUTE", "NODE"  # of ONNX Runtime
_NO_VALUE = "UNKNOWN"
_LARGEST = 1 << 50
_LARGEST_US = 10**12  # 11 days


@dataclass(frozen=True, slots=True)
class Node:
    """One node of an execution; `amount` counts cycles, or microseconds if `timed`."""

    name: str
    op_id: int
    amount: int
    timed: bool


@dataclass(slots=True)
class Execution:
    """One execution. `times_us` and `counts` are by identifier; `end_us` is 0 if not known. `led`:
    its own time comes before those of its parts, else after them."""

    graph: str = ""
    end_us: int = 0
    times_us: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    ended: bool = False
    led: bool = False

    @property
    def lasted_us(self) -> int:
        """The outermost of its times, 0 if none is known."""
        return _first(self, (*_EXECUTE_METRICS, *_ACCELERATOR))


@dataclass(frozen=True, slots=True)
class Step:
    """Loading or unloading; `end_us` is 0 if not known."""

    name: str
    time_us: int
    end_us: int


@dataclass(slots=True)
class Profile:
    """The content of a profile. `steps` are the outermost steps of loading and unloading in file
    order; `unread` counts rows that could not be read; `cut`: the last execution has no end.
    `version` is the backend's, "" if not known."""

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
    """Read the rows below the header, grouped into executions."""
    profile = Profile()
    current: Execution | None = None
    loading: list[_Row] = []
    for row in _rows(text, profile):
        if row.message == _EXECUTE_EVENT and row.level == "ROOT" and row.name in _NAMELESS:
            current = Execution(times_us={_END: row.value}, ended=True, led=True)
            profile.executions.append(current)
            continue
        node, graph = _node(row, len(current.nodes) if current else 0), _GRAPH.match(row.name)
        inside = current is None and row.level != "ROOT"
        around = node is None and (inside or _BEFORE.search(row.name))
        if row.message in _LOADING or around:  # loading or unloading
            loading += [row] * (row.unit == "US" and row.level == "ROOT")
            continue
        # the next execution has another message, or the next graph
        if current is None or row.time_us != current.end_us or (current.ended and graph):
            current = Execution(end_us=row.time_us)
            profile.executions.append(current)
        if node is not None:
            current.nodes.append(node)
        elif graph is not None:
            current.graph = graph[1]
            current.times_us["Graph"] = row.value
        elif row.unit == "US":
            current.times_us[row.name] = row.value
            current.ended |= row.name == _END
        else:
            current.counts[row.name] = row.value
        if current.ended and not row.time_us and not current.led:
            current = None
    # per message qnn-net-run's time, else QNN's own, which includes the others
    known = {row.time_us for row in loading if row.source == _NETRUN}
    for row in loading:
        if row.source == _NETRUN or (row.name.startswith("QNN (") and row.time_us not in known):
            named = row.name in _NAMELESS or _GRAPH.match(row.name)
            name = row.message if named else row.name
            profile.steps.append(Step(name, row.value, row.time_us))
    profile.executions = [one for one in profile.executions if one.times_us or one.nodes]
    profile.cut = bool(profile.executions) and not profile.executions[-1].ended
    return profile


def _node(row: _Row, place: int) -> Node | None:
    """The node of a row, None for other rows; a node without an id is identified by its place."""
    if row.level != "SUB-EVENT":
        return None
    named, timed = _NODE.match(row.name), row.unit == "US"
    if named is not None:
        return Node(named[1], int(named[2][:9]), row.value, timed)
    if row.message == _NODE_MESSAGE and row.unit in ("US", "CYCLES"):
        return Node(_UNIT.sub("", row.name), place, row.value, timed)
    return None


def _rows(text: str, profile: Profile) -> Iterator[_Row]:
    """Yield rows with a value, without objects and rates. The header may be repeated: ONNX Runtime
    appends to its file."""
    lines = _LINE.split(text)
    head = islice(lines, _LINES)
    skip = next((n for n, line in enumerate(head) if QNN_HEADER.match(line.encode())), 0)
    versions = (found for line in lines[:skip] if (found := _VERSION.match(line)))
    profile.version = next((found[1] for found in versions), "")
    for line in islice(lines, skip, None):
        if not line.strip() or QNN_HEADER.match(line.encode()):
            continue
        try:
            cells = next(csv.reader([line], skipinitialspace=True), [])
        except csv.Error:
            cells = []
        row = _row([cell.strip() for cell in cells])
        if row is None:
            profile.unread += 1
        elif row.unit in ("US", "CYCLES", "COUNT"):
            yield row


def _row(cells: Sequence[str]) -> _Row | None:
    """The row of some cells; its unit is unknown if its value is (`UNKNOWN`, `INF/SEC`)."""
    if len(cells) < _COLUMNS:
        return None
    stamp = 0 if cells[0] == _NO_VALUE else _number(cells[0])
    value = _number(cells[2])
    unit, source, level, name = cells[3:_COLUMNS]
    known = unit in ("US", "CYCLES", "COUNT")
    if stamp is None or (known and value is None) or not name:
        return None
    if unit == "US" and value is not None and value >= _LARGEST_US:
        return None
    return _Row(stamp, cells[1], value or 0, unit, source, level, name)


def _number(text: str) -> int | None:
    value = real(text)
    return int(value) if 0 <= value < _LARGEST else None


# --- What QNN and Qualcomm's converter made of the names of a model's nodes, undone.


_TOKEN = re.compile(r"_token_\d+(?:_\d+)?$")
_NUMBER = re.compile(r"_\d+$")
_INSERTED = (
    (re.compile(r"_(?:pre|post)_reshape$"), "Reshape"),
    (re.compile(r"_n(?:fc|cf|hwc|chw|dhwc|cdhw)$"), "Transpose"),
    (re.compile(r"_cast(?:_to_\w+)?$"), "Cast"),
    (re.compile(r"^rms_norm__"), "RmsNorm"),
)  # by Qualcomm's converter
_ENDS = ("Input", "Output")  # nodes of QNN's own


def layers(nodes: Sequence[Node]) -> dict[str, str]:
    """The layers of nodes by their names: the model's own names, without what QNN appends:
    `/a/Conv_token_1_2` → `/a/Conv`. A number is only removed if every name ends with one."""
    own = [node.name for node in nodes if node.name not in _ENDS]
    behind = _NUMBER if all(_NUMBER.search(name) for name in own) else _TOKEN
    names = {node.name: _TOKEN.sub("", node.name) for node in nodes}
    return {name: plain if plain != name else behind.sub("", name) for name, plain in names.items()}


def op_type(layer: str) -> str:
    """The op type in a layer's name: `Conv` of `/a/convolution/Conv`, `QuantizeLinear` of
    `pixel_values_QuantizeLinear`, `Reshape` of `_MatMul_2_pre_reshape`, which Qualcomm's converter
    adds."""
    last = layer.rstrip("/").rpartition("/")[2]
    if inserted := next((kind for pattern, kind in _INSERTED if pattern.search(last)), ""):
        return inserted
    found = re.search(r"(?:^|_)([A-Z][A-Za-z0-9]*)$", _NUMBER.sub("", last))
    return found[1] if found else last


# --- A summary of an HTP (QHAS): the units' threads, and the costliest operations alone.
#
# Its lists hold five or ten of all operations: totals are those of `htp_overall_summary`.


_MAX_SUMMARY_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Unit:
    """A thread of HMX or HVX, in cycles since the start of the first unit."""

    kind: str
    number: int
    start: int
    end: int
    used: int


@dataclass(frozen=True, slots=True)
class Listed:
    """One of the listed most expensive operations; bytes are of DRAM, -1 if not known."""

    op_type: str
    cycles: int
    bytes_read: int
    bytes_written: int


@dataclass(frozen=True, slots=True)
class Summary:
    """The summary of one execution; `operations` are by name. -1 if not known."""

    time_us: int
    cycles: int
    nodes: int
    bytes_read: int
    bytes_written: int
    units: tuple[Unit, ...]
    operations: dict[str, Listed]


def read_summary(path: Path) -> Summary:
    """Read one summary. Raises InputError if it is damaged or has no time."""
    try:
        document = msgspec.json.decode(content_of(path, _MAX_SUMMARY_BYTES))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(
            f"{path} is damaged or was cut ({error}): write it again with qnn-profile-viewer"
        ) from error
    overall = next(iter(_table(document, "htp_overall_summary")), {})
    time = _count(overall.get("time_us"))
    if time <= 0:
        raise InputError(
            f"{path} holds no time of an execution (htp_overall_summary): give the QNN profile "
            "as CSV"
        )
    units = [unit for one in _list(overall.get("htp_resources")) if (unit := _unit(one))]
    first = min((unit.start for unit in units), default=0)
    return Summary(
        time_us=time,
        cycles=_count(overall.get("timeline_cycles")),
        nodes=_count(overall.get("qnn_nodes")),
        bytes_read=_count(overall.get("total_dram_read")),
        bytes_written=_count(overall.get("total_dram_write")),
        units=tuple(Unit(u.kind, u.number, u.start - first, u.end - first, u.used) for u in units),
        operations={
            str(one["qnn_op"]): Listed(
                str(one.get("qnn_op_type", "")),
                _count(one.get("cycles")),
                _count(one.get("dram_read")),
                _count(one.get("dram_write")),
            )
            for one in _table(document, "qnn_op_instances_nodes")
            if isinstance(one.get("qnn_op"), str)
        },
    )


def _table(document: Any, name: str) -> list[dict[str, Any]]:
    data = document.get("data") if isinstance(document, dict) else None
    return _list(data.get(name)) if isinstance(data, dict) else []


def _list(table: Any) -> list[dict[str, Any]]:
    rows = table.get("data") if isinstance(table, dict) else None
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _unit(row: dict[str, Any]) -> Unit | None:
    numbers = [_count(row.get(key)) for key in ("tid", "start_cycle", "end_cycle", "cycles_used")]
    number, start, end, used = numbers
    if start < 0 or end < start:
        return None
    return Unit(str(row.get("type", ""))[:40] or "unit", number, start, end, used)


def _count(value: Any) -> int:
    return value if type(value) is int and 0 <= value < _LARGEST else -1


# --- Profiles of QNN → a bundle.
#
# An execution is a call: on the host it takes `QNN (execute) time`, on the accelerator (`qnn:0`)
# `Accelerator (execute) time`, at the start of which it waits if the file tells the time without
# waiting, too. Of nodes the file tells cycles, spent by threads side by side: their times are
# shares of the time without waiting, in the order of the file, and every report says so.


_DEVICE = "qnn:0"
_EXECUTE_METRICS = ("QNN (execute) time", "Graph", "RPC (execute) time")  # outermost first
_COMPUTED = "Accelerator (execute excluding wait) time"
_ACCELERATOR = ("Accelerator (execute) time", _COMPUTED, "QNN accelerator (execute) time")
_NESTED = ("QNN (execute) time", "RPC (execute) time", "QNN accelerator (execute) time")
_WAIT = "wait"  # for memory and power, before it executes
_HARDWARE = "Qualcomm HTP"
_MAX_CSV_BYTES = 512 << 20
_US = 1000


def read_run(paths: Sequence[Path]) -> ForeignRunBuilder:
    """Read a CSV, a summary, or both of one model. Raises InputError if neither has a time."""
    summaries = [path for path in paths if is_qnn_summary(head_of(path))]
    profiles = [path for path in paths if path not in summaries]
    if len(summaries) > 1 or len(profiles) > 1:
        named = ", ".join(map(str, paths[:3]))
        raise InputError(f"{named} are of several models: give one CSV, and one summary beside it")
    summary = read_summary(summaries[0]) if summaries else None
    if not profiles:
        assert summary is not None
        return _of_summary(summaries[0], summary)
    text = content_of(profiles[0], _MAX_CSV_BYTES).decode("utf-8", "replace")
    profile = read_profile(text)
    if not profile.executions:
        raise InputError(
            f"{profiles[0]} holds no execution: record with profiling_level=detailed while the "
            "model runs"
        )
    return _of_profile(profiles[0], profile, summary)


def _of_profile(path: Path, profile: Profile, summary: Summary | None) -> ForeignRunBuilder:
    listed = summary.operations if summary is not None else {}
    called = next((one.graph for one in profile.executions if one.graph), _stem(path))
    run = ForeignRunBuilder("qnn", called, path, 1 + (summary is not None))
    begins = [one.end_us - one.lasted_us for one in profile.executions if one.end_us]
    begins += [step.end_us - step.time_us for step in profile.steps if step.end_us]
    base = max(min(begins, default=0), 0)  # 0 without a clock
    at = _add_loading(run.host, profile, base)
    counters = _Counters()
    nodes = [node for one in profile.executions for node in one.nodes]
    names = layers(nodes)
    # executions without a graph's name are numbered by their nodes, because ONNX Runtime appends
    # sessions of several models to one file
    seen: dict[tuple[tuple[str, int], ...], int] = {}
    for one in profile.executions:
        number = seen.setdefault(tuple((n.name, n.op_id) for n in one.nodes), len(seen) + 1)
        graph = one.graph or (_stem(path) if number == 1 else f"{_stem(path)}.{number}")
        lasted = one.lasted_us * _US
        start = max((one.end_us - base) * _US - lasted, 0) if one.end_us else at
        submodule = component(graph) or graph or "model"
        _add_execution(run, submodule, start, lasted, one, names, listed, counters)
        at = at if one.end_us else start + lasted
    run.run_span(run.calls)
    if summary is not None:
        counters.of_summary(run.calls[0].call.start_ns, summary)
    run.counters += counters.columns()
    hardware = "" if all(node.timed for node in nodes) else _HARDWARE
    run.devices[_DEVICE] = Device(hardware=hardware, provider="QNN")
    sized = any((one.commands.bytes_read >= 0).any() for one in run.calls)
    run.capability(averages=True, cycles=counters, bytes=sized)
    run.versions = {"qnn": profile.version} if profile.version else {}
    timed = sum(node.timed for node in nodes)
    ordered = len(run.calls) if not profile.executions[0].end_us and len(run.calls) > 1 else 0
    cut = UNKNOWN if profile.cut else 0
    estimated = DropKind.ESTIMATED_TIMES
    run.drop(estimated, len(nodes) - timed, "commands", DropReason.SHARES_OF_CYCLES)
    run.drop(estimated, timed, "commands", DropReason.LAID_END_TO_END)
    run.drop(estimated, ordered, "calls", DropReason.EXECUTIONS_IN_ORDER)
    run.drop(DropKind.DROPPED_EVENTS, profile.unread, "events", DropReason.DAMAGED)
    run.drop(DropKind.TRUNCATED_FILE, cut, "events", DropReason.ENTRIES_CUT)
    return run


def _first(one: Execution, names: Sequence[str]) -> int:
    """The first known time of these names, in µs."""
    return next((one.times_us[name] for name in names if name in one.times_us), 0)


def _add_loading(builder: CommandBuilder, profile: Profile, base: int) -> int:
    """Add loading and unloading on the host: at their recorded times, else before the executions,
    one after the other. Return the end of the latter."""
    at = 0
    track = Track(ROOT_DEVICE, "QNN loading", "host")
    for step in profile.steps:
        length = step.time_us * _US
        begin = max((step.end_us - base) * _US - length, 0) if step.end_us else at
        builder.add(track, step.name, step.name, begin, length, stage=RUN_STAGE)
        at += 0 if step.end_us else length
    return at


def _add_execution(
    run: ForeignRunBuilder,
    submodule: str,
    start: int,
    lasted: int,
    one: Execution,
    names: dict[str, str],
    listed: dict[str, Listed],
    counters: _Counters,
) -> None:
    builder = CommandBuilder()
    host = Track(ROOT_DEVICE, "QNN", "host")
    for name in _NESTED:
        if name in one.times_us:
            length = one.times_us[name] * _US
            builder.add(host, name, name, start + max(lasted - length, 0) // 2, length)
    accelerator = _first(one, _ACCELERATOR) * _US or lasted
    at = start + max(lasted - accelerator, 0) // 2
    counters.of_call(start, one.counts)
    computed = one.times_us.get(_COMPUTED, 0) * _US
    if 0 < computed < accelerator:
        wait = accelerator - computed
        builder.add(Track(_DEVICE, "HTP wait", "sync"), _WAIT, _WAIT, at, wait)
        at, accelerator = at + wait, computed
    track = Track(_DEVICE, "HTP", "compute")
    if not one.nodes:
        builder.add(track, submodule, "Execution", at, accelerator)
    for node, begin, length in _shared(one.nodes, at, accelerator):
        layer = names[node.name]
        details = listed.get(node.name) or Listed(op_type(layer), UNKNOWN, UNKNOWN, UNKNOWN)
        read, written = details.bytes_read, details.bytes_written
        columns = track, layer, details.op_type, begin, length
        builder.add(*columns, bytes_read=read, bytes_written=written)
        if not node.timed:
            counters.spent(begin + length, node.amount)
    commands, number = builder.build(), len(run.calls)
    run.call(submodule, start, lasted, commands, device=_DEVICE, pipeline=0, iteration=number)


def _shared(nodes: Sequence[Node], at: int, length: int) -> Iterator[tuple[Node, int, int]]:
    """Yield each node with a start and a length: its own if it is timed, else its share of
    `length`."""
    total = sum(node.amount for node in nodes if not node.timed)
    spent, begin = 0, at
    for node in nodes:
        if node.timed:
            yield node, begin, node.amount * _US
            begin += node.amount * _US
            continue
        until = (spent + node.amount) * length // total if total else 0
        own = until - (spent * length // total if total else 0)
        yield node, begin, own
        spent, begin = spent + node.amount, begin + own


def _stem(path: Path) -> str:
    return path.name.removesuffix(".gz").removesuffix(".csv").removesuffix(".json")


class _Counters:
    """Samples of the device by name: the counts of an execution, and the cycles of each node."""

    def __init__(self) -> None:
        self._samples: dict[tuple[str, str], list[tuple[int, int]]] = {}

    def __bool__(self) -> bool:
        return bool(self._samples)

    def of_call(self, at: int, counts: dict[str, int]) -> None:
        for name, value in counts.items():
            self._add(name, "count", at, value)

    def of_summary(self, at: int, summary: Summary) -> None:
        for unit in summary.units:
            name = f"{unit.kind} {unit.number} cycles used"
            self._add(name, "count", at, unit.used)
        for name, value in (("read", summary.bytes_read), ("written", summary.bytes_written)):
            self._add(f"DRAM {name}", "bytes", at, value)

    def spent(self, at: int, cycles: int) -> None:
        self._add("cycles of nodes", "count", at, cycles)

    def _add(self, name: str, unit: str, at: int, value: int) -> None:
        if value >= 0:
            self._samples.setdefault((name, unit), []).append((at, value))

    def columns(self) -> Iterator[Counter]:
        for (name, unit), samples in self._samples.items():
            times, values = np.array(samples, dtype=np.int64).T
            yield Counter(_DEVICE, name, unit, times.copy(), values.copy())


def _of_summary(path: Path, summary: Summary) -> ForeignRunBuilder:
    """The run of a summary alone: one execution, with the threads of units as tracks."""
    called = _stem(path)
    submodule, lasted = component(called) or called or "model", summary.time_us * _US
    builder, counters, used = CommandBuilder(), _Counters(), []
    for unit in summary.units:  # from its first to its last cycle; the timeline's are all the time
        whole, name = max(summary.cycles, unit.end, 1), f"{unit.kind} {unit.number}"
        begin, end = unit.start * lasted // whole, unit.end * lasted // whole
        track = Track(_DEVICE, name, "compute")
        builder.add(track, unit.kind, unit.kind, begin, end - begin)
        share = max(unit.used, 0) / whole
        used.append(Note.of(DropReason.UNIT_USED, name=name, share=share))
    if not summary.units:
        builder.add(Track(_DEVICE, "HTP", "compute"), submodule, "Execution", 0, lasted)
    counters.of_summary(0, summary)
    run = ForeignRunBuilder("qnn", called, path, capabilities={"averages", "cycles"})
    run.devices[_DEVICE] = Device(hardware=_HARDWARE, provider="QNN")
    run.call(submodule, 0, lasted, builder.build(), device=_DEVICE, pipeline=0)
    run.run_span(run.calls)
    run.counters += counters.columns()
    nodes, reason = max(summary.nodes, 0), DropReason.UNITS_ONLY
    run.drop(DropKind.UNTRACED_CALL, 1, "calls", reason, submodule, nodes=nodes, used=tuple(used))
    return run
