"""Device memory over time: the peak, what allocated it, and the remaining headroom.

It always covers the whole run. A counter keeps its value until its next sample. On CPUs torch
counts only changes since the pipeline started, so weights are added to what is required. The
same holds if an arena never reaches the size of its submodule's weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from numbers import Integral
from typing import Any

import numpy as np
import polars as pl
from msgspec import Struct

from profiler.analysis.commands import is_accelerator
from profiler.analysis.context import Inputs, shared
from profiler.analysis.device_counters import CHANGES, MemoryCounter, memory_counters, summed
from profiler.analysis.devices import submodule_weights
from profiler.analysis.document import Bars, Figure, Part, SectionGroup, SectionKind
from profiler.analysis.finding_text import Rule, Words, calls_of, number, share, texts
from profiler.analysis.question import Table
from profiler.analysis.result import Analysis, Finding, ReportInput, Where
from profiler.analysis.table_text import Sentences, table, worded_note
from profiler.errors import InputError
from profiler.run.columns import (
    BOOL,
    BYTES,
    DATA_ONLY,
    INT64,
    NS,
    SHARE,
    STEP,
    STRING,
    Column,
    col,
    schema,
)
from profiler.run.intervals import Times, ends
from profiler.run.run import Run
from profiler.text import Note, NoteCode, parse_size, percent, said, sentence
from profiler.trace.events import device_kind
from profiler.trace.manifest_fields import Recording

# --- Rules about memory: what does not fit, and what makes the peak.


_HEADROOM = 0.10  # of the memory: fragmentation and the driver's context need about as much
_ACTIVATIONS = 0.30  # of what is needed
_OF_SIZE = 0.50  # of the memory: a peak below half of it is no problem
_LARGE = 1 << 30  # bytes, if the device's memory is not known


def little_headroom(analysis: Analysis) -> Iterator[Finding]:
    """A device's memory is nearly, or more than, full."""
    for row in analysis.memory_devices.drop_nulls("headroom_bytes").to_dicts():
        left, size = row["headroom_bytes"], row["size_bytes"]
        if not size or share(left, size) >= _HEADROOM:
            continue
        yield Finding(
            "little_headroom",
            {
                "required_bytes": row["required_bytes"],
                "size_bytes": size,
                "headroom_bytes": left,
                "headroom_share": share(left, size),
                **({"peak_in": row["submodule"]} if row["submodule"] else {}),
            },
            where=_at_peak(analysis, row),
            severity="high" if left < 0 else "medium",
        )


def decode_peak(analysis: Analysis) -> Iterator[Finding]:
    """Decoding the image needs most memory, for activations."""
    for row in analysis.memory_devices.filter(pl.col("stage") == "decode").to_dicts():
        held = analysis.memory.filter(device=row["device"], submodule=row["submodule"])
        activations = held["activation_bytes"][0] if len(held) else None
        needed, size = row["required_bytes"], row["size_bytes"]
        if activations is None or not needed or share(activations, needed) < _ACTIVATIONS:
            continue
        if (share(needed, size) < _OF_SIZE) if size else activations < _LARGE:
            continue
        yield Finding(
            "decode_peak",
            {
                "activation_bytes": activations,
                "activation_share": share(activations, needed),
                "required_bytes": needed,
                **({"size_bytes": size} if size else {}),
            },
            where=_at_peak(analysis, row),
            severity="medium" if size else "low",
        )


def _at_peak(analysis: Analysis, row: dict[str, Any]) -> Where:
    """The calls of the submodule that ran at the peak."""
    if row["submodule"] is None:
        return Where(device=row["device"])
    step = row["step"] if row["step"] is not None and row["step"] >= 0 else None
    return calls_of(analysis, row["submodule"], device=row["device"], step=step)


def _little_headroom(found: Finding) -> Words:
    needed, whole = number(found, "required_bytes"), number(found, "size_bytes")
    title = said("{device} has {headroom_share} of its memory left at the peak")
    if needed > whole:
        over = percent(needed / whole).replace("\N{NO-BREAK SPACE}", " ")
        title = said(
            "The run needs {share} of the memory of {device}: it does not fit",
            share=over,
            device=texts(found)["device"],
        )
    return Words(
        title=title,
        caveat="Counters see tensors: fragmentation, contexts of the driver and libraries, and a "
        "second request need memory that is not counted.",
        recommendation="Place submodules on other devices, quantize the largest, offload encoders "
        "when they are done, or decode in tiles where the peak is there.",
    )


