"""Import vLLM-Omni logs: stage times of each request, without device commands.

Supported are the block of --log-stats, `stage_request_stats` records, `StageRequestStats`
tables and `[OmniTiming]` lines. If a log has several for a request, the finest stage times are
used. Each stage is a device (`vllm_omni:0`), because stages run on separate engines. Source:
vllm-project/vllm-omni, metrics/stats.py and entrypoints/log_utils.py.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from profiler.errors import InputError
from profiler.importers.foreign_run import (
    ForeignRunBuilder,
    HostTime,
    RequestTimes,
    StageTime,
    nanoseconds,
    stage_run,
)
from profiler.importers.importer import content_of, real
from profiler.trace.events import ROOT_DEVICE, DropKind, DropReason
from profiler.trace.manifest_fields import Device

# --- The block that vLLM-Omni logs with --log-stats since 2026 → times of requests.
#
# By the source of vllm-project/vllm-omni (metrics/stats.py and its page on metrics), a line each
# behind whatever the logger puts before it:
#
#     ============ Omni Metrics Summary ============
#     Total E2E time (ms):                         41,356.133
#     ------------ Request chatcmpl-a Breakdown ------------
#     ------------ Stage 0 Breakdown ------------
#     Queue wait time (ms):                            12.500
#     Execution time (ms):                          9,910.007
#     Stage name:                                          ar
#     ------------ Stage 0 -> Stage 1 Handoff ------------
#     Handoff total time (ms):                        245.895
#
# Earlier blocks have no line of the request, and `Stage generation time (ms)`: the request is that
# of the `[OmniTiming]` line before, if it lasted as long, else one of its own.


_BEGIN = re.compile(r"={12} Omni Metrics Summary ={12}")
_SUMMARY_LINE = re.compile(
    r"(?:-{12} (?P<head>[^\n]{1,240}?) -{12}"
    r"|(?P<label>(?:Total E2E time|Input preprocess time|Queue wait time|Execution time"
    r"|Stage generation time|Output processor time|Handoff total time) \(ms\)|Stage name):"
    r"[ \t]+(?P<value>[^\n]{1,120}?))[ \t\r]*$",
    re.MULTILINE,
)
_REQUEST = re.compile(r"Request (\S{1,200}) Breakdown")
_SUMMARY_STAGE = re.compile(r"Stage (\d{1,4}) Breakdown")
_HANDOFF = re.compile(r"Stage (\d{1,4}) -> Stage (\d{1,4}) Handoff")


@dataclass(slots=True)
class Section:
    """The lines of a stage of a request, or of the hand-off to the `following` stage, by label."""

    stage: int
    following: int = -1
    values: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class SummaryBlock:
    """The lines of one request in a block; `identity` is "" if the block does not name it, `total`
    is the block's total time, "" if it has several requests. `at` is the start of the block."""

    at: int
    identity: str = ""
    total: str = ""
    preprocess: str = ""
    sections: list[Section] = field(default_factory=list)


def blocks_of(text: str) -> Iterator[SummaryBlock]:
    """Yield the requests of all blocks of a log, in order, without those that have no stage."""
    begins = [match.start() for match in _BEGIN.finditer(text)]
    for begin, end in pairwise((*begins, len(text))):
        requests, total = _requests(text, begin, end)
        complete = [one for one in requests if one.sections]
        for one in complete:
            one.total = total if len(complete) == 1 else ""
            yield one


def _requests(text: str, begin: int, end: int) -> tuple[list[SummaryBlock], str]:
    """The requests of one block, and its total time. A request starts where it is named, or where
    its first stage is repeated."""
    current = SummaryBlock(begin)
    found, into = [current], dict[str, str]()
    total = ""
    for line in _SUMMARY_LINE.finditer(text, begin, end):
        head, label, value = line["head"], line["label"], line["value"]
        if head is None:
            if label == "Total E2E time (ms)":
                total = value
            elif label == "Input preprocess time (ms)" and not current.preprocess:
                current.preprocess = value
            into.setdefault(label, value)
            continue
        into = {}
        if named := _REQUEST.fullmatch(head):
            current = SummaryBlock(begin, named[1])
            found.append(current)
        elif stage := _SUMMARY_STAGE.fullmatch(head):
            number = int(stage[1])
            if not current.identity and any(
                one.stage == number and one.following < 0 for one in current.sections
            ):
                current = SummaryBlock(begin)
                found.append(current)
            current.sections.append(Section(number, values=into))
        elif edge := _HANDOFF.fullmatch(head):
            current.sections.append(Section(int(edge[1]), int(edge[2]), into))
    return found, total


