"""Reports and answers as files: Markdown, CSV, Parquet and notebook output.

    markdown(comparison_report(comparison, gates))

All text is escaped: names of a model or trace never become markup, links or spreadsheet
formulas. Notebooks reach `as_html` by a hook that the package root sets, so runs import no
report.
"""

from __future__ import annotations

import hashlib
import html
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import polars as pl
from msgspec.structs import replace

from profiler.analysis.device_profiles import DeviceProfile
from profiler.analysis.document import Part, Report, Section, Summary, TableView
from profiler.analysis.finding_text import words
from profiler.analysis.findings import findings_part
from profiler.analysis.question import Table, tables
from profiler.analysis.result import Accounting, Analysis, Finding, RunSummary, StepSummary
from profiler.analysis.run_headline import headline
from profiler.analysis.stages import submodules_part
from profiler.analysis.steps import outlier_count
from profiler.analysis.submodules import SUBMODULES, recorded_submodules
from profiler.analysis.table_text import (
    renamed,
    table,
    why_not,
    worded_cell,
    worded_note,
    worded_tables_by_name,
)
from profiler.files import appearing, folder_appearing, json_text, plain
from profiler.plugins import plain_text
from profiler.prediction.ladder import ladder_of_analysis
from profiler.prediction.ladder_section import ladder_document
from profiler.report.terminal import evidence_text
from profiler.report.terminal_layout import Drawn, clean, drawn, shorten
from profiler.run.columns import STRING, Column, col
from profiler.run.run import Run, write_frame, write_parquet
from profiler.text import Note, NoteCode, count, counted, said
from profiler.trace.documents import bounded, document_text, envelope

# --- The report as one JSON document; `docs/json.md` describes every key.
#
# Times are integers in nanoseconds, shares and other ratios numbers with 1.0 for the total; unknown
# values are null.


def document(analysis: Analysis) -> dict[str, Any]:
    """The analysis as plain values: mappings, lists, text, numbers, booleans, None."""
    columns = {table.name: table.columns for table in tables()}
    frames = analysis.tables()
    rows = {name: _json_rows(frame, columns.get(name, ())) for name, frame in frames.items()}
    for name in IDENTIFIED:
        rows[name] = list(_identified(name, rows[name]))
    rows |= {name: table.rows(analysis) for name, table in worded_tables_by_name().items()}
    rows["findings"] = list(_linked(rows))
    return {
        **envelope("analysis"),
        "run": _run(analysis.run),
        "accounting": _noted(analysis.accounting, "why_not"),
        "step_summary": _noted(analysis.step_summary, "rule"),
        **rows,
        "step_outliers_total": outlier_count(analysis),
        "device_profiles": _profiles(analysis.device_profiles),
        "ladder": ladder_document(ladder_of_analysis(analysis)),
    }


def to_json(analysis: Analysis) -> str:
    """The document as JSON text that ends with a newline; no NaN, no Infinity."""
    return document_text(document(analysis))


def _run(run: RunSummary) -> dict[str, Any]:
    """The run as plain values; differing settings are text, and objects under `settings_codes`."""
    notes = {name: value for name, value in run.settings.items() if isinstance(value, Note)}
    settings = {name: str(worded_note(note)) for name, note in notes.items()}
    return {
        **plain(run),
        "settings": {**plain(run.settings), **settings},
        "settings_codes": {name: note.as_json() for name, note in notes.items()},
    }


def _noted(value: Accounting | StepSummary, name: str) -> dict[str, Any]:
    """Return plain values; the note `name` is a sentence, and an object under `…_code`."""
    note: Note | None = getattr(value, name)
    as_json = None if note is None else note.as_json()
    return {**plain(value), name: str(why_not(note)), f"{name}_code": as_json}


def _json_rows(frame: pl.DataFrame, columns: Sequence[Column]) -> list[dict[str, Any]]:
    """The rows of a table; notes as a list of objects, and as text under `…_text`."""
    rows = frame.to_dicts()
    for column in columns:
        if column.codes is not None and issubclass(column.codes, NoteCode):
            for row in rows:
                row[f"{column.name}_text"] = str(worded_cell(row[column.name], column.codes))
                row[column.name] = json.loads(row[column.name])
    return rows


IDENTIFIED = {
    "calls": ("call",),
    "devices": ("device",),
    "operators": ("submodule", "layer", "host"),
    "steps": ("pipeline", "step"),
    "submodules": ("submodule",),
}
"""The tables whose rows have an `id` that findings refer to, with the columns that identify a
row."""
_NAMED_BY = {
    "devices": "device",
    "operators": "layer",
    "steps": "step",
    "submodules": "submodule",
}
"""The field that a finding must set to refer to single rows of a table."""
_ID_BYTES = 8


