"""One run as one HTML file: self-contained, offline, safe to open whatever the trace says.

    write_html(run, analyze(run), Path("report.html"))

Names come from traces and manifests and are never trusted: here they pass through `html.escape`,
in the page they only ever become text nodes and attributes, and the page's Content-Security-Policy
runs nothing but the scripts whose hashes it lists and loads nothing from anywhere.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from string import Template
from typing import Any

from profiler._version import __version__
from profiler.analysis.assembly import partials_of
from profiler.analysis.comparison.compare import Comparison
from profiler.analysis.result import Analysis
from profiler.files import write_atomically
from profiler.messages import joined, said
from profiler.report.build import build_report
from profiler.report.charts.style import FONT, Chart
from profiler.report.extent import extent
from profiler.report.html.assets import embedded, pairs, policy, style_sheet, template
from profiler.report.html.body import Body, body_of
from profiler.report.html.card_columns import call_columns, command_columns, tally_columns
from profiler.report.html.devices_strip import strip_json
from profiler.report.html.first_screen import shapes_json
from profiler.report.html.header import header_html
from profiler.report.html.icicle import icicle_json
from profiler.report.html.packing import Packing, script_hash
from profiler.report.html.partials import packed_partials
from profiler.report.html.timeline import timeline_of
from profiler.report.language import (
    OTHERS,
    page_messages,
    spoken,
    spoken_template,
    titled,
    translations,
)
from profiler.report.model import Report, ReportInput
from profiler.report.pack import deflated, pack
from profiler.report.palette import (
    BOUND_COLOURS,
    CATEGORY_COLOURS,
    HOST,
    PAGE,
    PEAK_COLOURS,
    ROLE_COLOURS,
    SURFACE,
    submodule_colours,
)
from profiler.report.provenance import EmbeddedTrace
from profiler.report.sections.time import submodule_names
from profiler.table.run import Run

__all__ = ["html_page", "write_html"]

_SCRIPTS = (
    "format.js",
    "theme.js",
    "data.js",
    "language.js",
    "pyramid.js",
    "lanes.js",
    "paint.js",
    "marks.js",
    "first_canvas.js",
    "devices_strip.js",
    "icicle.js",
    "first_screen.js",
    "overview.js",
    "timeline.js",
    "columns.js",
    "tables.js",
    "tree.js",
    "details.js",
    "explore.js",
    "contents.js",
    "findings.js",
    "fold.js",
    "selection.js",
    "selection_bar.js",
    "partials.js",
    "combine.js",
    "linked.js",
    "keys.js",
    "address.js",
    "perfetto.js",
    "main.js",
)


def write_html(
    run: Run,
    analysis: Analysis,
    path: Path,
    language: str = "auto",
    *,
    against: Comparison | None = None,
    source: Path | None = None,
    report: Report | None = None,
    packing: Packing | None = None,
) -> None:
    """Write the page of `run` to `path`; arguments as in `html_page`. Raises OutputError where
    that is not possible."""
    page = html_page(
        run, analysis, language, against=against, source=source, report=report, packing=packing
    )
    write_atomically(path, page.encode("utf-8", "replace"), sync=True)


def html_page(
    run: Run,
    analysis: Analysis,
    language: str = "auto",
    *,
    against: Comparison | None = None,
    source: Path | None = None,
    report: Report | None = None,
    packing: Packing | None = None,
) -> str:
    """The whole page as text.

    It opens in `language` (`en`, `ko`), with `auto` in its reader's. `against` compares the run
    with a baseline. `source` is the bundle or the file of the run: its files are named, and where
    it is small the page holds its merged trace for the Perfetto UI. `report` and `packing` are what
    was made of all these already.
    """
    packing = packing or Packing(source)
    timeline = timeline_of(run, axis=analysis.inputs.axis)
    partials, parts = packed_partials(partials_of(analysis), timeline.strings)
    tables, columns = pack(timeline.tables | parts, after={"commands": {"start": "duration"}})
    report = report or build_report(ReportInput(analysis, *extent(run), against, source))
    body, sentence = body_of(report), report.summary.headline
    trace, library = packing.trace, packing.library
    lanes = timeline.document["lanes"]
    first = {
        "strip": strip_json(timeline),
        "icicle": icicle_json(analysis),
        "shapes": shapes_json(report.opening),
    }
    data = _data(run, analysis, body, [lanes, first], trace) | {
        "timeline": timeline.document,
        "tables": tables,
        "partials": partials,
        "language": language,
        **first,
    }
    script, late = _scripts()
    return Template(spoken_template(template("report.html"))).substitute(
        header_html(report),
        headline=spoken(sentence),
        policy=policy(*(script_hash(text.encode()) for text in (script, late)), library.hash),
        version=escape(__version__),
        title=titled(joined(" - ", [sentence, analysis.run.run_id])),
        css=style_sheet("report.css", "first_screen.css", "selection.css"),
        contents=body.contents,
        sections=body.sections,
        footer=spoken(
            said("Written by profile-sd3 {version}. This file loads nothing.", version=__version__)
        ),
        data=embedded(data),
        columns=columns,
        trace=trace.packed if trace else "",
        script=script,
        charts=_charts(body),
        plotly=library.packed,
        figures=late,
    )


def _data(
    run: Run,
    analysis: Analysis,
    body: Body,
    shown: list[Any],
    trace: EmbeddedTrace | None,
) -> dict[str, Any]:
    """What the scripts read beside the timeline, as JSON has it."""
    of_call, of_command = call_columns(), command_columns()
    scripts = map(template, (*_SCRIPTS, "figures.js"))
    return {
        "palette": _palette(run, analysis),
        "tables_shown": body.tables,
        "call_columns": of_call,
        "command_columns": of_command,
        "tally_columns": tally_columns(),
        "font": FONT,
        "messages": page_messages(scripts, [body.tables, of_call, of_command, *shown]),
        "trace": trace and _told(trace, analysis),
    }


def _charts(body: Body) -> str:
    """The figures by theme and their texts in other languages, packed: nobody needs them before a
    figure is looked at."""
    data = {"figures": body.figures, "spoken": _spoken(body.figures["light"])}
    return deflated(embedded(data).encode())


def _told(trace: EmbeddedTrace, analysis: Analysis) -> dict[str, Any]:
    named = {"name": trace.name, "run": analysis.run.run_id}
    return named | {"size": trace.size, "packed": bool(trace.packed)}


def _scripts() -> tuple[str, str]:
    """The scripts that run at once, and those that run when the page is drawn."""
    script = "\n".join(['"use strict";', *map(template, _SCRIPTS)])
    return script, template("figures.js")


def _palette(run: Run, analysis: Analysis) -> dict[str, Any]:
    names = {*run.calls["submodule"].unique().to_list(), *submodule_names(analysis)}
    return {
        "submodules": pairs(submodule_colours(names)),
        "roles": pairs(ROLE_COLOURS),
        "categories": pairs(CATEGORY_COLOURS),
        "bounds": pairs(BOUND_COLOURS),
        "peaks": [{"light": one.light, "dark": one.dark} for one in PEAK_COLOURS],
        "page": pairs(PAGE),
        "surface": pairs({"surface": SURFACE})["surface"],
        "host": pairs({"host": HOST})["host"],
    }


def _spoken(figures: dict[str, Chart]) -> dict[str, dict[str, Any]]:
    """By language and figure its texts there; themes differ in colours only."""
    found = {key: translations(chart) for key, chart in figures.items()}
    return {
        language: {key: texts[language] for key, texts in found.items() if texts[language]}
        for language in OTHERS
    }
