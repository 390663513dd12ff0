"""What reports show of the larger tables of an analysis, and the sentences that they say about
them: the same in the terminal and in the page."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from profiler.analysis.result import RunSummary
from profiler.analysis.roofline.device_profile import DeviceProfile
from profiler.text import Said, count, counted, duration, joined, percent, said

__all__ = [
    "changing_parts",
    "explained_outliers",
    "guessed_waits",
    "path_by_part",
    "path_sentence",
    "path_wall_ns",
    "roofline_sentence",
    "split_operators",
    "why_no_waits",
    "with_rates",
]

_LEAST_SHARE = 0.005  # of the time of all, for a row that is shown


def changing_parts(parts: pl.DataFrame) -> pl.DataFrame:
    """Of `step_operators` those of some size whose time changes: a warm-up, a drift that is none of
    0, outliers. `part` is what a row is called; `drift`, `drift_low` and `drift_high` are the drift
    from the first step to the last against the median, and the ends of its 95 % interval."""
    drifts = (pl.col("drift_low_ns") > 0) | (pl.col("drift_high_ns") < 0)
    whole = int(parts.filter(pl.col("level") == "step")["total_ns"].sum())
    found = parts.filter(
        pl.col("total_ns") >= _LEAST_SHARE * whole,
        (pl.col("warmup_steps") > 0) | drifts.fill_null(value=False) | (pl.col("outliers") > 0),
    )
    later = (pl.col("steps") - 1) / pl.col("median_ns")
    names = ("drift", "drift_low", "drift_high")
    return found.with_columns(
        pl.Series("part", _part_names(found), dtype=pl.String),
        *((pl.col(f"{name}_ns") * later).alias(name) for name in names),
    )


def explained_outliers(rows: pl.DataFrame) -> pl.DataFrame:
    """`step_outliers` with what each is called as `part`, device and track of what overlapped it as
    `place` ("" where nothing did)."""
    return rows.with_columns(
        pl.Series("part", _part_names(rows), dtype=pl.String),
        pl.Series("place", _places(rows), dtype=pl.String),
    )


def _part_names(rows: pl.DataFrame) -> list[str]:
    """What a part of a step is called: its layer and role, its submodule, or `step`."""
    names = []
    for level, submodule, layer, role in rows.select(
        "level", "submodule", "layer", "role"
    ).iter_rows():
        parts = [part for part in (layer, role) if part]
        names.append(" ".join(parts) or submodule or level)
    return names


def _places(rows: pl.DataFrame) -> list[str]:
    pairs = zip(rows["cause_device"], rows["cause_track"], strict=True)
    return [" ".join(part for part in pair if part) for pair in pairs]


def roofline_sentence(
    rows: pl.DataFrame, roles: pl.DataFrame, profiles: Mapping[str, DeviceProfile]
) -> Said:
    """Where the rooflines of the operators `rows` come from, how much of the time has none, and
    which `roles` are above theirs."""
    devices = sorted(set(rows["device"].drop_nulls()))
    lines = [_source(device, profiles[device]) for device in devices if device in profiles]
    missing = [device for device in devices if device not in profiles]
    if missing:
        names = ", ".join(missing)
        lines.append(
            said("no profile of {names}: `profile-sd3 benchmark-device` measures one", names=names)
        )
    busy, unknown = int(rows["total_ns"].sum()), int(rows["unknown_ns"].sum())
    if unknown and busy:
        share = percent(unknown / busy)
        lines.append(said("FLOPs or bytes not known for {share} of the total time", share=share))
    lines += _refuted(roles, busy)
    return joined("; ", lines)


def _refuted(roles: pl.DataFrame, busy: int) -> list[Said]:
    """That commands were faster than their roofline, which no device can be."""
    wrong = roles.filter(pl.col("refuted_ns") > 0).sort("refuted_ns", descending=True)
    if wrong.is_empty() or not busy:
        return []
    most = wrong.row(0, named=True)
    role = most["role"]
    if most["submodule"]:
        role = said("{role} of {submodule}", role=role, submodule=most["submodule"])
    if len(wrong) > 1:
        role = said("{role} and {more}", role=role, more=counted(len(wrong) - 1, "other role"))
    sentence = said(
        "{share} of the total time was faster than its roofline, which is then not known ({role}): "
        "data stays in a cache whose rate is not known, or the profile is too low "
        "(benchmark-device on a machine at rest measures it again)",
        share=percent(int(wrong["refuted_ns"].sum()) / busy),
        role=role,
    )
    return [sentence]


def _source(device: str, profile: DeviceProfile) -> str:
    source = said(
        "roofline of {device}: {how}, {source}",
        device=device,
        how=said("measured") if profile.measured else said("published"),
        source=profile.source or said("source unknown"),
    )
    if profile.attained:
        source = said(
            "{roofline}, of {peaks} what products of this run reached beyond it",
            roofline=source,
            peaks=", ".join(profile.attained),
        )
    if profile.memory_bandwidth is None:
        return said(
            "{roofline}, without a memory bandwidth: nothing there has a bound other than "
            "host-bound",
            roofline=source,
        )
    return source


def why_no_waits(idle: pl.DataFrame, run: RunSummary) -> str:
    """Why nobody knows what devices waited for, "" where it is known, or nothing executed."""
    traced, calls = run.traced_calls, run.calls
    if len(idle) or traced == calls or not traced:
        return ""
    return said(
        "unknown: the operators of {untraced} of {calls} were not recorded, and neither was what "
        "a device did in them; --ops all records them",
        untraced=count(calls - traced),
        calls=counted(calls, "call"),
    )


def path_wall_ns(rows: pl.DataFrame) -> int:
    """The time of the pipeline calls of `critical_path` together."""
    return int(rows.unique("pipeline")["wall_ns"].sum())


def path_sentence(rows: pl.DataFrame) -> str:
    """What the critical paths take together, of the time of their pipeline calls."""
    paths = rows["pipeline"].n_unique()
    path, wall = int(rows["path_ns"].sum()), path_wall_ns(rows)
    share = f", {percent(path / wall)}" if wall else ""
    times = {"path": duration(path), "wall": duration(wall), "share": share}
    if paths == 1:
        return said("Critical path: {path} of {wall}{share}", **times)
    calls = counted(paths, "pipeline call")
    return said("Critical path of {calls}: {path} of {wall}{share}", calls=calls, **times)


def path_by_part(rows: pl.DataFrame, shown: int) -> pl.DataFrame:
    """`critical_path` over all pipeline calls: submodule, part, device, pieces, path_ns, guessed_ns
    (null for none) and share.

    At most `shown` rows, longest first; the rest of them is one row more, whose part is null.
    """
    keys = ["submodule", "part", "device"]
    summed = (
        rows.group_by(keys)
        .agg(pl.col("pieces", "path_ns").sum(), _guessed())
        .sort(["path_ns", *keys], descending=[True, False, False, False], nulls_last=True)
    )
    kept = summed.head(shown)
    if len(summed) > shown:
        left = summed.slice(shown).select(pl.col("pieces", "path_ns").sum(), _guessed())
        kept = pl.concat([kept, left], how="diagonal")
    return kept.with_columns(share=pl.col("path_ns") / max(path_wall_ns(rows), 1))


def _guessed() -> pl.Expr:
    """The sum of `guessed_ns`, null where nothing was guessed."""
    return pl.col("guessed_ns").sum().replace(0, None)


def guessed_waits(rows: pl.DataFrame) -> str:
    """How much of `critical_path` is on a device for waits that nobody recorded, "" for nothing."""
    guessed = int(rows["guessed_ns"].sum())
    if not guessed:
        return ""
    return said(
        "{guessed} of the path, {share}, is guessed: nothing was recorded of the host while a "
        "device worked, and it launched as soon as that was done, so it is assumed to have waited",
        guessed=duration(guessed),
        share=percent(guessed / int(rows["path_ns"].sum())),
    )


def split_operators(partitioning: pl.DataFrame, shown: int) -> tuple[pl.DataFrame, int]:
    """The parts of the `shown` longest split operators of submodules, and how many there are."""
    split = partitioning.drop_nulls("submodule")
    whole = split.filter(pl.col("part") == "whole").select("submodule", "layer")
    kept = split.join(whole.head(shown), on=["submodule", "layer"], maintain_order="left")
    return kept, len(whole)


def with_rates(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows of a roofline with `rate` (TFLOP/s) of the time of commands whose FLOPs are known, and
    `bandwidth` (GB/s) of those whose bytes are, as shapes have them; null where there are none."""
    of_flops, of_bytes = (
        pl.col(name) / pl.when(pl.col(f"{name}_ns") > 0).then(pl.col(f"{name}_ns"))
        for name in ("flops", "bytes")
    )
    return rows.with_columns(rate=of_flops / 1e3, bandwidth=of_bytes)
