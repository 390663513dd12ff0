"""The HTML page in a real browser: what it draws, how it is used, what it refuses to run."""

from __future__ import annotations

import re

import polars as pl
import pytest

from profiler import text
from profiler.analysis import SURFACE, extent, pattern, submodule_colours
from profiler.analysis.analyze import analyze
from profiler.analysis.document import PAGE, TEXT
from profiler.analysis.roles import kind_roles
from profiler.report import html_page, timeline_of, write_html
from profiler.trace import Drop, DropKind
from tests.browser.report_page import opened, page_of, with_figures
from tests.report.hostile import HOSTILE, hostile_analysis, hostile_run
from tests.runs import Command, make_run, tiny_run, why

pytestmark = pytest.mark.browser


def show_all(report, table):
    more = report.page.locator(f"{table} .foot button.more")
    while more.is_visible():
        more.click()


def test_opens_quietly_and_offline(report, path):
    """Opening draws timeline and figures, says nothing on the console and asks for nothing."""
    with_figures(report)
    assert report.said == []
    assert {url for url in report.requests if not url.startswith(("data:", "blob:"))} == {
        path.as_uri()
    }
    assert report.page.locator(".figure svg.main-svg").count() >= 4


def test_the_timeline_is_drawn(report, run):
    """The canvas shows every submodule in its colour."""
    colours = report.colours()
    for colour in submodule_colours(run.calls["submodule"].unique()).values():
        assert colour.light in colours


def test_the_page_holds_the_run(report, run):
    """What the page unpacks is, number by number, what Python packed, with the roles of commands
    that the analysis knows."""
    of = analyze(run).inputs
    tables = timeline_of(run, roles=of.kinds.spread(kind_roles(of)["role"])).tables
    found = report.page.evaluate(
        """() => Object.fromEntries(Object.entries(profileReport.timeline.tables).map(
          ([name, { rows, ...columns }]) => [name, Object.fromEntries(
            Object.entries(columns).map(([column, values]) => [column, Array.from(values)]))]))"""
    )
    assert set(found) == set(tables)
    for name, table in tables.items():
        assert found[name] == {column: values.tolist() for column, values in table.items()}


def test_choosing_a_call_shows_its_operators(report, run):
    """A chosen call fills the window, and its operators are those that the run has for it."""
    report.page.locator("#timeline-call").select_option("7")
    call = run.calls.row(7, named=True)
    start = call["start_ns"] - extent(run)[0]
    begin, end = report.window()
    assert begin < start < start + call["duration_ns"] < end
    assert end - begin < 1.1 * call["duration_ns"]
    report.page.locator("#timeline-details select").select_option(label="operator")
    show_all(report, "#timeline-details")
    shown = dict(
        zip(
            report.cells("#timeline-details", 1),
            report.cells("#timeline-details", 6),
            strict=True,
        )
    )
    commands = run.commands.filter(pl.col("call") == 7)
    expected = commands.group_by(pl.col("layer").cast(pl.String)).len()
    assert shown == {layer: str(count) for layer, count in expected.iter_rows()}


def test_operators_of_a_call_add_up_as_in_python(report, run):
    """The total that the page computes for an operator of a call is that of the analysis."""
    vae = run.calls.row(len(run.calls) - 1, named=True)
    report.page.locator("#timeline-call").select_option(str(vae["call"]))
    report.page.locator("#timeline-details select").select_option(label="operator")
    first = report.page.locator("#timeline-details tbody tr").first
    layer, *_, busy, _ = first.locator("td").all_inner_texts()
    operators = analyze(run).operators
    row = operators.filter((pl.col("layer") == layer) & (pl.col("submodule") == "vae"))
    assert float(busy) == pytest.approx(row["total_ns"][0] * 1e-6, rel=6e-3)


def test_a_click_zooms_and_a_double_click_resets(report, run):
    """A click on a call's bar zooms into it, a double click shows the whole run again."""
    whole = report.window()
    report.page.mouse.click(*report.place("calls", 5))
    assert report.window() != whole
    assert report.page.locator("#timeline-details .title").inner_text() == "transformer"
    report.page.locator("canvas.lanes").dblclick(position={"x": 300, "y": 40})
    assert report.window() == whole
    assert report.page.locator("#timeline-details").is_hidden()


