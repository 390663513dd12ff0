"""The gate of a comparison: what `--fail-over` and `--metric` ask for."""

from __future__ import annotations

from collections.abc import Sequence

from profiler.errors import InputError

__all__ = ["gate_limit"]


def gate_limit(fail_over: str | None, metrics: Sequence[str] | None) -> float | None:
    """What `--fail-over` allows, as a share; None without a gate. Raises InputError for what is no
    limit, and for `--metric` without one."""
    from profiler.compare.compare import parse_limit

    if metrics and fail_over is None:
        raise InputError("--metric says what --fail-over looks at: give --fail-over 5% with it")
    return None if fail_over is None else parse_limit(fail_over)