# --- The times of each request in logs or records of vLLM-Omni, in all their forms.
#
# By the source of vllm-project/vllm-omni (entrypoints/log_utils.py, metrics/stats.py):
#
#     {"type": "stage_request_stats", "stage_id": 0, "request_id": "a", "stage_gen_time_ms": 30.0,
# …}
#     [StageRequestStats [request_id=a]]
#     | stage_gen_time_ms | 30.000 | 20.000 |
#     [OmniTiming] req=a total=32.99s preprocess=2.80s … stages=[0:ar=16.23s,1:diffusion=13.96s] …
#     ============ Omni Metrics Summary ============  (`summary`)
#
# A log may have all of them of a request: of a stage's times the finest is taken.


_RECORDS = (
    "stage_request_stats",
    "Request_stage_stats",
    "orchestrator_request_e2e",
    "transfer_stats",
    "transfer_rx_stats",
)
_TYPE = rf"""["']type["']:\s*["']({"|".join(_RECORDS)})["']"""
_RECORD = re.compile(rf"\{{[^{{}}]{{0,400}}?{_TYPE}([^{{}}]{{0,4000}})\}}")
_BEGUN = re.compile(_TYPE)
_WHOLE = re.compile(
    r"['\"]type['\"]:\s*['\"]request_level_metrics['\"](.{0,400}?)['\"]e2e_time_ms['\"]:\s*([\d.e+]+)",
    re.DOTALL,
)
_ENTRY = re.compile(r"['\"](\w{1,60})['\"]:\s*(?:'([^']{0,200})'|\"([^\"]{0,200})\"|([-+\d.eE]+))")
_TABLE = re.compile(
    r"\[(Stage|Request|Transfer)(?:RequestStats|E2EStats|EdgeStats) \[request_id=([^\]]{1,200})\]\]"
)
_ROW = re.compile(r"\|\s*(\w{1,60})\s*\|(.{1,4000})\|")
_REQUEST_LINE = re.compile(r"\[OmniTiming\] req=(\S{1,200}) total=([\d.]{1,20})s(.{0,4000})")
_PREPROCESS = re.compile(r"\bpreprocess=([\d.]{1,20})s")
_LIST = re.compile(r"\b(stages|handoffs|transfers)=\[([^\]]{0,2000})\]")
_REQUEST_STAGE = re.compile(r"^(?:stage[ _]?)?(?:(\d{1,4})(?![^:=_]))?:?(.{0,80})$", re.IGNORECASE)
_SHORT = re.compile(r"^(.{1,80})[=:]([\d.]{1,20})s$")
_HOP = re.compile(r"(\d{1,4})->(\d{1,4})(?:=([\d.]{1,20})ms)?")
_MOVED = ("tx_time_ms", "rx_decode_time_ms", "in_flight_time_ms")
_SECONDS = 1e3
_GRAIN_NS = 10_000_000  # the resolution of `[OmniTiming]`


@dataclass(slots=True)
class Edge:
    """The hand-off from one stage to the next: its times by part, and its bytes, -1 if not
    known."""

    parts_ns: dict[str, int] = field(default_factory=dict)
    size: int = -1


@dataclass(slots=True)
class Request:
    """The times of one request in ns, by stage: `stages`; `rounded`, known to 10 ms only; `queued`,
    the wait before the stage; `processed`, the processing of its output."""

    stages: dict[int, int] = field(default_factory=dict)
    rounded: dict[int, int] = field(default_factory=dict)
    queued: dict[int, int] = field(default_factory=dict)
    processed: dict[int, int] = field(default_factory=dict)
    edges: dict[tuple[int, ...], Edge] = field(default_factory=dict)
    total: int = 0
    total_rounded: int = 0
    preprocess: int = 0

    def edge(self, *ends: int) -> Edge:
        """Return the hand-off between two stages, and create it if missing."""
        return self.edges.setdefault(ends, Edge())

    def times(self) -> dict[int, int]:
        """The time of each stage, in order of stages."""
        return dict(sorted((self.rounded | self.stages).items()))


