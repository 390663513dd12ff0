"""The block that vLLM-Omni logs with --log-stats since 2026 → times of requests.

By the source of vllm-project/vllm-omni (metrics/stats.py and its page on metrics), a line each
behind whatever the logger puts before it:

    ============ Omni Metrics Summary ============
    Total E2E time (ms):                         41,356.133
    ------------ Request chatcmpl-a Breakdown ------------
    ------------ Stage 0 Breakdown ------------
    Queue wait time (ms):                            12.500
    Execution time (ms):                          9,910.007
    Stage name:                                          ar
    ------------ Stage 0 -> Stage 1 Handoff ------------
    Handoff total time (ms):                        245.895

Earlier blocks have no line of the request, and `Stage generation time (ms)`: the request is that of
the `[OmniTiming]` line before, if it lasted as long, else one of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

__all__ = ["Section", "SummaryBlock", "blocks_of"]

_BEGIN = re.compile(r"={12} Omni Metrics Summary ={12}")
_LINE = re.compile(
    r"(?:-{12} (?P<head>[^\n]{1,240}?) -{12}"
    r"|(?P<label>(?:Total E2E time|Input preprocess time|Queue wait time|Execution time"
    r"|Stage generation time|Output processor time|Handoff total time) \(ms\)|Stage name):"
    r"[ \t]+(?P<value>[^\n]{1,120}?))[ \t\r]*$",
    re.MULTILINE,
)
_REQUEST = re.compile(r"Request (\S{1,200}) Breakdown")
_STAGE = re.compile(r"Stage (\d{1,4}) Breakdown")
_HANDOFF = re.compile(r"Stage (\d{1,4}) -> Stage (\d{1,4}) Handoff")


@dataclass(slots=True)
class Section:
    """A stage of a request, or the hand-off to the `following` one: its lines by label."""

    stage: int
    following: int = -1
    told: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class SummaryBlock:
    """What one request of a block tells; `identity` is "" where the block does not name it, `total`
    that of all its requests, "" where there are several. `at` is where the block begins."""

    at: int
    identity: str = ""
    total: str = ""
    preprocess: str = ""
    sections: list[Section] = field(default_factory=list)


def blocks_of(text: str) -> Iterator[SummaryBlock]:
    """The requests of all blocks of a log, in its order; those that tell no stage are left out."""
    begins = [match.start() for match in _BEGIN.finditer(text)]
    for begin, end in zip(begins, [*begins[1:], len(text)][: len(begins)], strict=True):
        requests = _requests(text, begin, end)
        told = [one for one in requests if one.sections]
        for one in told:
            one.total = one.total if len(told) == 1 else ""
            yield one


def _requests(text: str, begin: int, end: int) -> list[SummaryBlock]:
    """The requests of one block: each begins where it is named, or where its first stage is told
    anew."""
    current = SummaryBlock(begin)
    found, into = [current], dict[str, str]()
    total = ""
    for line in _LINE.finditer(text, begin, end):
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
        elif stage := _STAGE.fullmatch(head):
            number = int(stage[1])
            if not current.identity and any(
                one.stage == number and one.following < 0 for one in current.sections
            ):
                current = SummaryBlock(begin)
                found.append(current)
            current.sections.append(Section(number, told=into))
        elif edge := _HANDOFF.fullmatch(head):
            current.sections.append(Section(int(edge[1]), int(edge[2]), into))
    for one in found:
        one.total = total
    return found
