"""What the page shows of a selection is what the analysis of that selection finds, cell by cell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from profiler.analysis.analyze import analyze
from profiler.analysis.commands import has_accelerators, is_accelerator
from profiler.analysis.operators import OFFSETS
from profiler.analysis.question import table_named
from profiler.analysis.roles import with_roles
from profiler.analysis.table_text import by_pattern, worded_column
from profiler.report.html.page import write_html
from profiler.run.columns import Column, Ratio, Rule, Sum, Union
from profiler.run.run import Run
from profiler.sources import load
from tests.browser.report_page import (
    ReportPage,
    become,
    opened,
    with_figures,
)
from tests.report.expected_tables import Expected
from tests.report.selections import Pick, analysis_of, matching, picks_of, split_run

pytestmark = pytest.mark.browser

_TRACES = Path(__file__).parents[2] / "sample_traces"
_SEVERAL = 6  # picks of several dimensions a run
_RUNS: dict[str, Callable[[], Run]] = {
    "tiny": lambda: with_roles(load(_TRACES / "tiny_two_devices")),
    "gpu": lambda: with_roles(load(_TRACES / "sd35_mi300x")),
    "split": split_run,
}
_DASH = "\N{EN DASH}"
_ROW = tuple[Any, ...]


@pytest.fixture(scope="module", params=_RUNS)
def chosen_from(
    request: pytest.FixtureRequest, chromium: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Run, ReportPage]]:
    """A run and its page, opened."""
    run = _RUNS[request.param]()
    path = tmp_path_factory.mktemp("selections") / "report.html"
    write_html(run, analyze(run), path)
    with opened(chromium, path) as report:
        yield run, report


def test_every_cell_of_a_selection_is_that_of_its_analysis(
    chosen_from: tuple[Run, ReportPage], request: pytest.FixtureRequest
) -> None:
    """Every table that is combined holds what the analysis of the selection finds. Without a value
    are, in rows of which only a part is selected, columns that do not combine; wall times of
    operators of which a call's commands match in part; unions of calls that overlap. Every other
    table has the rows of the whole run that match, and says that it is of that."""
    run, report = chosen_from
    picks = [*picks_of(run, pairs=_SEVERAL, each=2), {"device": ["rbln:1"], "role": ["norm"]}]
    picks = [pick for pick in picks if matching(run, pick).any()]
    assert len(picks) > 15
    seen: Counter[str] = Counter()
    for pick in picks:
        become(report, pick)
        seen.update(compare_all(report, Expected(run, pick)))
    assert {"operators", "submodules", "branches", "calls", "devices"} <= set(seen)
    assert seen["roofline"] or "split" in request.node.name
    assert seen["cut"] or "split" not in request.node.name


def test_the_bar_says_what_matches(chosen_from: tuple[Run, ReportPage]) -> None:
    """The commands that match and their time on devices are those of the run."""
    run, report = chosen_from
    for pick in picks_of(run, seed=1, pairs=4)[::3]:
        become(report, pick)
        found = run.commands.filter(matching(run, pick))
        device = found.filter(~_of_host(run))["duration_ns"].clip(0).sum()
        sums = report.page.evaluate("profileReport.choice.sums")
        assert sums == {"commands": len(found), "time": device}, pick


def _of_host(run: Run) -> pl.Expr:
    """Which commands are no device's: on a CPU that drives devices also what waits for them."""
    devices = run.commands["device"].cast(str).unique().to_list()
    hosts = [
        device for device in devices if has_accelerators(devices) and not is_accelerator(device)
    ]
    waits = (pl.col("category") == "sync") & pl.col("device").cast(pl.String).is_in(hosts)
    return (pl.col("category") == "host") | waits


