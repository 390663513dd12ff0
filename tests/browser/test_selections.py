"""What a page shows of a selection is a group-by over the commands that match; the rest is grey."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from profiler.analysis import Analysis, pattern, table_named, with_roles
from profiler.analysis.analyze import analyze
from profiler.analysis.cells import cells_of, packed_cells
from profiler.analysis.commands import has_accelerators, is_accelerator
from profiler.report import write_html
from profiler.report.html.timeline import Strings
from profiler.run import Run
from profiler.tools.sources import load
from tests.browser.report_page import ReportPage, become, opened, values, with_figures
from tests.report.selections import Pick, matching, picks_of, split_run

pytestmark = pytest.mark.browser

_TRACES = Path(__file__).parents[2] / "sample_traces"
_RUNS: dict[str, Callable[[], Run]] = {
    "tiny": lambda: with_roles(load(_TRACES / "tiny_two_devices")),
    "gpu": lambda: with_roles(load(_TRACES / "sd35_mi300x")),
    "split": split_run,
}
_ADDED = {"operators", "host", "roles", "blocks", "submodules", "branches", "calls", "devices"}
_SUMS = ("commands", "total_ns", "bytes", "flops")
_STATES = """() => Object.fromEntries(Object.entries(profileReport.tables).map(([key, table]) => {
  const names = (wanted) => table.columns.filter(wanted).map(({ name }) => name);
  return [key, {
    host: table.host ?? null, added: Object.keys(table.added?.values ?? {}),
    keys: names(({ key }) => key), stale: names((column) => table.stale(column)),
    same: names(({ name }) => table.values[name] === table.whole[name]),
  }];
}))"""


@pytest.fixture(scope="module", params=_RUNS)
def chosen_from(
    request: pytest.FixtureRequest, chromium: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Analysis, Run, ReportPage]]:
    """A run, its analysis and its page, opened."""
    run = _RUNS[request.param]()
    analysis = analyze(run)
    path = tmp_path_factory.mktemp("selections") / "report.html"
    write_html(run, analysis, path)
    with opened(chromium, path) as report:
        yield analysis, run, report


def _commands(analysis: Analysis, run: Run, pick: Pick) -> pl.DataFrame:
    """The commands that match, with the keys of tables and what adds up."""
    blocks = analysis.kinds.spread(analysis.kind_roles["block"])
    calls = run.calls.select("call", "submodule", "branch")
    return (
        analysis.commands.with_columns(_of_host(run).alias("host"), block=blocks)
        .with_columns(block=pl.when(pl.col("role").is_not_null()).then("block"))
        .join(calls, on="call", how="left", maintain_order="left")
        .filter(matching(run, pick))
        .with_columns(
            pl.col("stage", "device", "layer", "role", "submodule", "branch").cast(pl.String),
            commands=pl.lit(1),
            total_ns=pl.col("duration_ns").clip(0),
            bytes=pl.sum_horizontal("bytes_read", "bytes_written"),
            flops=pl.col("flops").fill_null(0),
        )
    )


def _of_host(run: Run) -> pl.Expr:
    """Which commands are no device's: on a CPU that drives devices also what waits for them."""
    devices = run.commands["device"].cast(str).unique().to_list()
    hosts = [
        device for device in devices if has_accelerators(devices) and not is_accelerator(device)
    ]
    waits = (pl.col("category") == "sync") & pl.col("device").cast(pl.String).is_in(hosts)
    return (pl.col("category") == "host") | waits


