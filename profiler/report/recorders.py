"""What is said of the files of several recorders that are one run, and of those beside it."""

from __future__ import annotations

from collections.abc import Iterator

from profiler.report.sentences.worded import worded
from profiler.text import count, duration, said
from profiler.trace.events import DropReason
from profiler.trace.manifest import RunInfo
from profiler.trace.manifest_fields import (
    Apart,
    LeftOut,
    PartOfRun,
    Parts,
    RelatedBy,
    WhyApart,
)

__all__ = ["beside", "part_rows"]

_NAMED = 4  # files that are left out


def part_rows(parts: Parts) -> Iterator[tuple[str, str]]:
    """A row for each part: its file, what relates its clock, what of it is left out."""
    for part in parts.parts:
        yield _files(part), said("{producer}: {clock}{twice}", **_said_of(part))
    for apart in parts.apart:
        yield apart.files[0], _why(apart, parts)
    for one in parts.left_out:
        yield one.file, said("not read: it is or looks like {what}", what=one.what)


def beside(info: RunInfo) -> Iterator[str]:
    """A line for each file of the folder that is not in the run, and one for those that are no
    trace."""
    if info.parts is None:
        return
    for apart in info.parts.apart:
        yield f"{apart.files[0]}: {_why(apart, info.parts)}"
    for drop in info.drops:
        if drop.detail.code is DropReason.ERROR:
            yield f"{drop.where}: {worded(drop.detail)}"
    left_out = info.parts.left_out
    if left_out:
        more = f" and {len(left_out) - _NAMED} more" if len(left_out) > _NAMED else ""
        yield f"not read: {', '.join(map(_left_out, left_out[:_NAMED]))}{more}"


def _why(apart: Apart, parts: Parts) -> str:
    """Why files are not of the run, and what would make them so."""
    file = parts.parts[0].files[0]
    if apart.why is WhyApart.ANOTHER_TIME:
        return said(
            "recorded at another time than {file}, so it is a run of its own: give it alone to see "
            "it",
            file=file,
        )
    return said(
        "neither a clock nor three events in common relate it to {file}, so it is a run of its "
        "own: give it alone to see it, or record ranges of the same names in both "
        "(record_function, NVTX, roctx)",
        file=file,
    )


def _left_out(one: LeftOut) -> str:
    return f"{one.file} ({one.what})"


def _files(part: PartOfRun) -> str:
    if len(part.files) == 1:
        return part.files[0]
    return said("{file} and {more} more", file=part.files[0], more=count(len(part.files) - 1))


def _said_of(part: PartOfRun) -> dict[str, str]:
    return {"producer": part.producer, "clock": _clock(part), "twice": _twice(part)}


def _clock(part: PartOfRun) -> str:
    if part.related_by is RelatedBy.REFERENCE:
        return said("its clock is the run's")
    if part.related_by is RelatedBy.EPOCH:
        return said("its clock counts from 1970 as well")
    if part.related_by is RelatedBy.LOCAL_TIME:
        return said(
            "moved by {offset}, by the local time in its name, which tells it to within {within}",
            offset=duration(part.offset_ns),
            within=duration(part.within_ns or 0),
        )
    return said(
        "moved by {offset}, by {pairs} events in common, which then differ by {residual} in the "
        "median and {worst} at most",
        offset=duration(part.offset_ns),
        pairs=count(part.pairs),
        residual=duration(part.residual_ns or 0),
        worst=duration(part.worst_ns or 0),
    )


def _twice(part: PartOfRun) -> str:
    if not part.twice:
        return ""
    return said(
        "; of its {commands} commands of devices {twice} are in another part, too, and count once",
        commands=count(part.commands),
        twice=count(part.twice),
    )
