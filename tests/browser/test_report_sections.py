"""Sections of the HTML page in a real browser: the list of contents, findings, the step matrix,
operators that unfold to their commands, the comparison, and names that are scripts."""

from __future__ import annotations

import polars as pl
import pytest
from typer.testing import CliRunner

from profiler import text as units
from profiler.analysis import Finding, Where, extent
from profiler.analysis.analyze import analyze
from profiler.cli.main import command_line
from profiler.compare import compare_runs
from profiler.report import write_html
from profiler.tools.sources import load
from tests.browser.report_page import choose, opened, page_of, with_figures
from tests.importers.kineto.traces import flux
from tests.report.hostile import HOSTILE

pytestmark = pytest.mark.browser


@pytest.fixture
def pointing(chromium, run, tmp_path):
    """The page of the generated run with one finding about an operator and a call."""
    layer = "transformer_blocks.3.attn.sdpa"
    finding = Finding("rule", {}, Where("transformer", layer, calls=(7,)))
    with opened(chromium, page_of(run, tmp_path, findings=(finding,))) as report:
        yield report


def test_a_finding_leads_to_its_operator(pointing):
    """The table of operators unfolds where the layer is one of many, and shows it alone."""
    pointing.page.get_by_role("button", name="Operator transformer_blocks.3.attn.sdpa").click()
    shown = pointing.cells("[data-table=operators]", 1)
    assert shown == ["transformer_blocks.3.attn.sdpa"]
    assert pointing.page.evaluate("document.activeElement.type") == "search"


def test_a_finding_leads_to_its_call(pointing):
    """The timeline zooms into the call and shows its operators."""
    pointing.page.get_by_role("button", name="Call 7").click()
    assert pointing.page.locator("#timeline-call").input_value() == "7"
    assert pointing.page.locator("#timeline-details .title").inner_text() == "transformer"


def test_the_contents_say_where_the_reader_is(report):
    """The section that is read is marked, in a list beside a wide page and above a narrow one. A
    telephone has room for the names of groups, whole."""
    for section in ("operators", "roofline", "memory"):
        link = report.page.locator(f'nav a[href="#{section}"]:not(.group)')
        if link.count():
            link.click()
            report.page.wait_for_function(
                "(key) => document.querySelector('nav [aria-current]').hash === '#' + key",
                arg=section,
            )
    nav = report.page.locator("nav").bounding_box()
    assert nav["height"] > nav["width"]
    report.page.set_viewport_size({"width": 800, "height": 900})
    nav = report.page.locator("nav").bounding_box()
    assert nav["height"] < 60
    report.page.set_viewport_size({"width": 390, "height": 844})
    seen = report.page.locator("nav a:visible").all_inner_texts()
    assert seen == ["Summary", "Timeline", "Findings", "Model", "Device", "Run"]
    assert report.page.evaluate(
        "n => n.scrollWidth <= n.clientWidth", report.page.query_selector("nav")
    )


def test_cells_of_the_step_matrix_tell_their_time(report, run):
    """A cell names its part, its step, its time and how that compares."""
    with_figures(report)
    found = report.page.evaluate(
        """async () => {
          const place = document.querySelector("[data-figure=matrix]");
          place.scrollIntoView();
          Plotly.Fx.hover(place, { xval: 1, yval: 0 });
          return place.querySelector(".hoverlayer").textContent;
        }"""
    )
    text = found.replace("\N{NO-BREAK SPACE}", " ")
    step = analyze(run).steps.row(1, named=True)["elapsed_ns"]
    assert text.startswith("step")
    assert f"step 1: {units.duration(step)}".replace("\N{NO-BREAK SPACE}", " ") in text


def unfold(report, layer):
    """Unfold the row of a layer in the table of operators, wherever it stands, or fold it again."""
    pressed(report.page.locator(f"[data-table=operators] [aria-label='{layer}']").first)
    return report.page.locator("[data-table=operators] tr.unfolded").first