@dataclass(slots=True)
class Requests:
    """The requests by id; `names` are the names of stages by number, `unread` counts records that
    could not be read.

    found = Requests() found.read(text)
    """

    by_id: dict[str, Request] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    unread: int = 0

    def read(self, text: str) -> None:
        """Add the times in a file to those of the files before."""
        self._records(text)
        self._tables(text)
        self._lines(text)
        self._summaries(text)

    def _of(self, identity: str) -> Request:
        return self.by_id.setdefault(identity, Request())

    def _records(self, text: str) -> None:
        records = _RECORD.findall(text)
        self.unread += len(_BEGUN.findall(text)) - len(records)
        for kind, body in records:
            entries = _entries(body)
            if not self._record(kind, entries, self._of(entries.get("request_id", ""))):
                self.unread += 1
        for body, time_text in _WHOLE.findall(text):
            known = self.by_id.get(_entries(body).get("request_id", ""))
            if known is not None:
                known.total = _time(time_text) or known.total

    def _record(self, kind: str, entry: Mapping[str, str], request: Request) -> bool:
        """Add a record's time to its request, and return whether it has one."""
        if kind == "orchestrator_request_e2e":
            request.total = _time(entry.get("e2e_time_ms")) or request.total
            return bool(request.total)
        if kind.startswith("transfer"):
            ends = [_number(entry.get(key)) for key in ("from_stage", "to_stage")]
            if -1 in ends:
                return False
            edge = request.edge(*ends)
            edge.size = max(edge.size, _number(entry.get("size_bytes")))
            return self._moved(edge, entry)
        time, stage = _time(entry.get("stage_gen_time_ms")), _number(entry.get("stage_id"))
        if time is None or stage < 0:
            return False
        request.stages[stage] = request.stages.get(stage, 0) + time
        return True

    @staticmethod
    def _moved(edge: Edge, entry: Mapping[str, str]) -> bool:
        found = {key: time for key in _MOVED if (time := _time(entry.get(key))) is not None}
        edge.parts_ns |= found
        return bool(found)

    def _tables(self, text: str) -> None:
        heads = list(_TABLE.finditer(text))
        ends = (*(head.start() for head in heads), len(text))[1:]
        for head, end in zip(heads, ends, strict=True):
            rows = {
                key: [cell.strip() for cell in cells.split("|")]
                for key, cells in _ROW.findall(text[head.end() : end])
            }
            request = self._of(head[2])
            if head[1] == "Request":
                wall, total, request.preprocess = (
                    _time(rows.get(key, ("",))[0]) or 0
                    for key in ("request_wall_time_ms", "e2e_total_ms", "input_preprocess_time_ms")
                )
                request.total = wall or total or request.total
            else:
                (self._stages if head[1] == "Stage" else self._edges)(request, rows)

    def _stages(self, request: Request, rows: Mapping[str, Sequence[str]]) -> None:
        columns = rows.get("Field", ())
        places: dict[int, int] = {}
        for place, value in enumerate(rows.get("stage_gen_time_ms", ())):
            time = _time(value)
            if time is not None:
                number = self._stage(columns[place] if place < len(columns) else "", place)
                places[number] = places.get(number, 0) + time
        request.stages |= places

    def _edges(self, request: Request, rows: Mapping[str, Sequence[str]]) -> None:
        for place, column in enumerate(rows.get("Field", ())):
            ends = _HOP.fullmatch(column)
            if ends is None:
                continue
            edge = request.edge(int(ends[1]), int(ends[2]))
            entries = {key: cells[place] for key, cells in rows.items() if place < len(cells)}
            self._moved(edge, entries)
            size = _time(entries.get("size_kbytes"))
            edge.size = size * 1024 // 1_000_000 if size is not None else edge.size

    def _lines(self, text: str) -> None:
        for identity, total, rest in _REQUEST_LINE.findall(text):
            request = self._of(identity)
            request.total_rounded = _time(total, _SECONDS) or 0
            found = _PREPROCESS.search(rest)
            if found is not None and not request.preprocess:
                request.preprocess = _time(found[1], _SECONDS) or 0
            lists = dict(_LIST.findall(rest))
            for place, one in enumerate(filter(None, lists.get("stages", "").split(","))):
                short = _SHORT.match(one)
                time = _time(short[2], _SECONDS) if short else None
                if short is None or time is None:
                    self.unread += 1
                    continue
                request.rounded[self._stage(short[1], place)] = time
            # what lies between two stages: the hand-off, which has the transfer in it, else that
            hops = _HOP.findall(lists.get("handoffs") or lists.get("transfers", ""))
            for first, second, time_text in hops:
                if (time := _time(time_text)) is not None:
                    edge = request.edge(int(first), int(second))
                    edge.parts_ns.setdefault("total", time)

    def _summaries(self, text: str) -> None:
        """Add the blocks of summaries, each of one or more requests."""
        named = [
            (line.start(), line[1], _time(line[2], _SECONDS))
            for line in _REQUEST_LINE.finditer(text)
        ]
        for number, block in enumerate(blocks_of(text)):
            total, identity = _time(block.total), block.identity
            before = bisect_left(named, block.at, key=lambda one: one[0]) - 1
            if not identity and before >= 0 and total is not None:
                rounded = named[before][2]
                if rounded is not None and abs(rounded - total) <= _GRAIN_NS:
                    identity = named[before][1]
            request = self._of(identity or f"summary {number}")
            request.total = total or request.total
            request.preprocess = _time(block.preprocess) or request.preprocess
            for section in block.sections:
                self._section(request, section)

    def _section(self, request: Request, section: Section) -> None:
        """Add a summary's times of a stage, or of the hand-off to the next."""
        entries = section.values
        if section.following >= 0:
            length = _time(entries.get("Handoff total time (ms)"))
            if length is not None:
                edge = request.edge(section.stage, section.following)
                edge.parts_ns["total"] = length
            return
        ran = _time(entries.get("Execution time (ms)") or entries.get("Stage generation time (ms)"))
        if ran is None:
            self.unread += 1
            return
        request.stages.setdefault(section.stage, ran)
        request.queued[section.stage] = _time(entries.get("Queue wait time (ms)")) or 0
        request.processed[section.stage] = _time(entries.get("Output processor time (ms)")) or 0
        if entries.get("Stage name"):
            self.names.setdefault(section.stage, entries["Stage name"].strip())

    def _stage(self, stage: str, place: int) -> int:
        """The number of a stage by its name (`0`, `stage 0`, `0:ar`, `ar`), else by its place. The
        name is kept."""
        found = _REQUEST_STAGE.match(stage.strip())
        if found is None:
            return place
        number = int(found[1]) if found[1] else place
        if found[2].strip("_") and not found[2].strip("_").isdigit():
            self.names.setdefault(number, found[2].strip())
        return number


