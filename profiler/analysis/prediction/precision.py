"""Another floating-point type: what calls would take, by the rates of their device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from profiler.analysis.roofline.call_costs import CallCosts, KindCost, Ratio, Scaled
from profiler.analysis.work.shapes import Tensor
from profiler.errors import InputError
from profiler.trace.events import device_kind

__all__ = ["PRECISIONS", "at_precision", "main_type", "precision"]

PRECISIONS = {
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp8": "float8",
    "fp64": "float64",
}
# What "float8" may be: the device's profile tells, the first of these that it has.
_FLOAT8 = ("float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz")
_ON_GPU = ("float32", "bfloat16", "float16")
# By kind of device what benchmark-device measures.
_MEASURED = {"cpu": ("float32",), "cuda": _ON_GPU, "rocm": _ON_GPU}


def precision(text: str) -> str:
    """The type's name (`float16` for `fp16`, or itself; `float8` is whichever the device has).
    Raises InputError for another text."""
    known = {**PRECISIONS, **{name: name for name in (*PRECISIONS.values(), *_FLOAT8)}}
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
            times[floating[0]] += round(kind.total_ns)
    return times.most_common(1)[0][0] if times else None


def at_precision(costs: CallCosts, device: str, dtype: str, overhead_ratio: float) -> Ratio:
    """Time at type `dtype` over time at the type that the calls have.

    Raises InputError where the device's profile does not have the rates of both types.
    """
    now = main_type(costs)
    if now is None:
        raise InputError(f"the types of the operators on {device} are not in the trace")
    if now == dtype or (dtype == PRECISIONS["fp8"] and now in _FLOAT8):
        return Ratio(1.0, 1.0, 1.0)
    profile = costs.profile
    rates = profile.peak_flops if profile is not None else {}
    if dtype == PRECISIONS["fp8"]:
        dtype = next((name for name in _FLOAT8 if name in rates), dtype)
    missing = [name for name in dict.fromkeys((now, dtype)) if name not in rates]
    if missing:
        raise InputError(
            f"the rate of {device} for {' and '.join(missing)} is not known, so --precision cannot "
            f"be answered: {_advice(device, missing, (now, dtype))}"
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
        return Scaled(faster, less / whole if whole else width, alike=False)

    return costs.ratio(scale, overhead_ratio)


def _advice(device: str, missing: Sequence[str], both: Sequence[str]) -> str:
    """How rates become known: `benchmark-device` measures some, the others somebody states."""
    measured = _MEASURED.get(device_kind(device), ())
    if all(name in measured for name in missing):
        return "measure it with `profile-sd3 benchmark-device`"
    names = " and ".join(_FLOAT8[0] if name == PRECISIONS["fp8"] else name for name in both)
    return f"give a --device-profile whose peak_flops has {names}, with the maker's figures"


def _width(dtype: str) -> float:
    return float(Tensor(dtype, (1,)).nbytes or 1)
