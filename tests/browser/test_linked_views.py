"""Linked views of the HTML page in a real browser: choosing in one view marks and filters all."""

from __future__ import annotations

import re

import polars as pl
import pytest

from profiler import text
from profiler.analysis import Finding, Selection, Where, submodule_colours, with_roles
from profiler.analysis.analyze import analyze
from profiler.analysis.document import ROLE_COLOURS
from profiler.report import write_html
from profiler.tools.sources import load
from tests.browser.report_page import (
    chips,
    choose,
    opened,
    page_of,
    scope,
    values,
    with_figures,
)
from tests.report.generated import write_generated_bundle
from tests.report.hostile import HOSTILE, hostile_analysis, hostile_run

pytestmark = pytest.mark.browser

SDPA = "transformer_blocks.*.attn.sdpa"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A generated run of three steps on two accelerators, each command with a role."""
    return with_roles(load(write_generated_bundle(tmp_path_factory.mktemp("linked"), steps=3)))


@pytest.fixture(scope="module")
def path(run, tmp_path_factory):
    return page_of(run, tmp_path_factory.mktemp("linked"))


@pytest.fixture(scope="module")
def shared(chromium, path):
    """The page, opened once, with its figures."""
    with opened(chromium, path) as report:
        yield with_figures(report)


@pytest.fixture
def report(shared):
    """The page as it opens: clear the filter: the whole run."""
    page = shared.page
    shared.said.clear()
    page.emulate_media(media="screen")
    page.set_viewport_size({"width": 1400, "height": 1000})
    page.evaluate(
        """() => {
          const { choice, explorer, timeline, tables } = profileReport;
          document.activeElement?.blur();
          choice.clear();
          explorer.reset();
          explorer.address.section = "";
          const colour = document.getElementById("timeline-colour");
          colour.value = "submodule";
          colour.dispatchEvent(new Event("change"));
          for (const table of Object.values(tables)) {
            if (table.searched) table.searched.value = table.query = "";
          }
          scrollTo({ top: 0, behavior: "instant" });
          timeline.drawNow();
        }"""
    )
    return with_figures(shared)


def click_figure(report, figure, trace, point):
    """Click where plotly drew a point of a trace, given by its numbers."""
    with_figures(report)
    x, y = report.page.evaluate(
        """([figure, trace, point]) => {
          const place = document.querySelector(`[data-figure=${figure}]`);
          place.scrollIntoView({ block: "center", behavior: "instant" });
          const { xaxis, yaxis } = place._fullLayout, data = place.data[trace];
          const [x, y] = data.type === "heatmap" ? [point[1], point[0]]
            : data.orientation === "h" ? [data.x[point] / 2, data.y[point]]
            : [data.x[point], data.type === "bar" ? data.y[point] / 2 : data.y[point]];
          const box = place.getBoundingClientRect();
          const at = (axis, value) =>
            axis._offset + axis.l2p(axis.type === "category" ? axis.d2c(value) : axis.d2l(value));
          return [box.left + at(xaxis, x), box.top + at(yaxis, y)];
        }""",
        [figure, trace, point],
    )
    report.page.mouse.move(x - 1, y)
    report.page.mouse.move(x, y)
    report.page.mouse.click(x, y)


def test_a_bar_of_a_step_chooses_it_everywhere(report, run):
    """A click on the bar of step 1 marks it, filters calls, and counts operators and roles anew."""
    click_figure(report, "steps", 0, [r["step"] for r in step_rows(report)].index(1))
    assert chips(report) == ["step 1"]
    of_step = run.calls.filter(step=1)
    assert report.cells("[data-table=calls]", 1) == [str(call) for call in of_step["call"]]
    assert scope(report, "calls") == "Selection: step 1. Grey: of the whole run."
    counts = report.page.locator(".chosen .counts").inner_text()
    commands = run.commands.filter(step=1)
    device = commands.filter(pl.col("category") != "host")["duration_ns"].sum()
    assert counts.startswith(f"1 call. {len(commands):,} of {len(run.commands):,} commands, ")
    assert text.duration(device) in counts


def step_rows(report):
    return report.page.evaluate("() => page.figures.light.steps.data[0].picks")


def test_letting_go_brings_the_whole_run_back(report):
    """Clear empties the choice, and tables, figures and scope lines are those of the run."""
    before = values(report, "operators", "layer", "commands", "share")
    bars = "document.querySelector('[data-figure=operators]').data[0].x.length"
    count = report.page.evaluate(bars)
    choose(report, role="attention")
    assert with_figures(report).page.evaluate(bars) < count
    report.page.get_by_role("button", name="Clear").click()
    with_figures(report)
    assert report.page.evaluate(bars) == count
    assert values(report, "operators", "layer", "commands", "share") == before
    assert chips(report) == []
    assert report.page.locator(".scope:visible").count() == 0


def test_a_bar_of_an_operator_chooses_it(report):
    """The longest bar of the operators chooses its operator and submodule."""
    click_figure(report, "operators", 0, 0)
    assert chips(report) == ["submodule transformer", f"operator {SDPA}"]
    assert report.cells("[data-table=operators]", 1) == [SDPA]


def test_a_bar_of_stages_devices_and_roles_chooses(report):
    """Bars of stages, devices and roles choose what they stand for; a second click lets go."""
    expected = {
        "stages": ["stage", "role"],
        "devices": ["device"],
        "roles": ["submodule", "role"],
        "idle": ["device"],
    }
    for figure, dimensions in expected.items():
        with_figures(report)
        trace = report.page.evaluate(
            """(figure) => { const { data } = document.querySelector(`[data-figure=${figure}]`);
              const long = data.map(({ x }) => Math.max(...x.map(Number)));
              return long.indexOf(Math.max(...long)); }""",
            figure,
        )
        point = report.page.evaluate(
            """([figure, trace]) => { const { x } = document.querySelector(
              `[data-figure=${figure}]`).data[trace]; return x.indexOf(Math.max(...x)); }""",
            [figure, trace],
        )
        click_figure(report, figure, trace, point)
        assert [chip.split()[0] for chip in chips(report)] == dimensions, figure
        click_figure(
            report, figure, 0 if figure == "roles" else trace, 0 if figure == "roles" else point
        )
        assert chips(report) == [], figure


def test_a_point_of_the_roofline_chooses_its_role(report):
    """A point of the roofline stands for a role of a submodule."""
    click_figure(report, "roofline", 0, 0)
    picks = report.page.evaluate("page.figures.light.roofline.data[0].picks[0]")
    assert chips(report) == [f"submodule {picks['submodule']}", f"role {picks['role']}"]


def test_a_cell_of_the_step_matrix_chooses_step_and_operator(report):
    """A cell chooses its step and operator, and is framed."""
    click_figure(report, "matrix", 0, [2, 1])
    assert chips(report) == ["submodule transformer", "step 1", f"operator {SDPA}"]
    shapes = "document.querySelector('[data-figure=matrix]').layout.shapes"
    (shape,) = with_figures(report).page.evaluate(shapes)
    assert (shape["x0"], shape["x1"], shape["y0"], shape["y1"]) == (0.5, 1.5, 1.5, 2.5)


def test_a_cell_of_a_table_filters_the_others(report):
    """The cell of a submodule filters the tables that know submodules; others say whole run."""
    report.page.locator("[data-table=submodules]").get_by_role("button", name="vae").click()
    assert chips(report) == ["submodule vae"]
    assert report.cells("[data-table=submodules]", 1) == ["vae"]
    assert scope(report, "submodules") == "Selection: submodule vae. Grey: of the whole run."
    assert scope(report, "stages") == "Whole run: this table does not distinguish submodule vae."
    assert set(report.cells("[data-table=calls]", 2)) == {"vae"}
    pressed = report.page.locator("[data-table=submodules] button.pick[aria-pressed=true]")
    assert pressed.inner_text() == "vae"
    pressed.click()
    assert chips(report) == []
    assert len(report.cells("[data-table=submodules]", 1)) == 5


def test_values_add_up_with_and(report, run):
    """Two dimensions are combined by AND; Shift chooses a second value of one dimension by OR."""
    choose(report, step=1, role="attention")
    expected = run.commands.filter(step=1, role="attention")
    assert sums(report)["commands"] == len(expected)
    report.page.locator("[data-table=calls]").wait_for()
    report.page.evaluate("profileReport.choice.pick({ step: 2 }, true)")
    both = run.commands.filter(pl.col("step").is_in([1, 2]), pl.col("role") == "attention")
    assert sums(report)["commands"] == len(both)
    assert chips(report) == ["step 1", "step 2", "role attention"]
    report.page.get_by_role("button", name="Remove step 1").click()
    assert chips(report) == ["step 2", "role attention"]


def sums(report):
    return report.page.evaluate("profileReport.choice.sums")


@pytest.mark.parametrize("pick", [
    {"step": 1}, {"role": "attention"}, {"operator": SDPA}, {"device": "rbln:1"},
    {"branch": "prompt"}, {"stage": "decode"}, {"call": 3}, {"submodule": "transformer", "step": 0},
])  # fmt: skip
def test_what_matches_is_what_the_run_has(report, run, pick):
    """The commands that match each dimension are those that its column names."""
    choose(report, **pick)
    calls = run.calls.select("call", "submodule", "branch")
    joined = run.commands.join(calls, on="call", how="left", suffix="_of_call")
    layer = pl.col("layer").cast(pl.String)
    tests = {
        "operator": layer.str.contains(r"^transformer_blocks\.\d+\.attn\.sdpa$"),
        **{name: pl.col(name) == pick[name] for name in pick if name != "operator"},
    }
    expected = joined.filter(*(tests[name] for name in pick))
    assert sums(report)["commands"] == len(expected) > 0


def test_an_entry_of_the_legend_chooses(report):
    """A name below the timeline chooses its submodule, and the timeline pales all others."""
    colours = submodule_colours(
        ["transformer", "text_encoder", "text_encoder_2", "text_encoder_3", "vae"]
    )
    assert {colour.light for colour in colours.values()} <= report.colours()
    report.page.locator("#timeline-legend").get_by_role("button", name="vae").click()
    assert chips(report) == ["submodule vae"]
    report.page.evaluate("profileReport.timeline.drawNow()")
    drawn = report.colours()
    assert colours["vae"].light in drawn
    assert colours["transformer"].light not in drawn
    assert colours["text_encoder_3"].light not in drawn


def test_the_legend_of_a_figure_chooses(report):
    """A name in a figure's legend chooses what all its bars have in common."""
    legend = report.page.locator("[data-figure=roles] .legendtoggle").first
    legend.scroll_into_view_if_needed()
    legend.click()
    report.page.wait_for_function("() => profileReport.choice.active")
    assert chips(report) == ["role attention"]