def pressed(button):
    """Press a button that unfolds something, and wait until it says so: busy pages take a while."""
    before = button.get_attribute("aria-expanded")
    button.click()
    after = {"true": "false", "false": "true"}[before]
    button.and_(button.page.locator(f"[aria-expanded={after}]")).wait_for()
    return button


def unfold_first_layer(report, operator):
    """Unfold an operator of equal blocks and its first layer: that layer, and its commands."""
    layers = unfold(report, f"Layers of {operator}")
    button = pressed(layers.locator("button.unfold").first)
    layer = button.get_attribute("aria-label").removeprefix("Commands of ")
    return layer, report.page.locator("[data-table=operators] tr.unfolded tr.unfolded")


def steps(commands):
    return commands.locator("tbody tr td:nth-child(4)").all_inner_texts()


def test_an_operator_unfolds_to_its_commands(report, run):
    """A row of equal blocks shows its layers first, one of these its commands: index, track, call,
    step, start, duration and bytes as the run has them, and how many more there are."""
    layers = unfold(report, "Layers of transformer_blocks.*.attn.sdpa")
    assert layers.locator("tbody tr").count() == 10
    assert "10 of 24" in layers.inner_text()
    unfold(report, "Layers of transformer_blocks.*.attn.sdpa")
    layer, commands = unfold_first_layer(report, "transformer_blocks.*.attn.sdpa")
    own = run.commands.filter(pl.col("layer").cast(pl.String) == layer)
    assert f"12 of {len(own)}" in commands.inner_text()
    heads = [text.split()[0] for text in commands.locator("thead th").all_inner_texts()]
    assert heads[:5] == ["start", "duration", "call", "step", "index"]
    first = dict(
        zip(heads, commands.locator("tbody tr").first.locator("td").all_inner_texts(), strict=True)
    )
    row = own.sort("start_ns").row(0, named=True)
    begin = extent(run)[0]
    assert float(first["start"].split()[0].replace(",", "")) * 1e6 == pytest.approx(
        row["start_ns"] - begin, abs=1e3
    )
    assert (first["call"], first["step"]) == (str(row["call"]), "0")
    assert (first["index"], first["track"]) == (str(row["command_index"]), row["track"])


def test_a_command_leads_to_its_place_in_the_timeline(report, run):
    """The timeline shows it, and its card is open."""
    layer, commands = unfold_first_layer(report, "transformer_blocks.*.attn.sdpa")
    commands.locator("tbody tr").nth(2).locator("button").first.click()
    assert report.page.locator("#timeline-details .title").inner_text() == layer
    own = run.commands.filter(pl.col("layer").cast(pl.String) == layer).sort("start_ns")
    row = own.row(2, named=True)
    start = row["start_ns"] - extent(run)[0]
    begin, end = report.window()
    assert begin < start < start + row["duration_ns"] < end


def test_unfolding_works_by_keys_and_is_announced(report):
    """The button is reached by Tab, opens with Enter, closes with Space, and says which it is."""
    button = report.page.locator("[data-table=operators] button.unfold").first
    button.focus()
    assert button.get_attribute("aria-expanded") == "false"
    report.page.keyboard.press("Enter")
    assert button.get_attribute("aria-expanded") == "true"
    assert report.page.locator("[data-table=operators] tr.unfolded").count() == 1
    report.page.keyboard.press("Space")
    assert button.get_attribute("aria-expanded") == "false"
    assert report.page.locator("[data-table=operators] tr.unfolded").count() == 0


def test_what_is_unfolded_stays_when_the_table_is_sorted(report):
    """Sorting by another column moves the row, and what it unfolded to with it."""
    unfold(report, "Layers of transformer_blocks.*.attn.sdpa")
    report.page.locator("[data-table=operators] [data-column=wall_ns]").click()
    assert report.page.locator("[data-table=operators] tr.unfolded").count() == 1
    before = report.page.locator("[data-table=operators] tr.unfolded").first.evaluate(
        "(row) => row.previousElementSibling.firstChild.textContent"
    )
    assert before == "transformer_blocks.*.attn.sdpa"


