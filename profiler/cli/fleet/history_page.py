"""Histories as one HTML page with curves: self-contained, without scripts, nothing is loaded.

Names come from manifests and are never trusted: all pass through `html.escape`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise

import numpy as np

from profiler.cli.fleet.history_words import change_lines, history_lines, value_text
from profiler.fleet.metric_history import MetricHistory
from profiler.plain_text import plain_text

__all__ = ["history_page"]

_WIDTH, _HEIGHT, _LEFT, _EDGE = 960, 220, 90, 16
_MOST = 4000  # points of a curve that are told apart
_STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; max-width: 1000px; margin: 2rem auto; padding: 0 1rem;
  color: #1d2430; background: #fff } h1 { font-size: 1.3rem } h2 { font-size: 1.1rem }
svg { width: 100%; height: auto } .run { fill: #2f6fb3 } .level { stroke: #1d2430; stroke-width: 2 }
.change { stroke: #8a8f98; stroke-dasharray: 4 3 } .alarm { stroke: #c0392b; stroke-width: 2 }
text { font-size: 11px; fill: #5a6270 } pre { white-space: pre-wrap; font-size: 12px }
@media (prefers-color-scheme: dark) { body { color: #e3e7ee; background: #14181f }
  .run { fill: #6fa8dc } .level { stroke: #e3e7ee } text { fill: #a5adba } }
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def history_page(
    title: str, histories: Sequence[MetricHistory], explained: dict[str, str] | None = None
) -> str:
    """The page. `explained` are texts by the name of a change."""
    parts = [part for past in histories for part in _history(past, explained or {})]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(_POLICY)}">'
        f"<title>{_text(title)}</title><style>{_STYLE}</style></head><body>\n"
        f"<h1>{_text(title)}</h1>\n" + "\n".join(parts) + "\n</body></html>\n"
    )


def _history(past: MetricHistory, explained: dict[str, str]) -> Iterator[str]:
    yield f"<h2>{_text(past.metric)}</h2>"
    yield "".join(f"<p>{_text(line)}</p>" for line in history_lines(past))
    yield _curve(past)
    for each in past.changes:
        yield f"<pre>{_text(chr(10).join(change_lines(each, past.unit)))}</pre>"
        if each.name in explained:
            text = _text(explained[each.name])
            yield f"<details><summary>What differs</summary><pre>{text}</pre></details>"


def _curve(past: MetricHistory) -> str:
    values = past.values
    n = len(values)
    low, high = float(values.min()), float(values.max())
    low = min(low, 0.9 * high) if high > 0 else low
    span = (high - low) or 1.0

    def x(at: float) -> float:
        return _LEFT + (at + 0.5) / n * (_WIDTH - _LEFT - _EDGE)

    def y(value: float) -> float:
        return _HEIGHT - _EDGE - (value - low) / span * (_HEIGHT - 2 * _EDGE)

    parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{_text(past.metric)}">']
    for value in (low, (low + high) / 2, high):
        text = value_text(value, past.unit)
        parts.append(f'<text x="4" y="{y(value) + 4:.1f}">{_text(text)}</text>')
    edges = [0, *(each.change.at for each in past.changes), n]
    for begin, end in pairwise(edges):
        level = y(float(np.median(values[begin:end])))
        ends = f'x1="{x(begin - 0.5):.1f}" x2="{x(end - 0.5):.1f}"'
        parts.append(f'<line class="level" {ends} y1="{level:.1f}" y2="{level:.1f}"/>')
    for each in past.changes:
        at, kind = x(each.change.at - 0.5), "alarm" if each.is_open else "change"
        ends = f'x1="{at:.1f}" x2="{at:.1f}" y1="{_EDGE}" y2="{_HEIGHT - _EDGE}"'
        parts.append(f'<line class="{kind}" {ends}><title>{_text(each.name)}</title></line>')
    for at in _shown(values):
        row = past.frame.row(at, named=True)
        said = f"{row['run_id']}: {value_text(row['value'], past.unit)}"
        parts.append(
            f'<circle class="run" cx="{x(at):.1f}" cy="{y(values[at]):.1f}" r="2.5">'
            f"<title>{_text(said)}</title></circle>"
        )
    return "".join(parts) + "</svg>"


def _shown(values: np.typing.NDArray[np.float64]) -> list[int]:
    """Positions of the runs that are drawn: all, or of each group the least and the largest."""
    if len(values) <= _MOST:
        return [*range(len(values))]
    found: set[int] = set()
    for group in np.array_split(np.arange(len(values)), _MOST // 2):
        found |= {int(group[np.argmin(values[group])]), int(group[np.argmax(values[group])])}
    return sorted(found)


def _text(text: str) -> str:
    return escape("\n".join(plain_text(line) for line in text.split("\n")))