def test_roles_keep_their_colour_when_chosen(report):
    """Coloured by role, what matches keeps the colour of its role."""
    report.page.locator("#timeline-colour").select_option("role")
    report.page.evaluate(
        """() => { const { timeline } = profileReport;
          const call = profileReport.explorer.callNumbered(7), begin = call.lane.start(call.i);
          timeline.show(begin, begin + 3e6);
          timeline.drawNow(); }"""
    )
    assert ROLE_COLOURS["qkv_projection"].light in report.colours()
    report.page.locator("#timeline-legend").get_by_role("button", name="mlp").click()
    report.page.evaluate("profileReport.timeline.drawNow()")
    assert ROLE_COLOURS["mlp"].light in report.colours()
    assert ROLE_COLOURS["qkv_projection"].light not in report.colours()


def test_an_event_offers_what_it_is_of(report):
    """The card of a command offers its operator, role and step; that of a call its submodule."""
    report.page.locator("#timeline-call").select_option("7")
    report.page.mouse.click(*report.place("calls", 5))
    only = report.page.locator("#timeline-details .only")
    assert "step 1" in only.inner_text()
    only.get_by_role("button", name="step 1").click()
    assert chips(report) == ["step 1"]
    report.page.keyboard.press("Escape")
    assert chips(report) == []
    report.page.evaluate(
        """() => { const { timeline, explorer } = profileReport;
          const lane = timeline.lanes.find(({ track, device }) =>
            track === "Neural Engine Clusters" && device === "rbln:0");
          explorer.visit({ lane, i: lane.count - 1 }); }"""
    )
    only.get_by_role("button", name="role resample").click()
    report.page.locator(".chip").wait_for()
    assert chips(report) == ["role resample"]