def test_figures_of_a_selection_draw_its_rows(chosen_from: tuple[Run, ReportPage]) -> None:
    """Bars of operators and of roles are as long as the analysis of the selection has them."""
    run, report = chosen_from
    for pick in picks_of(run, seed=2, pairs=0)[::5]:
        become(report, pick)
        with_figures(report)
        analysis = analysis_of(run, pick)
        folded = by_pattern(analysis.operators.filter(~pl.col("host")))
        times = [row["share"] for row in folded.head(15).iter_rows(named=True)]
        longest = report.page.evaluate(
            """() => { const { data, hidden } = document.querySelector("[data-figure=operators]");
              return hidden ? [] : data[0].x.map((x) => x / data[0].x[0]); }"""
        )
        assert longest == pytest.approx([share / times[0] for share in times], rel=1e-4), pick
        roles = analysis.roles.filter(pl.col("submodule").is_not_null(), pl.col("total_ns") > 0)
        bars = report.page.evaluate(
            """() => { const { data, hidden } = document.querySelector("[data-figure=roles]");
              return hidden ? [] : data.flatMap(({ x, picks }) =>
                picks.map(({ submodule, role }, i) => [submodule, role, x[i]])); }"""
        )
        assert {(submodule, role): share for submodule, role, share in bars} == {
            (row["submodule"], row["role"]): pytest.approx(100 * row["share"])
            for row in roles.iter_rows(named=True)
        }, pick


def test_what_does_not_follow_says_so(chosen_from: tuple[Run, ReportPage]) -> None:
    """Below every figure that shows the whole run stands that it does, and beside every sentence
    and list of values."""
    run, report = chosen_from
    become(report, {"step": [1], "submodule": [run.calls["submodule"][-1]]})
    with_figures(report)
    said = report.page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll("[data-figure]")].map(
          (place) => {
            let next = place.nextElementSibling;
            if (next?.matches(".saves-figure")) next = next.nextElementSibling;
            return [place.dataset.figure, next?.textContent ?? ""];
          }))"""
    )
    for figure, text in said.items():
        assert figure in ("operators", "roles") or text.startswith("Whole run"), (figure, text)
    hidden = "() => [...document.querySelectorAll('.of-whole')].map((one) => one.offsetHeight > 0)"
    shown = report.page.evaluate(
        """() => [...document.querySelectorAll(".lead, .facts, .groups")]
          .filter((one) => one.offsetHeight > 0)
          .map((one) => one.nextElementSibling?.classList.contains("of-whole") ?? false)"""
    )
    assert len(shown) > 3
    assert all(shown)
    report.page.evaluate("profileReport.choice.clear()")
    assert not any(report.page.evaluate(hidden))


def test_a_dash_stands_where_there_is_no_value(chosen_from: tuple[Run, ReportPage]) -> None:
    """What has no value for a selection is a dash in the page, and the line above says of which
    columns; a submodule's operators are whole, so nothing is missing there."""
    run, report = chosen_from
    become(report, {"submodule": [run.calls["submodule"][-1]]})
    assert _DASH not in _shown_cells(report)["median"]
    become(report, {"call": [run.calls.filter(pl.col("step") == 1)["call"][0]]})
    shown = _shown_cells(report)
    assert _DASH not in shown["commands"]
    assert ("median a call" in shown["said"]) == (_DASH in shown["median"])
    traced = run.commands.filter(pl.col("category") != "host").join(run.calls, on="call")
    if traced.filter(submodule="transformer")["call"].n_unique() > 1:
        assert set(shown["median"]) == {_DASH}
        assert "No value for a selection:" in shown["said"]


def _shown_cells(report: ReportPage) -> dict[str, Any]:
    found: dict[str, Any] = report.page.evaluate(
        """() => { const { tables } = profileReport, table = tables.operators;
          const lines = [...table.rows.rows], names = table.columns.map(({ name }) => name);
          const texts = (name) => lines.map((line) => line.cells[names.indexOf(name)].textContent);
          return { median: texts("median_ns"), commands: texts("commands"),
            said: table.scope.textContent }; }"""
    )
    return found


def compare_all(report: ReportPage, expected: Expected) -> Counter[str]:
    """Compare all tables of the page with what is expected; how often each was combined."""
    seen: Counter[str] = Counter(cut=len(expected.cut))
    states = report.page.evaluate(_STATES)
    for table, frame, keys in expected.tables():
        name = table.split("/", maxsplit=1)[0]
        if name in states and states[name]["combined"]:
            seen[name] += compare(report, table, frame, keys, expected)
    for table, state in states.items():
        if not state["combined"]:
            assert "hole run" in state["said"], (table, expected.pick)
            assert state["whole"], (table, expected.pick)
    followed = {"operators", "submodules", "calls", "devices", "roofline"}
    combined = followed if tells_calls(expected.pick) else {"roles"}
    assert {name for name in combined if name in states} <= {
        name for name, state in states.items() if state["combined"]
    }
    return seen


