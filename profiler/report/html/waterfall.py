"""From one end-to-end time to the other as a table whose rows are bars: each begins where the one
above it ends. It needs no script, follows the theme, and reads aloud as the table that it is."""

from __future__ import annotations

from collections.abc import Sequence

from profiler.report.changed_tables import Difference
from profiler.report.language import spoken
from profiler.report.sentences.changes import difference_text
from profiler.text import Said, duration, said

__all__ = ["waterfall_html"]

_CUT = 0.5  # of the longest: an axis begins above 0 where no total comes below this
_ROOM = 0.15  # of what differs, left of the lowest total


def waterfall_html(base_ns: int, new_ns: int, steps: Sequence[Difference]) -> str:
    """The table: the time of the baseline, `steps` that add up to the difference, the time of the
    new runs."""
    totals = [base_ns]
    for *_, difference in steps:
        totals.append(totals[-1] + difference)
    low = _axis(totals)
    span = max(max(totals) - low, 1)

    def bar(begin: int, end: int, style: str) -> str:
        left, right = (100 * (max(at, low) - low) / span for at in sorted((begin, end)))
        places = f"--from:{left:.2f}%;--wide:{max(right - left, 0.3):.2f}%"
        return f'<td class="track" aria-hidden="true"><i class="{style}" style="{places}"></i></td>'

    rows = [_row(said("base"), base_ns, None, "", bar(low, base_ns, "whole"))]
    for (name, base, new, difference), begin in zip(steps, totals, strict=False):
        style = "slower" if difference > 0 else "faster"
        rows.append(
            _row(
                name, base, new, difference_text(difference), bar(begin, begin + difference, style)
            )
        )
    whole = difference_text(new_ns - base_ns)
    rows.append(_row(said("new"), None, new_ns, whole, bar(low, new_ns, "whole")))
    heads = (said("part"), said("baseline"), said("new"), said("difference"))
    head = "".join(f'<th scope="col">{spoken(text)}</th>' for text in heads)
    axis = said("Bars begin at {time}.", time=duration(low)) if low else ""
    note = f'<p class="help">{spoken(axis)}</p>' if axis else ""
    return (
        f'<table class="waterfall"><thead><tr>{head}<td aria-hidden="true"></td></tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table>{note}"
    )


def _readable(name: str) -> str:
    """A role may break where its words do."""
    return name if isinstance(name, Said) else name.replace("_", " ")


def _axis(totals: Sequence[int]) -> int:
    """Where the axis begins: at 0, or a little below the lowest total where all of them are close
    to each other."""
    least, most = min(totals), max(totals)
    if least < _CUT * most:
        return 0
    return max(round(least - _ROOM * max(most - least, 1)), 0)


def _row(name: str, base: int | None, new: int | None, difference: str, bar: str) -> str:
    times = ("" if ns is None else duration(ns) for ns in (base, new))
    cells = "".join(f"<td>{text}</td>" for text in (*times, difference))
    return f'<tr><th scope="row">{spoken(name)}</th>{cells}{bar}</tr>'
