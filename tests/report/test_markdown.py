"""Markdown and terminal show the same of a report, whatever it is of."""

from __future__ import annotations

import io

import polars as pl
import pytest
from rich.console import Console

from profiler.analysis import Report
from profiler.analysis.analyze import analyze
from profiler.compare import Compared, check_gate, columns_report
from profiler.compare.operations import NODE, GraphPair, GraphSide
from profiler.compare.report import comparison_report
from profiler.report import print_report
from profiler.report.files import escaped, markdown
from profiler.report.html.two_runs import graphs_report
from tests.analysis.comparison.small import BASE, SLOWER, compared, steps_run
from tests.report.rendered import report_of
from tests.runs import tiny_run


def _side(path: str, types: tuple[str, ...]) -> GraphSide:
    rows = [("transformer", "attention", "blocks.0.attn", each, 2_000_000) for each in types]
    frame = pl.DataFrame(rows, schema=NODE, orient="row")
    return GraphSide(path, 10, 5, {"x": "float32[2,4]"}, frame)


def _of_runs() -> Report:
    found = compared(steps_run(BASE), steps_run(SLOWER))
    return comparison_report(found, [check_gate(found, "denoise.step", 0.05)])


def _of_columns() -> Report:
    runs = [compared(steps_run(BASE), steps_run(steps)) for steps in (SLOWER, BASE)]
    gate = check_gate(runs[0], "denoise.step", 0.05)
    columns = (Compared("slow|er", runs[0], [gate]), Compared("same", runs[1]))
    return columns_report("main", columns)


def _of_graphs() -> Report:
    base = _side("a.onnx", ("MatMul", "Softmax", "MatMul"))
    return graphs_report(GraphPair("transformer", base, _side("b.onnx", ("Attention",))))


REPORTS = {
    "a run": lambda: report_of(analyze(tiny_run())),
    "two runs": _of_runs,
    "three runs": _of_columns,
    "graphs": _of_graphs,
}


@pytest.fixture(params=REPORTS)
def report(request: pytest.FixtureRequest) -> Report:
    return REPORTS[request.param]()


def _printed(report: Report) -> str:
    console = Console(width=2000, file=io.StringIO(), highlight=False)
    print_report(console, report)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_every_table_is_in_both(report: Report) -> None:
    """The titles of parts with a table, in order, and as many tables as the report has."""
    lines = markdown(report).splitlines()
    titles = [
        part.title.replace("\N{NO-BREAK SPACE}", " ")
        for section in report.sections
        for part in section.parts
        if part.table and part.title
    ]
    headed = {f"### {escaped(title)}": title for title in titles}
    assert [headed[line] for line in lines if line in headed] == titles
    assert [line for line in _printed(report).splitlines() if line in titles] == titles
    rows = [line for line in lines if line.startswith("|---")]
    shown = [part.table for section in report.sections for part in section.parts if part.table]
    assert len(rows) == sum(len(table.variants) + 1 for table in shown)


def test_rows_are_even(report: Report) -> None:
    """A row has as many cells as the head of its table, whatever names hold."""
    widths: list[int] = []
    for line in markdown(report).splitlines():
        if not line.startswith("|"):
            widths = []
            continue
        widths.append(line.replace(r"\|", "").count("|"))
        assert len({*widths}) == 1


def test_a_verdict_is_first_in_a_document_and_last_in_a_terminal() -> None:
    """That is where each is read."""
    for report in (_of_runs(), _of_columns()):
        (verdict,) = report.verdicts
        line = f"{verdict.label}: {verdict.value}".replace("\N{NO-BREAK SPACE}", " ")
        assert _printed(report).splitlines()[-1] == line
        items = [each for each in markdown(report).splitlines() if each.startswith("- ")]
        assert items[0] == f"- {escaped(line)}"
