"""One run as one HTML file: self-contained, offline, safe to open whatever the trace says.

    write_html(run, analyze(run), Path("report.html"))

Names come from traces and manifests and are never trusted: here they pass through `html.escape`,
in the page they only ever become text nodes and attributes, and the page's Content-Security-Policy
runs nothing but the scripts whose hashes it lists and loads nothing from anywhere.
"""

from __future__ import annotations

from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from profiler._version import __version__
from profiler.analysis.assembly import partials_of
from profiler.analysis.result import Analysis
from profiler.files import ascii_json, write_atomically
from profiler.report.build import build_report
from profiler.report.charts.style import FONT, Chart
from profiler.report.extent import extent
from profiler.report.html.assets import (
    Top,
    document,
    embedded,
    pairs,
    style_sheet,
    template,
)
from profiler.report.html.body import Body, body_of
from profiler.report.html.card_columns import (
    call_columns,
    command_columns,
    lane_columns,
    tally_columns,
)
from profiler.report.html.devices_strip import strip_json
from profiler.report.html.first_screen import shapes_json
from profiler.report.html.header import header_html
from profiler.report.html.icicle import icicle_json
from profiler.report.html.packing import Packing, script_hash
from profiler.report.html.partials import packed_partials
from profiler.report.html.timeline import Timeline, timeline_of
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
    IDLE,
    PAGE,
    PEAK_COLOURS,
    ROLE_COLOURS,
    SURFACE,
    submodule_colours,
)
from profiler.report.provenance import EmbeddedTrace
from profiler.report.sections.roofline import bounds
from profiler.report.sections.time import submodule_names
from profiler.run.run import Run
from profiler.text import joined, said

if TYPE_CHECKING:
    from profiler.analysis.comparison.compare import Comparison

__all__ = ["html_page", "page_scripts", "write_html"]

# What the first screen needs stands in the page as it is, all else is packed and runs after it.
_FIRST = (
    "format.js",
    "data.js",
    "language.js",
    "theme.js",
    "contents.js",
    "paint.js",
    "marks.js",
    "columns.js",
    "tables.js",
    "nodes.js",
    "first_canvas.js",
    "devices_strip.js",
    "icicle.js",
    "first_screen.js",
    "rooms.js",
    "opening.js",
)
_LATE = (
    "pyramid.js",
    "lanes.js",
    "use.js",
    "flows.js",
    "colourings.js",
    "overview.js",
    "timeline.js",
    "tree.js",
    "details.js",
    "explore.js",
    "measure.js",
    "finder.js",
    "timeline_table.js",
    "table_files.js",
    "exports.js",
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
    "fitting.js",
    "figures.js",
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
    timeline = timeline_of(run, axis=analysis.inputs.axis, bounds=bounds(analysis))
    partials, parts = packed_partials(partials_of(analysis), timeline.strings)
    tables, columns = pack(timeline.tables | parts, after={"commands": {"start": "duration"}})
    report = report or build_report(ReportInput(analysis, *extent(run), against, source))
    body, sentence = body_of(report), report.summary.headline
    trace, library = packing.trace, packing.library
    script, late = page_scripts()
    first = _first(run, analysis, timeline, report, language)
    rest = _rest(body, timeline, trace, analysis.run.run_id) | {
        "tables": tables,
        "partials": partials,
    }
    page = Template(spoken_template(template("report.html"))).substitute(
        header_html(report),
        headline=spoken(sentence),
        sections=body.sections,
        footer=spoken(
            said("Written by profile-sd3 {version}. This file loads nothing.", version=__version__)
        ),
        data=embedded(first),
        rest=_packed_json(rest),
        late=deflated(late.encode()),
        columns=columns,
        trace=trace.packed if trace else "",
        script=script,
        charts=_charts(body),
        plotly=library.packed,
    )
    title = titled(joined(" - ", [sentence, analysis.run.run_id]))
    style = style_sheet("report.css", "first_screen.css", "selection.css")
    hashes = [*(script_hash(text.encode()) for text in (script, late)), library.hash]
    top = Top(body.contents, "timeline", said("Skip to the timeline"))
    return document(top, page, title, style, hashes)


def _first(
    run: Run, analysis: Analysis, timeline: Timeline, report: Report, language: str
) -> dict[str, Any]:
    """What the first screen shows, as JSON has it."""
    strip, strings = strip_json(timeline), timeline.document["strings"]
    names = ("submodule", "stage")
    codes = {code for device in strip["devices"] for name in names for code in device[name]}
    shown: dict[str, Any] = {
        "strip": strip | {"strings": {code: strings[code] for code in sorted(codes) if code >= 0}},
        "icicle": icicle_json(analysis),
        "shapes": shapes_json(report.opening),
    }
    return {
        "palette": _palette(run, analysis),
        "font": FONT,
        "language": language,
        "timeline": {"span": timeline.document["span"]},
        "messages": page_messages(map(template, _FIRST), [*shown.values()]),
        **shown,
    }


def _rest(
    body: Body, timeline: Timeline, trace: EmbeddedTrace | None, run_id: str
) -> dict[str, Any]:
    """What the scripts read after that, beside the columns of events."""
    columns = {
        "call_columns": call_columns(),
        "command_columns": command_columns(),
        "tally_columns": tally_columns(),
        "lane_columns": lane_columns(),
    }
    lanes = timeline.document["lanes"]
    return {
        "timeline": timeline.document,
        "run": run_id,
        "tables_shown": body.tables,
        **columns,
        "messages": page_messages(map(template, _LATE), [body.tables, *columns.values(), lanes]),
        "trace": trace and _told(trace, run_id),
    }


def _charts(body: Body) -> str:
    """The figures by theme and their texts in other languages, packed: nobody needs them before a
    figure is looked at."""
    return _packed_json({"figures": body.figures, "spoken": _spoken(body.figures["light"])})


def _told(trace: EmbeddedTrace, run_id: str) -> dict[str, Any]:
    named = {"name": trace.name, "run": run_id}
    return named | {"size": trace.size, "packed": bool(trace.packed)}


def page_scripts() -> tuple[str, str]:
    """The script that draws the first screen, and the one that is packed and runs after it."""
    first, late = ("\n".join(['"use strict";', *map(template, names)]) for names in (_FIRST, _LATE))
    return first, late


def _packed_json(data: Any) -> str:
    """JSON as a zlib stream in base64."""
    return deflated(ascii_json(data).encode())


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
        "unknown": pairs({"unknown": IDLE})["unknown"],
    }


def _spoken(figures: dict[str, Chart]) -> dict[str, dict[str, Any]]:
    """By language and figure its texts there; themes differ in colours only."""
    found = {key: translations(chart) for key, chart in figures.items()}
    return {
        language: {key: texts[language] for key, texts in found.items() if texts[language]}
        for language in OTHERS
    }
