"""The timeline at any zoom: what is aggregated adds up, says so, and hides no long command."""

from __future__ import annotations

import random

import pytest

from profiler.analysis.document import ROLE_COLOURS
from tests.browser.report_page import opened, page_of
from tests.runs import Command, make_run

pytestmark = pytest.mark.browser

_LONG = 40_000_000
_COVER = """([begin, end]) => {
  const { timeline } = profileReport;
  timeline.show(begin, end);
  timeline.drawNow();
  const placed = timeline.placed.filter(({ lane }) => lane.kind !== "counters");
  const at = placed.findIndex(({ lane }) => lane.kind === "commands");
  const row = placed.slice(0, at).reduce((sum, { lane }) => sum + lane.rows, 0);
  const { lane } = placed[at], { view, width } = timeline, scale = width / (view.end - view.begin);
  const cover = (found) => Array.from(found.part.slice(row * width, (row + 1) * width));
  const own = (chosen) => {
    const pixels = new Array(width).fill(0);
    for (let i = 0; i < lane.count; i++) {
      const x0 = (lane.start(i) - view.begin) * scale, x1 = (lane.end(i) - view.begin) * scale;
      if (x1 - x0 >= 1.5 || (chosen && !lane.matched(i))) continue;
      for (let x = Math.max(Math.floor(x0), 0); x <= Math.min(Math.floor(x1), width - 1); x++) {
        pixels[x] += Math.max(Math.min(x1, x + 1) - Math.max(x0, x), 0);
      }
    }
    return pixels;
  };
  return { all: cover(timeline.cover.all), wantedAll: own(false),
    chosen: cover(timeline.cover.chosen), wantedChosen: own(true),
    inView: timeline.inView, together: timeline.together };
}"""


@pytest.fixture(scope="module")
def dense_run():
    """30,000 commands of 1 to 30 us on one track, and a single one of 40 ms among them."""
    draw, commands, now = random.Random(7), [], 0
    for number in range(30_000):
        took = _LONG if number == 17_000 else draw.randrange(1_000, 30_000)
        layer = "long" if number == 17_000 else f"kernel {number % 9}"
        commands.append(Command(-1, "cuda:0", "stream 7", "compute", layer, now, took))
        now += took + draw.randrange(0, 20_000)
    return make_run(commands=commands)


@pytest.fixture(scope="module")
def dense(chromium, dense_run, tmp_path_factory):
    with opened(chromium, page_of(dense_run, tmp_path_factory.mktemp("dense"))) as report:
        yield report


def windows(run):
    """The whole run, windows of random places and lengths, one within the long command."""
    draw = random.Random(3)
    start = run.commands["start_ns"].min()
    span = run.commands["start_ns"].max() - start
    yield 0, span
    for _ in range(6):
        length = int(span / 10 ** draw.uniform(0.1, 3.5))
        begin = draw.randrange(0, span - length)
        yield begin, begin + length


def summed(pixels):
    total, sums = 0.0, []
    for value in pixels:
        total += value
        sums.append(total)
    return sums


def test_groups_cover_what_their_commands_cover(dense, dense_run):
    """At any zoom the drawn cover is that of the single commands, to a pixel; so is the chosen."""
    dense.page.evaluate("profileReport.choice.pick({ operator: 'kernel 3' })")
    for window in windows(dense_run):
        found = dense.page.evaluate(_COVER, list(window))
        for name, wanted in (("all", "wantedAll"), ("chosen", "wantedChosen")):
            pairs = zip(summed(found[name]), summed(found[wanted]), strict=True)
            assert max(abs(one - other) for one, other in pairs) < 1.05, (window, name)
    dense.page.evaluate("profileReport.choice.clear()")


