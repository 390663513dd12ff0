"""`profile-sd3 doctor`: what is installed, and why a program would not be profiled."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import typer

from profiler.cli.documents import STDOUT, check_documents, write_json
from profiler.cli.options import ResultFile
from profiler.cli.subcommands import Subcommand
from profiler.cli.terminal import tell
from profiler.files import json_text

if TYPE_CHECKING:
    from profiler.cli.diagnosis import Packages, Report

__all__ = ["SUBCOMMAND", "doctor"]


def doctor(json_file: ResultFile = None) -> None:
    """Say what is installed and whether programs are profiled.

    Looks at the environment that profile-sd3 runs in: versions, extras, backends, importers, the
    start-up hook and the RBLN_PROFILER variables. Exits with 1 where something keeps a program
    from being profiled. Paste its output into a bug report.
    """
    from profiler.cli.diagnosis import diagnose

    check_documents({"--json": json_file})
    report = diagnose(os.environ)
    if json_file is not None:
        write_json(json_file, json_text(report) + "\n")
    if json_file != STDOUT:
        for line in _lines(report):
            tell(line)
    if report.problems:
        raise typer.Exit(1)


def _lines(report: Report) -> Iterator[str]:
    yield "versions"
    yield from _pairs(report.versions)
    for name, versions in report.requirements.needed.items():
        yield f"  {name} {report.requirements.installed[name]} is not what is needed: {versions}"
    if report.requirements.missing:
        yield f"  missing: {', '.join(report.requirements.missing)}"
    for title, sets in (("extras", report.extras), ("backends", report.backends)):
        yield title
        yield from _pairs({each.name: _packages(each) for each in sets})
    yield "importers"
    yield from _pairs(report.importers)
    yield "profiling of programs"
    width = max(len(check.name) for check in report.checks)
    for check in report.checks:
        yield f"  {check.state:<7}  {check.name:<{width}}  {check.found}"
        if check.advice:
            yield f"  {'':<7}  {'':<{width}}  {check.advice}"
    yield _conclusion(report)


def _pairs(values: Mapping[str, str]) -> Iterator[str]:
    width = max(map(len, values), default=0)
    for name, value in values.items():
        yield f"  {name:<{width}}  {value}"


def _packages(given: Packages) -> str:
    there = ", ".join(
        f"{name} {version}" + (f" (needs {given.needed[name]})" if name in given.needed else "")
        for name, version in given.installed.items()
    )
    lacking = f"missing: {', '.join(given.missing)}" if given.missing else ""
    return "; ".join(part for part in (there, lacking) if part)


def _conclusion(report: Report) -> str:
    from profiler.cli.diagnosis import State

    if report.problems:
        return f"Programs are not profiled: {report.problems[0].found}."
    if any(check.state is State.OFF for check in report.checks):
        return "Programs are not profiled unless RBLN_PROFILER=1 is set where they start."
    return "Programs that start in this environment are profiled."


SUBCOMMAND = Subcommand(doctor, place=105)