def test_a_finding_chooses_what_it_is_about(chromium, run, tmp_path):
    """A finding's button chooses all that it names and the run has."""
    where = Where("transformer", "transformer_blocks.3.attn.sdpa", "rbln:0", step=1, calls=(7,))
    finding = Finding("rule", {}, where)
    with opened(chromium, page_of(run, tmp_path, findings=(finding,))) as report:
        button = report.page.get_by_role("button", name="Filter by this")
        button.click()
        assert chips(report) == [
            "submodule transformer",
            "step 1",
            "device rbln:0",
            "operator transformer_blocks.3.attn.sdpa",
        ]
        assert button.get_attribute("aria-pressed") == "true"


def test_drawing_the_figures_moves_nothing(chromium, path):
    """Figures have their room before they are drawn: what a reader is about to press stays."""
    with opened(chromium, path) as report:
        report.page.wait_for_load_state("load")
        report.page.wait_for_selector("html[data-figures]", state="attached")
        tall = report.page.evaluate("document.documentElement.scrollHeight")
        with_figures(report)
        assert report.page.evaluate("document.documentElement.scrollHeight") == tall


def test_the_next_match_is_found_in_order(report, run):
    """f and F go through the matching commands by time and say which of how many it is."""
    choose(report, role="attention", submodule="transformer")
    expected = run.commands.filter(pl.col("role") == "attention", pl.col("step") >= 0)
    starts = sorted(expected["start_ns"].to_list())
    begin = run.spans["start_ns"].min()

    def at():
        return report.page.evaluate(
            """() => { const { lane, i } = profileReport.timeline.selected;
              return lane.start(i); }"""
        )

    for number, start in enumerate(starts[:3], 1):
        report.page.keyboard.press("f")
        assert at() == start - begin
        assert f"Match {number} of {len(starts):,}" in report.page.locator(".counts").inner_text()
        left, right = report.window()
        assert left <= at() <= right
    report.page.keyboard.press("F")
    assert at() == starts[1] - begin
    for _ in range(2):
        report.page.keyboard.press("F")
    assert at() == starts[-1] - begin


