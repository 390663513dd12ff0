"""Tables of the page: which columns have room, and what a choice leaves them to count."""

from __future__ import annotations

import polars as pl
import pytest

from profiler.analysis import Selection, with_roles
from profiler.analysis.analyze import analyze
from profiler.analysis.table_text import by_pattern
from tests.browser.report_page import (
    chips,
    choose,
    opened,
    page_of,
    scope,
    values,
    with_figures,
)
from tests.runs import Command, make_call, make_run, make_span

pytestmark = pytest.mark.browser

_FITTED = "() => document.querySelector('[data-table=operators] button.columns:not([hidden])')"
_TOO_WIDE = """() => [...document.querySelectorAll("[data-table] > .scroll")].filter(
  (place) => place.checkVisibility() && place.scrollWidth > place.clientWidth).length"""


def heads(report, table):
    """The labels of the columns that are seen."""
    found = report.page.locator(f"[data-table={table}] > .scroll > table > thead th:visible")
    return [text.split("\N{NO-BREAK SPACE}")[0].strip() for text in found.all_inner_texts()]


def test_tables_fit_a_usual_window(report):
    """At 1400 pixels no table scrolls sideways: columns that matter less are put away, the rest
    comes by a button, by key as well, and goes again."""
    report.page.wait_for_function(_FITTED)
    assert report.page.evaluate(_TOO_WIDE) == 0
    few = heads(report, "operators")
    button = report.page.locator("[data-table=operators] button.columns")
    away = int(button.inner_text().removeprefix("More columns (").removesuffix(")"))
    button.press("Enter")
    assert button.inner_text() == "Fewer columns"
    assert button.get_attribute("aria-expanded") == "true"
    every = heads(report, "operators")
    assert len(every) == len(few) + away
    assert set(few) < set(every)
    assert report.page.evaluate("document.activeElement.className") == "quiet columns"
    button.press("Enter")
    assert heads(report, "operators") == few


def test_no_number_is_cut_on_a_telephone(report):
    """At 390 pixels no table scrolls sideways, and each still shows the first column and a number:
    in a wide page's table, columns of little importance alone are put away."""
    report.page.wait_for_function(_FITTED)
    wide = heads(report, "operators")
    report.page.set_viewport_size({"width": 390, "height": 844})
    report.page.wait_for_function(f"() => ({_TOO_WIDE})() === 0")
    narrow = heads(report, "operators")
    assert len(narrow) < len(wide)
    assert narrow == [name for name in wide if name in narrow]
    shown = report.page.evaluate(
        """() => [...document.querySelectorAll("[data-table] > .scroll")].filter((place) =>
          place.clientWidth && place.querySelector("thead tr")?.cells.length > 1
        ).map((place) => [...place.querySelector("thead tr").cells].map((cell) => !cell.hidden))"""
    )
    assert shown
    assert all(first and any(others) for first, *others in shown)
    report.page.set_viewport_size({"width": 1400, "height": 1000})


def test_a_short_name_is_one_line(report):
    """In a wide window `text_encoder_3` is as tall as `vae`, and its colour is beside it: on a
    telephone as well, where the name may break."""
    cells = report.page.locator("[data-table=calls] tbody tr td:nth-child(2) .whole")
    tall = {cell.bounding_box()["height"] for cell in cells.all()}
    assert len(tall) == 1
    assert {"text_encoder_3", "vae"} <= set(cells.all_inner_texts())
    report.page.set_viewport_size({"width": 390, "height": 844})
    beside = """(cells) => cells.every((cell) => {
      const line = document.createRange();
      line.setStart(cell, 1);
      line.setEndAfter(cell.lastChild);
      const { top, bottom } = cell.querySelector(".swatch").getBoundingClientRect();
      const first = line.getClientRects()[0];
      return first.top < bottom && top < first.bottom;
    })"""
    assert cells.evaluate_all(beside)
    report.page.set_viewport_size({"width": 1400, "height": 1000})


def test_a_wider_window_has_more_columns(report):
    """What fits is not put away, and the button is gone."""
    report.page.wait_for_function(_FITTED)
    few = heads(report, "operators")
    report.page.add_style_tag(content="main { max-width: none !important; }")
    report.page.set_viewport_size({"width": 2200, "height": 1000})
    button = report.page.locator("[data-table=operators] > .foot > button.columns")
    button.wait_for(state="hidden")
    assert len(heads(report, "operators")) > len(few)


