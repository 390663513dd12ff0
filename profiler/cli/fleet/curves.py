"""The curve of a history as SVG, for pages: its runs, its levels, its changes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from itertools import pairwise

import numpy as np

from profiler.cli.fleet.history_words import value_text
from profiler.fleet.change_points import Drift
from profiler.fleet.metric_history import MetricHistory
from profiler.plugins import plain_text

__all__ = ["LARGE", "SMALL", "Size", "curve"]

_LEFT, _EDGE = 70, 16  # for the texts of the axis, and around


@dataclass(frozen=True, slots=True)
class Size:
    """Of a curve: width and height in units of the picture, how many runs it draws at most, and
    whether each tells its name."""

    width: int
    height: int
    runs: int
    named: bool


LARGE = Size(960, 220, 4000, named=True)
SMALL = Size(420, 110, 240, named=False)


def curve(past: MetricHistory, size: Size) -> str:
    """The values of a history over its runs, oldest first. Of more runs than there is room for, the
    least and the largest of each group are drawn."""
    values = past.values
    low, high = float(values.min()), float(values.max())
    low = min(low, 0.9 * high) if high > 0 else low
    frame = _Frame(size, len(values), low, (high - low) or 1.0)
    said = escape(plain_text(past.metric))
    return (
        f'<svg class="curve" viewBox="0 0 {size.width} {size.height}" role="img" '
        f'aria-label="{said}">'
        + "".join((*_axis(past, frame, high), *_lines(past, frame), *_runs(past, frame)))
        + "</svg>"
    )


@dataclass(frozen=True, slots=True)
class _Frame:
    size: Size
    runs: int
    low: float
    span: float

    def x(self, at: float) -> float:
        return _LEFT + (at + 0.5) / self.runs * (self.size.width - _LEFT - _EDGE)

    def y(self, value: float) -> float:
        height = self.size.height
        return height - _EDGE - (value - self.low) / self.span * (height - 2 * _EDGE)


def _axis(past: MetricHistory, frame: _Frame, high: float) -> Iterator[str]:
    for value in (frame.low, (frame.low + high) / 2, high):
        text = escape(value_text(value, past.unit))
        yield f'<text x="4" y="{frame.y(value) + 4:.1f}">{text}</text>'


def _lines(past: MetricHistory, frame: _Frame) -> Iterator[str]:
    """The level between changes, and the changes."""
    values, height = past.values, frame.size.height
    yield from (_drift(past, each, frame) for each in past.drifts)
    for begin, end in pairwise([0, *(each.change.at for each in past.changes), len(values)]):
        if any(each.first <= begin and end <= each.end for each in past.drifts):
            continue
        level = frame.y(float(np.median(values[begin:end])))
        ends = f'x1="{frame.x(begin - 0.5):.1f}" x2="{frame.x(end - 0.5):.1f}"'
        yield f'<line class="level" {ends} y1="{level:.1f}" y2="{level:.1f}"/>'
    for each in past.changes:
        at, kind = frame.x(each.change.at - 0.5), "alarm" if each.is_open else "change"
        ends = f'x1="{at:.1f}" x2="{at:.1f}" y1="{_EDGE}" y2="{height - _EDGE}"'
        name = escape(plain_text(each.name))
        yield f'<line class="{kind}" {ends}><title>{name}</title></line>'


def _drift(past: MetricHistory, drift: Drift, frame: _Frame) -> str:
    """The line of a drift, through the median of its runs."""
    middle = float(np.median(past.values[drift.first : drift.end]))
    half = math.log1p(drift.slope) * (drift.end - 1 - drift.first) / 2
    low, high = (frame.y(middle * math.exp(way * half)) for way in (-1, 1))
    ends = f'x1="{frame.x(drift.first):.1f}" x2="{frame.x(drift.end - 1):.1f}"'
    return f'<line class="level" {ends} y1="{low:.1f}" y2="{high:.1f}"/>'


def _runs(past: MetricHistory, frame: _Frame) -> Iterator[str]:
    values = past.values
    shown = _shown(values, frame.size.runs)
    if not frame.size.named:
        dots = "".join(f"M{frame.x(at):.1f} {frame.y(values[at]):.1f}h0" for at in shown)
        yield f'<path class="runs" d="{dots}"/>'
        return
    names = past.frame["run_id"]
    for at in shown:
        said = escape(plain_text(f"{names[at]}: {value_text(float(values[at]), past.unit)}"))
        yield (
            f'<circle class="run" cx="{frame.x(at):.1f}" cy="{frame.y(values[at]):.1f}" r="2.5">'
            f"<title>{said}</title></circle>"
        )


def _shown(values: np.typing.NDArray[np.float64], most: int) -> list[int]:
    """Positions of the runs that are drawn: all, or of each group the least and the largest."""
    if len(values) <= most:
        return [*range(len(values))]
    found: set[int] = set()
    for group in np.array_split(np.arange(len(values)), most // 2):
        found |= {int(group[np.argmin(values[group])]), int(group[np.argmax(values[group])])}
    return sorted(found)