def test_matches_are_calls_where_no_work_is_chosen(report, run):
    """With a submodule chosen, the next match is its next call."""
    choose(report, submodule="transformer")
    numbers = run.calls.filter(submodule="transformer")["call"].to_list()
    report.page.get_by_role("button", name="Next match").click()
    assert report.page.locator("#timeline-call").input_value() == str(numbers[0])
    report.page.get_by_role("button", name="Next match").click()
    assert report.page.locator("#timeline-call").input_value() == str(numbers[1])


def test_an_address_shows_the_same_to_others(chromium, path, report):
    """Choice, window, colours and section of one page are those of another with its address."""
    report.page.locator("#timeline-colour").select_option("submodule")
    report.page.locator("nav a[href='#roofline']:not(.group)").click()
    choose(report, step=1, role="attention", operator=SDPA)
    report.page.evaluate("profileReport.timeline.show(123456789, 234567891)")
    report.page.wait_for_function("() => location.hash.includes('from=')")
    window = report.window()
    assert report.page.evaluate("location.hash") == (
        f"#section=roofline&step=1&role=attention&operator={SDPA}"
        "&from=123.456789ms&to=234.567891ms&colour=submodule"
    )
    with opened(chromium, path) as other:
        other.page.goto("about:blank")
        other.page.goto(report.page.url)
        other.page.wait_for_selector("html[data-timeline=drawn]", state="attached")
        assert chips(other) == chips(report) != []
        assert other.window() == pytest.approx(window, abs=1)
        assert other.page.locator("#timeline-colour").input_value() == "submodule"
        assert other.cells("[data-table=operators]", 1) == [SDPA]
        top = other.page.evaluate("document.getElementById('roofline').getBoundingClientRect().top")
        assert -5 <= top < 200
        assert other.said == []


def test_the_link_is_copied(chromium, path):
    """Copy link puts the page's address into the clipboard and says so."""
    permissions = {"permissions": ["clipboard-read", "clipboard-write"]}
    with opened(chromium, path, **permissions) as report:
        choose(report, step=2)
        report.page.get_by_title("The address of this view").click()
        report.page.get_by_role("button", name="Copied").wait_for()
        assert report.page.evaluate("navigator.clipboard.readText()").endswith("#step=2")


