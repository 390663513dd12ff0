"""What the calls of a submodule would take if their operators had other work: half the batch,
another type.

The time of a command is taken as a fixed part and the rest: `t = f + (t - f)`. The fixed part, of
every command of the submodule, is what its shortest ones take (the mean of those kinds that make
the first 5 % of its commands). The rest goes with the roofline of its work, `max(FLOPs / peak,
bytes / bandwidth)`, by the device's profile, else by the best rates that the submodule's own
operators reached. Time of a call in which no command ran (between commands: launches, the host)
stays.

Bounds of less work are what remains when nothing is fixed and the rest goes with the smaller of
FLOPs and bytes, and when it goes with the larger and what is not known stays.

More work takes at least what it takes at its roofline, and no less than before. Nor can commands
fill a device much better than they did: where a little more than one wave of blocks took two, N
times as many take N + 1, so of what they took, but for 20 us each to begin and end, at least
(1 + N) / 2 times as much remains. It takes at most what it takes when nothing is fixed and all goes
with the larger of FLOPs and bytes, and `_SLOWER` of that: of FLUX two images at once took the
clock of an H200 down by 5 % (docs/gpu-evidence.md).

A processor whose caches are not known may work on less data in one that all of it did not fit in:
then `_IN_CACHE` of a bound is taken. The denoiser of the embedded SD3 took 0.38 to 0.45 of its time
for half the batch on one core, its Softmax and attention matmuls 0.42
(`benchmarks/prediction_intervals.py`, guidance off).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from profiler.analysis.roofline.device_profile import DeviceProfile
from profiler.analysis.work.formulas import work_of
from profiler.analysis.work.registry import Work
from profiler.analysis.work.shapes import Shapes, Tensor, parse_shapes

__all__ = ["CallCosts", "KindCost", "Ratio", "Scaled", "call_costs"]

_SHORTEST = 0.05  # of the commands
_IN_CACHE = 0.7
_BEGINS_NS = 20_000.0  # of a command: so much may be its begin and end, whatever its size
_SLOWER = 1.1


class Ratio(Struct, frozen=True):
    """New time over old, with its bounds; `known` is the share of the time whose work is known."""

    value: float
    low: float
    high: float
    known: float = 1.0

    @property
    def spread(self) -> tuple[float, float]:
        """The bounds relative to the value."""
        return (self.low / self.value, self.high / self.value) if self.value > 0 else (1.0, 1.0)


class KindCost(Struct, frozen=True):
    """The commands of one kind: their number, their time, the work of one of them."""

    commands: int
    total_ns: float
    work: Work | None
    shapes: Shapes | None
    op_type: str | None = None

    @property
    def flops(self) -> float:
        """FLOPs of one command, 0 where there are none or they are not known."""
        return (self.work.flops or 0) / self.work.parts if self.work else 0.0

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """What one command reads and writes, as far as it is known."""
        if self.work is not None:
            return (*self.work.reads, *(self.work.writes or ()))
        return (*self.shapes.inputs, *(self.shapes.outputs or ())) if self.shapes else ()

    @property
    def nbytes(self) -> float:
        """Bytes of one command's tensors, 0 where they are not known."""
        if self.work is None:
            return 0.0
        read = self.work.bytes_read or 0
        return (read + (self.work.bytes_written or 0)) / self.work.parts


class Scaled(Struct, frozen=True):
    """FLOPs (or rather the time for them) and bytes of a kind over what they were; None where its
    work is not known to change like that. `least` and `most` are the smallest and the largest that
    either may become. `alike`: by kernels like those that ran; those of another type are not."""

    flops: float
    nbytes: float
    known: bool = True
    least: float = 0.5
    most: float = 1.0
    alike: bool = True


class CallCosts(Struct, frozen=True):
    """The traced calls of a submodule: `duration_ns` in all of them, of it `outside_ns` in none of
    the commands of `kinds`."""

    kinds: tuple[KindCost, ...]
    duration_ns: float
    outside_ns: float
    profile: DeviceProfile | None

    @property
    def on_device(self) -> CallCosts:
        """Without the time in which no command ran."""
        return replace(self, duration_ns=self.duration_ns - self.outside_ns, outside_ns=0.0)

    @property
    def fixed_ns(self) -> float:
        """The fixed part of a command's time."""
        ordered = sorted((k.total_ns / k.commands, k.commands) for k in self.kinds if k.commands)
        wanted = _SHORTEST * sum(count for _, count in ordered)
        time = number = 0.0
        for each, count in ordered:
            time += each * count
            number += count
            if number >= wanted:
                break
        return time / number if number else 0.0

    def ratio(
        self, scale: Callable[[KindCost], Scaled], overhead_ratio: float = 1.0, outside: float = 1.0
    ) -> Ratio:
        """Time over time before, where each kind's work changes as `scale` says.

        `overhead_ratio` is untraced over traced time: what tracing costs is in the fixed parts.
        `outside` is the least that the time outside of commands may become.
        """
        fixed, bandwidth, peak = self.fixed_ns, self._bandwidth(), self._peak_time()
        scales = [scale(kind) for kind in self.kinds]
        then = [
            _then(kind, scaled, fixed, kind.flops * peak(kind), kind.nbytes * bandwidth)
            for kind, scaled in zip(self.kinds, scales, strict=True)
        ]
        fixed_total = self.outside_ns + sum(one.stays for one in then)
        tracing = min(max(1.0 - overhead_ratio, 0.0) * self.duration_ns, 0.9 * fixed_total)
        total = max(self.duration_ns - tracing, 1.0)
        new = self.outside_ns + sum(one.value for one in then)
        low = self.outside_ns * outside + sum(one.low for one in then)
        high = self.outside_ns + sum(one.high for one in then)
        value, least, largest = ((time - tracing) / total for time in (new, low, high))
        value = max(value, 0.0)
        pairs = zip(self.kinds, scales, strict=True)
        known = sum(kind.total_ns for kind, scaled in pairs if scaled.known)
        busy = sum(kind.total_ns for kind in self.kinds)
        return Ratio(
            value=value,
            low=min(max(least, 0.0), value),
            high=max(largest, value),
            known=known / busy if busy else 0.0,
        )

    def beyond_caches(self, ratio: Ratio, *, grows: bool) -> Ratio:
        """`ratio` with the bound at which data no longer fits in a cache, or does at last, where
        the processor's caches are not known."""
        if self.profile is not None:
            return ratio
        if grows:
            return replace(ratio, high=ratio.high / _IN_CACHE)
        return replace(ratio, low=ratio.low * _IN_CACHE)

    def _bandwidth(self) -> float:
        """ns for a byte."""
        if self.profile is not None and self.profile.memory_bandwidth:
            return 1e9 / self.profile.memory_bandwidth
        return _fastest((k.total_ns / k.commands, k.nbytes) for k in self.kinds if k.commands)

    def _peak_time(self) -> Callable[[KindCost], float]:
        """ns for a FLOP of a kind."""
        own = _fastest((k.total_ns / k.commands, k.flops) for k in self.kinds if k.commands)

        def of(kind: KindCost) -> float:
            peak = self.profile.peak(kind.work.dtype) if self.profile and kind.work else None
            return 1e9 / peak if peak else own

        return of


