"""Stage times of vLLM-Omni's requests → a bundle without commands of a device.

A stage is an engine of its own, on accelerators that no file tells: each is a device
(`vllm_omni:0`, …), so that stages which stream to each other both have their whole time.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from profiler.drop_reasons import DropReason
from profiler.errors import InputError
from profiler.events import Drop, DropKind
from profiler.importers.head import content_of
from profiler.importers.placed import PlacedRun
from profiler.importers.stage_times import HostTime, RequestTimes, StageTime, stage_run
from profiler.importers.vllm_omni.requests import Edge, Request, Requests
from profiler.notes import Note
from profiler.trace.manifest_fields import Device

__all__ = ["read_run"]

_LARGEST_FILE = 512 << 20
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_PARTS = ("tx_time_ms", "in_flight_time_ms", "rx_decode_time_ms")


def read_run(paths: Sequence[Path]) -> PlacedRun:
    """Read files of one server; what they tell of a request is joined by its id. Raises InputError
    where none has a time of a stage."""
    found = Requests()
    for path in sorted(paths):
        found.read(_ANSI.sub("", content_of(path, _LARGEST_FILE).decode("utf-8", "replace")))
    path = sorted(paths)[0]
    whole = [one for one in found.by_id.values() if one.times()]
    if not whole:
        raise InputError(
            f"{path} holds no time of a stage: run vLLM-Omni with --log-stats, and give its log or "
            "its *.stats.jsonl"
        )
    names = _names(found.names)
    numbers = sorted({number for one in whole for number in one.times()})
    devices = {_device(number): Device(hardware=_name(number, names)) for number in numbers}
    requests = [
        RequestTimes("request", tuple(_stages(one, names)), one.total or one.total_rounded)
        for one in whole
    ]
    name = path.name.removesuffix(".gz").removesuffix(".jsonl").removesuffix(".log")
    drops = tuple(_drops(path, found.unread, len(found.by_id) - len(whole)))
    return stage_run("vllm_omni", name, paths, requests, drops=drops, devices=devices)


def _device(number: int) -> str:
    return f"vllm_omni:{number}"


def _name(number: int, names: Mapping[int, str]) -> str:
    return names.get(number, f"stage {number}")


def _names(told: Mapping[int, str]) -> dict[int, str]:
    """Of each stage that has one; with its number where several are called so."""
    often = Counter(told.values())
    return {n: name if often[name] == 1 else f"{name} {n}" for n, name in told.items()}


def _stages(request: Request, names: Mapping[int, str]) -> Iterator[StageTime]:
    before: int | None = None
    for number, time in request.times().items():
        ahead = tuple(_between(request, before, number))
        yield StageTime(_name(number, names), time, ahead=ahead, device=_device(number))
        before = number


def _between(request: Request, before: int | None, number: int) -> Iterator[HostTime]:
    """What is ahead of a stage: the preparation of the request, or what the host did with the
    output of the stage before, and a transfer; its queue."""
    if before is None and request.preprocess:
        yield HostTime("preprocess", request.preprocess)
    if before is not None and request.processed.get(before):
        yield HostTime(f"output {before}", request.processed[before])
    for (first, second), edge in sorted(request.edges.items()):
        if second == number and (length := _length(edge)):
            yield HostTime(f"transfer {first}->{second}", length, edge.size)
    if request.queued.get(number):
        yield HostTime(f"queue {number}", request.queued[number], waits=True)


def _length(edge: Edge) -> int:
    """The sum of its parts, else what is told of all of it."""
    parts = [edge.parts_ns[key] for key in _PARTS if key in edge.parts_ns]
    return sum(parts) if parts else edge.parts_ns.get("total", 0)


def _drops(path: Path, unread: int, without: int) -> Iterator[Drop]:
    if unread:
        note = Note.of(DropReason.DAMAGED)
        yield Drop(DropKind.DROPPED_EVENTS, path.name, unread, "events", note)
    if without:
        note = Note.of(DropReason.NO_STAGE_TIMES)
        yield Drop(DropKind.DROPPED_EVENTS, path.name, without, "requests", note)
