"""Another floating-point type: what calls would take, by the rates of their device."""

from __future__ import annotations

from collections import Counter

from profiler.analysis.prediction.call_costs import CallCosts, KindCost, Ratio, Scaled
from profiler.analysis.work.shapes import Tensor
from profiler.errors import InputError

__all__ = ["PRECISIONS", "at_precision", "main_type", "precision"]

PRECISIONS = {
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp8": "float8e4m3fn",
    "fp64": "float64",
}
_REMEDY = "measure them with `profile-sd3 calibrate-device`"


def precision(text: str) -> str:
    """The type's name (`fp16`, or `float16` itself). Raises InputError for another text."""
    known = {**PRECISIONS, **{name: name for name in PRECISIONS.values()}}
    if text.strip().lower() not in known:
        raise InputError(f"--precision {text!r} is no type: write one of {', '.join(PRECISIONS)}")
    return known[text.strip().lower()]


def main_type(costs: CallCosts) -> str | None:
    """The floating-point type in which most of the time was spent, None where none is known."""
    times: Counter[str] = Counter()
    for kind in costs.kinds:
        found = kind.work.dtype if kind.work is not None else ""
        types = [found, *(tensor.dtype for tensor in kind.tensors)]
        floating = [name for name in types if name.startswith(("float", "bfloat"))]
        if floating:
            times[floating[0]] += round(kind.busy_ns)
    return times.most_common(1)[0][0] if times else None


def at_precision(costs: CallCosts, device: str, dtype: str, calibration: float) -> Ratio:
    """Time at type `dtype` over time at the type that the calls have.

    Raises InputError where the device's profile does not have the rates of both types.
    """
    now = main_type(costs)
    if now is None:
        raise InputError(f"the types of the operators on {device} are not in the trace")
    if now == dtype:
        return Ratio(1.0, 1.0, 1.0)
    profile = costs.profile
    rates = profile.peak_flops if profile is not None else {}
    missing = [name for name in dict.fromkeys((now, dtype)) if name not in rates]
    if missing:
        raise InputError(
            f"the rate of {device} for {' and '.join(missing)} is not known, so --precision cannot "
            f"be answered: {_REMEDY}"
        )
    faster = rates[now] / rates[dtype]
    width = _width(dtype) / _width(now)

    def scale(kind: KindCost) -> Scaled:
        if kind.work is None:
            return Scaled(width, 1.0, known=False, least=min(width, 1.0))
        if kind.work.dtype != now:
            return Scaled(1.0, 1.0)
        whole = sum(t.nbytes or 0 for t in kind.tensors)
        less = sum((t.nbytes or 0) * (width if t.dtype == now else 1.0) for t in kind.tensors)
        return Scaled(faster, less / whole if whole else width)

    return costs.ratio(scale, calibration)


def _width(dtype: str) -> float:
    return float(Tensor(dtype, (1,)).nbytes or 1)
