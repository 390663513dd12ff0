"""Who waits for whom in the terminal: idle devices, critical path, switches between providers."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
from rich.table import Table
from rich.text import Text

from profiler.analysis.result import Analysis
from profiler.analysis.waiting.codes import PathPart
from profiler.report.excerpts import path_by_part, path_sentence, why_no_waits
from profiler.report.layout import numbers, percents, sizes, table, texts, times
from profiler.report.lines import of_all
from profiler.report.sentences.waiting import OTHER
from profiler.report.sentences.worded import labels

__all__ = ["idle_sections"]

_PATH_ROWS = 10
_ROWS = 8
_NO_BREAK = "\N{NO-BREAK SPACE}"
_SUFFIX = "ExecutionProvider"


def idle_sections(
    analysis: Analysis, top: int, width: int
) -> Iterator[tuple[str, list[Table | Text]]]:
    """Title and parts of each section; nothing of what the run does not tell."""
    if len(analysis.idle):
        yield "What devices waited for, whole run", [_idle(analysis.idle, width)]
    elif why := why_no_waits(analysis):
        yield "What devices waited for, whole run", [Text(why, style="dim")]
    if len(analysis.critical_path):
        title = path_sentence(analysis).replace(_NO_BREAK, " ")
        yield title, [_path(analysis.critical_path, width)]
    if len(analysis.boundaries):
        parts: list[Table | Text] = [_boundaries(analysis.boundaries.head(_ROWS), width)]
        yield "Switches between providers", parts
    stranded = analysis.stranded
    if top and len(stranded):
        count = min(top, _ROWS, len(stranded))
        title = f"Stranded on the host between copies, {of_all(count, len(stranded))} by busy time"
        yield title, [_stranded(stranded.head(count), width)]


def _idle(rows: pl.DataFrame, width: int) -> Table:
    longest = max(rows["span_ns"], default=0)
    moves, waits = (rows["transfer_ns"] > 0).any(), (rows["other_device_ns"] > 0).any()
    columns = [
        texts("device", rows["device"]),
        times("span", rows["span_ns"], rank=2, like_ns=longest),
        times("waiting", rows["waiting_ns"], like_ns=longest),
        times("host", rows["host_ns"], like_ns=longest),
    ]
    if (rows["queued_ns"] > 0).any():
        columns.append(times("queued", rows["queued_ns"], rank=1, like_ns=longest))
    if waits:
        columns.append(times("other device", rows["other_device_ns"], like_ns=longest))
    if moves:
        columns.append(times("data", rows["data_ns"], like_ns=longest))
    columns += [
        times("between calls", rows["between_ns"], like_ns=longest),
        times("of it host work", rows["between_host_ns"], rank=3, like_ns=longest),
    ]
    if moves:
        columns.append(percents("transfers hidden", rows["overlap"], rank=1))
    return table(columns, width)


def _path(rows: pl.DataFrame, width: int) -> Table:
    shown = path_by_part(rows, _PATH_ROWS)
    return table(
        [
            texts("submodule", shown["submodule"], shrink=12),
            texts("part", labels(shown["part"], PathPart, OTHER)),
            texts("device", shown["device"], rank=2),
            numbers("pieces", shown["pieces"], rank=1),
            times("on the path", shown["path_ns"]),
            percents("share", shown["share"]),
        ],
        width,
    )


def _boundaries(rows: pl.DataFrame, width: int) -> Table:
    longest = max(*rows["copy_ns"], *rows["gap_ns"], 0)
    return table(
        [
            texts("submodule", rows["submodule"], shrink=12),
            texts("from", rows["source"].str.strip_suffix(_SUFFIX)),
            texts("to", rows["target"].str.strip_suffix(_SUFFIX)),
            numbers("calls", rows["calls"], rank=2),
            numbers("switches", rows["switches"]),
            numbers("copies", rows["copies"], rank=1),
            sizes("bytes", rows["bytes"]),
            times("copying", rows["copy_ns"], like_ns=longest),
            times("gaps", rows["gap_ns"], like_ns=longest),
        ],
        width,
    )


def _stranded(rows: pl.DataFrame, width: int) -> Table:
    return table(
        [
            texts("layer", rows["layer"], shrink=24),
            texts("submodule", rows["submodule"], shrink=12),
            texts("type", rows["op_type"]),
            numbers("nodes", rows["nodes"]),
            times("busy", rows["busy_ns"]),
        ],
        width,
    )
