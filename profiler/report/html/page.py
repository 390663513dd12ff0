"""The HTML report of one run: a self-contained page that works offline.

    write_html(run, analyze(run), Path("report.html"))

Names come from traces and manifests and are not trusted. Python passes them through
`html.escape`, and scripts use them only as text nodes and attributes. The
Content-Security-Policy runs only the scripts whose hashes it lists and loads nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from profiler.analysis.cells import cells_of, packed_cells
from profiler.analysis.document import (
    BOUND_COLOURS,
    CATEGORY_COLOURS,
    HOST,
    PAGE,
    PEAK_COLOURS,
    ROLE_COLOURS,
    SURFACE,
    Advice,
    Fact,
    Group,
    Opening,
    Part,
    Report,
    Section,
    SectionGroup,
    Summary,
    TableView,
    submodule_colours,
)
from profiler.analysis.finding_text import evidence_pairs, saving, words
from profiler.analysis.overview import extent
from profiler.analysis.provenance import EmbeddedTrace, deflated, pack
from profiler.analysis.result import Analysis, Finding, ReportInput, Severity, Where
from profiler.analysis.roles import kind_roles
from profiler.analysis.roofline_section import bounds
from profiler.files import ascii_json, write_atomically
from profiler.report.build import build_report
from profiler.report.charts.style import FONT, Chart, draw
from profiler.report.html.library import (
    THEMES,
    Packing,
    Top,
    contents,
    definitions,
    document,
    embedded,
    filled,
    modules,
    pairs,
    script_hash,
    script_of,
    style_sheet,
    template,
)
from profiler.report.html.tables import (
    busy_json,
    filled_columns,
    icicle_json,
    strip_json,
    table_json,
)
from profiler.report.html.timeline import Timeline, timeline_of
from profiler.report.language import (
    LANGUAGES,
    OTHERS,
    catalogue,
    page_messages,
    spoken,
    titled,
    translations,
)
from profiler.run.run import Run
from profiler.text import Noun, Said, count, joined, said, sentence_of

if TYPE_CHECKING:
    from profiler.compare.compare import Comparison


# --- The size of a figure on the page, which is known before the figure is drawn.
#
# A legend of more than two lines makes a figure taller. Its number of lines depends on the width
# of the page and the language: scripts compute it (`rooms.js`), first from this size, later from
# the figure itself.


class Room(Struct, frozen=True):
    """The size of a figure: `height` in pixels, with a legend of at most two lines; the number of
    legend `entries`, and the length of the `longest` by language (in UTF-16 units, as scripts
    count)."""

    height: int
    entries: int = 0
    longest: Mapping[str, int] = {}

    @property
    def attributes(self) -> str:
        """The size as attributes of an HTML element."""
        height = f'style="height:{self.height}px" data-height="{self.height}"'
        if not self.entries:
            return height
        legend = {"entries": self.entries, "longest": self.longest}
        return f'{height} data-legend="{escape(ascii_json(legend))}"'


def room_of(chart: Chart) -> Room:
    """The size of `chart`."""
    data, layout = chart["data"], chart["layout"]
    if not layout["showlegend"]:
        return Room(layout["height"])
    names = [trace.get("name") or "" for trace in data]
    longest = {
        language: max((_units(name, language) for name in names), default=0)
        for language in LANGUAGES
    }
    return Room(layout["height"], len(data), longest)


def _units(name: str, language: str) -> int:
    given = name.given_in(catalogue(language)) if isinstance(name, Said) else name
    return len(given.encode("utf-16-le", "surrogatepass")) // 2


# --- Findings as HTML: their evidence, and links to the rows that they refer to.


_CALLS = 6  # links to calls
_SEVERITIES: dict[Severity, Said] = {
    "high": said("high"),
    "medium": said("medium"),
    "low": said("low"),
}


def finding_html(finding: Finding, noun: Noun = Noun.COMMANDS, anchor: str = "") -> str:
    """Return one finding as HTML, with buttons that `templates/findings.js` enables. `noun` is the
    word for commands, `anchor` the id for links to it."""
    said_of, saved = words(finding), saving(finding)
    saves = "" if saved is None else said("saves {time}", time=saved)
    head = (
        f'<p class="headline"><span class="severity">{spoken(_SEVERITIES[finding.severity])}</span>'
        f"<strong>{spoken(said_of.title)}</strong>"
        + (f'<span class="saves">{spoken(saves)}</span>' if saves else "")
        + "</p>"
    )
    evidence = definitions((said(name), value) for name, value in evidence_pairs(finding, noun))
    links = "".join(_links(finding.where))
    named = f' id="{anchor}"' if anchor else ""
    return (
        f"<article{named} "
        f'class="finding {escape(finding.severity)}" data-rule="{escape(finding.rule)}"'
        f"{_about(finding.where)}>"
        f'{head}<dl class="evidence">{evidence}</dl>'
        f'<p class="recommendation">{spoken(said_of.recommendation)}</p>'
        f'<p class="help"><b>{spoken(said("Caveat:"))}</b> {spoken(said_of.caveat)}</p>'
        + (f'<p class="where">{links}</p>' if links else "")
        + "</article>"
    )


def _about(where: Where) -> str:
    """What the page can choose of what a finding is about, for `templates/findings.js`."""
    named = {
        "submodule": where.submodule,
        "operator": where.layer,
        "device": where.device,
        "step": where.step,
    }
    known = {name: escape(str(value)) for name, value in named.items() if value is not None}
    return "".join(f' data-about-{name}="{value}"' for name, value in known.items())


def _links(where: Where) -> Iterator[str]:
    """Yield buttons that search for an operator or zoom to a call; other places as text."""
    if where.layer:
        yield _button("layer", where.layer, said("Operator {layer}", layer=where.layer))
    elif where.submodule:
        yield _button(
            "submodule",
            where.submodule,
            said("Operators of {submodule}", submodule=where.submodule),
        )
    for call in where.calls[:_CALLS]:
        yield _button("call", str(call), said("Call {call}", call=call))
    if len(where.calls) > _CALLS:
        more = said("and {number} more calls", number=len(where.calls) - _CALLS)
        yield f"<span>{spoken(more)}</span>"
    if where.device is not None:
        yield f"<span>{spoken(said('device {value}', value=where.device))}</span>"
    if where.pipeline is not None:
        yield f"<span>{spoken(said('pipeline call {value}', value=where.pipeline))}</span>"
    if where.step is not None:
        yield f"<span>{spoken(said('step {value}', value=where.step))}</span>"


def _button(kind: str, value: str, text: str) -> str:
    return (
        f'<button type="button" class="link" data-find-{kind}="{escape(value)}">'
        f"{spoken(text)}</button>"
    )


# --- Sections as HTML: headings, sentences, and placeholders for figures and tables.


_GROUPS: dict[SectionGroup, Said] = {
    SectionGroup.FINDINGS: said("Findings"),
    SectionGroup.MODEL: said("Model"),
    SectionGroup.DEVICE: said("Device"),
    SectionGroup.RUN: said("Run"),
}


def grouped_contents(sections: Sequence[Section]) -> str:
    """Return links to the summary, the timeline and the sections, by group; a group with a single
    section of the same name is one link."""
    links = contents([("summary", said("Summary")), ("timeline", said("Timeline"))])
    for group, name in _GROUPS.items():
        own = [(one.key, one.title) for one in sections if one.group == group and one.title]
        alone = len(own) == 1 and own[0][1] == name
        head = f'<a class="group" href="#{own[0][0]}">{spoken(name)}</a>' if own else ""
        inner = contents(own) if alone else contents(own).replace("<a ", '<a class="in-group" ')
        links += inner if alone else head + inner
    return links


def sections_html(sections: Sequence[Section], rooms: Mapping[str, Room]) -> str:
    """Return the sections as HTML; figures get their `rooms` (by key) at once, so that nothing
    moves when they are drawn."""
    return "\n".join(_section(section, rooms) for section in sections)


def _section(section: Section, rooms: Mapping[str, Room]) -> str:
    key = section.key
    body = "".join(_rows(section.parts, rooms))
    return (
        f'<section id="{key}" aria-labelledby="{key}-title">'
        f'<h2 id="{key}-title">{spoken(section.title)}</h2>{body}</section>'
    )


def _rows(parts: Sequence[Part], rooms: Mapping[str, Room]) -> Iterator[str]:
    """Yield parts below each other; parts marked `beside` share a row with the one before."""
    starts = [i for i, part in enumerate(parts) if not part.beside or i == 0]
    row_of = {i: max(start for start in starts if start <= i) for i in range(len(parts))}
    for _, numbers in groupby(range(len(parts)), key=row_of.__getitem__):
        row = [_part(parts[i], rooms) for i in numbers]
        yield f'<div class="pair">{"".join(row)}</div>' if len(row) > 1 else row[0]


def _part(part: Part, rooms: Mapping[str, Room]) -> str:
    heading = f"<h3>{spoken(part.title)}</h3>" if part.title else ""
    pieces = [
        f'<p class="lead">{spoken(part.lead)}</p>{of_whole()}' if part.lead else "",
        "".join(
            finding_html(finding, part.noun, finding_id(number))
            for number, finding in enumerate(part.findings)
        ),
        _figure(part, rooms),
        _table(part.table),
        _groups(part.groups),
        *(f'<p class="help">{spoken(note)}</p>' for note in part.notes),
    ]
    body = "".join(pieces)
    anchor = f' id="{part.anchor}"' if part.anchor else ""
    if part.folded:
        return f'<details class="part"{anchor}><summary>{heading}</summary>{body}</details>'
    return f'<div class="part"{anchor}>{heading}{body}</div>'


def finding_id(number: int) -> str:
    """The HTML id of a finding."""
    return f"finding-{number + 1}"


def of_whole() -> str:
    """The remark below sentences and values that do not follow the reader's selection; visible only
    during a selection."""
    return f'<p class="scope of-whole">{spoken(said("Of the whole run."))}</p>'


def _figure(part: Part, rooms: Mapping[str, Room]) -> str:
    if part.figure is None:
        return ""
    key = part.figure.key
    place = f'<div class="figure" data-figure="{key}" {rooms[key].attributes}></div>'
    return f'{place}<p class="saves-figure"></p>'  # with the page's button to save it


def _table(view: TableView | None) -> str:
    """The placeholder of a table, and a note if the page has only its first rows."""
    if view is None:
        return ""
    place = f'<div data-table="{view.key}"></div>'
    held, total = len(view.rows), len(view.frame)
    if held == total:
        return place
    note = said(
        "This page holds the first {held} of {total} rows.", held=count(held), total=count(total)
    )
    return f'{place}<p class="help">{spoken(note)}</p>'


def _groups(groups: Sequence[Group]) -> str:
    """Return groups as lists of name and value, each with a title."""
    lists = "".join(
        f"<div><h3>{spoken(group.title)}</h3><dl>{definitions(group.rows)}</dl></div>"
        for group in groups
    )
    return f'<div class="groups">{lists}</div>{of_whole()}' if lists else ""


# --- The report in the page's form: sections as HTML, tables and figures as JSON.


class Body(Struct, frozen=True):
    """The page below its header: HTML of the list of contents and of the `sections`; as JSON the
    `tables` by key and the `figures` by theme and key."""

    contents: str
    sections: str
    tables: dict[str, Any]
    figures: dict[str, dict[str, dict[str, Any]]]


def body_of(report: Report) -> Body:
    """Return the sections of `report` without figures that draw nothing, and without what that
    leaves empty."""
    figures: dict[str, dict[str, dict[str, Any]]] = {
        theme: {
            part.figure.key: draw(part.figure, theme)
            for section in report.sections
            for part in section.parts
            if part.figure is not None
        }
        for theme in THEMES
    }
    light = figures["light"].items()
    drawn = {key for key, chart in light if any(len(trace["x"]) for trace in chart["data"])}
    sections = list(_with_drawn(report.sections, drawn))
    rooms = {key: room_of(figures["light"][key]) for key in drawn}
    return Body(
        contents=grouped_contents(sections),
        sections=sections_html(sections, rooms),
        tables={
            part.table.key: table_json(part.table)
            for section in sections
            for part in section.parts
            if part.table is not None
        },
        figures={
            theme: {key: of_theme[key] for key in of_theme if key in drawn}
            for theme, of_theme in figures.items()
        },
    )


def _with_drawn(sections: Iterable[Section], drawn: set[str]) -> Iterable[Section]:
    for section in sections:
        parts = [_without_empty(part, drawn) for part in section.parts]
        kept = tuple(part for part in parts if part.shows_something)
        if kept:
            yield replace(section, parts=kept)


def _without_empty(part: Part, drawn: set[str]) -> Part:
    if part.figure is None or part.figure.key in drawn:
        return part
    return replace(part, figure=None)


# --- The page's first screen beside its canvases: how long it took, what to change, the costliest
# shapes. The figures are those of the report's opening, which a terminal prints. Every text is
# escaped; `templates/first_screen.js` draws the canvases.


def answers_html(facts: tuple[Fact, ...]) -> str:
    """The facts in a line or two: how long it took, how busy each device was, the steps."""
    items = "".join(
        f"<div><dt>{spoken(fact.label)}</dt><dd><b>{spoken(fact.value)}</b>"
        + (f"<span>, {spoken(fact.note)}</span>" if fact.note else "")
        + "</dd></div>"
        for fact in facts
    )
    return f'<dl class="answers">{items}</dl>' if items else ""


def findings_html(opening: Opening, findings: tuple[Finding, ...]) -> str:
    """What to change first, with its gain; each item links to the finding with its evidence."""
    if not opening.advice_title:
        return ""
    total = opening.advice_total
    saved = [spoken(text) for text in (total.title, total.gain) if text] if total else []
    numbers = {id(finding): number for number, finding in enumerate(findings)}
    items = "".join(_advice(advice, numbers.get(id(advice.finding))) for advice in opening.advice)
    return (
        f'<div class="gains"><h2>{spoken(opening.advice_title)}</h2>'
        + (f"<ol>{items}</ol>" if items else "")
        + (f'<p class="last">{": ".join(saved)}</p>' if saved else "")
        + "".join(f'<p class="help">{spoken(note)}</p>' for note in opening.advice_notes)
        + f"{of_whole()}</div>"
    )


def _advice(advice: Advice, number: int | None) -> str:
    title = spoken(advice.title)
    if number is not None:
        title = f'<a href="#{finding_id(number)}">{title}</a>'
    gain = advice.gain
    if gain and not advice.outcome:
        gain = said("gain {gain}", gain=gain)
    figure = f' <b class="gain">{spoken(gain)}</b>' if gain else ""
    change = f'<span class="change">{spoken(advice.change)}</span>'
    if advice.outcome:
        figure = f"<br>{figure}"
    else:
        change = f"<br>{change}"
    return f"<li>{title}{figure} {change}</li>"


def shapes_html(view: TableView | None) -> str:
    """The placeholder of the costliest shapes, which `shapes_json` fills."""
    if view is None:
        return ""
    name = spoken(view.name)
    return f'<div class="costliest"><h2>{name}</h2><div id="first-shapes"></div>{of_whole()}</div>'


def shapes_json(opening: Opening | None) -> dict[str, Any] | None:
    """The costliest shapes as JSON for the scripts, or None."""
    view = opening.shapes if opening else None
    return None if view is None else table_json(view) | {"name": said("costliest shapes")}


# --- The page above its sections, by place in `templates/report.html`. All of it is HTML, and every
# text in it is escaped.


_ROW = 7  # key figures in one row


def header_html(report: Report) -> dict[str, str]:
    """Return the header by placeholder: subject, notices, the bookkeeping as a line that opens to
    lost data, key figures and the accounting, and the overview for a reader with thirty seconds."""
    summary, opening = report.summary, report.opening or Opening(report.summary.headline)
    names = (f"<bdi>{spoken(part)}</bdi>" for part in summary.subject)
    findings = [part.findings for section in report.sections for part in section.parts]
    return {
        "subject": " · ".join(names),
        "selection": _paragraph("notice", summary.selection),
        "against": _against(summary.against),
        "answers": answers_html(opening.facts),
        "bookkeeping": _bookkeeping(summary, opening.checks),
        "gains": findings_html(opening, next(filter(None, findings), ())),
        "costliest": shapes_html(opening.shapes),
    }


def _paragraph(style: str, text: str) -> str:
    return f'<p class="{style}">{spoken(text)}</p>' if text else ""


def _bookkeeping(summary: Summary, checks: tuple[Fact, ...]) -> str:
    """Return what is lost or contradictory, framed, and one line on how far the rest can be
    trusted."""
    alerts = "".join(_item(fact) for fact in checks if fact.alert)
    quiet = sorted((fact for fact in checks if not fact.alert), key=lambda fact: not fact.remark)
    body = _missing(summary) + _facts(summary.facts)
    body += _paragraph("accounting", summary.accounting)
    return (
        (f'<div class="alerts">{alerts}</div>' if alerts else "")
        + '<details class="bookkeeping"><summary><span class="items">'
        + f'{"".join(map(_item, quiet))}</span> <span class="more">{spoken(_MORE)}</span></summary>'
        + f"{body}</details>"
    )


_MORE: Said = said("Key figures")


def _item(fact: Fact) -> str:
    """Return a fact as HTML, with its note if that is worth reading."""
    text = f"{spoken(fact.label)} <b>{spoken(fact.value)}</b>"
    note = spoken(fact.note)
    if fact.remark:
        return f'<span class="remark">{text}{", " + note if note else ""}</span>'
    if not fact.alert:
        return f"<span>{text}</span>"
    text = f"{spoken(fact.label)}: <b>{spoken(fact.value)}</b>."
    note = f" <span>{spoken(sentence_of(fact.note))}</span>" if fact.note else ""
    return f'<strong role="alert"><span aria-hidden="true">⚠ </span>{text}{note}</strong>'


def _missing(summary: Summary) -> str:
    """List what was executed but is not in the trace, below a line that says so; "" if nothing is
    missing."""
    if not summary.missing:
        return ""
    opening, *rest = summary.missing
    style = "notice drops" if summary.lost else "notice"
    items = "".join(f"<li>{spoken(line)}</li>" for line in rest)
    return f'<div class="{style}"><strong>{spoken(opening)}</strong><ul>{items}</ul></div>'


def _against(text: str) -> str:
    """Return the comparison with the baseline as a link to its section."""
    return f'<p class="against"><a href="#comparison">{spoken(text)}</a></p>' if text else ""


def _facts(facts: tuple[Fact, ...]) -> str:
    """The key figures in one row, or in two of the same length."""
    columns = len(facts) if len(facts) <= _ROW else -(-len(facts) // 2)
    cards = "".join(
        f"<div{' class=alert' if fact.alert else ''}><dt>{spoken(fact.label)}</dt>"
        f'<dd class="value">{spoken(fact.value)}</dd>'
        f'<dd class="note">{spoken(fact.note)}</dd></div>'
        for fact in facts
    )
    return f'<dl class="facts" style="--columns:{columns}">{cards}</dl>{of_whole()}'


# --- One run as one HTML file: self-contained, offline, safe to open whatever the trace says.


_OPENING = modules("opening.js")
"""The scripts of the first screen, which are not compressed; the others are, and run after them."""
_LATE = modules("figures.js", _OPENING)


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
    """Write the page of `run` to `path`; arguments as in `html_page`. Raises OutputError if that is
    not possible."""
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
    """Return the whole page as text.

    It opens in `language` (`en`, `ko`), with `auto` in its reader's. `against` compares the run
    with a baseline. `source` is the bundle or the file of the run: its files are named, and if it
    is small the page contains its merged trace for the Perfetto UI. `report` and `packing` are
    passed if they exist already.
    """
    packing = packing or Packing(source)
    timeline = timeline_of(
        run, axis=analysis.inputs.axis, bounds=bounds(analysis), roles=_roles(analysis)
    )
    cells, sums = packed_cells(cells_of(analysis.inputs), timeline.strings)
    tables, columns = pack(timeline.tables, after={"commands": {"start": "duration"}})
    report = report or build_report(ReportInput(analysis, *extent(run), against, source))
    body, sentence = body_of(report), report.summary.headline
    trace = packing.trace
    library = packing.library(
        {one["type"] for of in body.figures["light"].values() for one in of["data"]}
    )
    script, late = page_scripts()
    first = _first(run, analysis, timeline, report, language)
    rest = _rest(body, timeline, trace, analysis.run.run_id) | {
        "tables": tables,
        "cells": cells,
    }
    page = filled(
        "report.html",
        **header_html(report),
        headline=spoken(sentence),
        sections=body.sections,
        data=embedded(first),
        rest=_packed_json(rest),
        late=deflated(late.encode()),
        columns=columns,
        cells=sums,
        trace=trace.packed if trace else "",
        script=script,
        # Nobody needs them before a figure is looked at; themes differ in colours only.
        charts=_packed_json({"figures": body.figures, "spoken": _spoken(body.figures["light"])}),
        plotly=library.packed,
    )
    title = titled(joined(" - ", [sentence, analysis.run.run_id]))
    style = style_sheet("report.css", "first_screen.css", "selection.css")
    hashes = [*(script_hash(text.encode()) for text in (script, late)), library.hash]
    top = Top(body.contents, "timeline", said("Skip to the timeline"))
    return document(top, page, title, style, hashes)


def _roles(analysis: Analysis) -> pl.Series | None:
    """The role of each command of the run; None if the analysis has a selection."""
    of = analysis.inputs
    if of.selection:
        return None
    return of.kinds.spread(kind_roles(of)["role"])


def _first(
    run: Run, analysis: Analysis, timeline: Timeline, report: Report, language: str
) -> dict[str, Any]:
    """The data of the first screen as JSON values."""
    strip = strip_json(timeline, busy_json(analysis, extent(run)[0]))
    strip["carried"] = analysis.accounting.carried_over_ns
    strings = timeline.document["strings"]
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
        "messages": page_messages(map(template, _OPENING), [*shown.values()]),
        **shown,
    }


def _rest(
    body: Body, timeline: Timeline, trace: EmbeddedTrace | None, run_id: str
) -> dict[str, Any]:
    """What the scripts read after that, beside the columns of events."""
    columns, lanes = filled_columns(), timeline.document["lanes"]
    return {
        "timeline": timeline.document,
        "run": run_id,
        "tables_shown": body.tables,
        **columns,
        "messages": page_messages(map(template, _LATE), [body.tables, *columns.values(), lanes]),
        "trace": trace and _trace_facts(trace, run_id),
    }


def _trace_facts(trace: EmbeddedTrace, run_id: str) -> dict[str, Any]:
    named = {"name": trace.name, "run": run_id}
    return named | {"size": trace.size, "packed": bool(trace.packed)}


def page_scripts() -> tuple[str, str]:
    """Return the script that draws the first screen, and the compressed one that runs after it."""
    return script_of(_OPENING), script_of(_LATE)


def _packed_json(data: Any) -> str:
    """JSON as a zlib stream in base64."""
    return deflated(ascii_json(data).encode())


def _palette(run: Run, analysis: Analysis) -> dict[str, Any]:
    names = {*run.calls["submodule"].unique().to_list(), *analysis.submodules["submodule"]}
    return {
        "submodules": pairs(submodule_colours(names)),
        "roles": pairs(ROLE_COLOURS),
        "categories": pairs(CATEGORY_COLOURS),
        "bounds": pairs(BOUND_COLOURS),
        "peaks": [{"light": one.light, "dark": one.dark} for one in PEAK_COLOURS],
        "page": pairs(PAGE),
        **pairs({"surface": SURFACE, "host": HOST, "unknown": PAGE["frame"]}),
    }


def _spoken(figures: dict[str, Chart]) -> dict[str, dict[str, Any]]:
    """By language and figure its texts there."""
    found = {key: translations(chart) for key, chart in figures.items()}
    return {
        language: {key: texts[language] for key, texts in found.items() if texts[language]}
        for language in OTHERS
    }