def _grouped(frame: pl.DataFrame, keys: list[str]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Sums of the commands by these keys; of layers also by their pattern."""
    found = {}
    for layer in (pattern(pl.col("layer")), pl.col("layer")):
        rows = frame.with_columns(layer=layer).group_by(keys).agg(pl.col(_SUMS).sum())
        found |= {tuple(row[key] for key in keys): row for row in rows.iter_rows(named=True)}
    return found


def test_sums_of_a_selection_are_a_group_by(chosen_from: tuple[Analysis, Run, ReportPage]) -> None:
    """Every column that adds up has the sum over the commands that match, in rows that have any;
    all other columns of numbers keep the run's values, and are grey."""
    analysis, run, report = chosen_from
    picks = [*picks_of(run, pairs=6, each=2), {"device": ["rbln:1"], "role": ["norm"]}]
    picks = [pick for pick in picks if matching(run, pick).any()]
    assert len(picks) > 15
    seen = set()
    for pick in picks:
        become(report, pick)
        frame = _commands(analysis, run, pick)
        for name, state in report.page.evaluate(_STATES).items():
            assert {*state["stale"]} <= {*state["same"]}, (name, pick)
            if not state["added"]:
                continue
            seen.add(name)
            of = frame if state["host"] is None else frame.filter(host=state["host"])
            declared = {
                column.name: column.adds
                for column in table_named("operators" if name == "host" else name).columns
                if column.adds is not None
            }
            rows = values(report, name, *state["keys"], *state["added"])
            sums = _grouped(of, state["keys"])
            for row in rows:
                expected = sums[tuple(row[key] for key in state["keys"])]
                for column in state["added"]:
                    adds = declared.get(column)
                    if adds is not None and not adds.role and adds.within is None:
                        assert row[column] == expected[adds.of], (name, pick, row)
            if name == "roles" and rows:
                shares = pl.DataFrame(rows).group_by("submodule").agg(pl.col("share").sum())
                assert shares["share"].to_list() == pytest.approx([1.0] * len(shares))
            if name in ("operators", "devices", "roles"):
                total = of if name != "roles" else of.drop_nulls(["role", "submodule"])
                assert sum(row["commands"] for row in rows) == len(total), (name, pick)
    assert seen >= _ADDED - {"blocks", "host", "branches"}


def test_the_bar_has_the_figures_of_the_selection(
    chosen_from: tuple[Analysis, Run, ReportPage],
) -> None:
    """Commands, and of those of devices time, bytes and FLOPs; the share is of the run's time."""
    analysis, run, report = chosen_from
    for pick in picks_of(run, seed=1, pairs=4)[::3]:
        become(report, pick)
        frame = _commands(analysis, run, pick)
        of_devices = frame.filter(~pl.col("host")).select(pl.col(_SUMS).sum()).row(0, named=True)
        sums = report.page.evaluate("profileReport.choice.sums")
        assert sums == of_devices | {"commands": len(frame)}, pick
        text = report.page.locator(".chosen .counts").inner_text()
        assert f"{len(frame):,} of {len(run.commands):,} commands" in text
        assert ("device time (" in text) == bool(analysis.operators.filter(~pl.col("host")).height)
        calls = report.page.evaluate("profileReport.choice.counts.calls")
        assert text.startswith("1 call." if calls == 1 else f"{calls} calls.")


def test_figures_of_a_selection_draw_its_sums(
    chosen_from: tuple[Analysis, Run, ReportPage],
) -> None:
    """Bars of operators and of roles are as long as the commands that match have it."""
    analysis, run, report = chosen_from
    for pick in picks_of(run, seed=2, pairs=0)[::6]:
        become(report, pick)
        with_figures(report)
        frame = _commands(analysis, run, pick).filter(~pl.col("host"))
        layers = frame.group_by("submodule", pattern(pl.col("layer"))).agg(pl.col("total_ns").sum())
        times = layers["total_ns"].sort(descending=True).head(15).to_list()
        longest = report.page.evaluate(
            """() => { const { data, hidden } = document.querySelector("[data-figure=operators]");
              return hidden ? [] : data[0].x.map((x) => x / data[0].x[0]); }"""
        )
        assert longest == pytest.approx([time / times[0] for time in times], rel=1e-4), pick
        roles = frame.drop_nulls("submodule").group_by("submodule", "role")
        found = roles.agg(pl.col("total_ns").sum()).with_columns(
            share=100 * pl.col("total_ns") / pl.col("total_ns").sum().over("submodule")
        )
        bars = report.page.evaluate(
            """() => { const { data, hidden } = document.querySelector("[data-figure=roles]");
              return hidden ? [] : data.flatMap(({ x, picks }) =>
                picks.map(({ submodule, role }, i) => [submodule, role, x[i]])); }"""
        )
        assert {(submodule, role): share for submodule, role, share in bars} == {
            (row["submodule"], row["role"]): pytest.approx(row["share"])
            for row in found.filter(pl.col("total_ns") > 0).iter_rows(named=True)
        }, pick


def test_what_does_not_follow_says_so(chosen_from: tuple[Analysis, Run, ReportPage]) -> None:
    """Below every figure that shows the whole run stands that it does, and beside every sentence
    and list of values."""
    _, run, report = chosen_from
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


def test_a_column_that_does_not_add_up_is_grey(
    chosen_from: tuple[Analysis, Run, ReportPage],
) -> None:
    """A median is grey while something is chosen, and its title says why; a sum is not."""
    _, run, report = chosen_from
    become(report, {"submodule": [run.calls["submodule"][-1]]})
    look = """() => {
      const { tables } = profileReport, { columns, head, rows } = tables.operators;
      return Object.fromEntries(["median_ns", "total_ns"].map((name) => {
        const at = columns.findIndex((column) => column.name === name);
        const cell = rows.rows[0].cells[at];
        return [name, { title: head.cells[at].querySelector("button").title,
          stale: cell.classList.contains("stale"), colour: getComputedStyle(cell).color }];
      }));
    }"""
    chosen = report.page.evaluate(look)
    assert chosen["median_ns"]["stale"]
    assert not chosen["total_ns"]["stale"]
    assert chosen["median_ns"]["colour"] != chosen["total_ns"]["colour"]
    assert chosen["median_ns"]["title"].startswith("Of the whole run: a selection has no sums")
    report.page.evaluate("profileReport.choice.clear()")
    cleared = report.page.evaluate(look)
    assert not cleared["median_ns"]["stale"]
    assert cleared["median_ns"]["colour"] == cleared["total_ns"]["colour"]


def test_a_link_opens_the_selection_again(
    chosen_from: tuple[Analysis, Run, ReportPage], chromium: Any, tmp_path: Path
) -> None:
    """The address of a selection shows the same sums to who opens it."""
    _, run, report = chosen_from
    become(report, picks_of(run, pairs=1)[-1])
    address, sums = report.page.evaluate("[location.href, profileReport.choice.sums]")
    assert "#" in address
    assert sums["commands"]
    other = chromium.new_context().new_page()
    other.goto(address)
    other.wait_for_function("() => window.profileUsable")
    assert other.evaluate("profileReport.choice.sums") == sums
    other.context.close()


def test_sums_of_a_run_that_is_too_large_say_so(
    chromium: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without layers the page adds up by step and role; of an operator it says that it has no
    sums, and its tables show the whole run in grey."""
    run = split_run()
    _, packed = packed_cells(cells_of(analyze(run).inputs), Strings())
    monkeypatch.setattr("profiler.analysis.cells.LIMIT", len(packed) - 1)
    path = tmp_path / "report.html"
    write_html(run, analyze(run), path)
    with opened(chromium, path) as report:
        assert "layer" in report.page.evaluate("page.cells.dropped")
        become(report, {"step": [1]})
        assert report.page.evaluate("profileReport.choice.sums.commands") == len(
            run.commands.filter(step=1)
        )
        assert values(report, "devices", "commands")
        become(report, {"operator": ["transformer_blocks.*.ff"]})
        text = report.page.locator(".chosen .counts").inner_text()
        assert "No sums by operator transformer_blocks.*.ff: the run is too large" in text
        state = report.page.evaluate(_STATES)["operators"]
        assert not state["added"]
        assert "total_ns" in state["stale"]
        assert report.said == []
