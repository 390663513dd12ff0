"""One run as one HTML file: self-contained, offline, safe to open whatever the trace says.

    write_html(run, analyze(run), Path("report.html"))

Names come from traces and manifests and are never trusted: here they pass through `html.escape`,
in the page they only ever become text nodes and attributes, and the page's Content-Security-Policy
runs nothing but the scripts whose hashes it lists and loads nothing from anywhere.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable
from html import escape
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

from profiler._version import __version__
from profiler.analysis.result import Analysis
from profiler.report.chart_style import FONT
from profiler.report.facts import details, headline, key_facts
from profiler.report.pack import deflated, pack
from profiler.report.page.operators import call_columns
from profiler.report.page.sections import page_of
from profiler.report.palette import (
    CATEGORY_COLOURS,
    HOST,
    PAGE,
    ROLE_COLOURS,
    SURFACE,
    Colour,
    Theme,
    submodule_colours,
)
from profiler.report.timeline import extent, timeline_of
from profiler.report.units import count, counted
from profiler.table.run import Run
from profiler.trace.storage import write_atomically

__all__ = ["embedded", "html_page", "write_html"]

_SCRIPTS = (
    "format.js",
    "data.js",
    "lanes.js",
    "paint.js",
    "marks.js",
    "timeline.js",
    "tables.js",
    "details.js",
    "explore.js",
    "contents.js",
    "findings.js",
    "main.js",
)
_THEMES: tuple[Theme, Theme] = ("light", "dark")


def write_html(run: Run, analysis: Analysis, path: Path) -> None:
    """Write the page of `run` to `path`. Raises OutputError where that is not possible."""
    write_atomically(path, html_page(run, analysis).encode("utf-8", "replace"))


def html_page(run: Run, analysis: Analysis) -> str:
    """The whole page as text."""
    begin, end = extent(run)
    timeline = timeline_of(run)
    tables, columns = pack(timeline.tables)
    page = page_of(analysis, begin)
    data = {
        "timeline": timeline.document,
        "tables": tables,
        "palette": _palette(run, analysis),
        "figures": page.figures,
        "tables_shown": page.tables,
        "call_columns": call_columns(),
        "font": FONT,
    }
    plotly = _plotly()
    script = "\n".join(['"use strict";', *map(_template, _SCRIPTS)])
    late = _template("figures.js")
    sentence = headline(analysis, end - begin)
    return Template(_template("report.html")).substitute(
        policy=_policy(script, late, plotly),
        version=escape(__version__),
        title=escape(f"{sentence} - {analysis.run.run_id}"),
        css=_css(),
        contents=page.contents,
        headline=escape(sentence),
        subject=_subject(analysis),
        selection=_selection(analysis),
        losses=_losses(analysis),
        facts=_facts(analysis, end - begin),
        findings=page.findings,
        sections=page.sections,
        details=_details(analysis),
        footer=escape(f"Written by profile-sd3 {__version__}. This file loads nothing."),
        data=embedded(data),
        columns=columns,
        script=script,
        plotly=deflated(plotly.encode()),
        figures=late,
    )


def embedded(data: Any) -> str:
    """JSON that may stand inside a script element: nothing in it can end the element."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _plotly() -> str:
    """The library that the installed plotly ships; reading the file spares importing plotly."""
    place = resources.files("plotly") / "package_data" / "plotly.min.js"
    return place.read_text(encoding="utf-8")


def _template(name: str) -> str:
    place = resources.files("profiler.report") / "templates" / name
    return place.read_text(encoding="utf-8")


def _policy(*scripts: str) -> str:
    """Only these scripts run, and nothing is loaded: not an image, not a font, not a byte."""
    hashes = (
        base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts
    )
    rules = (
        "default-src 'none'",
        "script-src " + " ".join(f"'sha256-{value}'" for value in hashes),
        "style-src 'unsafe-inline'",
        "img-src data: blob:",
        "base-uri 'none'",
        "form-action 'none'",
    )
    return "; ".join(rules)


