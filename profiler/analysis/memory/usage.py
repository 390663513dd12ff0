"""How much memory each device needed, when, and who held it; always of the whole run.

Counters tell: an arena of ONNX Runtime what one submodule holds, torch's allocator what all of a
device hold. A counter keeps its value until its next sample. Before its first sample an arena is
taken to have held the least it ever did (its weights are loaded before the run), torch's allocator
what its first sample says. On CPUs torch counts changes since the pipeline began alone: then, and
where an arena never holds as much as its submodule's weights, weights are added to what is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from msgspec import Struct

from profiler.analysis.memory.columns import MEMORY, MEMORY_DEVICES, MEMORY_TIMELINE
from profiler.analysis.memory.counters import (
    CHANGES,
    MemoryCounter,
    memory_counters,
    summed,
)
from profiler.analysis.memory.sizes import check_devices
from profiler.analysis.memory.weights import submodule_weights
from profiler.run.columns import schema
from profiler.run.intervals import Times, ends
from profiler.run.run import Run
from profiler.trace.events import device_kind

__all__ = ["Memory", "find_memory", "last_begun"]

_POINTS = 256  # of a device's timeline
_COUNTED = 0.9  # of a submodule's weights: an arena that always holds that much holds them


class Memory(Struct, frozen=True, eq=False):
    """`devices` (`columns.MEMORY_DEVICES`), who held what (`columns.MEMORY`), and the course of it
    (`columns.MEMORY_TIMELINE`)."""

    devices: pl.DataFrame
    holders: pl.DataFrame
    timeline: pl.DataFrame


def find_memory(run: Run, sizes: Mapping[str, int]) -> Memory:
    """What the counters of `run` tell; `sizes` are bytes of memory by device, "" for every
    other. Raises InputError where they name a device that the run does not have."""
    counters = memory_counters(run)
    weights = submodule_weights(run.info.submodules)
    placed = _placed(run)
    if any(sizes):
        ran = run.commands["device"].unique().cast(pl.String).drop_nulls()
        check_devices(sizes, {*counters, *placed, *run.info.devices, *ran})
    found = [
        _OfDevice.of(run, device, counters.get(device, []), placed.get(device, []), weights)
        for device in sorted({*counters, *placed})
    ]
    shown = [one for one in found if one.counters or one.weights is not None]
    return Memory(
        _frame([one.row(_size(run, one.device, sizes)) for one in shown], MEMORY_DEVICES),
        _frame([row for one in shown for row in one.holders()], MEMORY),
        _frame([row for one in shown for row in one.timeline()], MEMORY_TIMELINE),
    )


class _OfDevice(Struct, frozen=True, eq=False):
    """A device: its counters, the submodules placed there with their weights, and the sum of the
    counters: `values[i]` bytes from `times[i]` on."""

    run: Run
    device: str
    counters: list[MemoryCounter]
    submodules: dict[str, int | None]
    times: Times
    values: Times

    @classmethod
    def of(
        cls,
        run: Run,
        device: str,
        counters: list[MemoryCounter],
        placed: list[str],
        weights: Mapping[str, int | None],
    ) -> _OfDevice:
        submodules = {name: weights.get(name) for name in placed}
        return cls(run, device, counters, submodules, *summed(counters))

    @property
    def weights(self) -> int | None:
        """Bytes of all weights; None where those of a submodule are not known, or there is none."""
        known = [size for size in self.submodules.values() if size is not None]
        return sum(known) if known and len(known) == len(self.submodules) else None

    @property
    def counted(self) -> bool:
        """Whether the counters count all weights."""
        return not any(self._uncounted(name) for name in self.submodules)

    @property
    def peak(self) -> tuple[int, int] | None:
        """When the counters held most, and how much."""
        if not len(self.times):
            return None
        row = int(np.argmax(self.values))
        return int(self.times[row]), int(self.values[row])

    def row(self, size: int | None) -> dict[str, Any]:
        """The device's row."""
        uncounted = sum(map(self._uncounted, self.submodules))
        needed: int | None = self.weights
        found: dict[str, Any] = {"peak_bytes": None, "peak_ns": None, "least_bytes": None}
        call: dict[str, Any] = {}
        if self.peak is not None:
            time, most = self.peak
            needed = max(most, 0) + uncounted  # changes can be below what the pipeline began with
            found = {"peak_bytes": most, "peak_ns": time, "least_bytes": int(self.values.min())}
            call = self._running(time) or {}
        return {
            "device": self.device,
            "counters": ", ".join(sorted(counter.name for counter in self.counters)),
            **found,
            **{name: call.get(name) for name in ("submodule", "stage", "step")},
            "weight_bytes": self.weights,
            "weights_counted": self.counted if self.counters else None,
            "needed_bytes": needed,
            "size_bytes": size,
            "headroom_bytes": None if size is None or needed is None else size - needed,
        }

    def holders(self) -> list[dict[str, Any]]:
        """A row for each submodule, and one for what none is known to hold."""
        time = self.peak[0] if self.peak else 0
        running = (self._running(time) or {}).get("submodule") if self.peak else None
        needed = self.row(None)["needed_bytes"]
        rows = [self._holder(name, time, running) for name in self.submodules]
        rest = (needed or 0) - sum(row["held_bytes"] or 0 for row in rows)
        if self.counters and rest < 0:  # not all weights were there: which, nobody tells
            for row in rows:
                if row["submodule"] != running:
                    row["held_bytes"] = None
                elif row["held_bytes"] is not None:  # its call began below what was there first
                    row["held_bytes"] = min(row["held_bytes"], needed or 0)
            rest = (needed or 0) - sum(row["held_bytes"] or 0 for row in rows)
        if self.counters and rest > 0:
            rows.append({"device": self.device, "submodule": None, "calls": 0, "held_bytes": rest})
        for row in rows:
            held = row.get("held_bytes")
            row["share"] = held / needed if needed and held is not None else None
        return sorted(rows, key=lambda row: -(row["held_bytes"] or 0))

    def timeline(self) -> list[dict[str, Any]]:
        """The most in each of some equal intervals."""
        if not len(self.times):
            return []
        first, span = int(self.times[0]), max(int(self.times[-1] - self.times[0]), 1)
        place = ((self.times - first) * _POINTS // (span + 1)).astype(np.int64)
        heads = np.flatnonzero(np.diff(place, prepend=-1))
        most = np.maximum.reduceat(self.values, heads)
        most[1:] = np.maximum(most[1:], self.values[heads[1:] - 1])  # held when it began
        times = self.times[heads]
        submodules = [*self.run.calls["submodule"].cast(pl.String), None]
        return [
            {"device": self.device, "time_ns": time, "bytes": value, "submodule": submodules[row]}
            for time, value, row in zip(
                times.tolist(), most.tolist(), self._rows_at(times).tolist(), strict=True
            )
        ]

    def _holder(self, name: str, time: int, running: str | None) -> dict[str, Any]:
        own = [c for c in self.counters if c.owner is not None and _submodule(c.owner) == name]
        torch = [c for c in self.counters if c.owner is None]
        calls = self._calls_of(name)
        weight = self.submodules[name]
        held = sum(counter.at(time) for counter in own) + self._uncounted(name)
        if not own:
            held = (weight or 0) + (self._above(torch, time) if running == name else 0)
        return {
            "device": self.device,
            "submodule": name,
            "calls": len({call for c in own or torch for call in c.calls.tolist()} & calls),
            "peak_bytes": _peak(own or torch, None if own else calls),
            "activation_bytes": self._activations(name, own, torch, calls),
            "weight_bytes": weight,
            "held_bytes": held if own or weight is not None or running == name else None,
        }

    def _activations(
        self, name: str, own: list[MemoryCounter], torch: list[MemoryCounter], calls: set[int]
    ) -> int | None:
        """The most that a call held beside the weights. ONNX Runtime takes what a call will need
        before its first node ends: of an arena it is all but the weights that are counted there."""
        weight = self.submodules[name]
        if own and weight is not None:
            least = sum(int(counter.values.min()) for counter in own)
            more = max(int(counter.values.max() - counter.values.min()) for counter in own)
            return max(least + more - weight + self._uncounted(name), 0)
        added = [v for c in own or torch for call, v in c.added().items() if call in calls]
        return max(added, default=None)

    def _above(self, counters: list[MemoryCounter], time: int) -> int:
        """What was held beyond what was when the running call began."""
        call = self._running(time)
        start = call["start_ns"] if call else time
        return sum(max(c.at(time) - c.at(start), 0) for c in counters)

    def _uncounted(self, name: str) -> int:
        """Bytes of a submodule's weights that no counter counts."""
        weight = self.submodules.get(name) or 0
        own = [c for c in self.counters if c.owner is not None and _submodule(c.owner) == name]
        if own:
            least = sum(int(counter.values.min()) for counter in own)
            return 0 if least >= _COUNTED * weight else weight
        torch = [c for c in self.counters if c.owner is None]
        return 0 if any(CHANGES not in c.name for c in torch) else weight

    def _calls_of(self, name: str) -> set[int]:
        calls = self.run.calls
        return {*calls.filter(calls["submodule"].cast(pl.String) == name)["call"]}

    def _running(self, time: int) -> dict[str, Any] | None:
        """The call that ran at a moment: on the device where there is one, the last to begin."""
        row = int(self._rows_at(np.array([time]))[0])
        return None if row < 0 else self.run.calls.row(row, named=True)

    def _rows_at(self, times: Times) -> Times:
        """The row of the call that ran at each moment, -1 for none."""
        calls = self.run.calls
        here = (calls["device"].cast(pl.String) == self.device).to_numpy()
        start, end = calls["start_ns"].to_numpy(), ends(calls)
        found = last_begun(np.flatnonzero(here), start, end, times)
        none = np.flatnonzero(found < 0)
        found[none] = last_begun(np.flatnonzero(~here), start, end, times[none])
        return found


def last_begun(rows: Times, start: Times, end: Times, times: Times) -> Times:
    """Of the calls `rows`, which run from `start` to `end`, the row of the one that ran at each
    moment, of several the last to begin; -1 for none."""
    order = rows[np.argsort(start[rows], kind="stable")]
    ended = end[order]
    begun = np.searchsorted(start[order], times, side="right")
    over = np.searchsorted(np.maximum.accumulate(ended), times)  # so many had ended by then
    found = np.full(len(times), -1)
    for place, time in enumerate(times.tolist()):
        running = np.flatnonzero(ended[over[place] : begun[place]] >= time)
        if len(running):
            found[place] = order[over[place] + running[-1]]
    return found


def _peak(counters: list[MemoryCounter], calls: set[int] | None) -> int | None:
    """The most that one of the counters held, in some calls where they are given; None for no
    sample."""
    values = [
        c.values if calls is None else c.values[np.isin(c.calls, sorted(calls))] for c in counters
    ]
    return max((int(some.max()) for some in values if len(some)), default=None)


def _placed(run: Run) -> dict[str, list[str]]:
    """The submodules of each device: where their calls are placed, else what the manifest says."""
    pairs = run.calls.select(pl.col("device", "submodule").cast(pl.String)).unique(
        maintain_order=True
    )
    found: dict[str, list[str]] = {}
    for device, name in pairs.iter_rows():
        found.setdefault(device, []).append(name)
    called = set(pairs["submodule"])
    for name, known in run.info.submodules.items():
        if name not in called and known.device:
            found.setdefault(known.device, []).append(name)
    return found


def _submodule(owner: str) -> str:
    """`vae.decoder` is a part of `vae`."""
    return owner.split(".", 1)[0]


def _size(run: Run, device: str, asked: Mapping[str, int]) -> int | None:
    """Bytes of memory that a device has."""
    if device in asked or "" in asked:
        return asked.get(device, asked.get(""))
    known = run.info.devices.get(device)
    size = known.memory_bytes if known else None
    if size is None and device_kind(device) == "cpu":
        size = run.info.hardware.memory_bytes
    return size or None


def _frame(rows: list[dict[str, Any]], columns: Any) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=schema(columns))
