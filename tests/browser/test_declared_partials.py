"""What brings partial results follows a selection; what has to leave keys out says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from profiler.analysis.analyze import analyze
from profiler.analysis.context import Inputs
from profiler.analysis.question import Partials, Table, partials, registered
from profiler.analysis.table_text import by_pattern
from profiler.report.html.page import write_html
from profiler.run.columns import Column, Key, Sum
from tests.browser.report_page import become, opened, scope, values
from tests.report.selections import analysis_of, split_run

pytestmark = pytest.mark.browser


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
        assert said == "Whole run: this table does not distinguish role norm."
        assert report.said == []


def test_keys_that_are_left_out_are_not_told(
    chromium: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there are too many parts for single calls and steps, operators of a branch are exact
    still, and those of a step stay those of the whole run, which the page says."""
    run = split_run()
    monkeypatch.setattr("profiler.analysis.question.MOST_PARTS", 150)
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
        assert scope(report, "operators") == "Whole run: this table does not distinguish step 1."
        assert report.said == []
