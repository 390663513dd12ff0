"""What dynamo compiled, from its own metrics and counters: nothing is hooked into it.

`torch._dynamo.utils.get_compilation_metrics()` has the last 64 compilations,
`counters["graph_break"]` how often each reason broke a graph, `graph_break_reasons` where, and
`compilation_time_metrics` how long every compilation of a frame took. A torch that lacks one of
them tells so much less.
"""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import structs

from profiler.trace.manifest_compilations import (
    LONGEST_NAME,
    LONGEST_REASON,
    Compilation,
    GraphBreak,
)

__all__ = ["DynamoLog"]

_FRAME = "_compile.compile_inner"  # the phase that is all of a frame's compilation
_TEXT_VALUE = re.compile(r"(?<=[=!]= )['\"].*", re.DOTALL)  # of a guard; it may be a prompt
_DETAILS = ("Developer debug context:", "For more details")


class DynamoLog:
    """What dynamo has compiled since this was made. Where it is not imported nothing is read."""

    def __init__(self) -> None:
        dynamo = _dynamo()
        metrics = _metrics(dynamo)
        self._last = metrics[-1] if metrics else None
        self._frames = len(_frame_seconds(dynamo))
        self._breaks = _breaks(dynamo)

    def new(self) -> Sequence[Compilation]:
        """What has been compiled since the last time; dynamo's list holds references, so that the
        last one's identity says whether anything has."""
        dynamo = _dynamo()
        metrics = _metrics(dynamo)
        if not metrics or metrics[-1] is self._last:
            return ()
        known = next((n for n, one in enumerate(metrics) if one is self._last), -1)
        self._last = metrics[-1]
        return self._told(dynamo, metrics[known + 1 :])

    def _told(self, dynamo: Any, metrics: Sequence[Any]) -> list[Compilation]:
        broken, self._breaks = self._breaks, _breaks(dynamo)
        left = Counter(
            {
                reason: times - broken[reason] if times >= broken[reason] else times
                for reason, times in self._breaks.items()  # fewer: it has been cleared
            }
        )
        places = _places(dynamo)
        found = [_compilation(one, _own(one, left, places)) for one in metrics]
        rest = tuple(_graph_breaks(+left, places))  # of what no compilation names as its own
        found[-1] = structs.replace(found[-1], graph_breaks=found[-1].graph_breaks + rest)
        number, total_ns = self._forgotten(dynamo, metrics)
        if number:
            found[0] = structs.replace(found[0], forgotten=number, forgotten_ns=total_ns)
        return found

    def _forgotten(self, dynamo: Any, metrics: Iterable[Any]) -> tuple[int, int]:
        """How many compilations of frames are not among the new `metrics`, and how long they took:
        they are the oldest."""
        seconds, before = _frame_seconds(dynamo), self._frames
        self._frames = len(seconds)
        if len(seconds) < before:  # it has been cleared
            before = 0
        of_frames = sum(getattr(one, "frame_key", None) is not None for one in metrics)
        number = max(len(seconds) - before - of_frames, 0)
        return number, round(1e9 * sum(seconds[before : before + number]))


def _dynamo() -> Any:
    return sys.modules.get("torch._dynamo.utils")


def _metrics(dynamo: Any) -> list[Any]:
    read = getattr(dynamo, "get_compilation_metrics", None)
    return [] if read is None else read()


def _frame_seconds(dynamo: Any) -> Sequence[float]:
    seconds: Sequence[float] = getattr(dynamo, "compilation_time_metrics", {}).get(_FRAME, ())
    return seconds


def _breaks(dynamo: Any) -> Counter[str]:
    return Counter(getattr(dynamo, "counters", {}).get("graph_break", {}))


def _places(dynamo: Any) -> dict[str, str]:
    """The line that broke a graph last for each reason."""
    found = {}
    for one in getattr(dynamo, "graph_break_reasons", ()):
        stack = getattr(one, "user_stack", None)
        if stack:
            found[one.reason] = f"{os.path.basename(stack[-1].filename)}:{stack[-1].lineno}"  # noqa: PTH119 - pathlib takes longer
    return found


def _own(metrics: Any, left: Counter[str], places: Mapping[str, str]) -> tuple[GraphBreak, ...]:
    """The graph breaks that a compilation names among its reasons to begin anew; taken off what is
    `left` of all."""
    reasons = getattr(metrics, "restart_reasons", None) or ()
    own = Counter({reason: 1 for reason in sorted(reasons) if left[reason] > 0})
    left.subtract(own)
    return tuple(_graph_breaks(own, places))


def _graph_breaks(counted: Mapping[str, int], places: Mapping[str, str]) -> Iterator[GraphBreak]:
    for reason, times in counted.items():
        place = _short(places.get(reason, ""), LONGEST_NAME)
        yield GraphBreak(reason=_reason(reason), place=place, times=times)


def _compilation(metrics: Any, graph_breaks: tuple[GraphBreak, ...]) -> Compilation:
    start_us = getattr(metrics, "start_time_us", None) or 0
    end_us = getattr(metrics, "end_time_us", None)
    if end_us is None:
        end_us = start_us + (getattr(metrics, "duration_us", None) or 0)
    return Compilation(
        id=_short(getattr(metrics, "compile_id", None), LONGEST_NAME),
        function=_short(getattr(metrics, "co_name", None), LONGEST_NAME),
        start_ns=1000 * start_us,
        duration_ns=1000 * max(end_us - start_us, 0),
        recompile_reason=_reason(getattr(metrics, "recompile_reason", None)),
        failure=_reason(getattr(metrics, "fail_reason", None)),
        graph_breaks=graph_breaks,
    )


def _reason(text: object) -> str:
    """What dynamo says, without what is for its own developers, and without the text that an
    argument was compared with."""
    whole = "" if text is None else str(text)
    for details in _DETAILS:
        whole = whole.partition(details)[0]
    return _short(_TEXT_VALUE.sub("'…'", whole), LONGEST_REASON)


def _short(text: object, longest: int) -> str:
    """On one line of printable characters that every encoding can hold, no longer than that."""
    words = "" if text is None else " ".join(str(text)[: 4 * longest].split())
    printable = "".join(char if char.isprintable() else "\ufffd" for char in words)
    return printable if len(printable) <= longest else f"{printable[: longest - 1]}…"