def test_back_and_forward_undo_and_redo(report):
    """The back button returns to the choice before, the forward button to the one after."""
    choose(report, step=1)
    choose(report, role="mlp")
    report.page.go_back()
    report.page.wait_for_function("() => profileReport.choice.values.size === 1")
    assert chips(report) == ["step 1"]
    report.page.go_back()
    report.page.wait_for_function("() => !profileReport.choice.active")
    report.page.go_forward()
    report.page.go_forward()
    report.page.wait_for_function("() => profileReport.choice.values.size === 2")
    assert chips(report) == ["step 1", "role mlp"]


def test_an_edited_address_is_followed(report):
    """Typing another address into the bar chooses what it names."""
    report.page.evaluate("location.hash = '#submodule=vae'")
    report.page.wait_for_function("() => profileReport.choice.active")
    assert chips(report) == ["submodule vae"]


HOSTILE_ADDRESSES = (
    "#step=<img src=x onerror=window.hacked=1>",
    "#step=7e9&step=-1&step=99999999999999999999&step=1.5&step=7",
    "#__proto__=x&constructor=y&toString=z",
    "#submodule=%3Cscript%3Ewindow.hacked=1%3C/script%3E",
    "#section=%22%3E%3Cbold%3E&colour=javascript:window.hacked=1",
    "#from=NaN&to=Infinity",
    "#from=-5ms&to=1e99ms",
    "#from=9ms&to=3ms",
    "#%E0%A4%A=%E0%A4%A&role=%",
    "#role=attention" + "&step=1" * 2000,  # longer than any address of the page
    "#" + "a=b&" * 3000,
    "#operator=" + "x" * 5000,
    "#lang=__proto__",
    "#=&&==&",
)


def changed_nothing(report, whole):
    assert chips(report) == []
    assert report.window() == whole
    assert report.said == []
    assert report.page.evaluate("window.hacked") is None
    assert report.page.locator("img, bold").count() == 0
    assert "onerror" not in report.page.locator("body").inner_text()


def test_hostile_addresses_change_nothing(report):
    """An address that names nothing of the run chooses, shows and breaks nothing."""
    whole = report.window()
    for address in HOSTILE_ADDRESSES:
        report.page.evaluate("(address) => { location.hash = address; }", address)
        report.page.evaluate("new Promise((done) => setTimeout(done))")
        changed_nothing(report, whole)


@pytest.mark.parametrize("number", [0, 2, 3, 8])
def test_a_page_opens_with_a_hostile_address(chromium, path, report, number):
    """Opened with such an address, the page is the page without any."""
    whole = report.window()
    with opened(chromium, path) as other:
        other.page.goto("about:blank")
        other.page.goto(path.as_uri() + HOSTILE_ADDRESSES[number])
        other.page.wait_for_selector("html[data-timeline=drawn]", state="attached")
        changed_nothing(other, whole)


def test_hostile_names_can_be_chosen_as_text(chromium, tmp_path):
    """Names that are markup become chips, addresses and back again as nothing but text."""
    path = tmp_path / "hostile.html"
    write_html(hostile_run(), hostile_analysis(), path)
    with opened(chromium, path) as report:
        for name in HOSTILE:
            report.page.evaluate(
                """(name) => { const { choice } = profileReport;
                  choice.clear();
                  choice.pick({ submodule: name }); }""",
                name,
            )
            chosen = report.page.evaluate("profileReport.choice.of('submodule')[0]")
            assert chosen == name
            address = report.page.evaluate("location.hash")
            report.page.evaluate("profileReport.choice.clear()")
            report.page.evaluate("(address) => { location.hash = address; }", address)
            report.page.wait_for_function("() => profileReport.choice.active")
            assert report.page.evaluate("profileReport.choice.of('submodule')[0]") == name
        assert report.page.evaluate("window.hacked") is None
        assert report.said == []


def test_choosing_by_name_with_keys_alone(report):
    """/ finds a step by name, Enter chooses it, Escape lets go; nothing needs a mouse."""
    keyboard = report.page.keyboard
    keyboard.press("/")
    assert report.page.evaluate("document.activeElement.id") == "choice-search"
    keyboard.type("step 2")
    keyboard.press("Enter")
    assert chips(report) == ["step 2"]
    keyboard.press("Enter")  # the focus went on to the next match
    assert report.page.locator("#timeline-call").input_value() == "8"
    keyboard.press("/")
    keyboard.type("attention")
    keyboard.press("Enter")
    assert chips(report) == ["step 2", "role attention"]
    keyboard.press("/")
    keyboard.type("x")
    keyboard.press("Escape")
    assert report.page.locator("#choice-search").input_value() == ""
    assert chips(report) == ["step 2", "role attention"]
    keyboard.press("Escape")  # leaves the empty search
    keyboard.press("Escape")
    assert chips(report) == []
    keyboard.press("/")
    keyboard.type("nothing has this name")
    keyboard.press("Enter")
    assert chips(report) == []