def test_cells_put_away_stay_in_their_rows(report):
    """After sorting, searching and unfolding, each row shows the columns that the head shows."""
    report.page.wait_for_function(_FITTED)
    report.page.locator("[data-table=operators] [data-column=commands]").click()
    report.page.locator("[data-table=operators] button.unfold").first.click()
    rows = report.page.locator(
        "[data-table=operators] > .scroll > table > tbody > tr:not(.unfolded)"
    )
    seen = len(heads(report, "operators"))
    assert rows.first.locator("> td:visible").count() == seen
    assert rows.last.locator("> td:visible").count() == seen


@pytest.fixture(scope="module")
def partly():
    """Three steps, of which the second was not traced with operators."""
    calls, commands = [], []
    for step in range(3):
        begin, traced = 1000 * step, step != 1
        calls.append(make_call(step, "transformer", begin, begin + 900, step=step, traced=traced))
        if traced:
            commands.append(Command(step, "rbln:0", "C0", "compute", "blocks.0.ff", begin, 500))
    spans = [make_span("pipeline", "P", 0, 3000), make_span("stage", "denoise", 0, 3000)]
    return with_roles(make_run(calls, commands, spans))


def test_a_step_without_operators_says_so(chromium, partly, tmp_path):
    """Where nothing is counted because nothing was traced, table and bar tell why; where a part
    was traced, of how many calls operators are missing."""
    with opened(chromium, page_of(partly, tmp_path)) as report:
        choose(report, step=1)
        why = "Operators were not traced in the call that matches."
        assert values(report, "operators", "layer") == []
        with_figures(report)
        figure = report.page.locator("[data-figure=operators]")
        assert figure.is_hidden()
        assert why in scope(report, "operators")
        assert report.page.locator(".chosen .counts").inner_text().endswith(why)
        choose(report, step=[0, 1])
        with_figures(report)
        assert figure.locator(".bars .point").count() == 1
        some = "Operators were not traced in 1 of the 2 calls that match."
        assert some in scope(report, "operators")
        choose(report, step=2)
        assert "not traced" not in scope(report, "operators")
        assert "not traced" not in report.page.locator(".chosen .counts").inner_text()
        assert report.said == []


def test_shares_of_a_selection_say_of_what_they_are(report):
    """Operators of step 1 add up to all of it: the line above the table says that the share is of
    the selection, and so does the column's title; without a selection neither does."""
    title = report.page.locator("[data-table=operators] th button[data-column=share]")
    whole = title.get_attribute("title")
    assert "of the selection" not in whole
    choose(report, step=1)
    rows = values(report, "operators", "share")
    assert sum(row["share"] for row in rows) == pytest.approx(1)
    said = "Selection: step 1. Of the selection, not of the run: of total."
    assert scope(report, "operators").startswith(said)
    assert title.get_attribute("title") == f"{whole}; here of the selection, not of the run"
    report.page.evaluate("profileReport.choice.clear()")
    assert title.get_attribute("title") == whole


def test_columns_that_do_not_add_up_are_not_saved(report):
    """Streams are known of the whole run only: with a step chosen their cells are grey, and a file
    of the table leaves them out; sums are those of the selection."""
    look = """() => { const { roles } = profileReport.tables;
      const saved = (name) => roles.savedRows().map((i) => roles.saved(name, i));
      return ["image_stream_ns", "total_ns"].map(saved); }"""
    whole = report.page.evaluate(look)
    assert any(whole[0])
    choose(report, step=1)
    streams, totals = report.page.evaluate(look)
    assert set(streams) == {None}
    assert 0 < sum(totals) < sum(whole[1])
    assert scope(report, "roles").endswith("Grey: of the whole run.")
    report.page.keyboard.press("Escape")
    assert report.page.evaluate(look) == whole