_STATES = """() => Object.fromEntries(Object.entries(profileReport.tables).map(([key, table]) =>
  [key, { combined: table.combined, said: table.scope.textContent,
    whole: table.values === (table.whole.variants?.[Number(table.chosen.value)] ?? table.whole).values }]))"""  # noqa: E501


def compare(
    report: ReportPage, table: str, frame: pl.DataFrame, keys: tuple[str, ...], expected: Expected
) -> int:
    """Compare a table of the page with what is expected; how many cells were compared."""
    found = report.page.evaluate(_SHOWN, table.split("/"))
    if found is None:
        assert table == "operators/1", (table, expected.pick)
        return 0
    shown, held = found
    declared = {column.name: column for column in _columns(table)}
    names = [name for name in shown if name in frame.columns]
    assert set(shown) == set(names), (table, set(shown) - set(names))
    kept = tuple(name for name in keys if name in names)
    at = {key: i for i, key in enumerate(zip(*(shown[name] for name in kept), strict=True))}
    words = [declared[name] for name in names if name in declared and declared[name].codes]
    frame = frame.with_columns(
        pl.Series(one.name, worded_column(one, frame[one.name]), dtype=pl.String) for one in words
    )
    rows = {tuple(row[name] for name in kept): row for row in frame.iter_rows(named=True)}
    if table in ("branches", "roofline", "roofline_roles"):
        known = set(zip(*(held[name] for name in kept), strict=True))
        rows = {key: row for key, row in rows.items() if key in known}
    if table == "devices" and not tells_calls(expected.pick):  # calls without such work
        rows = {key: row for key, row in rows.items() if row["commands"]}
    assert set(at) == set(rows), (table, expected.pick)
    whole, cut = expected.parts(table, kept), expected.cut_rows(table)
    for key, row in rows.items():
        for name in names:
            value, column = shown[name][at[key]], declared.get(name)
            place = (table, expected.pick, key, name)
            if in_context(table, name, column, expected.pick):
                continue
            if value is None and row[name] not in (None, ""):
                told = whole.get(key) and not (table == "host" and "*" in key[-1])
                assert may_lack(column, told, key in cut), (place, row[name])
            else:
                same(value, row[name], place)
    return len(rows) * len(names)


_SHOWN = """([key, variant]) => {
  const table = profileReport.tables[key];
  if (variant && !table.variants) return null;
  return [variant ? table.variants[Number(variant)].values : table.values, table.whole.values];
}"""


def _columns(table: str) -> tuple[Column, ...]:
    return table_named({"host": "operators"}.get(table, table.split("/", maxsplit=1)[0])).columns


def may_lack(column: Column | None, whole: bool | None, cut: bool) -> bool:
    """Whether a cell may have no value though the analysis has one."""
    if whole:
        return False
    rule = column.combine if column is not None else None
    return rule is None or isinstance(rule, Union) or (cut and _of_folds(rule))


def tells_calls(pick: Pick) -> bool:
    """Whether a selection is one of whole calls."""
    return {*pick} <= {"stage", "submodule", "step", "device", "branch", "call"}


def in_context(table: str, name: str, column: Column | None, pick: Pick) -> bool:
    """Whether a value tells of what ran beside (the device waited before a command, its data were
    in a cache), or of calls: no selection of work tells these."""
    if tells_calls(pick):
        return False
    if table in ("roofline", "roofline_roles"):
        return column is None or column.combine is None
    streams = ("image_stream_ns", "text_stream_ns")
    return name in {"roles": streams, "blocks": streams, "devices": ("calls",)}.get(table, ())


def same(shown: Any, wanted: Any, place: _ROW) -> None:
    """A cell shows what the analysis has."""
    if isinstance(wanted, float):
        assert shown == pytest.approx(wanted, rel=1e-4, abs=1e-12), place
    elif wanted is None or isinstance(wanted, str):
        assert (shown or None) == (wanted or None), place
    else:
        assert shown == wanted, place


def _of_folds(rule: Rule) -> bool:
    sums = (rule.of, rule.to) if isinstance(rule, Ratio) else (rule,)
    return any(isinstance(one, Sum) and {*one.of} & {*OFFSETS} for one in sums)
