"""How fast the page's timeline moves: frames while it is panned and zoomed by real input.

`moved` drags and turns the wheel over the timeline through playwright, which sends input events as
a mouse does, and takes the time between animation frames from the page itself; `html_load.py`
prints what it finds.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from playwright.sync_api import Page

__all__ = ["Motion", "choose", "moved"]

_RECORD = """() => {
  const { timeline } = profileReport, draw = timeline.drawNow.bind(timeline);
  const recorded = window.recorded = { drawn: [], intervals: [], on: true };
  let before = null;
  timeline.drawNow = () => {
    const begin = performance.now();
    draw();
    recorded.drawn.push(performance.now() - begin);
  };
  const tick = (now) => {
    if (before !== null) recorded.intervals.push(now - before);
    before = now;
    if (recorded.on) requestAnimationFrame(tick);
  };
  requestAnimationFrame(tick);
}"""
_STOP = """() => {
  recorded.on = false;
  delete profileReport.timeline.drawNow;
  return [recorded.drawn, recorded.intervals];
}"""


@dataclass(frozen=True, slots=True)
class Motion:
    """Milliseconds of each drawing of the timeline, and between each two animation frames."""

    drawn: Sequence[float]
    intervals: Sequence[float]

    @property
    def rate(self) -> float:
        """Frames a second over the whole motion."""
        return 1000 * len(self.intervals) / sum(self.intervals)

    def __str__(self) -> str:
        worst = statistics.quantiles(self.intervals, n=20)[-1]
        return (
            f"{self.rate:5.1f} frames/s, 95 % of intervals below {worst:.1f} ms, "
            f"drawing {statistics.median(self.drawn):.1f} ms (at most {max(self.drawn):.1f})"
        )


def moved(page: Page, zoom_steps: int = 30, moves: int = 60) -> Motion:
    """Pan at the whole run's zoom, zoom in with the wheel, pan there, and zoom out again.

    A whole run fills its window, so that it is panned from a window a tenth smaller.
    """
    canvas = page.locator("canvas.lanes")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    if box is None:
        raise RuntimeError("the timeline is not on the page")
    y = box["y"] + min(box["height"] / 2, 300)
    middle = box["x"] + box["width"] / 2
    page.evaluate(
        """() => { const { timeline } = profileReport, { begin, end } = timeline.whole();
          timeline.show(begin, begin + (end - begin) * 0.9); }"""
    )
    page.evaluate(_RECORD)
    _drag(page, middle, y, 200, moves)
    for direction in (-1, 1):
        for _ in range(zoom_steps):
            page.mouse.wheel(0, 60 * direction)
        if direction < 0:
            _drag(page, middle, y, 200, moves)
    drawn, intervals = page.evaluate(_STOP)
    return Motion(drawn, intervals)


def _drag(page: Page, x: float, y: float, distance: float, moves: int) -> None:
    page.mouse.move(x, y)
    page.mouse.down()
    for move in range(1, moves + 1):
        page.mouse.move(x + distance * (1 if move % 2 else -1) * move / moves, y)
    page.mouse.up()


def choose(page: Page, chosen: str) -> None:
    """Choose by the page's address, such as `role=attention`, and wait until it shows."""
    page.evaluate("(chosen) => { location.hash = chosen; }", chosen)
    page.wait_for_function("() => profileReport.timeline.choosing")