def test_the_wheel_zooms_where_the_pointer_is(report):
    """Zooming with the wheel keeps the instant under the pointer in its place."""
    x, y = report.place("calls", 5)
    report.page.mouse.move(x, y)

    def instant():
        return report.page.evaluate(
            "(x) => profileReport.timeline.time("
            "x - profileReport.timeline.canvas.getBoundingClientRect().left)",
            x,
        )

    before, window = instant(), report.window()
    report.page.mouse.wheel(0, -300)
    report.page.wait_for_function(
        "(length) => { const { begin, end } = profileReport.timeline.view;"
        " return end - begin < length; }",
        arg=0.8 * (window[1] - window[0]),
    )
    assert instant() == pytest.approx(before, rel=1e-3)


def test_dragging_pans(report):
    """A drag moves the window by as much as the pointer, and selects nothing."""
    report.page.locator("#timeline-call").select_option("7")
    report.page.get_by_role("button", name="Close").click()
    begin, end = report.window()
    x, y = report.place("calls", 5)
    width = report.page.evaluate("profileReport.timeline.width")
    report.page.mouse.move(x, y)
    report.page.mouse.down()
    report.page.mouse.move(x - 100, y, steps=4)
    report.page.mouse.up()
    moved = report.window()
    assert moved[0] - begin == pytest.approx((end - begin) * 100 / width, rel=0.02)
    assert report.page.locator("#timeline-details").is_hidden()


def test_keys_do_what_the_mouse_does(report):
    """The focused timeline zooms, pans, goes to calls and resets by keys alone."""
    report.page.locator("canvas.lanes").focus()
    whole = report.window()
    report.page.keyboard.press("+")
    zoomed = report.window()
    assert zoomed[1] - zoomed[0] < whole[1] - whole[0]
    report.page.keyboard.press("ArrowRight")
    assert report.window()[0] > zoomed[0]
    report.page.keyboard.press("]")
    assert report.page.locator("#timeline-call").input_value() != ""
    report.page.keyboard.press("0")
    assert report.window() == whole


def test_every_control_can_be_reached_by_keyboard(report):
    """Tab goes through all controls of the first screen and the timeline, each with a name."""
    names = set()
    report.page.locator("#theme").focus()
    for _ in range(100):
        report.page.keyboard.press("Tab")
        names.add(
            report.page.evaluate(
                "() => { const e = document.activeElement;"
                " return e.id || e.dataset.do || e.className; }"
            )
        )
    assert {"timeline-call", "timeline-colour", "in", "out", "all", "next", "lanes"} <= names
    unnamed = report.page.evaluate(
        """() => [...document.querySelectorAll("button, select, input")].filter((e) =>
          !(e.textContent.trim() || e.getAttribute("aria-label") || e.labels?.length)).length"""
    )
    assert unnamed == 0


def test_hovering_tells_everything_about_a_command(report, run):
    """The card of a command has its layer, index, op type, place, times, bytes and shapes."""
    call = len(run.calls) - 1
    report.page.locator("#timeline-call").select_option(str(call))
    loads = run.commands.filter(track="Neural DMA", device="rbln:0").sort("start_ns")
    report.page.mouse.move(*report.place("commands", loads["call"].index_of(call), "Neural DMA"))
    card = report.page.locator("#tip")
    card.wait_for(state="visible")
    text = card.inner_text().replace("\N{NO-BREAK SPACE}", " ")
    for name in (
        "op type",
        "role",
        "command index",
        "duration",
        "start",
        "submodule",
        "call",
        "stage",
        "device",
        "track",
        "read",
        "shapes",
    ):
        assert re.search(rf"^{name}$", text, re.MULTILINE), name
    assert "needed by\n1 commands" in text or "needed by\n1 command" in text


def test_bars_thinner_than_a_pixel_are_drawn(chromium, tmp_path):
    """At the whole run commands of nanoseconds still leave a mark, however few they are."""
    commands = [Command(-1, "cuda:0", "s", "compute", f"k{i}", i * 10**6, 1) for i in range(3)]
    with opened(chromium, page_of(make_run(commands=commands), tmp_path)) as report:
        drawn = report.colours() - {SURFACE.light}
        blue = [c for c in drawn if int(c[5:], 16) > int(c[1:3], 16) + 12]
        assert blue


def test_dependencies_are_drawn(report):
    """A selected command is joined with the commands that it depends on or that need it."""
    flows = report.page.evaluate(
        """() => {
          const { timeline } = profileReport;
          const lane = timeline.lanes.find(
            (lane) => lane.kind === "commands" && lane.track === "Neural DMA");
          return timeline.flows.of({ lane, i: 0 }).map(
            ({ source, target }) => [source.lane.track, target.lane.track]);
        }"""
    )
    assert flows == [["Neural DMA", "Neural Engine Clusters"]]


