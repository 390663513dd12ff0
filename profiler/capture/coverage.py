"""How much of what modules and sessions execute lies in captured calls, and what does not."""

from __future__ import annotations

from dataclasses import dataclass, field

from profiler.trace.manifest_fields import Coverage, Uncaptured

__all__ = ["CoverageTally"]

_MOST_NAMES = 100  # in the manifest; the rest is one more
_REST = "others"


@dataclass(slots=True)
class CoverageTally:
    """What has been measured in a run so far."""

    pipelines: int = 0
    captured_ns: int = 0
    captured_alone_ns: int = 0  # in no pipeline call
    alone: bool = False  # something that is not captured ran there, too
    uncaptured: dict[str, tuple[int, int]] = field(default_factory=dict)  # calls and ns by name

    def add(self, name: str, duration_ns: int) -> None:
        """Something was executed outside captured calls."""
        calls, total_ns = self.uncaptured.get(name, (0, 0))
        self.uncaptured[name] = calls + 1, total_ns + duration_ns

    def coverage(self) -> Coverage | None:
        """As the manifest has it; None where nothing was measured: of modules that no pipeline
        holds the pieces alone are, so that they are told where some ran by themselves."""
        if not (self.pipelines or self.alone):
            return None
        captured_ns = self.captured_ns + (self.captured_alone_ns if self.alone else 0)
        rows = sorted(self.uncaptured.items(), key=lambda row: -row[1][1])
        rest = [figures for _, figures in rows[_MOST_NAMES:]]
        rows = rows[:_MOST_NAMES]
        if rest:
            rows.append((_REST, (sum(calls for calls, _ in rest), sum(ns for _, ns in rest))))
        uncaptured_ns = sum(total_ns for _, (_, total_ns) in rows)
        total = captured_ns + uncaptured_ns
        return Coverage(
            pipelines=self.pipelines,
            captured_ns=captured_ns,
            uncaptured_ns=uncaptured_ns,
            share=captured_ns / total if total else None,
            uncaptured=tuple(
                Uncaptured(name=name, calls=calls, duration_ns=total_ns)
                for name, (calls, total_ns) in rows
            ),
        )