def _css() -> str:
    light, dark = (
        " ".join(f"--{name}: {colour.on(theme)};" for name, colour in PAGE.items())
        for theme in _THEMES
    )
    return Template(_template("report.css")).substitute(light=light, dark=dark, font=FONT)


def _palette(run: Run, analysis: Analysis) -> dict[str, Any]:
    names = {*run.calls["submodule"].unique().to_list(), *analysis.submodules["submodule"]}
    return {
        "submodules": _pairs(submodule_colours(names)),
        "roles": _pairs(ROLE_COLOURS),
        "categories": _pairs(CATEGORY_COLOURS),
        "page": _pairs(PAGE),
        "surface": _pairs({"surface": SURFACE})["surface"],
        "host": _pairs({"host": HOST})["host"],
    }


def _pairs(colours: dict[str, Colour]) -> dict[str, dict[str, str]]:
    return {name: {"light": colour.light, "dark": colour.dark} for name, colour in colours.items()}


def _subject(analysis: Analysis) -> str:
    run = analysis.run
    started = run.started.replace("T", " ").replace("+00:00", " UTC")
    names = [*run.devices] or analysis.devices["device"].to_list()
    devices = ", ".join(
        " ".join(filter(None, (name, _hardware(run.devices.get(name))))) for name in names
    )
    parts = (run.model, run.pipeline, devices, started, run.run_id)
    return " · ".join(f"<bdi>{escape(part)}</bdi>" for part in parts if part)


def _hardware(device: Any) -> str:
    """`(RBLN-CA22)`, `(AMD EPYC 9554, 4 cores)`, or nothing."""
    if not isinstance(device, dict):
        return ""
    cores = device.get("cores")
    number = len(cores) if isinstance(cores, (list, tuple)) else cores
    of_cores = counted(number, "core") if isinstance(number, int) and number else ""
    parts = [str(device.get("hardware") or ""), of_cores]
    return f"({', '.join(filter(None, parts))})" if any(parts) else ""


def _selection(analysis: Analysis) -> str:
    run = analysis.run
    if not run.selection:
        return ""
    kept = [
        f"{name} {', '.join(values)}"
        for name in ("stage", "submodule", "device", "step")
        if (values := getattr(run.selection, name))
    ]
    sentence = (
        f"The tables and the figures show {', '.join(kept)}: {count(run.selected_calls)} of "
        f"{count(run.calls)} calls and {count(run.selected_commands)} of {count(run.commands)} "
        "commands. The timeline, the stages and the accounting are those of the whole run."
    )
    return f'<p class="notice">{escape(sentence)}</p>'


def _losses(analysis: Analysis) -> str:
    if not analysis.losses:
        return ""
    lines = []
    for loss in analysis.losses:
        amount = f"{count(loss.count)} {loss.unit}" if loss.count >= 0 else f"unknown {loss.unit}"
        text = f"{loss.kind.replace('_', ' ')} in {loss.where}: {amount}. {loss.detail}"
        lines.append(f"<li>{escape(text)}</li>")
    opening = "This report does not hold everything that was executed."
    return (
        f'<div class="notice losses" role="alert"><strong>{opening}</strong>'
        f"<ul>{''.join(lines)}</ul></div>"
    )


def _facts(analysis: Analysis, span_ns: int) -> str:
    return "".join(
        f"<div{' class=alert' if fact.alert else ''}><dt>{escape(fact.label)}</dt>"
        f'<dd class="value">{escape(fact.value)}</dd>'
        f'<dd class="note">{escape(fact.note)}</dd></div>'
        for fact in key_facts(analysis, span_ns)
    )


def _details(analysis: Analysis) -> str:
    return "".join(
        f"<div><h3>{escape(group.title)}</h3><dl>{_definitions(group.rows)}</dl></div>"
        for group in details(analysis)
    )


def _definitions(rows: Iterable[tuple[str, str]]) -> str:
    return "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in rows
    )
