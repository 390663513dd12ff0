"""Terminal and page show the same: headings, order, tables, their columns and rows."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

from profiler.analysis import Analysis, Report, ReportInput, extent
from profiler.analysis.analyze import analyze
from profiler.report import body_of, build_report, print_report, section_kinds
from profiler.report.html.page import Body
from profiler.run import Run
from profiler.tools.sources import load
from tests.cli.test_terminal import Recording
from tests.report.generated import write_generated_bundle
from tests.runs import tiny_run

SAMPLES = Path(__file__).parents[2] / "sample_traces"
KEYS = (
    *(
        *("summary", "ladder", "findings", "comparison"),
        *("time", "requests", "modules", "guidance", "calls"),
        *("idle", "shapes", "roofline", "kernels", "ranks", "memory", "devices"),
        *("overhead", "provenance"),
    ),
)
_UNIT = re.compile(r" (ns|µs|ms|s|%|[MGT]FLOP/s|[MG]B/s)$")
_WIDE = 2000  # characters: every column has room


def _generated(folder: Path) -> Run:
    return load(write_generated_bundle(folder, steps=5))


RUNS = {
    "tiny": lambda _: tiny_run(),
    "generated": _generated,
    "two devices": lambda _: load(SAMPLES / "tiny_two_devices"),
    "imported": lambda _: load(SAMPLES / "sd35_mi300x"),
}


@pytest.fixture(scope="module", params=RUNS)
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Report:
    run = RUNS[request.param](tmp_path_factory.mktemp("runs"))
    return build_report(ReportInput(analyze(run), *extent(run)))


@pytest.fixture(scope="module")
def page(report: Report) -> Body:
    return body_of(report)


@pytest.fixture(scope="module")
def terminal(report: Report) -> Recording:
    console = Recording(_WIDE)
    print_report(console, report)
    return console


def _english(text: str) -> str:
    plain = html.unescape(re.sub(r"<[^>]+>", "", text))
    return " ".join(plain.replace("\N{NO-BREAK SPACE}", " ").split())


def _headings(page: Body) -> list[str]:
    """Titles of sections and parts of the page, without those of groups of names and values."""
    body = re.sub(r'<div class="groups">.*?</section>', "</section>", page.sections)
    return [_english(text) for text in re.findall(r"<h[23][^>]*>(.*?)</h[23]>", body)]


def _tables_of_page(page: Body) -> list[tuple[list[str], list[list[object]] | None]]:
    """Labels and the values of the rows shown at first, of every table and variant in order; None
    for rows that unfold."""
    found = []
    for key in re.findall(r'data-table="(\w+)"', page.sections):
        table = page.tables[key]
        names = [column["name"] for column in table["columns"]]
        labels = [str(column["label"]) for column in table["columns"]]
        variants = [one["values"] for one in table.get("variants", [table])]
        for values in variants:
            order = range(len(values[names[0]]))
            if "sort" in table:
                by = values[table["sort"]]
                order = sorted(order, key=lambda row: (by[row] is None, -(by[row] or 0), row))
            rows = [[values[name][row] for name in names] for row in order][: table["shown"]]
            totals = table.get("totals", {name: [] for name in names})
            rows += [list(row) for row in zip(*(totals[name] for name in names), strict=True)]
            found.append((labels, None if table.get("nested") else rows))
    return found


def test_headings_are_the_same_in_the_same_order(page: Body, terminal: Recording) -> None:
    """Whatever the terminal prints as a heading stands in the page, in the page's order; it lacks
    those of parts that are nothing but a figure."""
    headings = _headings(page)
    lines = [
        " ".join(line.partition(" ──")[0].split()) for line in terminal.file.getvalue().splitlines()
    ]
    printed = [line for line in lines if line in headings]
    assert len(printed) > 8
    missing = [heading for heading in headings if heading not in printed]
    assert [heading for heading in headings if heading in printed] == printed
    figures = {"Operators by step", "How long kernels take", "Stages: what devices did"}
    assert all(one in figures or one.startswith("Roles by block") for one in missing), missing


def test_tables_have_the_same_columns_and_rows(page: Body, terminal: Recording) -> None:
    """In the same order, with the same labels, as many rows, and the same names in them, but where
    rows unfold in the page."""
    of_page = _tables_of_page(page)
    assert len(terminal.tables) == len(of_page) > 4
    for drawn, (labels, rows) in zip(terminal.tables, of_page, strict=True):
        headers = [_UNIT.sub("", str(column.header)) for column in drawn.columns]
        below = [label for label in labels if label == "note" and label not in headers]
        assert [*headers, *below] == labels
        if rows is None:
            continue
        assert drawn.row_count == len(rows)
        cells = [[str(cell) for cell in column.cells] for column in drawn.columns]
        for number, row in enumerate(rows):
            for column, value in enumerate(row[: len(headers)]):
                if isinstance(value, str) and value:
                    assert cells[column][number] == value


def test_sections_stand_in_their_order(report: Report) -> None:
    """Those that are declared, and of them those that have something to show."""
    declared = [kind.key for kind in section_kinds()]
    assert declared == [key for key in KEYS if key in declared]
    shown = [section.key for section in report.sections]
    assert shown == [key for key in declared if key in shown]


def test_every_table_of_a_section_is_one_of_the_analysis() -> None:
    """A section that shows a table which is gone, or is renamed, is found."""
    found: Analysis = analyze(tiny_run())
    for kind in section_kinds():
        assert set(kind.tables) <= set(found.tables())