def test_unfolded_commands_follow_the_choice(report, run):
    """With a step chosen, an operator unfolds to its commands of that step."""
    choose(report, step=1)
    layer, commands = unfold_first_layer(report, "transformer_blocks.*.attn.sdpa")
    calls = run.calls.filter(pl.col("step") == 1)["call"].to_list()
    own = run.commands.filter(
        (pl.col("layer").cast(pl.String) == layer) & pl.col("call").is_in(calls)
    )
    assert commands.locator("tbody tr").count() == min(len(own), 12)
    assert set(steps(commands)) == {"1"}


def test_the_comparison_is_drawn(chromium, run, tmp_path):
    """Its figure and its tables are there, and the header leads to it."""
    path = tmp_path / "report.html"
    write_html(run, analyze(run), path, against=compare_runs([run], [run]))
    with opened(chromium, path) as report:
        with_figures(report)
        assert report.page.locator("[data-figure=comparison] .scatterlayer .point").count() > 5
        assert report.cells("[data-table=comparison]", 1)[0] == "end_to_end"
        report.page.locator(".against a").click()
        report.page.wait_for_function(
            "() => Math.abs(comparison.getBoundingClientRect().top) < 200"
        )
        assert report.said == []


def kineto_of_scripts(folder):
    """A torch trace of a FLUX pipeline in which every kernel, operator, thread and module below the
    submodules has a hostile name."""
    trace = flux()
    for number, name in enumerate(HOSTILE):
        start = 151 + 5 * number
        trace.module(f"{name}_0", start, 4)
        external = trace.op(name, start + 1, 2)
        trace.kernel(name, start + 1, 3, launched=start + 1, external=external)
    trace.thread(HOSTILE[0])
    return trace.write(folder)


def test_imported_layers_that_are_scripts_stay_text(chromium, tmp_path):
    """A torch trace whose kernels, operators and modules are named like scripts, imported and
    reported on: the page runs none of them, shows them as they are, and loads nothing."""
    path = kineto_of_scripts(tmp_path)
    typed, traces = CliRunner(), tmp_path / "traces"
    assert typed.invoke(command_line(), ["import", str(path), "--out", str(traces)]).exit_code == 0
    (bundle,) = (path.parent for path in traces.rglob("manifest.json"))
    assert typed.invoke(command_line(), ["analyze", str(bundle)]).exit_code == 0
    layers = set(load(bundle).commands["layer"].cast(pl.String))
    assert any("<script>" in layer for layer in layers)
    assert any("onerror" in layer for layer in layers)
    with opened(chromium, bundle / "report.html") as report:
        with_figures(report)
        for button in report.page.locator("button.unfold").all():
            button.click()
        report.page.mouse.move(*report.place("commands", 0))
        assert report.page.evaluate("window.hacked") is None
        assert report.said == []
        text = report.page.locator("main").inner_text()
        assert "<img src=x onerror=window.hacked=1>" in text
        assert all(url.startswith(("file:", "data:", "blob:")) for url in report.requests)


def test_tables_for_a_second_look_open_by_key_and_on_paper(pointing):
    """Folded to its title a table opens by Enter; on paper all are open, and as before later."""
    parts = pointing.page.locator("details.part")
    tables = parts.locator("table")
    assert parts.count() >= 2
    assert not any(table.is_visible() for table in tables.all())
    parts.first.locator("summary").press("Enter")
    assert tables.first.is_visible()
    pointing.page.emulate_media(media="print")
    pointing.page.wait_for_selector("html.printing", state="attached")
    assert all(table.is_visible() for table in tables.all())
    pointing.page.emulate_media(media="screen")
    pointing.page.wait_for_selector("html:not(.printing)", state="attached")
    assert [table.is_visible() for table in tables.all()] == [True] + [False] * (tables.count() - 1)
