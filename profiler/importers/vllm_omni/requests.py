"""What a log or records of vLLM-Omni tell of each request, whatever form they have.

By the source of vllm-project/vllm-omni (entrypoints/log_utils.py, metrics/stats.py):

    {"type": "stage_request_stats", "stage_id": 0, "request_id": "a", "stage_gen_time_ms": 30.0, …}
    [StageRequestStats [request_id=a]]
    | stage_gen_time_ms | 30.000 | 20.000 |
    [OmniTiming] req=a total=32.99s preprocess=2.80s … stages=[0:ar=16.23s,1:diffusion=13.96s] …
    ============ Omni Metrics Summary ============  (`summary`)

A log may have all of them of a request: of a stage's times the finest is taken.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from profiler.importers.stage_times import nanoseconds
from profiler.importers.vllm_omni.summary import Section, blocks_of

__all__ = ["Edge", "Request", "Requests"]

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
_LINE = re.compile(r"\[OmniTiming\] req=(\S{1,200}) total=([\d.]{1,20})s(.{0,4000})")
_PREPROCESS = re.compile(r"\bpreprocess=([\d.]{1,20})s")
_LIST = re.compile(r"\b(stages|handoffs|transfers)=\[([^\]]{0,2000})\]")
_STAGE = re.compile(r"^(?:stage[ _]?)?(?:(\d{1,4})(?![^:=_]))?:?(.{0,80})$", re.IGNORECASE)
_SHORT = re.compile(r"^(.{1,80})[=:]([\d.]{1,20})s$")
_HOP = re.compile(r"(\d{1,4})->(\d{1,4})(?:=([\d.]{1,20})ms)?")
_MOVED = ("tx_time_ms", "rx_decode_time_ms", "in_flight_time_ms")
_SECONDS = 1e3
_GRAIN_NS = 10_000_000  # of what `[OmniTiming]` rounds


@dataclass(slots=True)
class Edge:
    """From a stage to the next: how long it took, in its parts; -1 bytes where not told."""

    parts_ns: dict[str, int] = field(default_factory=dict)
    size: int = -1


@dataclass(slots=True)
class Request:
    """`stages` are ns by number, `rounded` those that are known to 10 ms alone, `queued` how long
    each waited before, `processed` what its output took behind it."""

    stages: dict[int, int] = field(default_factory=dict)
    rounded: dict[int, int] = field(default_factory=dict)
    queued: dict[int, int] = field(default_factory=dict)
    processed: dict[int, int] = field(default_factory=dict)
    edges: dict[tuple[int, int], Edge] = field(default_factory=dict)
    total: int = 0
    total_rounded: int = 0
    preprocess: int = 0

    def edge(self, first: int, second: int) -> Edge:
        """That of two stages."""
        return self.edges.setdefault((first, second), Edge())

    def times(self) -> dict[int, int]:
        """Of each stage, in their order."""
        return dict(sorted((self.rounded | self.stages).items()))


@dataclass(slots=True)
class Requests:
    """By id; `names` are what stages are called, by number, `unread` counts records that are none.

    found = Requests()
    found.read(text)
    """

    by_id: dict[str, Request] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    unread: int = 0

    def read(self, text: str) -> None:
        """What a file tells, beside what others have."""
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
            told = _entries(body)
            if not self._record(kind, told, self._of(told.get("request_id", ""))):
                self.unread += 1
        for body, time_text in _WHOLE.findall(text):
            known = self.by_id.get(_entries(body).get("request_id", ""))
            if known is not None:
                known.total = _time(time_text) or known.total

    def _record(self, kind: str, told: Mapping[str, str], request: Request) -> bool:
        """Whether a record tells a time."""
        if kind == "orchestrator_request_e2e":
            request.total = _time(told.get("e2e_time_ms")) or request.total
            return bool(request.total)
        if kind.startswith("transfer"):
            ends = [_number(told.get(key)) for key in ("from_stage", "to_stage")]
            if -1 in ends:
                return False
            edge = request.edge(*ends)
            edge.size = max(edge.size, _number(told.get("size_bytes")))
            return self._moved(edge, told)
        time, stage = _time(told.get("stage_gen_time_ms")), _number(told.get("stage_id"))
        if time is None or stage < 0:
            return False
        request.stages[stage] = request.stages.get(stage, 0) + time
        return True

    @staticmethod
    def _moved(edge: Edge, told: Mapping[str, str]) -> bool:
        found = {key: time for key in _MOVED if (time := _time(told.get(key))) is not None}
        edge.parts_ns |= found
        return bool(found)

    def _tables(self, text: str) -> None:
        heads = list(_TABLE.finditer(text))
        ends = [*(head.start() for head in heads[1:]), len(text)][: len(heads)]
        for head, end in zip(heads, ends, strict=True):
            rows = {
                key: [cell.strip() for cell in cells.split("|")]
                for key, cells in _ROW.findall(text[head.end() : end])
            }
            read = {"Stage": self._stages, "Request": self._whole, "Transfer": self._edges}
            read[head[1]](self._of(head[2]), rows)

    def _whole(self, request: Request, rows: Mapping[str, Sequence[str]]) -> None:
        for key in ("request_wall_time_ms", "e2e_total_ms"):
            time = _time(rows.get(key, ("",))[0])
            if time:
                request.total = time
                break
        request.preprocess = _time(rows.get("input_preprocess_time_ms", ("",))[0]) or 0

    def _stages(self, request: Request, rows: Mapping[str, Sequence[str]]) -> None:
        columns = rows.get("Field", ())
        told: dict[int, int] = {}
        for place, value in enumerate(rows.get("stage_gen_time_ms", ())):
            time = _time(value)
            if time is not None:
                number = self._stage(columns[place] if place < len(columns) else "", place)
                told[number] = told.get(number, 0) + time
        request.stages |= told

    def _edges(self, request: Request, rows: Mapping[str, Sequence[str]]) -> None:
        for place, column in enumerate(rows.get("Field", ())):
            ends = _HOP.fullmatch(column)
            if ends is None:
                continue
            edge = request.edge(int(ends[1]), int(ends[2]))
            told = {key: cells[place] for key, cells in rows.items() if place < len(cells)}
            self._moved(edge, told)
            size = _time(told.get("size_kbytes"))
            edge.size = size * 1024 // 1_000_000 if size is not None else edge.size

    def _lines(self, text: str) -> None:
        for identity, total, rest in _LINE.findall(text):
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
            for first, second, time_text in self._hops(lists):
                edge = request.edge(first, second)
                edge.parts_ns.setdefault("total", time_text)

    def _summaries(self, text: str) -> None:
        """Blocks of a summary, each of one or more requests."""
        named = [(line.start(), line[1], _time(line[2], _SECONDS)) for line in _LINE.finditer(text)]
        for number, block in enumerate(blocks_of(text)):
            total, identity = _time(block.total), block.identity
            before = bisect_left(named, block.at, key=lambda one: one[0]) - 1
            if not identity and before >= 0 and _agree(named[before][2], total):
                identity = named[before][1]
            request = self._of(identity or f"summary {number}")
            request.total = total or request.total
            request.preprocess = _time(block.preprocess) or request.preprocess
            for section in block.sections:
                self._section(request, section)

    def _section(self, request: Request, section: Section) -> None:
        """What a summary tells of a stage, or of the way to the next."""
        told = section.told
        if section.following >= 0:
            length = _time(told.get("Handoff total time (ms)"))
            if length is not None:
                edge = request.edge(section.stage, section.following)
                edge.parts_ns["total"] = length
            return
        ran = _time(told.get("Execution time (ms)") or told.get("Stage generation time (ms)"))
        if ran is None:
            self.unread += 1
            return
        request.stages.setdefault(section.stage, ran)
        request.queued[section.stage] = _time(told.get("Queue wait time (ms)")) or 0
        request.processed[section.stage] = _time(told.get("Output processor time (ms)")) or 0
        if told.get("Stage name"):
            self.names.setdefault(section.stage, told["Stage name"].strip())

    @staticmethod
    def _hops(lists: Mapping[str, str]) -> Iterator[tuple[int, int, int]]:
        """What lies between two stages: the hand-off, which has the transfer in it, else that."""
        for first, second, time_text in _HOP.findall(
            lists.get("handoffs") or lists.get("transfers", "")
        ):
            time = _time(time_text)
            if time is not None:
                yield int(first), int(second), time

    def _stage(self, told: str, place: int) -> int:
        """The number of a stage by what it is called (`0`, `stage 0`, `0:ar`, `ar`), else its
        place; its name is kept."""
        found = _STAGE.match(told.strip())
        if found is None:
            return place
        number = int(found[1]) if found[1] else place
        if found[2].strip("_") and not found[2].strip("_").isdigit():
            self.names.setdefault(number, found[2].strip())
        return number


def _agree(rounded: int | None, exact: int | None) -> bool:
    """Whether a time that was rounded to 10 ms is the other."""
    return rounded is not None and exact is not None and abs(rounded - exact) <= _GRAIN_NS


def _entries(body: str) -> dict[str, str]:
    return {key: a or b or number for key, a, b, number in _ENTRY.findall(body)}


def _number(text: str | None) -> int:
    return int(text) if text is not None and re.fullmatch(r"\d{1,15}", text) else -1


def _time(text: str | None, scale: float = 1.0) -> int | None:
    """`13.490 (n=51)`, `238,895.491` → ns, of milliseconds times `scale`."""
    try:
        return nanoseconds(float((text or "").partition("(")[0].replace(",", "").strip()) * scale)
    except ValueError:
        return None
