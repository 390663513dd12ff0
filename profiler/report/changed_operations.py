"""What two sides did at one shape, in words: how fast, and by which kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from profiler.report.sentences.worded import worded
from profiler.text import Note, Said, said

__all__ = ["kernels_text", "rates", "reason_text", "why"]

_NAME = 34  # characters of a kernel beside the other side's
_ENDS = 8  # of them at its end, where kernels of a kind differ
_SAME = 0.01  # of how often it ran


def rates(row: Mapping[str, Any]) -> str | None:
    """`"617 → 466"`, in TFLOP/s; None where neither is known."""
    base, new = row["base_teraflops_per_s"], row["new_teraflops_per_s"]
    if base is None and new is None:
        return None
    return f"{_rate(base)} → {_rate(new)}"


def why(row: Mapping[str, Any]) -> Said | str:
    """How often it ran where that differs, and the kernels of both sides, or that they are the
    same."""
    base, new = row["base_executions"], row["new_executions"]
    ran = ""
    if base and new is not None and abs(new - base) > _SAME * base:
        ran = said("{base} → {new} times, ", base=f"{base:,.4g}", new=f"{new:,.4g}")
    left, right = row["base_kernel"], row["new_kernel"]
    if left is None and right is None:
        return ran.rstrip(", ")
    if left == right:
        return said("{ran}same kernel: {name}", ran=ran, name=_short(left, 2 * _NAME))
    names = [
        said("no kernel's name") if name is None else _short(name, _NAME) for name in (left, right)
    ]
    return said("{ran}{left} → {right}", ran=ran, left=names[0], right=names[1])


def kernels_text(kernels: Sequence[str | None]) -> Said | str | None:
    """The kernel of each run, in their order, or that all have the same; None where no run knows
    any."""
    if not any(kernels):
        return None
    first = kernels[0]
    if first is not None and len({*kernels}) == 1:
        return said("{ran}same kernel: {name}", ran="", name=_short(first, 2 * _NAME))
    return " → ".join("-" if one is None else _short(one, _NAME) for one in kernels)


def reason_text(note: Note) -> Said:
    """A reason (`codes.DifferenceReason`) as a sentence; names of kernels are short."""
    values = {
        name: _short(value, _NAME) if name.endswith("_kernel") and isinstance(value, str) else value
        for name, value in note.values.items()
    }
    return worded(Note.of(note.code, **values))


def _rate(value: float | None) -> str:
    if value is None:
        return "?"
    return f"{value:.0f}" if value >= 99.5 else f"{value:.3g}"


def _short(name: str, room: int) -> str:
    """A kernel's name without templates, its end kept."""
    bare = name.replace("(anonymous namespace)::", "").replace("at::native::", "")
    if len(bare) <= room:
        return bare
    return f"{bare[: room - _ENDS - 1]}…{bare[-_ENDS:]}"