def _entries(body: str) -> dict[str, str]:
    return {key: a or b or number for key, a, b, number in _ENTRY.findall(body)}


def _number(text: str | None) -> int:
    return int(text) if text is not None and re.fullmatch(r"\d{1,15}", text) else -1


def _time(text: str | None, scale: float = 1.0) -> int | None:
    """Parse a time in milliseconds times `scale` into ns: `13.490 (n=51)`, `238,895.491`; None if
    there is none."""
    return nanoseconds(real((text or "").partition("(")[0].replace(",", "")) * scale)


# --- Stage times of vLLM-Omni's requests → a bundle without commands of a device.
#
# A stage is an engine of its own, on accelerators that no file tells: each is a device
# (`vllm_omni:0`, …), so that stages which stream to each other both have their whole time.


_LARGEST_FILE = 512 << 20
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


def read_run(paths: Sequence[Path]) -> ForeignRunBuilder:
    """Read files of one server; the times of a request are joined by its id. Raises InputError if
    there is no stage time."""
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
    often = Counter(found.names.values())  # with its number if several share the name
    unique_names = {
        n: name if often[name] == 1 else f"{name} {n}" for n, name in found.names.items()
    }
    numbers = sorted({number for one in whole for number in one.times()})
    names = {number: unique_names.get(number, f"stage {number}") for number in numbers}
    devices = {_device(number): Device(hardware=name) for number, name in names.items()}
    requests = [
        RequestTimes("request", tuple(_stages(one, names)), one.total or one.total_rounded)
        for one in whole
    ]
    name = path.name.removesuffix(".gz").removesuffix(".jsonl").removesuffix(".log")
    run = stage_run("vllm_omni", name, paths, requests)
    run.devices = {ROOT_DEVICE: Device(), **devices}
    without = len(found.by_id) - len(whole)
    run.drop(DropKind.DROPPED_EVENTS, found.unread, "events", DropReason.DAMAGED)
    run.drop(DropKind.DROPPED_EVENTS, without, "requests", DropReason.NO_STAGE_TIMES)
    return run


def _device(number: int) -> str:
    return f"vllm_omni:{number}"


def _stages(request: Request, names: Mapping[int, str]) -> Iterator[StageTime]:
    before: int | None = None
    for number, time in request.times().items():
        ahead = tuple(_between(request, before, number))
        yield StageTime(names[number], time, ahead=ahead, device=_device(number))
        before = number


def _between(request: Request, before: int | None, number: int) -> Iterator[HostTime]:
    """Yield the host's work before a stage: preparing the request, or processing the output of the
    stage before, and a transfer; then the stage's queue."""
    if before is None and request.preprocess:
        yield HostTime("preprocess", request.preprocess)
    if before is not None and request.processed.get(before):
        yield HostTime(f"output {before}", request.processed[before])
    for (first, second), edge in sorted(request.edges.items()):
        # the sum of its parts, else the total
        parts = [edge.parts_ns[key] for key in _MOVED if key in edge.parts_ns]
        length = sum(parts) if parts else edge.parts_ns.get("total", 0)
        if second == number and length:
            yield HostTime(f"transfer {first}->{second}", length, edge.size)
    if request.queued.get(number):
        yield HostTime(f"queue {number}", request.queued[number], waits=True)
