"""Rules about what the device could do: launches, kernels far from the roof, types."""

from __future__ import annotations

import polars as pl

from profiler.analysis.findings.finding import Finding
from profiler.analysis.findings.measures import (
    as_percent,
    calls_of,
    is_accelerator,
    scaled,
    share,
    total_ns,
)
from profiler.analysis.result import Analysis
from profiler.analysis.roofline.device_profiles import DeviceProfile

__all__ = ["launch_bound", "single_precision", "slow_products"]

_LAUNCHES = 0.30  # of the submodule's device time
_OF_RUN = 0.05
_FAR = 0.25  # of the roof: good kernels reach half of published peaks
_SLOW = 0.10  # of end to end
_UNKNOWN = 0.2  # of the time: with more the roof is not that of the row
_FASTER = 1.5  # peak of 16 bits / peak of float32
_SINGLE, _HALF = r"\bfloat(32)?\[", r"(float16|half)\["  # as producers call them
_PRODUCTS = ("attention", "qkv_projection", "mlp", "convolution")


def launch_bound(analysis: Analysis) -> tuple[Finding, ...]:
    """Commands of a submodule are so short that launching them is what takes time."""
    total = total_ns(analysis)
    rows = analysis.roofline_roles.drop_nulls("submodule")
    of = rows.group_by("submodule", "device", maintain_order=True).agg(
        busy_ns=pl.col("busy_ns").filter(pl.col("verdict") == "launch-bound").sum(),
        commands=pl.col("commands").filter(pl.col("verdict") == "launch-bound").sum(),
        all_ns=pl.col("busy_ns").sum(),
        roles=pl.col("role").filter(pl.col("verdict") == "launch-bound").str.join(", "),
    )
    found = []
    for row in scaled(analysis, of, "busy_ns", "all_ns").to_dicts():
        part = share(row["busy_ns"], row["all_ns"])
        if part < _LAUNCHES or share(row["busy_ns"], total) < _OF_RUN:
            continue
        found.append(
            Finding(
                rule="launch_bound",
                title=f"{as_percent(part)} of the device time of {row['submodule']} is bound by "
                "launching",
                evidence={
                    "busy_ns": round(row["busy_ns"]),
                    "device_time_share": part,
                    "run_share": share(row["busy_ns"], total),
                    "commands": row["commands"],
                    "roles": row["roles"],
                },
                hazard="The least time of a command is measured on an idle machine; recording adds "
                "to short commands most.",
                remedy="Fewer, larger commands: fuse, batch prompts and branches, larger images; "
                "CUDA graphs help where the host is the limit, not here.",
                where=calls_of(analysis, row["submodule"], device=row["device"]),
                cost_ns=round(row["busy_ns"]),
            )
        )
    return tuple(found)


def slow_products(analysis: Analysis) -> tuple[Finding, ...]:
    """Products and attention reach a small part of what the accelerator can compute."""
    total = total_ns(analysis)
    rows = analysis.roofline_roles.filter(
        pl.col("submodule").is_not_null(),
        pl.col("role").is_in(_PRODUCTS),
        pl.col("verdict") == "compute-bound",
        pl.col("of_roof") < _FAR,
        pl.col("unknown_ns") <= _UNKNOWN * pl.col("busy_ns"),
    )
    found = []
    for row in scaled(analysis, rows, "busy_ns", "attainable_ns").to_dicts():
        profile = analysis.device_profiles.get(row["device"] or "")
        if not is_accelerator(row["device"]) or profile is None:
            continue
        if share(row["busy_ns"], total) < _SLOW:
            continue
        found.append(
            Finding(
                rule="slow_products",
                title=f"{row['role']} of {row['submodule']} reaches "
                f"{as_percent(row['of_roof'])} of what {row['device']} can compute",
                evidence={
                    "busy_ns": round(row["busy_ns"]),
                    "run_share": share(row["busy_ns"], total),
                    "of_roof_share": row["of_roof"],
                    "attainable_ns": round(row["attainable_ns"]),
                    "commands": row["commands"],
                    "hardware": profile.hardware,
                    "roof": "measured" if profile.measured else "published",
                },
                hazard="Published peaks are reached by nothing: half is good. Clocks fall under "
                "load; small or odd sizes reach less whatever the kernel.",
                remedy="Try another kernel (attention backend, GEMM tuning such as TunableOp or "
                "max-autotune), sizes that are multiples of 64, 16-bit types.",
                where=calls_of(analysis, row["submodule"], device=row["device"]),
                cost_ns=round(row["busy_ns"] - row["attainable_ns"]),
            )
        )
    return tuple(found)


def single_precision(analysis: Analysis) -> tuple[Finding, ...]:
    """Products run in float32 on an accelerator that computes 16 bits faster."""
    total = total_ns(analysis)
    devices = dict(analysis.submodules.select("submodule", "device").iter_rows())
    shapes = pl.col("shapes")
    in_float32 = shapes.str.contains(_SINGLE) & ~shapes.str.contains(_HALF)
    rows = (
        analysis.kinds.table.with_columns(role=analysis.kind_roles["role"].cast(pl.String))
        .filter(pl.col("role").is_in(_PRODUCTS) & in_float32 & (pl.col("category") == "compute"))
        .drop_nulls("submodule")
        .group_by("submodule", maintain_order=True)
        .agg(
            pl.col("busy_ns", "commands").sum(),
            roles=pl.col("role").unique(maintain_order=True).str.join(", "),
        )
    )
    found = []
    for row in scaled(analysis, rows, "busy_ns").to_dicts():
        device = devices.get(row["submodule"])
        faster = _faster(analysis.device_profiles.get(device or ""))
        if not is_accelerator(device) or faster is None or faster < _FASTER:
            continue
        if share(row["busy_ns"], total) < _OF_RUN:
            continue
        found.append(
            Finding(
                rule="single_precision",
                title=f"{row['submodule']} computes products in float32 on {device}: "
                f"{as_percent(share(row['busy_ns'], total))} of the run",
                evidence={
                    "busy_ns": round(row["busy_ns"]),
                    "run_share": share(row["busy_ns"], total),
                    "commands": row["commands"],
                    "roles": row["roles"],
                    "peak_ratio": round(faster, 2),
                },
                hazard="TF32 may be on already, which traces do not tell. T5 and some VAEs "
                "overflow in float16: take bfloat16, and compare images.",
                remedy="Load it in bfloat16 (torch_dtype=torch.bfloat16), or allow TF32 "
                "(torch.set_float32_matmul_precision('high')).",
                where=calls_of(analysis, row["submodule"], device=device),
                cost_ns=round(row["busy_ns"] * (1 - 1 / faster)),
            )
        )
    return tuple(found)


def _faster(profile: DeviceProfile | None) -> float | None:
    """Peak of 16-bit types over that of float32; None where not known."""
    if profile is None:
        return None
    single, half = profile.peak("float32"), profile.peak("bfloat16")
    return half / single if single and half else None