@pytest.fixture(scope="module")
def mixed():
    """Two steps that launch and compute on one track of one device."""
    calls, commands = [], []
    for step in range(2):
        begin = 1000 * step
        calls.append(make_call(step, "transformer", begin, begin + 900, step=step))
        for number in range(3):
            at, layer = begin + 200 * number, f"blocks.{number}.ff"
            commands += [
                Command(step, "rbln:0", "queue", "host", layer, at, 40),
                Command(step, "rbln:0", "queue", "compute", layer, at + 50, 100 + step),
            ]
    spans = [make_span("pipeline", "P", 0, 2000), make_span("stage", "denoise", 0, 2000)]
    return with_roles(make_run(calls, commands, spans))


def test_host_work_on_a_track_of_a_device_is_told_apart(chromium, mixed, tmp_path):
    """A track with work of the host and of the device: each command counts as what it is, in sums,
    operators, host work, roles and on its card, as in Python."""
    analysis = analyze(mixed, Selection(step=("1",)))
    with opened(chromium, page_of(mixed, tmp_path)) as report:
        choose(report, step=1)
        device = mixed.commands.filter(step=1, category="compute")["duration_ns"].sum()
        assert report.page.evaluate("profileReport.choice.sums.total_ns") == device
        for table, host in (("operators", False), ("host", True)):
            expected = by_pattern(analysis.operators.filter(pl.col("host") == host))
            columns = ("layer", "commands", "total_ns")
            assert values(report, table, *columns) == expected.select(columns).to_dicts()
        roles = analysis.roles.filter(pl.col("total_ns") > 0, pl.col("submodule").is_not_null())
        columns = ("role", "commands", "total_ns")
        assert values(report, "roles", *columns) == roles.select(columns).to_dicts()
        label = report.page.locator(".labels .lane.commands")
        assert label.get_attribute("title") == "queue (host, compute)"
        for number, category in enumerate(("host", "compute")):
            report.page.evaluate(
                """(i) => { const { timeline, explorer } = profileReport;
                  const lane = timeline.lanes.find(({ track }) => track === "queue");
                  explorer.visit({ lane, i }); }""",
                number,
            )
            card = report.page.locator("#timeline-details .card dl").inner_text().split("\n")
            assert card[card.index("category") + 1] == category


@pytest.mark.parametrize(
    ("text", "chip"),
    [
        ("stage denoise", "stage denoise"),
        ("submodule vae", "submodule vae"),
        ("branch batched", "branch batched"),
        ("step 2", "step 2"),
        ("device rbln:1", "device rbln:1"),
        ("role attention", "role attention"),
        ("operator transformer_blocks.*.norm2", "operator transformer_blocks.*.norm2"),
    ],
)
def test_everything_is_chosen_by_keys(report, text, chip):
    """What a bar, a cell of the step matrix or a legend chooses by a click is found by its name."""
    report.page.wait_for_function("() => window.profileUsable")
    report.page.keyboard.press("/")
    report.page.wait_for_function("() => document.activeElement.id === 'choice-search'")
    report.page.keyboard.type(text)
    report.page.keyboard.press("Enter")
    assert report.page.locator(".chip").inner_text().startswith(chip)


def test_a_call_is_chosen_by_keys(report):
    """The timeline's keys lead to a call, Tab to its card, whose buttons choose it."""
    report.page.locator("canvas.lanes").focus()
    report.page.keyboard.press("]")
    button = report.page.locator("#timeline-details .only button", has_text="call 0")
    for _ in range(20):
        report.page.keyboard.press("Tab")
        if button.evaluate("(button) => button === document.activeElement"):
            break
    report.page.keyboard.press("Enter")
    assert report.page.locator(".chip").inner_text().startswith("call 0")


def test_shift_and_enter_choose_one_more(report):
    """On a name of a legend as in the search, Shift + Enter adds a value to those chosen."""
    report.page.locator("#timeline-colour").select_option("submodule")
    legend = report.page.locator("#timeline-legend button.pick")
    legend.nth(0).press("Enter")
    legend.nth(1).press("Shift+Enter")
    report.page.keyboard.press("/")
    report.page.keyboard.type("submodule vae")
    report.page.keyboard.press("Shift+Enter")
    names = [*legend.all_inner_texts()[:2], "vae"]
    assert chips(report) == [f"submodule {name}" for name in names]
