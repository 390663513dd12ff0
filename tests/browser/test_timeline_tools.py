"""Finding, ranking, measuring and pinning in the timeline, and the curves under it, on a run whose
times fit in a head (`tests.runs`)."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from profiler.analysis.analyze import analyze
from profiler.analysis.document import ROLE_COLOURS
from profiler.tools.sources import load
from tests.browser.report_page import opened, page_of
from tests.corpus import CORPUS, needs_corpus
from tests.report.test_html_palette import contrast
from tests.runs import TINY_COMMANDS, tiny_run

pytestmark = pytest.mark.browser

_KERNELS = {"MatMul": "gemm_kernel", "Softmax": "softmax_kernel"}
_COMMANDS = [replace(one, kernel=_KERNELS.get(one.op_type, "")) for one in TINY_COMMANDS]


@pytest.fixture(scope="module")
def tools(chromium, tmp_path_factory):
    """The page of the tiny run with kernels, open for all tests of this module."""
    path = page_of(tiny_run(commands=_COMMANDS), tmp_path_factory.mktemp("tools"))
    with opened(chromium, path) as report:
        report.page.wait_for_function("() => window.profileUsable")
        yield report


@pytest.fixture(autouse=True)
def as_opened(tools):
    """Nothing is searched, measured, pinned or selected before a test."""
    tools.page.evaluate(
        """() => {
          const { explorer, timeline } = profileReport;
          explorer.finder.field.value = "";
          explorer.finder.look();
          explorer.measure.use(false);
          for (const lane of [...timeline.pinned]) timeline.pin(lane);
          explorer.reset();
        }"""
    )


def line(tools, name):
    """What a line below or beside the timeline says, with plain blanks."""
    return tools.page.locator(f"#timeline-{name}").inner_text().replace("\N{NO-BREAK SPACE}", " ")


def selected(tools):
    """Start and length of what is selected."""
    return tools.page.evaluate(
        """() => { const { lane, i } = profileReport.timeline.selected;
          return [lane.start(i), lane.end(i) - lane.start(i)]; }"""
    )


def find(tools, text):
    tools.page.locator("#timeline-find").fill(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("softmax_kernel", [(240, 60), (570, 80)]),
        ("GEMM_kernel", [(220, 100), (570, 60)]),
        ("mlp", [(330, 150), (660, 80)]),
        ("blocks 0 attn", [(220, 100), (240, 60), (570, 60), (570, 80)]),
    ],
)
def test_what_is_found_is_gone_through_in_time(tools, text, expected):
    """Words in layers and kernels, in any case: Enter goes on from the first to the last and from
    there to the first, Shift + Enter back."""
    find(tools, text)
    field, seen = tools.page.locator("#timeline-find"), []
    for number in range(len(expected)):
        field.press("Enter")
        seen.append(tuple(selected(tools)))
        assert line(tools, "found") == f"{number + 1} of {len(expected)} found"
    assert seen == expected
    field.press("Enter")
    assert tuple(selected(tools)) == expected[0]
    field.press("Shift+Enter")
    assert tuple(selected(tools)) == expected[-1]


def test_a_name_that_is_not_there(tools):
    """Nothing is selected, and a line says so."""
    find(tools, "no_such_kernel")
    tools.page.locator("#timeline-find").press("Enter")
    assert line(tools, "found") == "Nothing has that name."
    assert tools.page.evaluate("profileReport.timeline.selected") is None


def test_the_longest_commands_one_after_the_other(tools):
    """By length, among what was found where something is searched; by keys as well."""
    lengths = sorted((one.duration for one in _COMMANDS), reverse=True)
    button = tools.page.locator("[data-find='longer 1']")
    for number in range(4):
        button.click()
        assert selected(tools)[1] == lengths[number]
    tools.page.locator("canvas.lanes").focus()
    tools.page.keyboard.press("Shift+L")
    assert line(tools, "found") == f"Number 3 of {len(lengths)} by length: {lengths[2]} ns"
    find(tools, "attn")
    button.click()
    assert selected(tools) == [220, 100]
    assert line(tools, "found") == "Number 1 of 4 by length: 100 ns"


def test_a_stretch_is_measured_by_drag(tools):
    """Shift and a drag from begin to end of a command snap to them; what began and ran in the
    stretch is told."""
    page = tools.page
    x, y = tools.place("commands", 2, "Cluster 0")  # 570 to 630
    box = page.evaluate(
        """() => { const { timeline } = profileReport;
          const { left } = timeline.canvas.getBoundingClientRect();
          return [left + timeline.x(570), left + timeline.x(630)]; }"""
    )
    page.keyboard.down("Shift")
    page.mouse.move(box[0] + 2, y)
    page.mouse.down()
    page.mouse.move(x, y)
    page.mouse.move(box[1] - 2, y, steps=3)
    page.mouse.up()
    page.keyboard.up("Shift")
    told = line(tools, "measured")
    assert told.startswith("Measured: 60 ns from 0.570 µs to 0.630 µs, 2 commands begin in it")
    assert "rbln:0 busy 100 %" in told
    assert "rbln:1 busy 0 %" in told
    assert tools.window() == pytest.approx((-4, 1004))  # nothing was panned
    page.keyboard.press("Escape")
    assert page.locator("#timeline-measured").is_hidden()


def test_measuring_by_keys(tools):
    """m measures what is selected, Shift and an arrow move the end, m again lets go."""
    page = tools.page
    find(tools, "softmax_kernel")
    page.locator("#timeline-find").press("Enter")
    page.locator("canvas.lanes").focus()
    page.keyboard.press("m")
    assert line(tools, "measured").startswith("Measured: 60 ns from 0.240 µs to 0.300 µs")
    view = tools.window()
    page.keyboard.press("Shift+ArrowRight")
    edges = page.evaluate("profileReport.explorer.measure.edges")
    assert edges == pytest.approx([240, 300 + (view[1] - view[0]) / 100])
    page.keyboard.press("m")
    assert page.locator("#timeline-measured").is_hidden()


def test_a_pinned_lane_stands_above_all_others(tools):
    """Its button and p pin a lane with its device's name above the rest; once more puts it back."""
    names = "() => [...document.querySelectorAll('.labels .lane > span')].map((n) => n.innerText)"
    before = tools.page.evaluate(names)
    tools.page.get_by_role("button", name="Pin Cluster 1 to the top").press("Enter")
    pinned = tools.page.evaluate(names)
    assert pinned[0] == "rbln:0 Cluster 1"
    assert sorted(pinned[1:]) == sorted(name for name in before if name != "Cluster 1")
    assert tools.page.evaluate("document.activeElement.getAttribute('aria-pressed')") == "true"
    find(tools, "softmax_kernel")
    tools.page.locator("#timeline-find").press("Enter")
    tools.page.locator("canvas.lanes").focus()
    tools.page.keyboard.press("p")
    assert tools.page.evaluate(names) == before


