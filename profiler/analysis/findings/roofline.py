"""Rules about what the device could do: launches, kernels far from the roofline, types."""

from __future__ import annotations

import polars as pl

from profiler.analysis.findings.codes import PeakSource
from profiler.analysis.findings.finding import Effect, Finding
from profiler.analysis.findings.measures import calls_of, end_to_end_ns, scaled, share
from profiler.analysis.host_side import is_accelerator
from profiler.analysis.result import Analysis
from profiler.analysis.roofline.codes import Bound
from profiler.analysis.roofline.device_profile import DeviceProfile

__all__ = ["launch_bound", "single_precision", "slow_products"]

_LAUNCHES = 0.30  # of the submodule's device time
_OF_RUN = 0.05
_FAR = 0.25  # of the roofline: good kernels reach half of published peaks
_SLOW = 0.10  # of end to end
_UNKNOWN = 0.2  # of the time: with more the roofline is not that of the row
_FASTER = 1.5  # peak of 16 bits / peak of float32
_SINGLE, _HALF = r"\bfloat(32)?\[", r"(float16|half)\["  # as producers call them
_PRODUCTS = ("attention", "qkv_projection", "mlp", "convolution", "matmul")


def launch_bound(analysis: Analysis) -> tuple[Finding, ...]:
    """Commands of a submodule are so short that launching them is what takes time."""
    total = end_to_end_ns(analysis)
    rows = _without_launches(analysis).drop_nulls("submodule")
    bound = pl.col("bound") == Bound.LAUNCH.value
    of = rows.group_by("submodule", "device", maintain_order=True).agg(
        pl.col("total_ns", "commands", "work_ns", "saved_ns").filter(bound).sum(),
        all_ns=pl.col("total_ns").sum(),
        roles=pl.col("role").filter(bound).str.join(", "),
    )
    sums = ("total_ns", "commands", "work_ns", "saved_ns", "all_ns")
    found = []
    for row in scaled(analysis, of, *sums).to_dicts():
        part = share(row["total_ns"], row["all_ns"])
        if part < _LAUNCHES or share(row["total_ns"], total) < _OF_RUN:
            continue
        found.append(
            Finding(
                rule="launch_bound",
                evidence={
                    "total_ns": round(row["total_ns"]),
                    "device_time_share": part,
                    "run_share": share(row["total_ns"], total),
                    "without_launches_ns": round(row["work_ns"]),
                    "commands": round(row["commands"]),
                    "roles": row["roles"],
                },
                where=calls_of(analysis, row["submodule"], device=row["device"]),
                cost_ns=round(row["saved_ns"]),
                effect=Effect((row["submodule"],), row["saved_ns"], row["commands"]),
            )
        )
    return tuple(found)


def _without_launches(analysis: Analysis) -> pl.DataFrame:
    """The roles' roofline, and of the commands whose work is known `work_ns`, the least time that
    this work takes in however few commands, and `saved_ns`, what they took longer."""
    rows = analysis.roofline_roles
    profiles = [analysis.device_profiles.get(device or "") for device in rows["device"]]
    rates = pl.DataFrame(
        {
            "peak": [max(p.peak_flops.values(), default=None) if p else None for p in profiles],
            "bandwidth": [p.memory_bandwidth if p else None for p in profiles],
        },
        schema={"peak": pl.Float64, "bandwidth": pl.Float64},
    )
    roofline = pl.max_horizontal(
        pl.col("flops") / pl.col("peak"), pl.col("bytes") / pl.col("bandwidth")
    )
    known = pl.when(pl.col("of_roofline") > 0).then(pl.col("roofline_ns") + pl.col("beyond_ns"))
    work = pl.min_horizontal(1e9 * roofline, known).fill_null(0.0)
    return rows.hstack(rates).with_columns(work_ns=work, saved_ns=(known - work).fill_null(0.0))


def slow_products(analysis: Analysis) -> tuple[Finding, ...]:
    """Products and attention reach a small part of what the accelerator can compute."""
    total = end_to_end_ns(analysis)
    rows = analysis.roofline_roles.filter(
        pl.col("submodule").is_not_null(),
        pl.col("role").is_in(_PRODUCTS),
        pl.col("bound") == Bound.COMPUTE.value,
        pl.col("of_roofline").is_between(0, _FAR, closed="none"),
        pl.col("unknown_ns") <= _UNKNOWN * pl.col("total_ns"),
    )
    found = []
    for row in scaled(
        analysis, rows, "total_ns", "roofline_ns", "beyond_ns", "commands"
    ).to_dicts():
        profile = analysis.device_profiles.get(row["device"] or "")
        if not is_accelerator(row["device"]) or profile is None:
            continue
        if share(row["total_ns"], total) < _SLOW:
            continue
        found.append(
            Finding(
                rule="slow_products",
                evidence={
                    "role": row["role"],
                    "total_ns": round(row["total_ns"]),
                    "run_share": share(row["total_ns"], total),
                    "of_roofline_share": row["of_roofline"],
                    "roofline_ns": round(row["roofline_ns"]),
                    "commands": round(row["commands"]),
                    "hardware": profile.hardware,
                    "roofline": PeakSource.MEASURED if profile.measured else PeakSource.PUBLISHED,
                },
                where=calls_of(analysis, row["submodule"], device=row["device"]),
                cost_ns=round(row["beyond_ns"]),
                effect=Effect((row["submodule"],), row["beyond_ns"]),
            )
        )
    return tuple(found)


def single_precision(analysis: Analysis) -> tuple[Finding, ...]:
    """Products run in float32 on an accelerator that computes 16 bits faster."""
    total = end_to_end_ns(analysis)
    devices = dict(analysis.submodules.select("submodule", "device").iter_rows())
    shapes = pl.col("shapes")
    in_float32 = shapes.str.contains(_SINGLE) & ~shapes.str.contains(_HALF)
    rows = (
        analysis.kinds.table.with_columns(role=analysis.kind_roles["role"].cast(pl.String))
        .filter(pl.col("role").is_in(_PRODUCTS) & in_float32 & (pl.col("category") == "compute"))
        .drop_nulls("submodule")
        .group_by("submodule", maintain_order=True)
        .agg(
            pl.col("total_ns", "commands").sum(),
            roles=pl.col("role").unique(maintain_order=True).str.join(", "),
        )
    )
    found = []
    for row in scaled(analysis, rows, "total_ns", "commands").to_dicts():
        device = devices.get(row["submodule"])
        faster = _faster(analysis.device_profiles.get(device or ""))
        if not is_accelerator(device) or faster is None or faster < _FASTER:
            continue
        if share(row["total_ns"], total) < _OF_RUN:
            continue
        found.append(
            Finding(
                rule="single_precision",
                evidence={
                    "total_ns": round(row["total_ns"]),
                    "run_share": share(row["total_ns"], total),
                    "commands": round(row["commands"]),
                    "roles": row["roles"],
                    "peak_ratio": round(faster, 2),
                },
                where=calls_of(analysis, row["submodule"], device=device),
                cost_ns=round(row["total_ns"] * (1 - 1 / faster)),
                effect=Effect((row["submodule"],), row["total_ns"] * (1 - 1 / faster)),
            )
        )
    return tuple(found)


def _faster(profile: DeviceProfile | None) -> float | None:
    """Peak of 16-bit types over that of float32; None where not known."""
    if profile is None:
        return None
    single, half = profile.peak("float32"), profile.peak("bfloat16")
    return half / single if single and half else None
