"""What the page shows of a selection is what the analysis of that selection finds, cell by cell."""

from __future__ import annotations

from collections import Counter
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
from profiler.analysis.roles.of_commands import with_roles
from profiler.analysis.table import Table
from profiler.report.excerpts import with_rates
from profiler.report.extent import extent
from profiler.report.html.page import write_html
from profiler.report.patterns import by_pattern, pattern
from profiler.report.views import worded
from profiler.sources.load import load
from profiler.table.columns import Column
from profiler.table.combining import Key, Ratio, Rule, Sum, Union
from profiler.table.run import Run
from tests.browser.report_page import ReportPage, combined, opened, scope, values, with_figures
from tests.report.selections import Pick, analysis_of, cut_operators, matching, picks_of, split_run

pytestmark = pytest.mark.browser

_TRACES = Path(__file__).parents[2] / "sample_traces"
_SEVERAL = 6  # picks of several dimensions a run
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
    """Every table that is combined holds what the analysis of the selection finds. Without a value
    are, in rows of which only a part is selected, columns that do not combine; wall times of
    operators of which a call's commands match in part; unions of calls that overlap. Every other
    table has the rows of the whole run that match, and says that it is of that."""
    run, report = chosen_from
    picks = [*picks_of(run, pairs=_SEVERAL), {"device": ["rbln:1"], "role": ["norm"]}]
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


def test_what_does_not_follow_says_so(chosen_from: tuple[Run, ReportPage]) -> None:
    """Below every figure that shows the whole run stands that it does, and beside every sentence
    and list of values."""
    run, report = chosen_from
    become(report, {"step": [1], "submodule": [run.calls["submodule"][-1]]})
    with_figures(report)
    said = report.page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll("[data-figure]")].map(
          (place) => [place.dataset.figure, place.nextElementSibling?.textContent ?? ""]))"""
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


def become(report: ReportPage, pick: Pick) -> None:
    """Choose exactly this."""
    report.page.evaluate(
        "(pick) => profileReport.choice.become(new Map(Object.entries(pick)))", dict(pick)
    )
    combined(report)


class Expected:
    """What the page should have of a selection: the analysis of it, beside that of the run."""

    def __init__(self, run: Run, pick: Pick) -> None:
        self.pick = pick
        self.run = run
        self.analysis = analysis_of(run, pick)
        self.cut = cut_operators(run, pick)
        place = pl.col("submodule", "branch", "device", "stage").cast(pl.String)
        self.calls = run.calls.with_columns(
            place, found=pl.col("call").is_in(self.analysis.calls["call"].to_list())
        )
        self.commands = run.commands.with_columns(
            pl.col("layer", "device", "role").cast(pl.String),
            host=pl.col("category") == "host",
            found=matching(run, pick),
        ).join(self.calls.select("call", "submodule", "branch"), on="call", how="left")

    def tables(self) -> Iterator[tuple[str, pl.DataFrame, tuple[str, ...]]]:
        """The page's tables (with the place of a variant), their rows, and their keys."""
        of = self.analysis
        operators = of.operators.filter(~pl.col("host"))
        yield "operators", by_pattern(operators), ("submodule", "layer")
        yield "operators/1", operators.with_columns(layers=pl.lit(1)), ("submodule", "layer")
        yield "host", by_pattern(of.operators.filter("host")), ("submodule", "layer")
        positive = pl.col("total_ns") > 0
        named = of.roles.filter(positive, pl.col("submodule").is_not_null())
        yield "roles", named, ("submodule", "role")
        yield "blocks", of.blocks.filter(positive), ("submodule", "block")
        yield "submodules", of.submodules, ("submodule",)
        yield "branches", of.branches, ("submodule", "branch")
        begin, _ = extent(self.run)
        yield "calls", of.calls.with_columns(pl.col("start_ns") - begin), ("call",)
        yield "devices", of.devices, ("device",)
        yield "roofline", with_rates(of.roofline), ("submodule", "layer", "device")
        yield "roofline_roles", with_rates(of.roofline_roles), ("submodule", "role", "device")

    def parts(self, table: str, keys: tuple[str, ...]) -> dict[_ROW, bool]:
        """By key whether all calls and commands of a row match; of a pattern those of all of its
        layers that have any. Rows that this does not tell are left out."""
        if table == "blocks":
            return {}
        frames = []
        for frame in (self.calls, self.commands):
            if all(key in frame.columns for key in keys):
                kept = frame if table not in ("host", "operators", "operators/1") else frame.filter(
                    pl.col("host") == (table == "host")
                )  # fmt: skip
                frames.append(kept.select(*keys, "found"))
        rows = (
            pl.concat(frames).group_by(keys).agg(pl.col("found").all(), any=pl.col("found").any())
        )
        if table in ("host", "operators"):
            folded = rows.filter("any").with_columns(layer=pattern(pl.col("layer")))
            rows = folded.group_by(keys).agg(pl.col("found").all())
        return {tuple(row[key] for key in keys): row["found"] for row in rows.to_dicts()}

    def cut_rows(self, table: str) -> set[_ROW]:
        """Submodule and layer of operators whose wall time is not known."""
        host = table == "host"
        single = {key[:2] for key in self.cut if key[2] == host}
        if table not in ("host", "operators"):
            return single
        layers = pl.Series([layer for _, layer in single], dtype=pl.String)
        patterns = pl.select(pattern(pl.lit(layers))).to_series().to_list() if single else []
        return single | {(key[0], name) for key, name in zip(single, patterns, strict=True)}


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
        pl.Series(one.name, worded(one, frame[one.name]), dtype=pl.String) for one in words
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
            if in_context(table, name, expected.pick):
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


def in_context(table: str, name: str, pick: Pick) -> bool:
    """Whether a value tells of what ran beside, or of calls: no selection of work tells these."""
    waiting, streams = ("wait_ns", "bound"), ("image_stream_ns", "text_stream_ns")
    told = {
        **dict.fromkeys(("roofline", "roofline_roles"), waiting),
        **dict.fromkeys(("roles", "blocks"), streams),
        "devices": ("calls",),
    }
    return name in told.get(table, ()) and not tells_calls(pick)


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
