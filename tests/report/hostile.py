"""A run in which every name tries to become markup, code or a property of JavaScript."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl

from profiler.analysis import Analysis, DeviceProfile, Finding, Where, tables
from profiler.analysis.analyze import analyze
from profiler.analysis.findings import findings_table
from profiler.run import Column, Run
from profiler.text import Note, NoteCode, notes_text
from profiler.trace import NO_CALL, Drop, DropKind
from tests.runs import Command, make_call, make_info, make_run, make_span, why

__all__ = ["HOSTILE", "hostile_analysis", "hostile_run"]

HOSTILE = (
    "</script><script>window.hacked=1</script>",
    "<img src=x onerror=window.hacked=1>",
    "\"'><svg onload=window.hacked=1>",
    "<!--<script>window.hacked=1",
    '<a href="javascript:window.hacked=1">%{x}</a>',
    "__proto__",
    "constructor",
    "한국어 이름",
    "\N{RIGHT-TO-LEFT OVERRIDE}live",
    "&lt;b&gt;&amp;",
)


def hostile_run() -> Run:
    """A call for each name, which is its submodule, branch and device, and of all below it."""
    calls = [
        make_call(i, name, 100 * i, 100 * i + 90, step=i, branch=name, device=name)
        for i, name in enumerate(HOSTILE)
    ]
    commands = [
        Command(i, name, f"track {name}", "compute", name, 100 * i + 5, 80, f"op {name}")
        for i, name in enumerate(HOSTILE)
    ]
    host = [Command(NO_CALL, "cpu:0", "Host", "host", HOSTILE[0], 91, 8, "", "denoise", 0)]
    end = 100 * len(HOSTILE)
    spans = [make_span("pipeline", HOSTILE[0], 0, end), make_span("stage", "denoise", 0, end)]
    spans += [make_span("step", name, 100 * i, 100 * i + 99, i) for i, name in enumerate(HOSTILE)]
    everywhere = {name: name for name in HOSTILE}
    info = make_info(
        producer=HOSTILE[0],
        model=HOSTILE[1],
        pipeline=HOSTILE[2],
        command_line=HOSTILE,
        versions=everywhere,
        hardware={"cpu": HOSTILE[0], "system": HOSTILE[1]},
        devices={name: {"hardware": name} for name in HOSTILE},
        submodules={n: {"device": n, "model": n, "modules": everywhere} for n in HOSTILE},
        settings={**everywhere, "lone surrogate": "\ud800", "nan": "nan"},
        overhead={"unknown": [{"why": "not_measured", "backend": HOSTILE[0]}]},
        attribution={name: {"total_ns": 1} for name in HOSTILE},
    )
    drops = tuple(Drop(DropKind.DROPPED_EVENTS, name, -1, name, why(name)) for name in HOSTILE)
    return make_run(calls, [*commands, *host], spans, info=info, drops=drops)


_KEPT = ("pipelines", "stages", "calls", "steps", "devices", "operators", "drops")
# Words of closed lists, without which a row is not shown.
_WORDS = {"level": "operator", "part": "whole", "role": "attention"}


def hostile_analysis() -> Analysis:
    """The analysis of `hostile_run` with a row for each name in every table that it leaves empty;
    every text in it is that name."""
    analysis = analyze(hostile_run())
    made = {
        name: pl.DataFrame(
            {column.name: _values(column) for column in columns},
            schema={column.name: column.dtype for column in columns},
            strict=False,
        )
        for name, columns in ((table.name, table.columns) for table in tables())
        if name not in _KEPT
    }
    profile = DeviceProfile(HOSTILE[0], {"float32": 1e9}, 1e9, None, HOSTILE[1], measured=True)
    profiles = dict.fromkeys(HOSTILE, profile)
    findings = _findings()
    frames = {**analysis.tables(), **made, "findings": findings_table(findings)}
    return replace(analysis, frames=frames, device_profiles=profiles, findings=findings)


def _values(column: Column) -> list[Any]:
    numbers = range(len(HOSTILE))
    if column.codes is not None and issubclass(column.codes, NoteCode):
        code = next(iter(column.codes))
        return [notes_text([Note.of(code, branch=name, name=name)]) for name in HOSTILE]
    if column.dtype == pl.String:
        return [_WORDS.get(column.name, name) for name in HOSTILE]
    if column.dtype == pl.Boolean:
        return [number % 2 == 0 for number in numbers]
    if column.name in ("pipeline", "step"):
        return [number if column.name == "step" else 0 for number in numbers]
    if isinstance(column.dtype, pl.Enum):
        return [column.dtype.categories[number] for number in numbers]
    return [1000 + number for number in numbers]


def _findings() -> tuple[Finding, ...]:
    """A finding for each name, in which everything is that name."""
    return tuple(
        Finding(
            name,
            {name: name, f"{name}_ns": 5},
            Where(name, name, name, 0, 0, (number,)),
        )
        for number, name in enumerate(HOSTILE)
    )