def test_the_keys_are_listed(report):
    """? shows the keys, Escape closes the card and leaves the choice."""
    choose(report, step=1)
    report.page.keyboard.press("?")
    card = report.page.get_by_role("dialog")
    assert "next, previous match in the timeline" in card.inner_text()
    report.page.keyboard.press("Escape")
    card.wait_for(state="hidden")
    assert chips(report) == ["step 1"]


def test_cells_are_chosen_by_keys(report):
    """Tab enters a table once, arrows lead to its cells, Enter chooses, and the focus stays."""
    table = report.page.locator("[data-table=submodules]")
    stops = table.locator("button.pick[tabindex='0']")
    assert stops.count() == 1
    stops.focus()
    report.page.keyboard.press("ArrowDown")
    name = report.page.evaluate("document.activeElement.textContent")
    assert name == report.cells("[data-table=submodules]", 1)[1]
    report.page.keyboard.press("Enter")
    assert chips(report) == [f"submodule {name}"]
    assert report.page.evaluate("document.activeElement.textContent") == name
    outline = report.page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    report.page.keyboard.press("Enter")
    assert chips(report) == []


def test_the_choice_is_announced(report):
    """Screen readers hear what is chosen and how much it is."""
    choose(report, step=1)
    said = report.page.locator(".chosen [role=status]").inner_text()
    assert re.match(r"Filtered by step 1\. 1 call\. [\d,]+ of [\d,]+ commands", said)
    report.page.keyboard.press("Escape")
    said = report.page.locator(".chosen [role=status]").inner_text()
    assert said == "No filter: the whole run."


_BAR_PLACED = """() => {
  const header = document.querySelector("header.top"), { style } = document.documentElement;
  const above = getComputedStyle(header).position === "fixed" ? 0 : header.offsetHeight;
  const below = above + document.querySelector(".chosen").offsetHeight;
  return style.getPropertyValue("--under-header") === `${above}px`
    && style.getPropertyValue("--under-choice") === `${below}px`;
}"""


def test_the_bar_stays_in_sight(report):
    """However far one scrolls, the chips of the choice are there, and nothing lies under them."""
    choose(report, step=1)
    for width in (1400, 900, 390):
        report.page.set_viewport_size({"width": width, "height": 900})
        with_figures(report)
        report.page.wait_for_function(_BAR_PLACED)
        report.page.evaluate("scrollTo({ top: 6000, behavior: 'instant' })")
        chip = report.page.locator(".chip").bounding_box()
        header = report.page.locator("header.top").bounding_box()
        assert 0 <= chip["y"] < 200
        if header["height"] < 100:
            assert chip["y"] >= header["height"]
        assert report.page.evaluate("document.documentElement.scrollWidth") <= width
        report.page.evaluate(
            "document.getElementById('steps').scrollIntoView({ behavior: 'instant' })"
        )
        bar = report.page.locator(".chosen").bounding_box()
        assert report.page.locator("#steps h3").bounding_box()["y"] >= bar["y"] + bar["height"]


def test_paper_tells_the_choice(report):
    """Printed with a choice, the page says what it shows, without buttons."""
    choose(report, step=1)
    report.page.emulate_media(media="print")
    assert report.page.locator(".chip").is_visible()
    assert report.page.locator(".counts").is_visible()
    assert report.page.get_by_title("The address of this view").is_hidden()
    assert report.page.locator("#choice-search").is_hidden()


def test_a_selection_bounds_what_is_counted(chromium, run, tmp_path):
    """The page of an analysis of two steps counts no operator of the third."""
    path = tmp_path / "selected.html"
    write_html(run, analyze(run, Selection(step=("0-1",))), path)
    with opened(chromium, path) as report:
        choose(report, role="attention")
        expected = run.commands.filter(pl.col("role") == "attention", pl.col("step").is_in([0, 1]))
        found = values(report, "operators", "commands")
        assert sum(row["commands"] for row in found) == len(expected)