RULES = (
    Rule(
        little_headroom,
        _little_headroom,
        "Quantize the largest submodule, or offload encoders when done",
        section="memory",
        needs=("memory",),
    ),
    Rule(
        decode_peak,
        Words(
            title="The peak of {device} is in {submodule}: its activations are {activation_share} "
            "of it",
            caveat="Tiles take longer and may show seams; a VAE in float16 may overflow (bfloat16 "
            "or a fixed VAE does not).",
            recommendation="Decode in tiles or slices (vae.enable_tiling(), vae.enable_slicing()), "
            "in 16 bits, or after the denoiser's weights have left the device.",
        ),
        "Decode in tiles or slices: vae.enable_tiling(), vae.enable_slicing()",
        section="memory",
        needs=("memory",),
    ),
)


# --- Why a run has no allocations, and what records them.


class NoAllocations(NoteCode):
    """Why a run has no allocations."""

    NOT_ASKED_FOR = "not_asked_for"  # of a capture of ours
    NOT_IN_TRACE = "not_in_trace"  # of torch.profiler, by whoever recorded it


def why_no_allocations(
    producer: str, recording: Recording | None, counters: Iterable[str | None]
) -> Note | None:
    """Why there are no allocations, if they could have been recorded and nobody asked for them;
    `counters` are the names of those that there are, by device."""
    recorded = recording is None or recording.profile_memory is not False
    if recorded or any("torch" in names for names in counters if names):
        return None
    ours = producer == "capture"
    return Note.of(NoAllocations.NOT_ASKED_FOR if ours else NoAllocations.NOT_IN_TRACE)


# --- The columns of what is found about memory.


_OF_DEVICE = col("device", STRING, "device whose memory it is", key=True)

MEMORY_DEVICES: tuple[Column, ...] = (
    _OF_DEVICE,
    col(
        "counters", STRING, "counters of its memory, joined with commas", kind="list", importance=15
    ),
    col("peak_bytes", BYTES, "largest sum of these counters at one time", True),
    col("peak_ns", NS, "time, on the run's clock", True, label="at", importance=8),
    col("submodule", STRING, "submodule whose call ran then", True, label="in", importance=1),
    col("stage", STRING, "stage of that call", True, importance=DATA_ONLY),
    col("step", STEP, "step of that call; -1 outside denoise", True, importance=1),
    col("min_bytes", BYTES, "smallest sum of these counters during the run", True, importance=4),
    col(
        "weight_bytes",
        BYTES,
        "weights of the submodules placed there",
        True,
        label="weights",
        importance=2,
        hide_if_zero=True,
    ),
    col("weights_counted", BOOL, "whether the counters count weights", True, importance=DATA_ONLY),
    col(
        "required_bytes",
        BYTES,
        "peak_bytes plus weights that are not counted in it; only weights if there are no counters",
        True,
    ),
    col(
        "size_bytes",
        BYTES,
        "memory of the device: as given by the user, else as known",
        True,
        label="memory",
        importance=3,
    ),
    col(
        "headroom_bytes",
        BYTES,
        "size_bytes - required_bytes; below 0, memory is too small",
        True,
        label="head-room",
    ),
)

MEMORY: tuple[Column, ...] = (
    _OF_DEVICE,
    col(
        "submodule",
        STRING,
        "submodule that held it; null for memory that is not known to belong to one",
        True,
        key=True,
    ),
    col("calls", INT64, "its calls with samples", importance=2),
    col(
        "peak_bytes",
        BYTES,
        "most that its own arena held; with torch's allocator, most that the device held in its "
        "calls",
        True,
        label="peak in calls",
        importance=1,
    ),
    col(
        "activation_bytes",
        BYTES,
        "most that one of its calls held in addition to its weights",
        True,
        label="activations",
    ),
    col(
        "weight_bytes",
        BYTES,
        "its weights, except those shared with an earlier submodule",
        True,
        label="weights",
        hide_if_zero=True,
    ),
    col("retained_bytes", BYTES, "its part of the device's required_bytes at the peak", True),
    col("share", SHARE, "retained_bytes / required_bytes of the device", True),
)

