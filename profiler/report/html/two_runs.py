"""Two sides as one HTML file: self-contained, offline, safe to open whatever the traces say.

    write_two_runs(comparison, Path("diff.html"), gates)

It is made as the page of one run (`page`), of the same scripts, without figures and their library:
some hundred kB.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import Any

import polars as pl

from profiler._version import __version__
from profiler.analysis.comparison.codes import Step
from profiler.analysis.comparison.compare import Comparison
from profiler.analysis.comparison.gate import Gate
from profiler.files import write_atomically
from profiler.report.changed_operations import reason_text
from profiler.report.changed_tables import waterfall_steps
from profiler.report.charts.style import FONT
from profiler.report.html.assets import (
    Top,
    document,
    embedded,
    pairs,
    style_sheet,
    template,
)
from profiler.report.html.body import Body, body_of
from profiler.report.html.markup import contents
from profiler.report.html.packing import script_hash
from profiler.report.html.two_timelines import timelines_json
from profiler.report.html.waterfall import waterfall_html
from profiler.report.language import page_messages, spoken, spoken_template, titled
from profiler.report.model import Fact, Report
from profiler.report.palette import HOST, PAGE, ROLE_COLOURS, SURFACE, submodule_colours
from profiler.report.sentences.changes import difference_text
from profiler.report.two_runs import two_runs_report
from profiler.text import said

__all__ = ["two_runs_page", "write_two_runs"]

_SCRIPTS = (
    "format.js",
    "theme.js",
    "data.js",
    "language.js",
    "paint.js",
    "marks.js",
    "first_canvas.js",
    "two_timelines.js",
    "columns.js",
    "tables.js",
    "table_files.js",
    "nodes.js",
    "tree.js",
    "details.js",
    "contents.js",
    "two_runs.js",
)
_STEPS = 9  # of the waterfall on the first screen


def write_two_runs(
    comparison: Comparison, path: Path, gates: Sequence[Gate] = (), language: str = "auto"
) -> None:
    """Write the page of a comparison to `path`. Raises OutputError where that is not possible."""
    page = two_runs_page(comparison, gates, language)
    write_atomically(path, page.encode("utf-8", "replace"), sync=True)


def two_runs_page(
    comparison: Comparison, gates: Sequence[Gate] = (), language: str = "auto"
) -> str:
    """The whole page as text; it opens in `language` (`en`, `ko`), with `auto` in its reader's."""
    report = two_runs_report(comparison, gates)
    body, sentence = body_of(report), report.summary.headline
    script = "\n".join(['"use strict";', *map(template, _SCRIPTS)])
    page = Template(spoken_template(template("two_runs.html"))).substitute(
        headline=spoken(sentence),
        sides=_sides(report),
        verdicts=_verdicts(report.verdicts),
        waterfall=_waterfall(comparison),
        reasons=_reasons(comparison),
        sections=body.sections,
        footer=spoken(
            said("Written by profile-sd3 {version}. This file loads nothing.", version=__version__)
        ),
        data=embedded(_data(comparison, body, language)),
        script=script,
    )
    style = style_sheet("report.css", "first_screen.css", "two_runs.css")
    top = Top(
        contents([("summary", said("Summary")), *((one.key, one.title) for one in report.sections)])
    )
    return document(top, page, titled(sentence), style, [script_hash(script.encode())])


def _data(comparison: Comparison, body: Body, language: str) -> dict[str, Any]:
    """What the scripts read, as JSON has it."""
    two = timelines_json(*comparison.timelines) if comparison.timelines else None
    names = comparison.metrics["submodule"].drop_nulls().unique().to_list()
    names += [name for side in comparison.timelines or () for name in side.calls["submodule"]]
    return {
        "palette": {
            "submodules": pairs(submodule_colours(names)),
            "roles": pairs(ROLE_COLOURS),
            "page": pairs(PAGE),
            "surface": pairs({"surface": SURFACE})["surface"],
            "host": pairs({"host": HOST})["host"],
        },
        "tables_shown": body.tables,
        "two": two,
        "timeline": {"span": max((side["span"] for side in two["sides"]), default=1) if two else 1},
        "font": FONT,
        "run": "two-runs",
        "messages": page_messages(map(template, _SCRIPTS), [body.tables, two]),
        "language": language,
    }


def _sides(report: Report) -> str:
    """What each side is made of."""
    rows = (
        f"<div><dt>{spoken(fact.label)}</dt><dd>{spoken(fact.value)}</dd></div>"
        for fact in report.summary.facts
    )
    return f'<dl class="sides">{"".join(rows)}</dl>'


def _verdicts(verdicts: Sequence[Fact]) -> str:
    """The gates; one that failed stands out."""
    return "".join(
        f'<p class="notice{" drops" if fact.alert else ""}"><strong>{spoken(fact.label)}</strong> '
        f"{spoken(fact.value)}</p>"
        for fact in verdicts
    )


def _waterfall(comparison: Comparison) -> str:
    whole = comparison.waterfall.filter(pl.col("level") == Step.END_TO_END.value)
    if whole.is_empty():
        return f'<p class="help">{spoken(said("No end-to-end time is known on both sides."))}</p>'
    steps = waterfall_steps(comparison.waterfall, _STEPS)
    return waterfall_html(whole["base_ns"][0], whole["new_ns"][0], steps)


def _reasons(comparison: Comparison) -> str:
    """The largest differences, and what each consists of."""
    if not comparison.reasons:
        compared = (comparison.shapes, comparison.kernels)
        shared = any(len(frame.drop_nulls("difference_ns")) for frame in compared)
        return f'<p class="help">{spoken(_NO_REASON if shared else _NOTHING_SHARED)}</p>'
    items = []
    for note in comparison.reasons:
        difference = int(str(note.values["difference_ns"]))
        style = "slower" if difference > 0 else "faster"
        items.append(
            f'<li><b class="{style}">{difference_text(difference)}</b>'
            f"<span>{spoken(reason_text(note))}</span></li>"
        )
    return f'<ul class="reasons">{"".join(items)}</ul>'


_NO_REASON = said("No shape, kernel or gap makes 2 % of the end-to-end time.")
_NOTHING_SHARED = said(
    "The sides have no shape and no kernel in common: the module tree says where they differ."
)