def test_curves_are_the_devices_busy_time(tools):
    """The curve of a device over the whole run is what the analysis says of it, of any window the
    union of its commands there; the host's work has none."""
    found = tools.page.evaluate(
        """() => profileReport.timeline.lanes.filter((lane) => lane.kind === "use")
          .map((lane) => [lane.device, lane.share(0, 1000), lane.share(300, 580)])"""
    )
    assert [device for device, *_ in found] == ["rbln:0", "rbln:1"]
    assert [whole for _, whole, _ in found] == pytest.approx([0.475, 0.07])
    assert found[0][2] == pytest.approx((20 + 150 + 10) / 280)


@needs_corpus
def test_what_waits_for_copies_is_not_busy(chromium, tmp_path):
    """TPUs that wait for copies 82 % of the time are busy 3 %, by what the trace's lines of XLA
    operations hold beside `copy-start` and `copy-done` (s, decoded apart): the curves under the
    lanes and of the first screen, the table of devices and the trace agree."""
    worked = {"tpu:0": 2.7366, "tpu:1": 2.7401, "tpu:2": 2.6507, "tpu:3": 2.7375}
    run = load(CORPUS / "xplane" / "xprof_tpu_inference_2.xplane.pb")
    idle = dict(analyze(run).devices.select("device", "idle_share").iter_rows())
    with opened(chromium, page_of(run, tmp_path)) as report:
        lanes, strip, span = report.page.evaluate(
            """() => {
              const { timeline } = profileReport, { span } = timeline;
              const mean = (of) => of.reduce((sum, share) => sum + share) / of.length / 1000;
              const curves = timeline.lanes.filter(({ kind }) => kind === "use");
              const strips = page.strip.devices.filter(({ busy }) => busy);
              return [
                curves.map((lane) => [lane.device, lane.share(0, span)]),
                strips.map(({ device, busy }) => [device, mean(busy.busy)]),
                span,
              ];
            }"""
        )
    assert dict(lanes) == pytest.approx(
        {one: s * 1e9 / span for one, s in worked.items()}, rel=0.01
    )
    assert dict(lanes) == pytest.approx({one: 1 - idle[one] for one in worked}, abs=0.01)
    assert dict(strip) == pytest.approx({one: 1 - idle[one] for one in worked}, abs=0.01)