MEMORY_TIMELINE: tuple[Column, ...] = (
    _OF_DEVICE,
    col("time_ns", NS, "first sample of an interval, else its begin, on the run's clock"),
    col("bytes", BYTES, "most that the counters held from then to the next row"),
    col("submodule", STRING, "submodule whose call ran at that moment", True),
)


# --- Memory of devices as people give it: `16GiB`, bytes, by device; and whether a run has them.


_LARGEST = 1 << 62


def sizes_by_device(given: object) -> dict[str, int]:
    """Bytes by device, "" for all others, from a size or a mapping of devices to sizes. A size is a
    number of bytes or a text. Raises InputError if it is neither."""
    pairs: Iterable[tuple[object, object]]
    pairs = given.items() if isinstance(given, Mapping) else [("", given)]
    sizes = {}
    for device, size in pairs:
        if not isinstance(device, str):
            raise InputError(
                f"device_memory names a device {device!r}: give its name, as in 'cuda:0'"
            )
        sizes[device] = _bytes(size)
    return sizes


def _bytes(given: object) -> int:
    size = parse_size(given) if isinstance(given, str) else given
    whole = isinstance(size, Integral) and not isinstance(size, bool)
    number = int(size) if whole else 0  # type: ignore[call-overload]
    if not 0 < number < _LARGEST:
        raise InputError(
            f"device_memory {given!r} is no size: give bytes above 0, or a text such as '16GiB' or "
            "'80GB', for all devices or by device"
        )
    return number


def check_devices(sizes: Mapping[str, int], known: Iterable[str]) -> None:
    """Raises InputError if `sizes` names a device that is none of `known`."""
    names = sorted(set(known))
    if strange := next((device for device in sizes if device and device not in names), ""):
        raise InputError(
            f"memory is given for {strange}, but the run's devices are "
            f"{', '.join(names) or 'not known'}: name one of them"
        )


# --- How much memory each device needed, when, and who held it; always of the whole run.
#
# Counters say how much is in use: an arena of ONNX Runtime by one submodule, torch's allocator by
# all of a device. A counter keeps its value until its next sample. Before its first sample an arena
# is taken to have held the least it ever did (its weights are loaded before the run), torch's
# allocator what its first sample says. On CPUs torch counts changes since the pipeline started
# alone: then, and if an arena never holds as much as its submodule's weights, weights are added to
# what is needed.


_POINTS = 256  # of a device's timeline
_COUNTED = 0.9  # of a submodule's weights: an arena that always holds that much holds them


class Memory(Struct, frozen=True, eq=False):
    """The tables of memory: by device (`MEMORY_DEVICES`), by submodule that held it (`MEMORY`), and
    over time (`MEMORY_TIMELINE`)."""

    devices: pl.DataFrame
    holders: pl.DataFrame
    timeline: pl.DataFrame


