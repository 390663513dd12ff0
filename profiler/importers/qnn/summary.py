"""A summary of an HTP (QHAS): the units' threads, and the costliest operations alone.

Its lists hold five or ten of all operations: totals are those of `htp_overall_summary`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from profiler.errors import InputError
from profiler.importers.head import content_of

__all__ = ["Listed", "Summary", "Unit", "read_summary"]

_LARGEST = 1 << 50
_LARGEST_FILE = 256 << 20


@dataclass(frozen=True, slots=True)
class Unit:
    """A thread of HMX or HVX, in cycles from the first unit's begin."""

    kind: str
    number: int
    start: int
    end: int
    used: int


@dataclass(frozen=True, slots=True)
class Listed:
    """One of the costliest operations of QNN; bytes are those of DRAM, -1 where not told."""

    op_type: str
    cycles: int
    bytes_read: int
    bytes_written: int


@dataclass(frozen=True, slots=True)
class Summary:
    """One execution; `operations` are by name. -1 is what is not told."""

    time_us: int
    cycles: int
    nodes: int
    bytes_read: int
    bytes_written: int
    units: tuple[Unit, ...]
    operations: dict[str, Listed]


def read_summary(path: Path) -> Summary:
    """Read a file. Raises InputError where it is damaged or has no time."""
    try:
        document = msgspec.json.decode(content_of(path, _LARGEST_FILE))
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
