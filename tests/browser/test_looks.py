"""What is drawn without a role's colour: told apart on one screen, and seen in both themes."""

from __future__ import annotations

import pytest

from profiler.analysis.document import PAGE, SURFACE, TEXT
from tests.browser.report_page import opened, page_of
from tests.report.test_html_palette import contrast
from tests.runs import tiny_run

pytestmark = pytest.mark.browser

_COUNTS = """([canvas, ratio], box) => {
  const at = box.map((pixel) => Math.round(pixel * ratio)), found = {};
  const { data } = canvas.getContext("2d").getImageData(...at);
  for (let i = 0; i < data.length; i += 4) {
    const name = [0, 1, 2].map((k) => data[i + k].toString(16).padStart(2, "0")).join("");
    found["#" + name] = (found["#" + name] ?? 0) + 1;
  }
  return found;
}"""


@pytest.fixture(scope="module")
def tiny_page(tmp_path_factory):
    return page_of(tiny_run(), tmp_path_factory.mktemp("looks"))


@pytest.fixture(scope="module", params=["light", "dark"])
def themed(chromium, tiny_page, request):
    """The page of the tiny run in a theme, and the theme."""
    with opened(chromium, tiny_page, color_scheme=request.param) as report:
        report.page.wait_for_function("() => window.profileUsable")
        yield report, request.param


def test_steps_and_stages_can_be_seen(themed):
    """In the strip and in the timeline a step is a box whose outline has a contrast of 3 to what is
    around it, and whose number is black or white enough to be read."""
    report, theme = themed
    strip, lane, ink = report.page.evaluate(
        """() => {
          const count = COUNTS, { strip } = profileFirst, { timeline } = profileReport;
          const { start, duration } = page.strip.steps, left = strip.x(start[0]);
          const inStrip = [left, 18, strip.x(start[0] + duration[0]) - left - 1, 12];
          const lane = timeline.lanes.find(({ track }) => track === "Steps");
          const box = timeline.box({ lane, i: 0 });
          const inLane = [box.left, box.top, box.right - box.left - 1, 16];
          return [count([strip.canvas, strip.ratio], inStrip),
            count([timeline.canvas, timeline.ratio], inLane), timeline.inks.text];
        }""".replace("COUNTS", _COUNTS)
    )
    frame = PAGE["frame"].on(theme)
    for found, ground in ((strip, SURFACE), (lane, PAGE["band"])):
        assert found[frame] > 40
        assert max(found, key=found.get) == ground.on(theme)
        assert contrast(frame, ground.on(theme)) >= 3
        assert contrast(TEXT.on(theme), ground.on(theme)) >= 4.5
        assert any(contrast(colour, ground.on(theme)) >= 4.5 for colour in found)  # a number
    assert ink == TEXT.on(theme)


def test_every_bar_and_its_text_can_be_seen(themed):
    """Bars of any colour that stands out, in each of its tints, have a contrast of 3 to the page;
    text on bars, also on those that were not chosen, one of 4.5 to its bar."""
    report, theme = themed
    fills, texts = report.page.evaluate(
        """(theme) => {
          const { paints } = profileReport.timeline, solid = (text) => typeof text === "string";
          const { roles, submodules, categories, bounds } = page.palette;
          for (const named of [roles, submodules, categories, bounds, [page.palette.unknown]]) {
            for (const pair of Object.values(named)) paints.key(pair);
          }
          const texts = [[paints.fills, paints.inks], [paints.pales, paints.quiet]].flatMap(
            ([grounds, inks]) => grounds.map((ground, i) => [ground, inks[i]]));
          return [paints.fills.filter(solid), texts.filter(([ground]) => solid(ground))];
        }""",
        theme,
    )
    assert len(fills) > 60
    assert [fill for fill in fills if contrast(fill, SURFACE.on(theme)) < 3] == []
    assert [pair for pair in texts if contrast(*pair) < 4.5] == []


