"""What the page shows of a selection is what the analysis of that selection finds, cell by cell."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from profiler.analysis.analyze import analyze
from profiler.analysis.inputs import Inputs
from profiler.analysis.operators.partials import OFFSETS
from profiler.analysis.partials import Partials, partials
from profiler.analysis.registry import registered, table_named
from profiler.analysis.result import Analysis
from profiler.analysis.roles.of_commands import with_roles
from profiler.analysis.table import Table
from profiler.report.html.page import write_html
from profiler.report.patterns import by_pattern, pattern
from profiler.sources.load import load
from profiler.table.columns import Column
from profiler.table.combining import Key, Ratio, Sum
from profiler.table.run import Run
from tests.browser.report_page import ReportPage, combined, opened, scope, values, with_figures
from tests.report.selections import Pick, analysis_of, cut_operators, matching, picks_of, split_run

pytestmark = pytest.mark.browser

_TRACES = Path(__file__).parents[2] / "sample_traces"
_RUNS: dict[str, Callable[[], Run]] = {
    "tiny": lambda: with_roles(load(_TRACES / "tiny_two_devices")),
    "gpu": lambda: with_roles(load(_TRACES / "sd35_mi300x_cut")),
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
    """Operators folded and one by one, host work, roles and blocks of any selection hold what the
    analysis of that selection finds; without a value are columns that do not combine, and wall
    times, with what is made of them, of operators of which a call's commands match in part."""
    run, report = chosen_from
    picks = [*picks_of(run), {"device": ["rbln:1"], "role": ["norm"]}]
    picks = [pick for pick in picks if matching(run, pick).any()]
    assert len(picks) > 15
    cut_somewhere = 0
    for pick in picks:
        become(report, pick)
        analysis, cut = analysis_of(run, pick), cut_operators(run, pick)
        compared = sum(
            compare(report, table, expected, without, pick)
            for table, expected, without in tables_of(analysis, cut)
        )
        assert compared > 0, pick
        cut_somewhere += len(cut)
    assert cut_somewhere or "split" not in request.node.name


def test_the_bar_says_what_matches(chosen_from: tuple[Run, ReportPage]) -> None:
    """The commands that match and their time on devices are those of the run."""
    run, report = chosen_from
    for pick in picks_of(run, seed=1, pairs=4)[::3]:
        become(report, pick)
        found = run.commands.filter(matching(run, pick))
        device = found.filter(pl.col("category") != "host")["duration_ns"].clip(0).sum()
        sums = report.page.evaluate("profileReport.choice.sums")
        assert sums == {"commands": len(found), "time": device}, pick


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


def test_a_dash_stands_where_there_is_no_value(chosen_from: tuple[Run, ReportPage]) -> None:
    """What has no value for a selection is a dash in the page, and the line above says of which
    columns."""
    run, report = chosen_from
    become(report, {"submodule": [run.calls["submodule"][0]]})
    shown = report.page.evaluate(
        """() => { const { tables } = profileReport, table = tables.operators;
          const lines = [...table.rows.rows], names = table.columns.map(({ name }) => name);
          return { median: lines.map((line) => line.cells[names.indexOf("median_ns")].textContent),
            total: lines.map((line) => line.cells[names.indexOf("commands")].textContent),
            said: table.scope.textContent }; }"""
    )
    assert set(shown["median"]) == {_DASH}
    assert _DASH not in shown["total"]
    assert "No value for a selection:" in shown["said"]
    assert "median a call" in shown["said"]


def become(report: ReportPage, pick: Pick) -> None:
    """Choose exactly this."""
    report.page.evaluate(
        "(pick) => profileReport.choice.become(new Map(Object.entries(pick)))", dict(pick)
    )
    combined(report)


def tables_of(analysis: Analysis, cut: set[_ROW]) -> Iterator[tuple[str, pl.DataFrame, set[_ROW]]]:
    """The page's tables (with the place of a variant), their rows, and the keys of those that are
    cut."""
    layers = pl.DataFrame({"layer": [layer for _, layer, _ in cut]}, schema={"layer": pl.String})
    patterns = layers.select(pattern(pl.col("layer"))).to_series().to_list()
    single = {(submodule, layer, host) for submodule, layer, host in cut}
    both = single | {
        (submodule, name, host) for (submodule, _, host), name in zip(cut, patterns, strict=True)
    }
    for host, table in ((False, "operators"), (True, "host")):
        rows = analysis.operators.filter(pl.col("host") == host)
        yield table, by_pattern(rows), {key[:2] for key in both if key[2] == host}
        if not host:
            one = {key[:2] for key in single if key[2] == host}
            yield "operators/1", rows.with_columns(layers=pl.lit(1)), one
    positive = pl.col("total_ns") > 0
    yield "roles", analysis.roles.filter(positive, pl.col("submodule").is_not_null()), set()
    yield "blocks", analysis.blocks.filter(positive), set()