def test_memory_is_a_curve_below_the_devices(report):
    """Counters of bytes stand beside the curves of device use; a switch for others is hidden where
    there are none."""
    lanes = report.page.locator(".labels .lane > span").all_inner_texts()
    assert sum(name.endswith("device memory") for name in lanes[-4:]) == 2
    assert report.page.locator("#timeline-counters").is_hidden()


def test_a_device_folds_to_its_calls(report):
    """A click on a device's name leaves its calls, another one brings its tracks back."""
    device = report.page.locator(".labels button.device[data-band='rbln:0']")
    before = report.page.locator(".labels .lane").count()
    device.click()
    assert report.page.locator(".labels .lane").count() == before - 6
    assert device.get_attribute("aria-expanded") == "false"
    device.click()
    assert report.page.locator(".labels .lane").count() == before


def test_searching_narrows_the_table(report):
    """Every word of a search must be in a row, upper or lower case."""
    report.page.get_by_label("Search operators", exact=True).fill("SDPA transformer_blocks")
    shown = report.cells("[data-table=operators]", 1)
    assert shown == ["transformer_blocks.*.attn.sdpa"]
    report.page.get_by_label("Search operators", exact=True).fill("nothing has this name")
    assert report.cells("[data-table=operators]", 1) == []
    assert "0 of 0 found of" in report.page.locator("#operators .count").first.inner_text()


def test_sorting_by_a_column(report):
    """A click on a heading sorts by it, a second one turns the order round."""
    heading = report.page.locator('[data-table=operators] button[data-column="commands"]')
    cells = []
    for order in ("descending", "ascending"):
        heading.click()
        sorted_by = f"[data-table=operators] th[aria-sort={order}] [data-column=commands]"
        report.page.locator(sorted_by).wait_for()
        column = 1 + report.page.evaluate(
            """() => [...document.querySelectorAll("[data-table=operators] th button")]
              .findIndex((button) => button.dataset.column === "commands")"""
        )
        cells.append(
            [int(t.replace(",", "")) for t in report.cells("[data-table=operators]", column)]
        )
    assert cells[0] == sorted(cells[0], reverse=True)
    assert cells[1] == sorted(cells[1])
    header = report.page.locator('[data-table=operators] th[aria-sort="ascending"]')
    assert header.count() == 1


def test_the_table_has_all_operators(report, run):
    """Unfolded and with all rows shown, the table has every operator of the analysis."""
    report.page.locator("[data-table=operators] select").select_option(label="operator")
    show_all(report, "[data-table=operators]")
    operators = analyze(run).operators.filter(~pl.col("host"))
    assert report.cells("[data-table=operators]", 1) == operators["layer"].to_list()


def test_a_row_of_calls_leads_to_the_timeline(report):
    """The number of a call in the table of calls zooms the timeline into it."""
    report.page.locator("[data-table=calls] button.link").nth(6).click()
    assert report.page.locator("#timeline-call").input_value() == "6"