def _identified(table: str, rows: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the rows with an `id` made of their keys alone: it is the same in every analysis of a
    run, and of bounded length."""
    seen: dict[str, int] = {}
    for row in rows:
        key = repr([row[name] for name in IDENTIFIED[table]]).encode(errors="surrogatepass")
        name = f"{table}-{hashlib.blake2b(key, digest_size=_ID_BYTES).hexdigest()}"
        seen[name] = seen.get(name, 0) + 1
        yield {"id": name if seen[name] == 1 else f"{name}.{seen[name]}", **row}


def _linked(rows: Mapping[str, Sequence[dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    """Yield the findings with an `id`, which links to the page use, and the ids of the `rows` that
    they refer to."""
    seen: dict[str, int] = {}
    for finding in rows["findings"]:
        rule, where = finding["rule"], finding["where"]
        seen[rule] = seen.get(rule, 0) + 1
        name = rule if seen[rule] == 1 else f"{rule}.{seen[rule]}"
        ids = [row["id"] for table in IDENTIFIED for row in _about(table, rows[table], where)]
        yield {"id": name, **finding, "rows": ids}


def _about(
    table: str, rows: Sequence[dict[str, Any]], where: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table that a finding refers to."""
    if table == "calls":
        yield from (row for row in rows if row["call"] in where["calls"])
        return
    wanted = {name: where[name] for name in IDENTIFIED[table] if where.get(name) is not None}
    if _NAMED_BY[table] in wanted:
        yield from (row for row in rows if all(row[name] == wanted[name] for name in wanted))


def _profiles(profiles: Mapping[str, DeviceProfile]) -> dict[str, Any]:
    """The peak rates that each device was compared with, by device."""
    return {
        device: {
            "hardware": profile.hardware,
            "measured": profile.measured,
            "source": profile.source,
            "memory_bytes_per_s": profile.memory_bandwidth,
            "cache_bytes": profile.cache_bytes,
            "cache_bytes_per_s": profile.cache_bandwidth,
            "launch_ns": None if profile.launch_ns is None else round(profile.launch_ns),
            "peak_flops_per_s": dict(profile.peak_flops),
        }
        for device, profile in profiles.items()
    }


# --- Frames as CSV: lists and structs as text, and no formulas for spreadsheets.


# What makes spreadsheets calculate; some also do so at full-width = + - @.
_FORMULA = r"^[=+\-@\t\r\n\x{ff1d}\x{ff0b}\x{ff0d}\x{ff20}]"
_HIDDEN = r"[\p{Cc}\p{Cf}\p{Co}\p{Cn}\p{Zl}\p{Zp}]+"
_NUMBER = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$"


def flat(frame: pl.DataFrame) -> pl.DataFrame:
    """Return `frame` with lists and structs as JSON text."""
    nested = [name for name, dtype in frame.schema.items() if dtype.is_nested()]
    return frame.with_columns(
        pl.Series(name, [_json(value) for value in frame[name].to_list()], dtype=pl.String)
        for name in nested
    )


def for_spreadsheets(frame: pl.DataFrame) -> pl.DataFrame:
    """Return `frame`, flat, with an apostrophe before each text that a spreadsheet would read as a
    formula, in column names as well; texts that are numbers stay. Characters that control a
    terminal become �."""
    frame = flat(frame)
    texts = [
        name
        for name, dtype in frame.schema.items()
        if dtype.base_type() in (pl.String, pl.Categorical, pl.Enum)
    ]
    found = frame.with_columns(
        _without_formulas(pl.col(name).cast(pl.String)).alias(name) for name in texts
    )
    named = pl.Series(frame.columns, dtype=pl.String).to_frame("name")
    found.columns = named.select(_without_formulas(pl.col("name")).alias("name"))["name"].to_list()
    return found


def for_terminals(frame: pl.DataFrame) -> pl.DataFrame:
    """Return `frame` with texts that a terminal only displays."""
    found = frame.with_columns(pl.col(pl.String).map_elements(plain_text, return_dtype=pl.String))
    found.columns = [plain_text(name) for name in frame.columns]
    return found


def _without_formulas(text: pl.Expr) -> pl.Expr:
    formula = text.str.contains(_FORMULA) & ~text.str.contains(_NUMBER)
    safe = pl.when(formula).then("'" + text).otherwise(text)
    return safe.str.replace_all(_HIDDEN, "\N{REPLACEMENT CHARACTER}")


def _json(value: object) -> str | None:
    return None if value is None else json_text(value, indent=None)


# --- A report as Markdown with tables, for a pull request.
#
# It has no figures. Cells are formatted as in a terminal, and every text is escaped: names of a
# model or a trace become no markup, no link, no mention.


_NO_BREAK = "\N{NO-BREAK SPACE}"
_SPECIAL = re.compile(r"([\\`*_|<>\[\]&~$#])")
_LINKED = re.compile(r"(?<=:)(?=//)|(?<=www)(?=\.)", re.IGNORECASE)  # GitHub makes links of these
_LINE_BEGIN = re.compile(r"^(\s*[0-9]*)([-+.)=])(?=\s|=|$)")  # of a list, a heading
_NOBODY = "@<!-- -->"  # GitHub would notify the user of this name


def markdown(report: Report) -> str:
    """Return the report as Markdown; ends with a newline."""
    lines = [f"**{escaped(report.summary.headline)}**", ""]
    lines += [_item(f"{each.label}: {each.value}") for each in report.verdicts]
    lines += map(_item, _below_headline(report.summary))
    for section in report.sections:
        if section.title:
            lines += ["", f"## {escaped(section.title)}"]
        for part in section.parts:
            lines += _markdown_part(part)
    return "\n".join(lines).replace(_NO_BREAK, " ") + "\n"


def escaped(text: str) -> str:
    """Escape text for a cell or a line of Markdown: no markup, link or mention."""
    plain = _LINKED.sub(r"\\", _SPECIAL.sub(r"\\\1", clean(text)))
    return _LINE_BEGIN.sub(r"\1\\\2", plain).replace("@", _NOBODY)


def _item(text: str) -> str:
    return f"- {escaped(text)}"


def _below_headline(summary: Summary) -> Iterator[str]:
    yield from summary.subject
    yield from filter(None, (summary.selection, *summary.missing, summary.against))
    for fact in summary.facts:
        yield f"{fact.label}: {fact.value}" + (f", {fact.note}" if fact.note else "")
    yield from filter(None, (summary.accounting,))


def _markdown_part(part: Part) -> Iterator[str]:
    if part.title:
        yield from ("", f"### {escaped(part.title)}")
    if part.lead:
        yield from ("", escaped(part.lead))
    items = [
        *(f"{each.severity}: {words(each).title}; {evidence_text(each)}" for each in part.findings),
        *(f"{group.title}: {_pairs(group.rows)}" for group in part.groups),
    ]
    if items:
        yield from ("", *map(_item, items))
    if part.table is not None:
        yield from _markdown_table(part.table)
    if part.notes:
        yield from ("", *map(_item, part.notes))


def _pairs(rows: Iterable[tuple[str, str]]) -> str:
    return "; ".join(" ".join(filter(None, pair)) for pair in rows)


def _markdown_table(view: TableView) -> Iterator[str]:
    """Yield the first rows, separately for each variant, and the number of rows."""
    for label, frame in ((view.label, view.printed), *view.variants):
        if view.variants:
            yield from ("", escaped(f"One row per {label}:"))
        yield from ("", *_markdown_rows(view, frame))
        if len(frame) > view.shown:
            yield from ("", f"{count(view.shown)} of {count(len(frame))} rows")


def _markdown_rows(view: TableView, frame: pl.DataFrame) -> Iterator[str]:
    below = () if view.below is None else (view.below,)
    columns = drawn(replace(view, columns=(*view.columns, *below)), frame)
    yield _markdown_row(column.header for column in columns)
    yield "|" + "|".join("---:" if column.right else "---" for column in columns) + "|"
    yield from map(_markdown_row, zip(*(column.cells for column in columns), strict=True))


def _markdown_row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(map(escaped, cells)) + " |"


# --- The short reports of a notebook: an analysis by its submodules and findings, a run by its
# calls. They consist of parts of the full report, so that both agree.


_OF_RUN = (
    "submodule",
    "device",
    "calls",
    renamed(SUBMODULES, "duration_ns", label="duration", importance=0),
    "first_ns",
    "median_ns",
)


def analysis_excerpt(analysis: Analysis) -> Report:
    """Return the headline, submodules and findings of an analysis as a report."""
    total = analysis.accounting.end_to_end_ns
    lines = (headline(analysis, 0),) if total else ()
    parts = [submodules_part(analysis)]
    if analysis.findings:
        parts.append(findings_part(analysis))
    return Report(Summary(analysis.run.run_id, lines), (Section("time", parts=tuple(parts)),))


def run_excerpt(run: Run) -> Report:
    """Return what ran, and the submodules of a run as recorded, as a report."""
    facts = [
        run.info.model,
        run.info.pipeline,
        counted(len(run.calls), "call"),
        counted(len(run.commands), "command"),
    ]
    if run.drops:
        facts.append(f"{_drops(len(run.drops))} (run.drops)")
    rows = recorded_submodules(run.calls)
    made = table("submodules", "submodules", _OF_RUN, SUBMODULES, rows, shown=20)
    part = Part(said("Submodules"), table=made)
    return Report(
        Summary(run.run_id, tuple(fact for fact in facts if fact)),
        (Section("time", parts=(part,)),),
    )


def _drops(number: int) -> str:
    return f"{number} {'drop' if number == 1 else 'drops'}"


# --- A run and an analysis as notebooks show them: a short report, in the notebook's own colours.
#
# `_repr_html_` of a run and of an analysis reach `as_html` through a hook that the package root
# sets (`table.drawing`), so that runs do not import reports.


_ROWS = 12  # of a table; more are counted
_FINDINGS = 5
_IMPORTANCE = 1  # columns above this have no room
_NAME = 60  # characters
_CELL, _LINE = 200, 400
_PADDING = "padding:0 0.7em"


def as_html(shown: Run | Analysis) -> str:
    """Return the summary of a run or an analysis as HTML without colours; every name is escaped."""
    report = run_excerpt(shown) if isinstance(shown, Run) else analysis_excerpt(shown)
    summary = report.summary
    line = ", ".join(summary.subject)
    parts = (
        piece
        for section in report.sections
        for part in section.parts
        for piece in _notebook_part(part)
    )
    return (
        f'<div style="line-height:1.5"><b>{_text(summary.headline)}</b>'
        f"<div>{_text(line, _LINE)}</div>{''.join(parts)}</div>"
    )


def _notebook_part(part: Part) -> Iterator[str]:
    if part.table is not None:
        yield _notebook_table(part.table)
    if part.findings:
        yield _findings(part.findings)


def _notebook_table(view: TableView) -> str:
    """Return the most important columns and first rows of a table as HTML."""
    kept = tuple(column for column in view.columns if column.importance <= _IMPORTANCE)
    cells = drawn(replace(view, columns=kept, shown=_ROWS, totals=None), view.printed)
    return _grid(cells) + _more(len(view.printed) - _ROWS)


def _findings(findings: Sequence[Finding]) -> str:
    """Return severity and title of the worst findings as HTML."""
    shown = findings[:_FINDINGS]
    severities = tuple(finding.severity for finding in shown)
    titles = tuple(words(finding).title for finding in shown)
    columns = [Drawn("findings", severities, right=False), Drawn("", titles, right=False)]
    return _grid(columns) + _more(len(findings) - len(shown), " in <code>analysis.findings</code>")


def _more(number: int, where: str = "") -> str:
    return f"<div>… and {count(number)} more{where}</div>" if number > 0 else ""


def _grid(columns: Sequence[Drawn]) -> str:
    sides = ["right" if column.right else "left" for column in columns]
    top = _notebook_row("th", [_text(column.header) for column in columns], sides)
    rows = zip(*(column.cells for column in columns), strict=True)
    body = (
        _notebook_row("td", [_text(cell, _CELL) for cell in row], sides)
        for row in islice(rows, _ROWS)
    )
    return f"<table><thead>{top}</thead><tbody>{''.join(body)}</tbody></table>"


def _notebook_row(tag: str, cells: Sequence[str], sides: Sequence[str]) -> str:
    aligned = (
        f'<{tag} style="text-align:{side};{_PADDING}">{cell}</{tag}>'
        for cell, side in zip(cells, sides, strict=True)
    )
    return f"<tr>{''.join(aligned)}</tr>"


def _text(value: str, most: int = _NAME) -> str:
    return html.escape(plain_text(shorten(value, most)))


# --- The tables of an analysis as files: CSV for spreadsheets, Parquet for notebooks.


def worded_columns(table: Table) -> tuple[Column, ...]:
    """Return the columns of a table plus a text column for each column of notes; if it has a
    `WordedTable`, the columns of that."""
    known = worded_tables_by_name().get(table.name)
    if known is not None:
        return known.columns
    columns = table.columns
    texts = (
        col(f"{one.name}_text", STRING, f"`{one.name}` in words", one.nullable)
        for one in columns
        if _notes_of(one)
    )
    return (*columns, *texts)


def worded_tables(analysis: Analysis) -> dict[str, pl.DataFrame]:
    """The tables of an analysis with the columns of `worded_columns`."""
    found = analysis.tables()
    for table in tables():
        found[table.name] = _worded(found[table.name], table.columns)
    known = worded_tables_by_name()
    return found | {name: table.frame(analysis) for name, table in known.items()}


def _worded(frame: pl.DataFrame, columns: Sequence[Column]) -> pl.DataFrame:
    for column in columns:
        if codes := _notes_of(column):
            cells = [str(worded_cell(text, codes)) for text in frame[column.name]]
            frame = frame.with_columns(pl.Series(f"{column.name}_text", cells, dtype=pl.String))
    return frame


def _notes_of(column: Column) -> type[NoteCode] | None:
    codes = column.codes
    return codes if codes is not None and issubclass(codes, NoteCode) else None


def write_csv_tables(analysis: Analysis, directory: Path) -> list[Path]:
    """Write `stages.csv`, `devices.csv`, … into `directory`, over files of these names.

    Returns the paths. Raises OutputError if that cannot be.
    """
    names = []
    with folder_appearing(directory) as folder:
        for name, frame in worded_tables(analysis).items():
            names.append(f"{name}.csv")
            with appearing(folder / names[-1]) as file:
                for_spreadsheets(frame).write_csv(file)
    return [directory / name for name in names]


def write_parquet_tables(run: Run, analysis: Analysis, directory: Path) -> list[Path]:
    """Write the run to a new or empty `directory`, so that `profiler.load` reads it back, and the
    tables of the analysis beside it as `analysis_stages.parquet`, ….

    Returns the paths of the latter. Raises OutputError if that cannot be.
    """
    with folder_appearing(directory, over=False) as folder:
        write_parquet(run, folder)
        names = []
        for name, frame in worded_tables(analysis).items():
            names.append(f"analysis_{name}.parquet")
            write_frame(frame, folder / names[-1])
    return [directory / name for name in names]


# --- Answers as files: CSV, Parquet and JSON, written batch by batch as they come.


_Take = Callable[[pl.DataFrame], None]


def write_answer(batches: Iterable[pl.DataFrame], files: dict[str, Path], stdout: BinaryIO) -> int:
    """Write all batches into each of `files`, given by format, "-" being `stdout`; return the
    number of rows. A file appears when it is complete. Raises OutputError if that is not
    possible."""
    rows = 0
    with ExitStack() as stack:
        takers = []
        for form, path in files.items():
            target = stdout if path == Path("-") else stack.enter_context(appearing(path))
            takers.append(stack.enter_context(FORMATS[form](target)))
        for batch in batches:
            rows += len(batch)
            for take in takers:
                take(batch)
    return rows


@contextmanager
def _csv_answer(file: BinaryIO) -> Iterator[_Take]:
    begun = False

    def take(batch: pl.DataFrame) -> None:
        nonlocal begun
        if len(batch) or not begun:
            frame = for_spreadsheets(batch)
            if file.isatty():
                frame = for_terminals(frame)
            frame.write_csv(file, include_header=not begun)
        begun = True

    yield take


@contextmanager
def _parquet_answer(file: BinaryIO) -> Iterator[_Take]:
    import pyarrow.parquet as pq

    writer: Any = None

    def take(batch: pl.DataFrame) -> None:
        nonlocal writer
        table = batch.to_arrow(compat_level=pl.CompatLevel.oldest())
        if writer is None:
            writer = pq.ParquetWriter(file, table.schema, compression="zstd")
        if len(batch):
            writer.write_table(table.cast(writer.schema))

    try:
        yield take
    finally:
        if writer is not None:
            writer.close()


@contextmanager
def _json_answer(file: BinaryIO) -> Iterator[_Take]:
    head = json_text(envelope("query"), indent=None).removesuffix("}")
    file.write(f'{head}, "rows": ['.encode())
    before = b"\n"

    def take(batch: pl.DataFrame) -> None:
        nonlocal before
        for row in batch.iter_rows(named=True):
            file.write(before + json_text(bounded(row), indent=None).encode())
            before = b",\n"

    yield take
    file.write(b"\n]}\n")


FORMATS: dict[str, Callable[[BinaryIO], AbstractContextManager[_Take]]] = {
    "csv": _csv_answer,
    "parquet": _parquet_answer,
    "json": _json_answer,
}
