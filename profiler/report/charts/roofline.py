"""The roofline as plain plotly JSON: roles by FLOPs per byte, and their rate."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from profiler.analysis.device_profiles import DeviceProfile
from profiler.analysis.document import MUTED, ROLE_COLOURS, SURFACE, Theme
from profiler.analysis.roofline import Bound
from profiler.analysis.table_text import labels, with_rates
from profiler.report.charts.style import HOVER, Chart, draws, escaped, layout, picking, titled
from profiler.text import FLOP_RATES, duration, joined, rate_unit, said

_TYPES = ("float32", "float16", "bfloat16")  # types with a drawn peak rate
_LARGEST = 34.0  # pixels
_SMALLEST = 7.0
_DEVICES = 4
_DASHES = ("solid", "dash", "dot", "dashdot")


@draws("roofline")
def roofline(
    roles: pl.DataFrame,
    profiles: Mapping[str, DeviceProfile],
    devices: Sequence[str],
    theme: Theme = "light",
) -> Chart:
    """Draw a point for each role of a submodule with known FLOPs and bytes, larger with more time,
    and the rooflines of those of `devices` that have a profile; both axes are logarithmic."""
    rows = (
        with_rates(roles).filter(pl.col("rate") > 0, pl.col("flops_per_byte") > 0).rows(named=True)
    )
    longest = max((row["total_ns"] for row in rows), default=0)
    peaks = (
        rate / 1e12
        for name in devices
        if name in profiles
        for rate in _peaks(profiles[name]).values()
    )
    factor, unit = rate_unit(max((*peaks, *(row["rate"] for row in rows)), default=0.0), FLOP_RATES)
    rows = [row | {"rate": row["rate"] / factor, "unit": unit} for row in rows]
    data: list[dict[str, Any]] = []
    for role, colour in ROLE_COLOURS.items():
        of_role = [row for row in rows if row["role"] == role]
        if of_role:
            points = _points(of_role, role, colour.on(theme), longest, theme)
            named = ({"submodule": row["submodule"], "role": role} for row in of_role)
            data.append(picking(points, named))
    if data:
        data += _rooflines(
            profiles, devices, [row["flops_per_byte"] for row in rows], factor, theme
        )
    made = layout(theme)
    axis = {"type": "log", "showgrid": True, "dtick": 1, "exponentformat": "none"}
    made["xaxis"] |= axis
    made["yaxis"] |= axis
    if not any(name in profiles for name in devices):  # without a roofline, which spans decades
        made["xaxis"] |= _decades([row["flops_per_byte"] for row in rows])
        made["yaxis"] |= _decades([row["rate"] for row in rows])
    titled(made, xaxis="FLOPs/byte", yaxis=unit)
    made["margin"] |= {"t": 60}
    return {"data": data, "layout": made | {"height": 440}}


def _decades(values: Sequence[float]) -> dict[str, Any]:
    """The axis range for values within one decade: whole decades, so that ticks (powers of ten) are
    visible, with margins for points; empty otherwise."""
    if not values or max(values) >= 10 * min(values):
        return {}
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return {"range": [low - 0.05, max(high, low + 1) + 0.05]}


def _points(
    rows: list[dict[str, Any]], role: str, colour: str, longest: int, theme: Theme
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": role,
        "x": [float(f"{row['flops_per_byte']:.4g}") for row in rows],
        "y": [float(f"{row['rate']:.4g}") for row in rows],
        "marker": {
            "color": colour,
            "opacity": 0.85,
            "line": {"color": SURFACE.on(theme), "width": 1},
            "size": [
                round(max(_LARGEST * math.sqrt(row["total_ns"] / longest), _SMALLEST), 1)
                for row in rows
            ],
        },
        "customdata": [escaped(_point_text(row)) for row in rows],
        "hovertemplate": HOVER,
    }


def _point_text(row: Mapping[str, Any]) -> str:
    title = said(
        "{submodule}, {role} on {device}",
        submodule=row["submodule"] or said("no call"),
        role=row["role"],
        device=row["device"],
    )
    if row["bound"]:
        title = joined(", ", [title, *labels([row["bound"]], Bound)])
    return said(
        "{title}\ntotal {total}, {rate} {unit}, {intensity} FLOPs/byte",
        title=title,
        total=duration(row["total_ns"]),
        rate=f"{row['rate']:,.3g}",
        unit=row["unit"],
        intensity=f"{row['flops_per_byte']:.3g}",
    )


def _rooflines(
    profiles: Mapping[str, DeviceProfile],
    devices: Sequence[str],
    intensities: list[float],
    factor: float,
    theme: Theme,
) -> Iterator[dict[str, Any]]:
    """A line for each peak rate of each device: memory bandwidth up to its ridge, then flat; in
    units of `factor` TFLOP/s."""
    known = [device for device in devices if device in profiles][:_DEVICES]
    low, high = min(intensities) / 2, max(intensities) * 4
    for number, device in enumerate(known):
        profile = profiles[device]
        if not profile.memory_bandwidth:
            continue
        for names, peak in _peaks(profile).items():
            ridge = peak / profile.memory_bandwidth
            ends = [low, ridge, max(high, 4 * ridge)] if low < ridge else [low, high]
            rates = [min(peak, profile.memory_bandwidth * x) / (1e12 * factor) for x in ends]
            yield {
                "type": "scatter",
                "mode": "lines",
                "name": escaped(said("roofline of {device}, {names}", device=device, names=names)),
                "x": [float(f"{x:.4g}") for x in ends],
                "y": [float(f"{rate:.4g}") for rate in rates],
                "line": {
                    "color": MUTED.on(theme),
                    "width": 1.5,
                    "dash": _DASHES[number % len(_DASHES)],
                },
                "hoverinfo": "name",
            }


def _peaks(profile: DeviceProfile) -> dict[str, float]:
    """The peak rates, each with the names of the types that have it."""
    types: dict[float, list[str]] = {}
    for name in _TYPES:
        rate = profile.peak_flops.get(name)
        if rate:
            types.setdefault(rate, []).append(name)
    return {", ".join(names): rate for rate, names in types.items()}