def luminance(colour):
    channels = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def colours_of(report, selector):
    """Text and ground of an element, as the browser computes them."""
    return report.page.evaluate(
        """(selector) => {
          const style = getComputedStyle(document.querySelector(selector));
          return [style.color, getComputedStyle(document.body).backgroundColor];
        }""",
        selector,
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_themes_are_readable(chromium, path, scheme):
    """Text has the contrast of WCAG AA or more, and canvas and figures have the page's ground."""
    with opened(chromium, path, color_scheme=scheme) as report:
        with_figures(report)
        for selector in ("h1", ".lead", "td", ".facts dt", ".labels .lane", ".status"):
            text, ground = (luminance(colour) for colour in colours_of(report, selector))
            assert (max(text, ground) + 0.05) / (min(text, ground) + 0.05) >= 4.5, selector
        assert SURFACE.on(scheme) in report.colours()
        figure = report.page.locator(".figure .main-svg").first
        ground = figure.evaluate("(svg) => getComputedStyle(svg).backgroundColor")
        assert ground == colours_of(report, "h1")[1]


def test_the_theme_can_be_chosen(chromium, path):
    """The button goes from the system's theme to light and to dark, and everything follows."""
    with opened(chromium, path, color_scheme="dark") as report:
        with_figures(report)
        button = report.page.locator("#theme")
        assert SURFACE.dark in report.colours()
        button.click()
        assert button.inner_text() == "Theme: light"
        report.page.wait_for_selector('html[data-theme="light"]', state="attached")
        report.page.evaluate("() => profileReport.timeline.drawNow()")
        assert SURFACE.light in report.colours()
        assert PAGE["line"].dark not in report.colours()
        assert luminance(colours_of(report, "h1")[0]) < 0.1


def test_paper_is_light_and_complete(chromium, path):
    """Printed from a dark screen the page is light, without controls and without scroll boxes."""
    with opened(chromium, path, color_scheme="dark") as report:
        with_figures(report)
        report.page.emulate_media(media="print")
        report.page.wait_for_selector('html[data-theme="light"]', state="attached")
        text, ground = colours_of(report, "h1")
        assert luminance(ground) == pytest.approx(1)
        assert luminance(text) < 0.1
        assert SURFACE.light in report.colours()
        assert report.page.locator("#timeline .controls").is_hidden()
        boxes = report.page.evaluate(
            """() => [...document.querySelectorAll(".scroll, .timeline, .figure, main, section")]
              .filter((e) => ["auto", "scroll"].includes(getComputedStyle(e).overflowX)).length"""
        )
        assert boxes == 0
        assert report.page.pdf(format="A4").startswith(b"%PDF")


@pytest.mark.parametrize("width", [340, 768, 1920])
def test_any_width_fits(chromium, path, width):
    """The page never scrolls sideways, and the timeline is as wide as its place."""
    with opened(chromium, path, viewport={"width": width, "height": 800}) as report:
        with_figures(report)
        assert report.page.evaluate("document.documentElement.scrollWidth") <= width
        assert report.page.evaluate("profileReport.timeline.width") >= width * 0.45


def test_a_resized_window_redraws(report):
    """Timeline and figures follow the width of the window."""
    with_figures(report)
    report.page.set_viewport_size({"width": 800, "height": 900})
    report.page.wait_for_function("() => profileReport.timeline.width < 650")
    figure = with_figures(report).page.locator("[data-figure=steps]")
    assert figure.evaluate("(place) => place.layout.width") < 800


@pytest.fixture
def hostile(chromium, tmp_path):
    path = tmp_path / "hostile.html"
    write_html(hostile_run(), hostile_analysis(), path)
    with opened(chromium, path) as report:
        yield with_figures(report)


def not_hacked(report):
    assert report.page.evaluate("window.hacked") is None
    assert report.said == []
    added = report.page.evaluate(
        """() => document.querySelectorAll(
          "img, a[href^='javascript'], svg[onload], [onerror], bold").length"""
    )
    assert added == 0


def test_hostile_names_run_nothing(hostile):
    """Names that are markup or code stay text while everything that shows them is used."""
    page = hostile.page
    for i in range(len(HOSTILE)):
        page.locator("#timeline-call").select_option(str(i))
        assert page.locator("#timeline-details .title").inner_text() == HOSTILE[i]
        page.mouse.move(*hostile.place("commands", 0, f"track {HOSTILE[i]}"))
        page.wait_for_function(
            "(name) => document.querySelector('#tip .title')?.textContent === name", arg=HOSTILE[i]
        )
    for mode in ("submodule", "category"):
        page.locator("#timeline-colour").select_option(mode)
    page.get_by_label("Search operators", exact=True).fill("<img")
    assert hostile.cells("[data-table=operators]", 1) == [HOSTILE[1]]
    for place in page.locator("[data-figure]").all():
        place.evaluate(
            """(div) => Plotly.Fx.hover(div, div.dataset.figure === "matrix"
              ? { xval: 0, yval: 0 } : [{ curveNumber: 0, pointNumber: 0 }])"""
        )
    not_hacked(hostile)


def test_hostile_names_are_shown_as_text(hostile):
    """Every name can be read, letter by letter, in the tables and in the figures."""
    shown = hostile.cells("[data-table=submodules]", 1)
    assert set(shown) == set(HOSTILE)
    ticks = hostile.page.locator("[data-figure=operators] .ytick text").all_text_contents()
    assert HOSTILE[1] in ticks
    assert HOSTILE[9] in ticks
    not_hacked(hostile)


def test_injected_markup_would_not_run_either(chromium, tmp_path):
    """Even markup that got into the page past every escape is stopped by its policy."""
    run = tiny_run()
    text = html_page(run, analyze(run))
    attack = "<script>window.hacked=1</script><img src=x: onerror=window.hacked=1>"
    path = tmp_path / "injected.html"
    path.write_text(text.replace("</main>", attack + "</main>"), encoding="utf-8")
    with opened(chromium, path) as report:
        assert report.page.evaluate("window.hacked") is None
        assert any("Content Security Policy" in line for line in report.said)


def test_a_foreign_trace_is_a_page(chromium, tmp_path):
    """Without calls, spans and steps the page shows tracks and operators, and nothing empty."""
    commands = [Command(-1, "cuda:0", "stream 7", "compute", "kernel", 0, 50)]
    with opened(chromium, page_of(make_run(commands=commands), tmp_path)) as report:
        with_figures(report)
        assert report.said == []
        assert report.page.locator(".labels .lane > span").all_inner_texts() == [
            "stream 7",
            "cuda:0 busy share",
        ]
        assert report.page.locator("#steps, #calls").count() == 0
        links = report.page.locator("nav a:not(.group)").all_inner_texts()
        expected = [
            *("Summary", "Timeline", "Findings", "Idle time", "Operators and roofline"),
            *("Devices", "Profiling overhead", "Provenance"),
        ]
        assert links == expected
        assert report.page.locator("#timeline-call").is_disabled()


def test_an_empty_run_is_a_page(chromium, tmp_path):
    """A run without any event opens without an error."""
    with opened(chromium, page_of(make_run(), tmp_path)) as report:
        assert report.said == []
        assert "0 commands" in report.page.locator("h1").inner_text()


def test_drops_are_seen_first(chromium, tmp_path):
    """An incomplete run says so in the first window that a reader sees."""
    drops = (Drop(DropKind.TRUNCATED_FILE, "006.pb", 512, "bytes", why("cut: copy it again")),)
    with opened(chromium, page_of(tiny_run(drops=drops), tmp_path)) as report:
        box = report.page.get_by_role("alert").bounding_box()
        assert box["y"] + box["height"] < 500
        assert "truncated file in 006.pb" in report.page.get_by_role("alert").inner_text()
        assert "copy it again" in report.page.get_by_role("alert").inner_text()
        told = report.page.locator(".bookkeeping > :not(summary)").first
        assert told.is_hidden()
        report.page.locator(".bookkeeping > summary").click()
        assert told.is_visible()


def test_commands_left_out_are_announced(chromium, tmp_path, monkeypatch):
    """A page that cannot hold all commands says how many it holds."""
    monkeypatch.setattr("profiler.report.html.timeline.COMMAND_LIMIT", 5)
    monkeypatch.setattr(
        "profiler.report.html.page.timeline_of",
        lambda run, **known: timeline_of(run, 5, **known),
    )
    with opened(chromium, page_of(tiny_run(), tmp_path)) as report:
        status = report.page.locator("#timeline-status")
        status.filter(has_text="the 5 longest of 12 commands").wait_for()


def test_numbers_read_alike_in_page_and_python(report):
    """The page writes durations, shares and sizes exactly as Python does."""
    ns = [
        0,
        1,
        12.5,
        740,
        999.6,
        1000,
        9994,
        9995,
        99951,
        999499,
        999500,
        68358971,
        2e9,
        1.3e11,
        -5e4,
    ]
    ratios = [0, 1, 1.2, 0.92, 0.04, 0.0031, 0.99999, 0.9951, 0.00001, -0.03, 0.0996]
    ratios += [0.585, 0.125, 0.0225, 0.0275, 0.0245, 0.0235, 0.00125, 0.00375]  # ties
    sizes = [0, 12, 1023, 1024, 1536 * 1024, 5e9]
    evaluated = report.page.evaluate(
        """([ns, ratios, sizes]) => [
          ns.map(format.duration), ratios.map(format.percent), sizes.map(format.size)]""",
        [ns, ratios, sizes],
    )
    assert evaluated[0] == [text.duration(value) for value in ns]
    assert evaluated[1] == [text.percent(value) for value in ratios]
    assert evaluated[2] == [text.size(value) for value in sizes]


def test_names_fold_alike_in_page_and_python(report):
    """The page folds the numbers in layer names as Python does."""
    layers = ["a.0.1.2.b", "decoder.conv1", "/blocks.3/attn/MatMul_12", "linear_196", "3", "블록.3"]
    found = report.page.evaluate("(layers) => layers.map(pattern)", layers)
    assert (
        found == pl.DataFrame({"layer": layers}).select(pattern(pl.col("layer")))["layer"].to_list()
    )


def test_text_colours_are_those_of_the_palette(report):
    """The page's own colours come from the palette that figures use too."""
    text, ground = colours_of(report, "body")
    for found, wanted in ((text, TEXT.light), (ground, SURFACE.light)):
        channels = [int(part) for part in re.findall(r"\d+", found)[:3]]
        assert "#" + "".join(f"{channel:02x}" for channel in channels) == wanted
