"""The report in the terminal.

    print_report(Console(highlight=False), analysis, top=15)

Fits the console's width: tables drop what matters least and shorten layer names in the middle.
Every string that came from a trace is stripped of control characters on its way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from textwrap import wrap

import polars as pl
from rich.console import Console
from rich.table import Table
from rich.text import Text

from profiler.analysis.codes import StepSource
from profiler.analysis.findings.rules import RULES
from profiler.analysis.result import Analysis
from profiler.report.denoise_text import denoise_sections
from profiler.report.findings_text import findings_section
from profiler.report.geometry_text import geometry_sections
from profiler.report.headline import headline
from profiler.report.idle_text import idle_sections
from profiler.report.layout import (
    Column,
    clean,
    numbers,
    percents,
    ratios,
    sizes,
    table,
    texts,
    times,
)
from profiler.report.lines import Line, accounting_lines, describe, of_all
from profiler.report.memory_text import memory_sections
from profiler.report.operators_text import operator_sections
from profiler.report.role_text import role_sections
from profiler.report.roofline_text import roofline_sections
from profiler.report.step_bars import step_bars

__all__ = ["print_report"]

_ALERT = "bold red"
_PIPELINE_ROWS = 12
_PROMPTS = ("prompt", "negative_prompt")
_NO_BREAK = "\N{NO-BREAK SPACE}"
_LABEL = 13  # characters
_CATEGORY_RANKS = {"compute": 1, "dma": 2, "copy": 5, "sync": 6, "other": 7, "host": 3}
_PARTS = ("calls", "calls_ns", "host_ns", "idle_ns")


def print_report(
    console: Console, analysis: Analysis, *, top: int = 15, notes: Sequence[str] = ()
) -> None:
    """Print the report: what ran, where the time went, tables, the `top` operators.

    `notes` are lines about how the run was chosen.
    """
    for line in wrap(clean(headline(analysis, _span_ns(analysis))), console.width):
        console.print(Text(line.replace(_NO_BREAK, " "), style="bold"))
    for note in notes:
        console.print(Text(clean(note), style="dim"), soft_wrap=True)  # paths stay whole
    console.print()
    width = console.width
    console.print(_lines(describe(analysis), width))
    _section(console, "Where the time went, whole run", *_accounting(analysis, width))
    title, lines = findings_section(analysis.findings, len(RULES), width)
    _section(console, title, *lines)
    if len(analysis.pipelines) > 1:
        shown = min(_PIPELINE_ROWS, len(analysis.pipelines))
        title = f"Pipeline calls, {of_all(shown, len(analysis.pipelines))}"
        _section(console, title, _pipelines(analysis.pipelines.head(shown), width))
    _section(console, "Devices", _devices(analysis.devices, width))
    if len(analysis.submodules):
        _section(console, "Submodules", _submodules(analysis, width))
    if len(analysis.steps):
        _section(console, "Steps", *_steps(analysis, width))
    for title, parts in _details(analysis, top, width):
        _section(console, title, *parts)


def _details(
    analysis: Analysis, top: int, width: int
) -> Iterator[tuple[str, Sequence[Table | Text]]]:
    """Titles and parts of the sections that answer one question each."""
    yield from idle_sections(analysis, top, width)
    yield from denoise_sections(analysis, top, width)
    for title, part in operator_sections(analysis.operators, top, width):
        yield title, [part]
    yield from geometry_sections(analysis, top, width)
    yield from role_sections(analysis, width)
    yield from roofline_sections(analysis, top, width)
    yield from memory_sections(analysis, width)


def _span_ns(analysis: Analysis) -> int:
    """From the begin of the first call to the end of the last."""
    if analysis.calls.is_empty():
        return 0
    start, duration_ns = analysis.calls["start_ns"], analysis.calls["duration_ns"]
    return int((start + duration_ns).to_numpy().max() - start.to_numpy().min())


def _lines(lines: Iterable[Line], width: int) -> Text:
    """Names in one column, their texts beside, wrapped between number and number, not unit."""
    laid = []
    for line in lines:
        style = _ALERT if line.alert else ""
        for number, part in enumerate(wrap(clean(line.text), max(width - _LABEL, 20))):
            label = "" if number else clean(line.label)
            text = Text(f"{label:<{_LABEL}}", style=style or "dim")
            laid.append(text.append(part.replace(_NO_BREAK, " "), style=style or "not dim"))
    return Text("\n").join(laid)


def _section(console: Console, title: str, *parts: Table | Text) -> None:
    console.print()
    console.print(Text(title, style="bold"))
    for part in parts:
        console.print(part)


def _accounting(analysis: Analysis, width: int) -> Iterator[Table | Text]:
    account = analysis.accounting
    if account.possible:
        yield _stages(analysis, width)
    for line in accounting_lines(account):
        yield _lines([line], width)


def _stages(analysis: Analysis, width: int) -> Table:
    account = analysis.accounting
    stages = analysis.stages
    total = account.end_to_end_ns
    shares = (account.residual_ns / total, 1.0) if total else (None, None)
    sums = {name: [*stages[name], None, stages[name].sum()] for name in _PARTS}
    columns = [
        texts("stage", [*stages["stage"], "residual", "end to end"]),
        numbers("calls", sums["calls"], rank=1),
        times("time", [*stages["duration_ns"], account.residual_ns, total]),
        times("in calls", sums["calls_ns"], like_ns=total),
        times("host work", sums["host_ns"], like_ns=total),
        times("idle", sums["idle_ns"], like_ns=total),
        percents("share", [*stages["share"], *shares], rank=2),
    ]
    return table(columns, width, strong=[len(stages) + 1])


def _devices(devices: pl.DataFrame, width: int) -> Table:
    categories = {n: r for n, r in _CATEGORY_RANKS.items() if devices[f"{n}_ns"].sum()}
    longest = max(devices["span_ns"], default=0)
    columns = [
        texts("device", devices["device"]),
        numbers("calls", devices["calls"], rank=9),
        numbers("commands", devices["commands"]),
        times("in calls", devices["calls_ns"], rank=8, like_ns=longest),
        times("busy", devices["busy_ns"], like_ns=longest),
        *(
            times(name, devices[f"{name}_ns"], rank=rank, like_ns=longest)
            for name, rank in categories.items()
        ),
        times("idle", devices["idle_ns"], rank=4, like_ns=longest),
        times("span", devices["span_ns"], rank=10, like_ns=longest),
        percents("busy of span", devices["utilization"]),
    ]
    if (devices["weight_bytes"] > 0).any():
        columns.append(sizes("weights", devices["weight_bytes"], rank=5))
    return table(columns, width)


def _pipelines(pipelines: pl.DataFrame, width: int) -> Table:
    longest = max(pipelines["duration_ns"], default=0)
    columns = [
        numbers("call", pipelines["pipeline"]),
        texts("pipeline", pipelines["name"], shrink=12),
        times("start", pipelines["start_ns"] - pipelines["start_ns"].min(), rank=2),
        times("time", pipelines["duration_ns"]),
        numbers("steps", pipelines["steps"], rank=4),
        numbers("calls", pipelines["calls"], rank=3),
        times("in calls", pipelines["calls_ns"], like_ns=longest),
        times("host work", pipelines["host_ns"], like_ns=longest),
        times("idle", pipelines["idle_ns"], like_ns=longest),
        percents("unaccounted", pipelines["residual_share"], rank=1),
    ]
    return table(columns, width)


def _submodules(analysis: Analysis, width: int) -> Table:
    submodules = _with_branches(analysis.submodules, analysis.branches)
    columns = [
        texts("submodule", submodules["submodule"], shrink=12),
        texts("device", submodules["device"], rank=1, shrink=8),
        numbers("calls", submodules["calls"]),
        times("total", submodules["total_ns"]),
        times("first", submodules["first_ns"]),
        times("min", submodules["min_ns"], rank=2),
        times("median", submodules["median_ns"]),
        times("max", submodules["max_ns"], rank=2),
        times("busy", submodules["busy_ns"], rank=3),
        numbers("commands", submodules["commands"], rank=4),
        numbers("operators", submodules["operators"], rank=5),
        *_calibration(submodules),
        percents("share", submodules["share"]),
    ]
    return table(columns, width)


def _with_branches(submodules: pl.DataFrame, branches: pl.DataFrame) -> pl.DataFrame:
    """The submodules, each that works for several branches of a step followed by a row for each
    of them; encoders do the same for every prompt."""
    of_denoiser = branches.filter(~pl.col("branch").is_in(_PROMPTS).fill_null(value=False))
    several = of_denoiser.filter(pl.len().over("submodule") > 1)
    indented = several.with_columns(
        submodule=pl.lit("  ") + pl.col("branch").fill_null("no branch"), _of="submodule"
    )
    rows = pl.concat([submodules.with_columns(_of="submodule"), indented], how="diagonal")
    place = {name: number for number, name in enumerate(submodules["submodule"])}
    order = pl.col("_of").replace_strict(place, return_dtype=pl.Int64)
    return rows.sort(order, maintain_order=True).drop("_of")


def _calibration(submodules: pl.DataFrame) -> list[Column]:
    """Untraced over traced time, where calls of both kinds exist; exactly 1 is what the analysis
    makes of a cost within noise."""
    factors = submodules["calibration"]
    if factors.is_null().all():
        return []
    column = ratios("untraced/traced", factors, rank=3)
    cells = zip(column.cells, factors, strict=True)
    noisy = tuple("within noise" if factor == 1 else cell for cell, factor in cells)
    return [replace(column, cells=noisy)]


def _steps(analysis: Analysis, width: int) -> Iterator[Table | Text]:
    steps, summary = analysis.steps, analysis.step_summary
    several = steps["pipeline"].n_unique() > 1
    named = ", ".join(summary.outliers[:12]) + (", …" if len(summary.outliers) > 12 else "")
    columns = [
        numbers("steps", [summary.count]),
        times("min", [summary.min_ns]),
        times("median", [summary.median_ns]),
        times("max", [summary.max_ns]),
        times("mean", [summary.mean_ns], rank=1),
        texts("outliers (call:step)" if several else "outliers", [named or "none"], shrink=12),
    ]
    yield table(columns, width)
    yield from step_bars(analysis, width)
    if summary.measured_by is not StepSource.STEP_SPANS:
        yield Text("from first to last call of a step: the run has no step spans", style="dim")