def find_memory(run: Run, sizes: Mapping[str, int]) -> Memory:
    """What the counters of `run` tell; `sizes` are bytes of memory by device, "" for every
    other. Raises InputError if they name a device that the run does not have."""
    counters, placed = memory_counters(run), _placed(run)
    weights = submodule_weights(run.info.submodules)
    if any(sizes):
        ran = run.commands["device"].unique().cast(pl.String).drop_nulls()
        check_devices(sizes, {*counters, *placed, *run.info.devices, *ran})
    shown = []
    for device in sorted({*counters, *placed}):
        own, submodules = counters.get(device, []), placed.get(device, [])
        known = {name: weights.get(name) for name in submodules}
        one = _OfDevice(run, device, own, known, *summed(own))
        if own or one.weights is not None:
            shown.append(one)
    rows = [one.row(_size(run, one.device, sizes)) for one in shown]
    holders = [row for one in shown for row in one.holders()]
    course = [row for one in shown for row in one.timeline()]
    return Memory(
        pl.DataFrame(rows, schema=schema(MEMORY_DEVICES)),
        pl.DataFrame(holders, schema=schema(MEMORY)),
        pl.DataFrame(course, schema=schema(MEMORY_TIMELINE)),
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

    @property
    def weights(self) -> int | None:
        """Bytes of all weights; None if those of a submodule are not known, or there is none."""
        known = [size for size in self.submodules.values() if size is not None]
        return sum(known) if known and len(known) == len(self.submodules) else None

    @property
    def counted(self) -> bool:
        """Whether the counters count all weights."""
        return not any(self._uncounted(name) for name in self.submodules)

    @property
    def peak(self) -> tuple[int, int] | None:
        """Time and bytes of the largest sum of the counters."""
        if not len(self.times):
            return None
        row = int(np.argmax(self.values))
        return int(self.times[row]), int(self.values[row])

    def row(self, size: int | None) -> dict[str, Any]:
        """The device's row of `MEMORY_DEVICES`; `size` is its memory in bytes."""
        uncounted = sum(map(self._uncounted, self.submodules))
        needed: int | None = self.weights
        found: dict[str, Any] = {"peak_bytes": None, "peak_ns": None, "min_bytes": None}
        call: dict[str, Any] = {}
        if self.peak is not None:
            time, most = self.peak
            needed = max(most, 0) + uncounted  # changes can be below what the pipeline started with
            found = {"peak_bytes": most, "peak_ns": time, "min_bytes": int(self.values.min())}
            call = self._running(time) or {}
        return {
            "device": self.device,
            "counters": ", ".join(sorted(counter.name for counter in self.counters)),
            **found,
            **{name: call.get(name) for name in ("submodule", "stage", "step")},
            "weight_bytes": self.weights,
            "weights_counted": self.counted if self.counters else None,
            "required_bytes": needed,
            "size_bytes": size,
            "headroom_bytes": None if size is None or needed is None else size - needed,
        }

    def holders(self) -> list[dict[str, Any]]:
        """A row for each submodule, and one for memory that no submodule is known to hold."""
        time = self.peak[0] if self.peak else 0
        running = (self._running(time) or {}).get("submodule") if self.peak else None
        needed = self.row(None)["required_bytes"]
        rows = [self._holder(name, time, running) for name in self.submodules]
        rest = (needed or 0) - sum(row["retained_bytes"] or 0 for row in rows)
        if self.counters and rest < 0:  # not all weights were there; which is unknown
            for row in rows:
                if row["submodule"] != running:
                    row["retained_bytes"] = None
                elif row["retained_bytes"] is not None:  # its call started below what was first
                    row["retained_bytes"] = min(row["retained_bytes"], needed or 0)
            rest = (needed or 0) - sum(row["retained_bytes"] or 0 for row in rows)
        if self.counters and rest > 0:
            other = {"submodule": None, "calls": 0, "retained_bytes": rest}
            rows.append({"device": self.device, **other})
        for row in rows:
            held = row.get("retained_bytes")
            row["share"] = held / needed if needed and held is not None else None
        return sorted(rows, key=lambda row: -(row["retained_bytes"] or 0))

    def timeline(self) -> list[dict[str, Any]]:
        """The max in each of some equal intervals with samples, what is in use in later intervals
        without samples, and the last value."""
        if not len(self.times):
            return []
        first, span = int(self.times[0]), max(int(self.times[-1] - self.times[0]), 1)
        place = ((self.times - first) * _POINTS // (span + 1)).astype(np.int64)
        heads = np.flatnonzero(np.diff(place, prepend=-1))
        most = np.maximum.reduceat(self.values, heads)
        most[1:] = np.maximum(most[1:], self.values[heads[1:] - 1])  # held when it started
        times = self.times[heads]
        quiet = np.flatnonzero(np.diff(place) > 1)  # the last sample before an interval without
        begins = first + ((place[quiet] + 1) * (span + 1) + _POINTS - 1) // _POINTS
        if times[-1] < self.times[-1]:
            quiet, begins = np.append(quiet, -1), np.append(begins, self.times[-1])
        order = np.argsort(np.append(times, begins), kind="stable")
        times = np.append(times, begins)[order]
        most = np.append(most, self.values[quiet])[order]
        submodules = [*self.run.calls["submodule"].cast(pl.String), None]
        columns = (times.tolist(), most.tolist(), self._rows_at(times).tolist())
        return [
            {"device": self.device, "time_ns": time, "bytes": value, "submodule": submodules[row]}
            for time, value, row in zip(*columns, strict=True)
        ]

    def _counters_of(self, name: str) -> tuple[list[MemoryCounter], list[MemoryCounter]]:
        """A submodule's own counters (`vae.decoder` is a part of `vae`), and those of torch."""
        owned = [(c, c.owner.split(".", 1)[0]) for c in self.counters if c.owner is not None]
        own = [counter for counter, owner in owned if owner == name]
        return own, [c for c in self.counters if c.owner is None]

    def _holder(self, name: str, time: int, running: str | None) -> dict[str, Any]:
        (own, torch), weight = self._counters_of(name), self.submodules[name]
        calls = {*self.run.calls.filter(pl.col("submodule").cast(pl.String) == name)["call"]}
        held = sum(counter.at(time) for counter in own) + self._uncounted(name)
        if not own:
            held = weight or 0
        if not own and running == name:  # and what is beyond what was when its call began
            call = self._running(time)
            start = call["start_ns"] if call else time
            held += sum(max(c.at(time) - c.at(start), 0) for c in torch)
        return {
            "device": self.device,
            "submodule": name,
            "calls": len({call for c in own or torch for call in c.calls.tolist()} & calls),
            "peak_bytes": _peak(own or torch, None if own else calls),
            "activation_bytes": self._activations(name, own, torch, calls),
            "weight_bytes": weight,
            "retained_bytes": held if own or weight is not None or running == name else None,
        }

    def _activations(
        self, name: str, own: list[MemoryCounter], torch: list[MemoryCounter], calls: set[int]
    ) -> int | None:
        """The most that a call held beside the weights, in bytes. ONNX Runtime takes what a call
        will need before its first node ends: in an arena it is all but the weights that are counted
        there."""
        weight = self.submodules[name]
        if own and weight is not None:
            least = sum(int(counter.values.min()) for counter in own)
            more = max(int(counter.values.max() - counter.values.min()) for counter in own)
            return max(least + more - weight + self._uncounted(name), 0)
        added = [v for c in own or torch for call, v in c.added().items() if call in calls]
        return max(added, default=None)

    def _uncounted(self, name: str) -> int:
        """Bytes of a submodule's weights that no counter counts."""
        (own, torch), weight = self._counters_of(name), self.submodules.get(name) or 0
        if own:
            least = sum(int(counter.values.min()) for counter in own)
            return 0 if least >= _COUNTED * weight else weight
        return 0 if any(CHANGES not in c.name for c in torch) else weight

    def _running(self, time: int) -> dict[str, Any] | None:
        """The call that ran at a moment: on the device if there is one, the last to start."""
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
    """Return the row of the call that ran at each moment, of several the last to start; -1 for
    none. Only the calls `rows` count; calls run from `start` to `end`."""
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
    """The largest value of the counters, in some calls if they are given; None without samples."""
    values = [
        c.values if calls is None else c.values[np.isin(c.calls, sorted(calls))] for c in counters
    ]
    return max((int(some.max()) for some in values if len(some)), default=None)


def _placed(run: Run) -> dict[str, list[str]]:
    """The submodules of each device: if their calls are placed, else what the manifest says."""
    pairs = run.calls.select(pl.col("device", "submodule").cast(pl.String))
    found: dict[str, list[str]] = {}
    for device, name in pairs.unique(maintain_order=True).iter_rows():
        found.setdefault(device, []).append(name)
    called = set(pairs["submodule"])
    for name, known in run.info.submodules.items():
        if name not in called and known.device:
            found.setdefault(known.device, []).append(name)
    return found


def _size(run: Run, device: str, asked: Mapping[str, int]) -> int | None:
    """Return the memory of a device, in bytes; None if unknown."""
    if device in asked or "" in asked:
        return asked.get(device, asked.get(""))
    known = run.info.devices.get(device)
    size = known.memory_bytes if known else None
    if size is None and device_kind(device) == "cpu":
        size = run.info.hardware.memory_bytes
    return size or None


# --- The tables of memory: by device, by submodule, over time.


@shared
def _memory(of: Inputs) -> Memory:
    return find_memory(of.run, of.device_memory)


TABLES = (
    Table(
        name="memory_devices",
        row="the memory of one device",
        section="memory",
        columns=MEMORY_DEVICES,
        make=lambda of: _memory(of).devices,
        title="Peak and head-room, whole run",
        about="Rows cover the whole run. A device has a row if its counters or weights are "
        "known. [memory.md](memory.md) says where the numbers come from.",
    ),
    Table(
        name="memory",
        row="the memory of one submodule on a device",
        section="memory",
        columns=MEMORY,
        make=lambda of: _memory(of).holders,
        title="What held memory at the peak",
        about="[memory.md](memory.md) has details.",
    ),
    Table(
        name="memory_timeline",
        row="one moment on a device, and its memory from then on",
        section="memory",
        columns=MEMORY_TIMELINE,
        make=lambda of: _memory(of).timeline,
        title="Memory over time",
        about="At most 256 intervals per device, and what was held in the end.",
    ),
)


# --- What memory each device needed, when, who held it, and what is left.


_UNCOUNTED_WEIGHTS = said("required: the peak, plus weights, which the counters leave out")
_CHANGES_ALONE = said(
    "The memory that {devices} held when the recording began is unknown and not in these "
    "figures: the trace has only changes. The head-room is at most the value shown."
)
_DEVICES = (
    "device peak_bytes peak_ns submodule step min_bytes weight_bytes required_bytes",
    "size_bytes headroom_bytes counters",
)
_HOLDERS = "submodule device retained_bytes share weight_bytes activation_bytes peak_bytes calls"


def _parts(of: ReportInput) -> tuple[Part, ...]:
    """Devices with counters of memory, and who held it at the peak; why allocations are missing."""
    analysis, devices = of.analysis, of.analysis.memory_devices
    run = analysis.run
    missing = why_no_allocations(run.producer, run.recording, devices["counters"])
    why = () if missing is None else (sentence(worded_note(missing)),)
    counted = devices.drop_nulls("peak_bytes")
    if counted.is_empty():
        return (Part(notes=why, always=True),) if why else ()
    relative = devices.with_columns(pl.col("peak_ns") - of.begin_ns)
    notes = why if counted["weights_counted"].all() else (sentence(_UNCOUNTED_WEIGHTS), *why)
    holders = analysis.memory.filter(pl.col("retained_bytes").fill_null(0) > 0).with_columns(
        pl.col("submodule").fill_null("other")
    )
    return (
        Part(
            said("Peak and head-room, whole run"),
            figure=memory_figure(analysis),
            table=table("memory_devices", "memory", _DEVICES, MEMORY_DEVICES, relative, shown=20),
            notes=(*_changes_alone(counted), *notes),
        ),
        Part(
            said("What held memory at the peak"),
            table=table("memory", "holders", _HOLDERS, MEMORY, holders, shown=20),
        ),
    )


def _changes_alone(devices: pl.DataFrame) -> tuple[str, ...]:
    """That accelerators may have held more, if all that a foreign trace tells are changes: of all
    of their counters."""
    alone = [
        device
        for device, counters in devices.select("device", "counters").iter_rows()
        if is_accelerator(device.rpartition("/")[2])
        and counters
        and all(CHANGES in name for name in counters.split(", "))
    ]
    return (said(_CHANGES_ALONE.template, devices=", ".join(alone)),) if alone else ()


def memory_figure(analysis: Analysis) -> Figure:
    """Return the figure of each device's memory over the run."""
    frames = (analysis.memory_timeline, analysis.memory_devices, analysis.calls)
    groups = analysis.memory_timeline.group_by("device", maintain_order=True)
    course = tuple(Bars(str(device), rows["bytes"].to_list()) for (device,), rows in groups)
    return Figure("memory", "memory", frames, course)


SECTION = SectionKind(
    "memory",
    75,
    said("Memory"),
    _parts,
    tables=("memory_devices", "memory", "memory_timeline"),
    group=SectionGroup.DEVICE,
)


SENTENCES: Sentences = {
    NoAllocations: {
        NoAllocations.NOT_ASKED_FOR: "what torch allocates was not recorded, since nobody asked "
        "for it (5 % more time): `--memory` or memory=True records it",
        NoAllocations.NOT_IN_TRACE: "what torch allocates was not recorded: profile_memory=True "
        "records it",
    }
}
