"""rocprofv3's JSON: one document, an item for each process (`json_records`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from profiler.drop_reasons import DropReason
from profiler.errors import InputError
from profiler.events import UNKNOWN, Drop, DropKind
from profiler.importers.gpu.activity import NO_TIME
from profiler.importers.rocprofv3.agents import Agent, Agents
from profiler.importers.rocprofv3.json_records import (
    AgentRecord,
    Call,
    Copy,
    Dispatch,
    Document,
    Kind,
    Process,
    Record,
    Symbol,
)
from profiler.importers.rocprofv3.plain import plain_bytes
from profiler.importers.rocprofv3.rows import NO_ID, Rows, Times
from profiler.notes import Note
from profiler.trace.columns import Int64s
from profiler.typed_json import decoder_of

__all__ = ["add_json"]

_GPU = 2  # type of an agent
_LARGEST = (1 << 63) - 1
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]', re.DOTALL)
_RECORD_DEPTH = 6  # document, processes, a process, `buffer_records`, its arrays, a record


def add_json(path: Path, rows: Rows) -> None:
    """Read one file into `rows`; of a cut one what is whole. Raises InputError for others."""
    for process in _document(path, rows).processes:
        agents = Agents.of(_agents(process.agents))
        rows.devices.update(agents.devices())
        _add_process(process, agents, rows)


def _document(path: Path, rows: Rows) -> Document:
    data, cut = plain_bytes(path)
    decoder = decoder_of(Document)
    try:
        found = decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if isinstance(error, msgspec.ValidationError):
            raise _damaged(path, error) from error
        try:
            found = decoder.decode(_whole(data))
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise _damaged(path, error) from error
        cut = True
    if cut:
        note = Note.of(DropReason.CUT_SHORT, at=len(data), size=len(data))
        rows.drops.append(Drop(DropKind.DROPPED_EVENTS, path.name, UNKNOWN, "events", note))
    return found


def _damaged(path: Path, error: Exception) -> InputError:
    return InputError(
        f"{path} is damaged ({error}): record with `rocprofv3 --output-format json` again"
    )


def _whole(data: bytes) -> bytes:
    """The text up to the last whole record, with what is open closed."""
    stack: list[bytes] = []
    end, closing = 0, b""
    for token in _TOKEN.finditer(data):
        text = token[0]
        if text in (b"{", b"["):
            stack.append(b"}" if text == b"{" else b"]")
        elif text in (b"}", b"]"):
            if not stack or stack.pop() != text:
                break
            if len(stack) < _RECORD_DEPTH:
                end, closing = token.end(), b"".join(reversed(stack))
    return data[:end] + closing


def _agents(agents: Sequence[AgentRecord]) -> list[Agent]:
    return [
        Agent(
            id=agent.id.handle,
            gpu=agent.type == _GPU,
            number=agent.logical_node_type_id,
            name=agent.product_name or agent.name,
            memory_bytes=sum(bank.size_in_bytes for bank in agent.mem_banks),
            compute_units=agent.cu_count,
        )
        for agent in agents
    ]


def _add_process(process: Process, agents: Agents, rows: Rows) -> None:
    pid, buffers = process.metadata.pid, process.buffer_records
    names = {one.kernel_id: one for one in process.kernel_symbols}
    counted = process.callback_records.counter_collection
    dispatches = buffers.kernel_dispatch or [one.dispatch_data for one in counted]
    _add_dispatches(dispatches, pid, agents, names, rows)
    _add_samples(process, dispatches, agents, rows)
    strings = process.strings.buffer_records
    if copies := buffers.memory_copy:
        texts, place = _operations(copies, strings)
        source, target = (_numbers(copies, f"{end}_agent_id.handle") for end in ("src", "dst"))
        size = _numbers(copies, "bytes")
        rows.add_copies(_times(copies, pid), agents.either(target, source), size, texts, place)
    for calls in (buffers.hip_api, buffers.hsa_api, buffers.rccl_api):
        _add_calls(calls, pid, strings, rows)
    for calls in (buffers.rocdecode_api, buffers.rocjpeg_api):
        _add_calls(calls, pid, strings, rows)
    messages = {one.key: one.value for one in process.strings.marker_api}
    marks = [one for one in buffers.marker_api if one.correlation_id.internal in messages]
    if marks:
        said = [messages[one.correlation_id.internal] for one in marks]
        rows.add_marks(_times(marks, pid), _numbers(marks, "thread_id"), said)


def _add_dispatches(
    dispatches: list[Dispatch], pid: int, agents: Agents, names: dict[int, Symbol], rows: Rows
) -> None:
    if not dispatches:
        return
    ids, place = np.unique(_numbers(dispatches, "dispatch_info.kernel_id"), return_inverse=True)
    rows.add_kernels(
        _times(dispatches, pid),
        agents.of_kernels(_numbers(dispatches, "dispatch_info.agent_id.handle")),
        _numbers(dispatches, "dispatch_info.queue_id.handle"),
        [_kernel(names.get(one), one) for one in ids.tolist()],
        place.reshape(-1),
    )


def _kernel(symbol: Symbol | None, number: int) -> str:
    found = symbol and (symbol.formatted_kernel_name or symbol.kernel_name)
    return found or f"kernel {number}"


def _add_calls(calls: list[Call], pid: int, strings: Sequence[Kind], rows: Rows) -> None:
    if calls:
        texts, place = _operations(calls, strings)
        rows.add_api(_times(calls, pid), _numbers(calls, "thread_id"), texts, place)


def _operations(
    records: Sequence[Call] | Sequence[Copy], strings: Sequence[Kind]
) -> tuple[list[str], Int64s]:
    """The names of the records' operations, and which of them each record has."""
    key = (_numbers(records, "kind") << 32) | (_numbers(records, "operation") & 0xFFFFFFFF)
    keys, place = np.unique(key, return_inverse=True)
    return [_operation(one >> 32, one & 0xFFFFFFFF, strings) for one in keys.tolist()], (
        place.reshape(-1)
    )