@needs_corpus
def test_a_device_has_no_curve_if_nobody_knows_when_it_was_busy(chromium, tmp_path):
    """Averages of layers that an importer laid end to end are no time in which the device was
    busy: neither the first screen nor the timeline draws a curve of it."""
    run = load(CORPUS / "tensorrt" / "resnet_fp16_a100.profile.json")
    with opened(chromium, page_of(run, tmp_path)) as report:
        kinds = report.page.evaluate("profileReport.timeline.lanes.map(({ kind }) => kind)")
        strip = report.page.evaluate("page.strip.devices.map(({ busy }) => busy ?? null)")
    assert "commands" in kinds
    assert "use" not in kinds
    assert set(strip) == {None}


def test_instants_on_the_axis_are_whole(tools):
    """Whatever the window, each is written to its end, or not at all."""
    ends, width = tools.page.evaluate(
        """() => {
          const { timeline } = profileReport, { prototype } = CanvasRenderingContext2D;
          const { fillText } = prototype, ends = [];
          prototype.fillText = function (text, x) { ends.push(x + this.measureText(text).width); };
          for (let end = 500; end <= 1000; end += 10) {
            timeline.view = { begin: 0, end };
            timeline.drawGround(timeline.canvas.getContext("2d"));
          }
          prototype.fillText = fillText;
          profileReport.explorer.reset();
          return [ends, timeline.width];
        }"""
    )
    assert len(ends) > 100
    assert max(ends) <= width


def test_the_timeline_is_a_table_too(tools):
    """A row a lane of what lies in the window; it follows the window."""
    page = tools.page
    page.locator("#timeline-table summary").click()
    page.evaluate("profileReport.timeline.show(300, 580)")
    # three of its commands, cut: 220-320, 330-480, 570-630
    page.wait_for_function(
        """() => [...document.querySelectorAll("#timeline-table tbody tr")].some(
          (row) => row.innerText.startsWith("rbln:0\\tCluster 0\\t3\\t180\\t"))"""
    )
    page.locator("#timeline-table summary").click()


def test_commands_are_coloured_by_shape_and_bound(tools):
    """Each colouring gives a command the colour that its legend shows."""
    found = tools.page.evaluate(
        """() => {
          const { strings } = page.timeline, rows = 3, unknown = page.palette.unknown;
          const commands = { rows, shapes: [1, 0, -1], duration: [10, 90, 5], bound: [1, 0, -1] };
          page.timeline.strings = ["long", "short"];
          report.shapes = null;
          const pairs = (mode) => { const how = colouring(mode, { commands });
            return [0, 1, 2].map((i) => how.pairs[how.code(i)] ?? how.rest); };
          const made = [pairs("shape"), pairs("bound"), colourEntries("shape", { commands })];
          page.timeline.strings = strings;
          report.shapes = null;
          return [...made, unknown, page.palette.bounds];
        }"""
    )
    by_shape, by_bound, legend, unknown, bounds = found
    assert by_shape == [legend[1][0], legend[0][0], unknown]
    assert [name for _, name in legend] == ["long", "short"]
    assert by_bound == [bounds["memory"], bounds["compute"], unknown]
    assert len({colour.light for colour in ROLE_COLOURS.values()}) > 1


def test_text_can_be_read_on_every_colour(tools):
    """Names in bars have the contrast of WCAG AA on every colour and tint of both themes."""
    pairs = tools.page.evaluate(
        """() => {
          const { page: inks, surface: _, ...named } = page.palette;
          const all = [...Object.values(named), [inks.parent, inks.wait, inks.focus]];
          const colours = all.flatMap((one) => ("light" in one ? [one] : Object.values(one)));
          return ["light", "dark"].flatMap((theme) => colours.flatMap((pair) =>
            tinted(pair[theme], theme).map((fill) => [fill, readable(fill)])));
        }"""
    )
    assert len(pairs) > 100
    assert {pair for pair in map(tuple, pairs) if contrast(*pair) < 4.5} == set()


def test_numbers_stay_finite(tools):
    """A window before, behind or without any command has no curve."""
    shares = tools.page.evaluate(
        """() => { const [lane] = profileReport.timeline.lanes.filter(({ kind }) => kind === "use");
          return [lane.share(-50, 0), lane.share(0, 100), lane.share(1000, 1050), lane.share(5, 5)];
        }"""
    )
    assert shares == [0, 0, 0, 0]
    assert all(map(math.isfinite, shares))