def test_every_command_in_view_is_counted(dense, dense_run):
    """The status counts all commands of the window and says how many are drawn together."""
    begin = dense_run.commands["start_ns"].min()
    for left, right in windows(dense_run):
        dense.page.evaluate(_COVER, [left, right])
        view = dense.page.evaluate("profileReport.timeline.view")
        starts = dense_run.commands["start_ns"] - begin
        ends = starts + dense_run.commands["duration_ns"]
        expected = ((starts <= view["end"]) & (ends >= view["begin"])).sum()
        assert dense.page.evaluate("profileReport.timeline.inView") == expected
    dense.page.evaluate("profileReport.explorer.reset()")
    status = dense.page.locator("#timeline-status")
    status.filter(has_text="30,000 commands in view").wait_for()
    assert "29,999 of them are thinner than 1.5 pixels: drawn together" in status.inner_text()


def test_the_longest_command_stands_by_itself(dense):
    """At the whole run the one long command is a bar in its full colour, the rest only a cover."""
    dense.page.evaluate("profileReport.explorer.reset()")
    dense.page.evaluate("profileReport.timeline.drawNow()")
    found = dense.page.evaluate(
        """() => { const { timeline } = profileReport;
          const lane = timeline.lanes.find(({ kind }) => kind === "commands");
          let long = 0;
          for (let i = 0; i < lane.count; i++) if (lane.end(i) - lane.start(i) === 4e7) long = i;
          const { left, right, top, tall } = timeline.box({ lane, i: long });
          const context = timeline.canvas.getContext("2d");
          const [r, g, b] = context.getImageData((left + right) / 2, top + tall / 2, 1, 1).data;
          const hex = (n) => n.toString(16).padStart(2, "0");
          return [right - left, "#" + hex(r) + hex(g) + hex(b)];
        }"""
    )
    width, colour = found
    assert width > 1.5
    assert colour == ROLE_COLOURS["other"].light


def test_one_chosen_command_among_thousands_is_seen(dense):
    """A match far thinner than a pixel is drawn at half strength or more, wherever it stands."""
    dense.page.evaluate("profileReport.explorer.reset()")
    strengths = dense.page.evaluate(
        """() => { const { timeline, choice } = profileReport, found = [];
          choice.pick({ operator: "kernel 3" });
          timeline.drawNow();
          const { chosen } = timeline.cover;
          for (let at = 0; at < chosen.part.length; at++) {
            if (chosen.part[at] > 0) found.push(timeline.cover.pixels.data[4 * at + 3]);
          }
          choice.clear();
          return found; }"""
    )
    assert strengths
    assert min(strengths) >= 127


def test_the_card_says_what_is_drawn_together(dense):
    """The hover card of an aggregated pixel names its longest command and counts the others."""
    dense.page.evaluate("profileReport.explorer.reset()")
    dense.page.evaluate("profileReport.timeline.drawNow()")
    dense.page.mouse.move(*dense.place("commands", 5_000))
    text = dense.page.locator("#tip .together").inner_text()
    assert text.startswith("The longest here: drawn together with ")


def test_nested_commands_are_found_under_the_pointer(chromium, tmp_path):
    """A command within thousands of others on one track is still what the pointer is on."""
    inner = [Command(-1, "cuda:0", "s", "compute", f"k{i}", i * 1000, 900) for i in range(5_000)]
    outer = [Command(-1, "cuda:0", "s", "compute", "outer", 0, 5_000_000)]
    with opened(chromium, page_of(make_run(commands=outer + inner), tmp_path)) as report:
        report.page.evaluate("profileReport.timeline.show(2_000_000, 2_020_000)")
        report.page.evaluate("profileReport.timeline.drawNow()")
        number = report.page.evaluate(
            """() => { const { lanes } = profileReport.timeline;
              const lane = lanes.find(({ kind }) => kind === "commands");
              for (let i = 0; i < lane.count; i++) {
                if (lane.start(i) === 2_010_000 && lane.row[i]) return i;
              }
            }"""
        )
        report.page.mouse.move(*report.place("commands", number))
        assert report.page.locator("#tip .title").inner_text() == "k2010"
        assert report.page.evaluate("profileReport.timeline.inView") == 22  # 21 of them and `outer`
