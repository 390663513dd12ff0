"""Numbers that a manifest states, which may hold anything: only those that can be measurements.

A manifest is JSON of unknown origin: under a key that names a time or a size there may be text, a
NaN, or an integer of a thousand digits. Beyond 2^53 (104 days in ns, 9 PB) nothing is a number
here: up to there floats and JSON readers are exact, and sums of a thousand fit an int64.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

__all__ = ["byte_count", "calibration_factors", "finite_number", "is_finite_number"]

_LARGEST = 1 << 53
_MOST_FACTOR = 1e3  # untraced over traced time, or the inverse: beyond it nothing was measured


def is_finite_number(value: object) -> TypeGuard[float]:
    """Whether `value` is an int or float (no bool, no NaN) between -2^53 and 2^53."""
    numeric = isinstance(value, (int, float)) and not isinstance(value, bool)
    return numeric and -_LARGEST < value < _LARGEST  # type: ignore[operator]


def finite_number(mapping: object, key: str) -> float | None:
    """The finite number under `key`; None for anything else, and where `mapping` is none."""
    value = mapping.get(key) if isinstance(mapping, Mapping) else None
    return float(value) if is_finite_number(value) else None


def byte_count(mapping: object, key: str) -> int | None:
    """The whole number of bytes, 0 or more, under `key`; None for anything else."""
    value = mapping.get(key) if isinstance(mapping, Mapping) else None
    whole = isinstance(value, int) and is_finite_number(value) and value >= 0
    return int(value) if whole else None  # type: ignore[arg-type]


def calibration_factors(submodules: Mapping[str, Any]) -> dict[str, float]:
    """What capture measured, from `RunInfo.submodules`: untraced over traced time by submodule. 1
    where the measured interval holds 1: that tells no cost of tracing from none, and to multiply
    with its middle would add noise."""
    found = {}
    for name, known in submodules.items():
        calibration = known.get("calibration") if isinstance(known, Mapping) else None
        factor = finite_number(calibration, "factor")
        if factor is not None and 1 / _MOST_FACTOR <= factor <= _MOST_FACTOR:
            found[name] = 1.0 if _holds_one(calibration) else factor
    return found


def _holds_one(calibration: object) -> bool:
    low, high = finite_number(calibration, "low"), finite_number(calibration, "high")
    return low is not None and high is not None and low <= 1 <= high
