"""What codes of `profiler.fleet` are in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from profiler.fleet.compare import Verdict
from profiler.fleet.identity import Why
from profiler.report.terminal_layout import clean
from profiler.text import Said, counted, duration, joined, percent, said, size

if TYPE_CHECKING:
    from profiler.fleet.apart import Apart
    from profiler.fleet.identity import Difference

__all__ = ["apart_line", "difference_text", "figure", "verdict_text"]

_VERDICTS = {
    Verdict.BASE: "the others are compared with this",
    Verdict.SLOWER: "slower",
    Verdict.FASTER: "faster",
    Verdict.NO_DIFFERENCE: "no difference seen",
    Verdict.ALONE: "nothing to compare with",
}
_NAMES = {"batch_size": "batch"}
_LONGEST = 60  # characters of a value in a sentence


def figure(value: float | None, unit: str) -> str:
    """A metric's value with its unit: `68.4 ms`."""
    if value is None:
        return ""
    if unit == "ns":
        return duration(value)
    if unit == "bytes":
        return size(value)
    return percent(value) if unit == "ratio" else f"{value:,.6g}"


def verdict_text(verdict: str, needs: int) -> str:
    """What a comparison comes to: `slower`, `needs 4 more`."""
    if verdict == Verdict.NEEDS_MORE:
        return f"needs {needs} more runs" if needs else "needs more runs to compare with"
    text = _VERDICTS[Verdict(verdict)]
    told = verdict in (Verdict.SLOWER, Verdict.FASTER, Verdict.ALONE)
    return f"{text}; needs {needs} more runs" if needs and not told else text


def difference_text(one: Difference) -> Said:
    """Why two runs are not comparable: `steps 28 ≠ 20`."""
    name = _NAMES.get(one.field, one.field)
    return said("{field} {one} ≠ {other}", field=name, one=_short(one.one), other=_short(one.other))


def _reasons(why: Sequence[Difference]) -> Said:
    """Why runs are comparable with none: what differs, then what nobody recorded, in one list."""
    unknown = [_NAMES.get(one.field, one.field) for one in why if one.why is Why.UNKNOWN]
    told = [difference_text(one) for one in why if one.why is not Why.UNKNOWN]
    if unknown:
        told.append(said("not recorded: {fields}", fields=", ".join(unknown)))
    return joined("; ", told)


def apart_line(apart: Apart) -> Said:
    """Runs that are compared with none, and what to do about it."""
    runs, example = counted(apart.runs, "run"), clean(apart.example)
    if apart.bad_quality:
        return said(
            "left out: {runs} of bad quality, such as {example}: --bad-quality takes them",
            runs=runs,
            example=example,
        )
    if apart.without:
        return said(
            "left out: {runs}, such as {example}, of which nobody recorded {field}: compare them "
            "by another field (--by)",
            runs=runs,
            example=example,
            field=apart.without,
        )
    if not apart.why:
        return said(
            "not comparable: {runs}, such as {example}: other runs have several values of a field "
            "that nobody recorded of these",
            runs=runs,
            example=example,
        )
    return said(
        "not comparable: {runs}, such as {example}; {why}; --assume-same {fields} treats these "
        "as equal",
        runs=runs,
        example=example,
        why=_reasons(apart.why),
        fields=",".join(one.field for one in apart.why),
    )


def _short(value: Any) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
