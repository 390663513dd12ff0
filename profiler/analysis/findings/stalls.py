"""Times at which the host stood still once: long gaps of a device in one call of a submodule that
has others, none of which has the like. What makes one (a garbage collection, a library that is
loaded, a profiler at its start) is none of what each call launches."""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from profiler.analysis.result import Analysis
from profiler.analysis.waiting.codes import WaitCause

__all__ = ["Stalls", "stalls_of"]

_LONG_NS = 10_000_000  # without a launch: no host that launches takes so long for the next
_ALIKE = 0.25  # of its length: with a gap as long in another call it is no single time


class Stalls(Struct, frozen=True):
    """Number and length of some stalls in all; what the host was in during the longest, "" where
    nobody knows."""

    times: int
    length_ns: int
    host_in: str


def stalls_of(
    analysis: Analysis,
    *,
    device: str | None = None,
    call: int | None = None,
    submodule: str | None = None,
) -> Stalls | None:
    """The stalls in calls on a device, or in one call or those of a submodule, there also behind a
    wait for the device; None without any."""
    causes = (WaitCause.LAUNCH,) if device else (WaitCause.LAUNCH, WaitCause.SYNC)
    waited = analysis.gaps.filter(
        pl.col("cause").is_in(causes) & pl.col("call").is_not_null()
    ).select("device", "call", pl.col("submodule").cast(pl.String), "length_ns", "host_doing")
    calls = analysis.calls.group_by(pl.col("submodule").cast(pl.String)).len()
    several = {name for name, number in calls.iter_rows() if number > 1}
    found = []
    for row in waited.filter(pl.col("length_ns") >= _LONG_NS).to_dicts():
        others = waited.filter(
            (pl.col("submodule") == row["submodule"]) & (pl.col("call") != row["call"])
        )
        here = device in (None, row["device"]) and call in (None, row["call"])
        here &= submodule in (None, row["submodule"])
        longest = others["length_ns"].max() or 0
        if here and row["submodule"] in several and longest < _ALIKE * row["length_ns"]:
            found.append(row)
    if not found:
        return None
    found.sort(key=lambda row: -row["length_ns"])
    return Stalls(
        len(found), sum(row["length_ns"] for row in found), str(found[0]["host_doing"] or "")
    )