def compare(
    report: ReportPage, table: str, expected: pl.DataFrame, cut: set[_ROW], pick: Pick
) -> int:
    """Compare a table of the page with what is expected; how many cells were compared."""
    shown = report.page.evaluate(_SHOWN, table.split("/"))
    if shown is None:
        assert expected.is_empty() or table in ("host", "blocks", "operators/1"), (table, pick)
        return 0
    declared = {column.name: column for column in _columns(table)}
    names = [name for name in shown if name in expected.columns]
    assert set(shown) == set(names), (table, set(shown) - set(names))
    keys = [name for name in ("submodule", "layer", "role", "block") if name in names]
    found = {key: i for i, key in enumerate(zip(*(shown[name] for name in keys), strict=True))}
    wanted = {tuple(row[name] for name in keys): row for row in expected.iter_rows(named=True)}
    assert set(found) == set(wanted), (table, pick)
    for key, row in wanted.items():
        for name in names:
            place = (table, pick, key, name)
            same(shown[name][found[key]], row[name], declared.get(name), key in cut, place)
    return len(wanted) * len(names)


_SHOWN = """([key, variant]) => {
  const table = profileReport.tables[key];
  if (!table || (variant && !table.variants)) return null;
  if (!table.combined) throw new Error(`${key} does not follow`);
  return variant ? table.variants[Number(variant)].values : table.values;
}"""


def _columns(table: str) -> tuple[Column, ...]:
    return table_named({"host": "operators"}.get(table, table.split("/", maxsplit=1)[0])).columns


def same(shown: Any, wanted: Any, column: Column | None, cut: bool, place: _ROW) -> None:
    """A cell shows what the analysis has, or nothing where it must not."""
    if column is not None and (column.combine is None or (cut and _of_folds(column))):
        assert shown is None, place
    elif isinstance(wanted, float):
        assert shown == pytest.approx(wanted, rel=1e-9), place
    elif wanted is None or isinstance(wanted, str):
        assert (shown or None) == (wanted or None), place
    else:
        assert shown == wanted, place


def _of_folds(column: Column) -> bool:
    rule = column.combine
    sums = (rule.of, rule.to) if isinstance(rule, Ratio) else (rule,)
    return any(isinstance(one, Sum) and {*one.of} & {*OFFSETS} for one in sums)


def _by_place(of: Inputs) -> pl.DataFrame:
    found = of.frame.group_by("device", "stage").agg(total_ns=pl.col("duration_ns").sum())
    return found.with_columns(
        pl.col("device", "stage").cast(pl.String), share=pl.lit(None, pl.Float64)
    )


def _place_partials(of: Inputs) -> tuple[Partials, ...]:
    keys = of.frame.select(pl.col("device", "stage").cast(pl.String), "step").unique()
    rows = of.frame.with_columns(pl.col("device", "stage").cast(pl.String)).join(
        keys.with_row_index("key"), on=keys.columns, nulls_equal=True
    )
    sums = rows.group_by("key").agg(time=pl.col("duration_ns").sum())
    return (partials("places", sums, {"key": keys}),)


PLACES = Table(
    name="places",
    row="one device in a stage",
    section="devices",
    columns=(
        Column("device", pl.String(), "", "where", combine=Key()),
        Column("stage", pl.String(), "", "when", nullable=True, combine=Key()),
        Column("total_ns", pl.Int64(), "ns", "time of its commands", combine=Sum(("time",))),
        Column("share", pl.Float64(), "ratio", "nobody knows", True),
    ),
    make=_by_place,
    rank=("-total_ns",),
    partials=_place_partials,
)


def test_a_new_table_follows_by_its_declaration(chromium: Any, tmp_path: Path) -> None:
    """A table that brings partial results is combined without a word of JavaScript; by what its
    keys do not tell it keeps whole rows and says so."""
    run = split_run()
    with registered(PLACES):
        write_html(run, analyze(run), tmp_path / "report.html")
    with opened(chromium, tmp_path / "report.html") as report:
        become(report, {"step": [1]})
        shown = report.page.evaluate("profileReport.tables.places.values")
        wanted = run.commands.filter(step=1).group_by("device").agg(pl.col("duration_ns").sum())
        assert dict(zip(shown["device"], shown["total_ns"], strict=True)) == {
            str(device): total for device, total in wanted.iter_rows()
        }
        assert set(shown["stage"]) == {"denoise"}
        become(report, {"role": ["norm"]})
        said = report.page.evaluate("profileReport.tables.places.scope.textContent")
        assert said == "Whole run: this table does not tell role norm."
        assert report.said == []


def test_keys_that_are_left_out_are_not_told(
    chromium: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there are too many parts for single calls and steps, operators of a branch are exact
    still, and those of a step stay those of the whole run, which the page says."""
    run = split_run()
    monkeypatch.setattr("profiler.analysis.partials.MOST_PARTS", 150)
    write_html(run, analyze(run), tmp_path / "report.html")
    with opened(chromium, tmp_path / "report.html") as report:
        pick = {"branch": ["cond"]}
        become(report, pick)
        expected = by_pattern(analysis_of(run, pick).operators.filter(~pl.col("host")))
        found = values(report, "operators", "layer", "commands", "total_ns", "wall_ns", "calls")
        wanted = {row["layer"]: row for row in expected.iter_rows(named=True)}
        assert {row["layer"] for row in found} == set(wanted)
        for row in found:
            for name in ("commands", "total_ns", "wall_ns"):
                assert row[name] == wanted[row["layer"]][name], (row["layer"], name)
            assert row["calls"] is None
        become(report, {"step": [1]})
        assert scope(report, "operators") == "Whole run: this table does not tell step 1."
        assert report.said == []
