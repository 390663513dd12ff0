"""Stage times of vLLM-Omni's requests → a bundle without commands.

Three forms, by the source of vllm-project/vllm-omni (entrypoints/log_utils.py, metrics/stats.py):
records as JSON lines, the same records as Python writes them in a log, and tables in a log:

    {"type": "stage_request_stats", "stage_id": 0, "request_id": "a", "stage_gen_time_ms": 30.0, …}
    [StageRequestStats [request_id=a]]
    | stage_gen_time_ms | 30.000 | 20.000 |
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from profiler.errors import InputError
from profiler.importers.head import content_of
from profiler.importers.placed import PlacedRun
from profiler.importers.stage_times import RequestTimes, StageTime, nanoseconds, stage_run

__all__ = ["read_run"]

_LARGEST_FILE = 512 << 20
_RECORD = re.compile(
    r"\{[^{}]{0,400}?['\"]type['\"]:\s*['\"]"
    r"(stage_request_stats|Request_stage_stats|orchestrator_request_e2e)['\"]([^{}]{0,4000})\}"
)
_WHOLE = re.compile(
    r"['\"]type['\"]:\s*['\"]request_level_metrics['\"](.{0,400}?)['\"]e2e_time_ms['\"]:\s*([\d.e+]+)",
    re.DOTALL,
)
_ENTRY = re.compile(r"['\"](\w{1,60})['\"]:\s*(?:'([^']{0,200})'|\"([^\"]{0,200})\"|([-+\d.eE]+))")
_TABLE = re.compile(r"\[(Stage|Request)(?:RequestStats|E2EStats) \[request_id=([^\]]{1,200})\]\]")
_ROW = re.compile(r"\|\s*(stage_gen_time_ms|e2e_total_ms|Field)\s*\|(.{1,4000})\|", re.IGNORECASE)
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_STAGE = "stage {}"


@dataclass(slots=True)
class _Request:
    stages: dict[str, int] = field(default_factory=dict)
    total: int = 0


def read_run(paths: Sequence[Path]) -> PlacedRun:
    """Read files of one server; records of a request are joined by its id. Raises InputError where
    none has a time of a stage."""
    found: dict[str, _Request] = {}
    for path in sorted(paths):
        text = _ANSI.sub("", content_of(path, _LARGEST_FILE).decode("utf-8", "replace"))
        _records(text, found)
        _tables(text, found)
    path = sorted(paths)[0]
    requests = [
        RequestTimes("request", tuple(_stages(one)), one.total)
        for one in found.values()
        if one.stages
    ]
    if not requests:
        raise InputError(
            f"{path} holds no time of a stage: run vLLM-Omni with --log-stats, and give its log or "
            "its *.stats.jsonl"
        )
    name = path.name.removesuffix(".gz").removesuffix(".jsonl").removesuffix(".log")
    return stage_run("vllm_omni", name, path, requests, files=len(paths))


def _stages(request: _Request) -> Iterator[StageTime]:
    for name, time in sorted(request.stages.items()):
        yield StageTime(name, time)


def _records(text: str, found: dict[str, _Request]) -> None:
    for kind, body in _RECORD.findall(text):
        told = {key: a or b or number for key, a, b, number in _ENTRY.findall(body)}
        identity = told.get("request_id", "")
        request = found.setdefault(identity, _Request())
        if kind == "orchestrator_request_e2e":
            request.total = _time(told.get("e2e_time_ms")) or request.total
            continue
        time, stage = _time(told.get("stage_gen_time_ms")), told.get("stage_id", "")
        if time is not None and stage.isdigit():
            name = _STAGE.format(int(stage[:9]))
            request.stages[name] = request.stages.get(name, 0) + time
    for body, time_text in _WHOLE.findall(text):
        told = {key: a or b or number for key, a, b, number in _ENTRY.findall(body)}
        known = found.get(told.get("request_id", ""))
        if known is not None:
            known.total = _time(time_text) or known.total


def _tables(text: str, found: dict[str, _Request]) -> None:
    heads = list(_TABLE.finditer(text))
    ends = [*(head.start() for head in heads[1:]), len(text)][: len(heads)]
    for head, end in zip(heads, ends, strict=True):
        request = found.setdefault(head[2], _Request())
        names: list[str] = []
        for key, cells in _ROW.findall(text[head.end() : end]):
            values = [cell.strip() for cell in cells.split("|")]
            if key.lower() == "field":
                names = values
            elif key == "e2e_total_ms" and head[1] == "Request":
                request.total = _time(values[0]) or request.total
            elif key == "stage_gen_time_ms" and head[1] == "Stage":
                _add(request, names, values)


def _add(request: _Request, names: Sequence[str], values: Sequence[str]) -> None:
    for place, value in enumerate(values):
        time = _time(value)
        told = names[place] if place < len(names) else str(place)
        if time is not None:
            number = re.fullmatch(r"(?:stage[ _]?)?(\d{1,9})", told, re.IGNORECASE)
            name = _STAGE.format(int(number[1])) if number else told[:60]
            request.stages[name] = time


def _time(text: str | None) -> int | None:
    """`13.490 (n=51)`, `238,895.491` → ns."""
    try:
        return nanoseconds(float((text or "").partition("(")[0].replace(",", "").strip()))
    except ValueError:
        return None