class _Then(NamedTuple):
    """What the commands of a kind take with other work, in ns, its bounds, and what of it is their
    fixed part."""

    value: float
    low: float
    high: float
    stays: float


def _then(
    kind: KindCost, scaled: Scaled, fixed_ns: float, compute_ns: float, memory_ns: float
) -> _Then:
    """A command's fixed part takes `fixed_ns`, its FLOPs and its bytes `compute_ns` and `memory_ns`
    at their roofline."""
    stays = min(fixed_ns * kind.commands, kind.total_ns)
    before = max(compute_ns, memory_ns)
    after = max(compute_ns * scaled.flops, memory_ns * scaled.nbytes)
    told = scaled.known and before > 0
    factor = after / before if told else (scaled.flops + scaled.nbytes) / 2
    low, high = _bounds(kind, scaled, stays, kind.commands * after)
    return _Then(stays + (kind.total_ns - stays) * factor, low, high, stays)


def _bounds(kind: KindCost, scaled: Scaled, stays: float, reached: float) -> tuple[float, float]:
    """The least and the most that the commands of a kind take in ns; `stays` is their fixed part,
    `reached` what they take at their roofline."""
    took, both = kind.total_ns, (scaled.flops, scaled.nbytes)
    if max(both) <= 1.0:
        low = took * (min(both) if scaled.known else min(scaled.least, *both))
        return low, stays + (took - stays) * (max(both) if scaled.known else scaled.most)
    if not scaled.known:
        return took, took * scaled.most * _SLOWER
    fewest = stays + (took - stays) * min(both)
    if not scaled.alike:
        return max(took, min(fewest, reached)), took * max(both)
    begins = min(kind.commands * _BEGINS_NS, took)
    fuller = begins + (took - begins) * (1 + min(both)) / 2
    low = max(took, min(fewest, max(reached, fuller)))
    return low, took * max(both) * _SLOWER


def _fastest(pairs: Iterable[tuple[float, float]]) -> float:
    """The least time for one of what is counted, 0 where nothing is."""
    return min((time / count for time, count in pairs if count > 0 and time > 0), default=0.0)


def call_costs(
    calls: pl.DataFrame,
    kinds: pl.DataFrame,
    profiles: Mapping[str, DeviceProfile],
    submodule: str,
) -> CallCosts | None:
    """The costs of the traced calls of `submodule`, None where none was traced.

    `calls` is the call table, `kinds` the table of the kinds of its commands, `profiles` are those
    of devices by name.
    """
    calls = calls.filter((pl.col("submodule") == submodule) & pl.col("ops_traced"))
    chosen = kinds.filter(
        (pl.col("submodule") == submodule)
        & pl.col("category").cast(pl.String).is_in(("compute", "copy", "collective", "other"))
        & (pl.col("commands") > 0)
    )
    # A device that works through a queue is busy for longer than its calls take.
    total = float(calls.select(pl.max_horizontal("duration_ns", "busy_ns").sum()).item())
    union = float(calls["busy_ns"].sum())
    busy = float(chosen["total_ns"].sum())
    if chosen.is_empty() or total <= 0 or busy <= 0:
        return None
    squeezed = min(union / busy, 1.0)  # commands at the same time
    found = []
    rows = chosen.select("op_type", "shapes", "commands", "total_ns").iter_rows()
    for op_type, text, commands, time in rows:
        shapes = parse_shapes(text)
        found.append(KindCost(commands, time * squeezed, work_of(op_type, shapes), shapes, op_type))
    inside = min(busy * squeezed, total)
    devices = calls["device"].unique(maintain_order=True).to_list()
    profile = profiles.get(devices[0]) if devices else None
    return CallCosts(tuple(found), total, total - inside, profile)
