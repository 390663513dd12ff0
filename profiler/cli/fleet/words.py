"""What codes of `profiler.fleet` are in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from profiler.fleet.compare import Verdict
from profiler.fleet.identity import Why
from profiler.report.units import counted, duration, percent, size

if TYPE_CHECKING:
    from profiler.fleet.compare import Apart
    from profiler.fleet.identity import Difference

__all__ = ["apart_line", "difference_text", "figure", "verdict_text"]

_VERDICTS = {
    Verdict.BASE: "compared with",
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
        return f"needs {needs} more" if needs else "needs more runs to compare with"
    text = _VERDICTS[Verdict(verdict)]
    told = verdict in (Verdict.SLOWER, Verdict.FASTER)
    return f"{text}; needs {needs} more" if needs and not told else text


def difference_text(one: Difference) -> str:
    """Why two runs are not comparable: `steps 28 ≠ 20`, `cache is unknown`."""
    name = _NAMES.get(one.field, one.field)
    if one.why is Why.UNKNOWN:
        return f"{name} is unknown"
    return f"{name} {_short(one.one)} ≠ {_short(one.other)}"


def apart_line(apart: Apart) -> str:
    """Runs that are compared with none, and what to do about it."""
    runs = counted(apart.runs, "run")
    if apart.bad_quality:
        return f"left out: {runs} of bad quality, such as {apart.example}: --bad-quality takes them"
    if apart.without:
        return (
            f"left out: {runs}, such as {apart.example}, of which nobody recorded {apart.without}: "
            "compare them by another field (--by)"
        )
    why = ", ".join(map(difference_text, apart.why))
    fields = ",".join(one.field for one in apart.why)
    return (
        f"not comparable: {runs}, such as {apart.example}: {why}: --assume-same {fields} takes "
        "that to agree"
    )


def _short(value: Any) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