def test_curves_of_busy_shares_can_be_seen(themed):
    """In the strip and below the lanes of the timeline a curve that fills its row has a contrast of
    3 to what is around it."""
    report, theme = themed
    strip, lane = report.page.evaluate(
        """() => {
          const count = COUNTS, { strip } = profileFirst, { timeline } = profileReport;
          const { placed, canvas, width } = timeline;
          const { busy } = strip.devices[0], full = busy.busy.findIndex((share) => share === 1000);
          const { left, top, width: wide, height } = strip.partBox(0, full);
          const inStrip = [left, top + 1, Math.max(wide - 1, 1), height - 2];
          const { y, height: tall } = placed.find((one) => one.lane.kind === "use");
          return [count([strip.canvas, strip.ratio], inStrip),
            count([canvas, timeline.ratio], [0, y + 10, width - 120, tall - 16])];
        }""".replace("COUNTS", _COUNTS)
    )
    busy = PAGE["busy"].on(theme)
    assert max(strip, key=strip.get) == busy
    for ground in (SURFACE, PAGE["band"]):
        assert contrast(busy, ground.on(theme)) >= 3
    assert lane[busy] > 100
    others = [colour for colour in lane if contrast(colour, SURFACE.on(theme)) > 1.5]
    assert others
    assert max(others, key=lane.get) == busy


def test_what_is_thinner_than_a_pixel_can_be_seen(themed):
    """However little of its pixels an event covers, the edge below it has its full colour."""
    report, _ = themed
    covered = report.page.evaluate(
        """() => {
          const { timeline } = profileReport;
          timeline.show(-4e5, 4e5); // the run is a pixel wide
          timeline.view = { begin: -4e5, end: 4e5 };
          timeline.drawNow();
          const { cover } = timeline, size = cover.all.part.length, found = [];
          const strong = (at) => cover.pixels.data[4 * at + 3];
          for (let at = 0; at < size; at++) {
            if (cover.all.part[at]) found.push([strong(at), strong(size + at)]);
          }
          profileReport.explorer.reset();
          return found;
        }"""
    )
    assert len(covered) > 5
    assert min(inside for inside, _ in covered) < 255
    assert {edge for _, edge in covered} == {255}


def test_legends_give_each_meaning_a_look(themed):
    """No two entries of the strip's and the icicle's legends look alike; what is around others and
    what runs on the host without a role are named, too."""
    report, _ = themed
    strip, icicle, timeline = report.page.evaluate(
        """() => ["#first-strip .legend", "#first-icicle .legend", "#timeline-legend"].map((one) =>
          [...document.querySelectorAll(`${one} li`)].map((entry) => {
            const { className, style } = entry.querySelector(".swatch");
            return [entry.innerText, className, style.getPropertyValue("--light")];
          }))"""
    )
    looks = {}
    for name, *look in [*strip, *icicle]:
        assert looks.setdefault(tuple(look), name) == name
    assert "divided below" in [name for name, _, _ in icicle]
    assert len({(look, colour) for _, look, colour in timeline}) == len(timeline)


def test_commands_without_a_value_are_in_the_legend(themed):
    """By role and by submodule, what has none is named with its category; by shape, as unknown."""
    report, _ = themed
    found = report.page.evaluate(
        """() => {
          const commands = { rows: 4, role: [-1, 0, -1, -1], call: [0, 0, -1, 0],
            shapes: [-1, 0, -1, -1], category: [1, 1, 0, 5], duration: [1, 1, 1, 1] };
          const { palette, timeline: { strings } } = page, first = (named) => Object.keys(named)[0];
          const tables = { commands, calls: { submodule: [1] } };
          page.timeline.strings = [first(palette.roles), first(palette.submodules)];
          report.shapes = null;
          const modes = ["role", "submodule", "shape", "category"];
          const made = modes.map((mode) => restEntries(mode, tables));
          const [[pair, , , look]] = made[2];
          if (pair !== palette.unknown || look !== "dotted") throw new Error("unknown is dotted");
          page.timeline.strings = strings;
          report.shapes = null;
          return made.map((entries) => entries.map(([, name]) => name));
        }"""
    )
    assert found == [["host, no role", "compute, no role"], ["host, no call"], ["unknown"], []]