def _operation(kind: int, operation: int, strings: Sequence[Kind]) -> str:
    if not 0 <= kind < len(strings):
        return f"operation {kind}.{operation}"
    named = strings[kind].operations
    return named[operation] if operation < len(named) else f"{strings[kind].kind} {operation}"


def _add_samples(process: Process, dispatches: list[Dispatch], agents: Agents, rows: Rows) -> None:
    """The counters of dispatches: the value of each record, at its dispatch's begin."""
    begun = {one.dispatch_info.dispatch_id: one.start_timestamp for one in dispatches}
    known = {one.id.handle: one.name for one in process.counters}
    found = [
        (one.dispatch_data.dispatch_info, value)
        for one in process.callback_records.counter_collection
        if begun.get(one.dispatch_data.dispatch_info.dispatch_id, NO_TIME) != NO_TIME
        for value in one.records
    ]
    if not found:
        return
    time = _int64([begun[info.dispatch_id] for info, _ in found])
    agent = _int64([info.agent_id.handle for info, _ in found])
    ids, place = np.unique([value.counter_id.handle for _, value in found], return_inverse=True)
    names = [known.get(one) or f"counter {one}" for one in ids.tolist()]
    values = np.array([value.value for _, value in found], dtype=np.float64)
    rows.add_samples(time, agents.of_kernels(agent), names, place.reshape(-1), values)


def _times(records: Sequence[Record], pid: int) -> Times:
    return Times(
        start=_numbers(records, "start_timestamp"),
        end=_numbers(records, "end_timestamp"),
        pid=np.full(len(records), pid, dtype=np.int64),
        correlation=_numbers(records, "correlation_id.internal"),
    )


def _numbers(records: Sequence[Any], name: str) -> Int64s:
    """A number of each record, int64 [n]."""
    try:
        return np.fromiter(map(attrgetter(name), records), dtype=np.int64, count=len(records))
    except OverflowError:
        return _int64(list(map(attrgetter(name), records)))


def _int64(numbers: Sequence[int]) -> Int64s:
    """Numbers of 64 bits; those that only fit without a sign count as unknown."""
    return np.array([one if one <= _LARGEST else NO_ID for one in numbers], dtype=np.int64)
