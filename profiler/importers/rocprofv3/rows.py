"""rocprofv3 data in a common form: processes, GPU agents, dispatches, copies, times.

Devices are GPU numbers, `HOST` for the host. All forms (JSON, CSV, rocpd) give the same run.
Agent ids differ between them, so a device's number is its position among the GPUs.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from profiler.importers.foreign_run import drops_of
from profiler.importers.gpu_calls import (
    KINDS,
    NO_TIME,
    Api,
    Marks,
    MarkTexts,
    Names,
    Work,
    global_ids,
)
from profiler.importers.gpu_run import Devices, Machine, Recorded
from profiler.trace.columns import Counter, Int32s, Int64s, distinct
from profiler.trace.events import ROOT_DEVICE, UNKNOWN, Drop, DropKind, DropReason
from profiler.trace.manifest_fields import ClockName, Device, quantity

# --- The content of a run's files, collected process by process and form by form, in their times.
#
# Devices are numbers of GPUs, `HOST` for the host. Forms differ in layout, not in content, so a run
# is the same from each of them.


Float64s = npt.NDArray[np.float64]
NO_ID, HOST = -1, -1
_COPY = re.compile("(HOST|DEVICE)_TO_(HOST|DEVICE)")
_WAIT = re.compile(r"synchronize|^hsa_(?:amd_)?signal_wait", re.IGNORECASE)


@dataclass(frozen=True, slots=True, eq=False)
class Times:
    """Start, end, process and correlation id of n rows, int64 [n] each."""

    start: Int64s
    end: Int64s
    pid: Int64s
    correlation: Int64s

    @property
    def begun(self) -> Int64s:
        """The starts; `NO_TIME` if before the clock's own start."""
        return np.where(self.start < 0, NO_TIME, self.start)


class Rows:
    """Collects rows of all forms. Texts are given once each, with the index of each row's text."""

    def __init__(self) -> None:
        self.devices: dict[int, Device] = {}
        self.drops: list[Drop] = []
        self._work_names, self._api_names = Names(), Names()
        self._work: list[Work] = []
        self._api: list[Api] = []
        self._marks: list[tuple[Times, Int64s, list[str]]] = []
        self._samples: list[tuple[Int64s, Int64s, list[str], Int64s, Float64s]] = []
        self._dispatches: list[tuple[Int64s, Int64s]] = []
        nothing: Int64s = np.zeros(0, dtype=np.int64)
        times = Times(nothing, nothing, nothing, nothing)
        self.add_kernels(times, nothing, nothing, [], nothing)
        self.add_api(times, nothing, [], nothing)
        self.add_marks(times, nothing, [])

    def add_kernels(
        self,
        times: Times,
        device: Int64s,
        queue: Int64s,
        names: Sequence[str],
        place: Int64s,
        grid: Sequence[Int64s] = (),
    ) -> None:
        """Add dispatches; `queue` is the device's, `grid` the size of each by axis."""
        name = self._work_names.by_size(self._work_names.of(names, place), *grid)
        size = np.full(len(name), NO_ID, dtype=np.int64)
        self._work.append(_work("kernel", times, name, device, queue, size))

    def add_copies(
        self, times: Times, device: Int64s, size: Int64s, names: Sequence[str], place: Int64s
    ) -> None:
        """Add copies; `names` are the recorder's names of directions, `size` is -1 if not
        recorded."""
        ends = [_COPY.search(text) for text in names]  # `MEMORY_COPY_HOST_TO_DEVICE`
        texts = [f"Memcpy {end[1][0]}to{end[2][0]}" if end else "Memcpy" for end in ends]
        name = self._work_names.of(texts, place)
        queue = np.full(len(name), NO_ID, dtype=np.int64)
        self._work.append(_work("gpu_memcpy", times, name, device, queue, size))

    def add_api(self, times: Times, tid: Int64s, names: Sequence[str], place: Int64s) -> None:
        """Add runtime calls."""
        waits = np.array([bool(_WAIT.search(text)) for text in names], dtype=np.bool_)
        self._api.append(
            Api(
                name=self._api_names.of(names, place),
                start=times.begun,
                end=times.end,
                thread=global_ids(times.pid, tid),
                pid=times.pid,
                correlation=times.correlation,
                waits=waits[place],
            )
        )

    def add_marks(self, times: Times, tid: Int64s, texts: list[str]) -> None:
        """Add roctx marks; a mark without duration is not a range."""
        self._marks.append((times, global_ids(times.pid, tid), texts))

    def add_samples(
        self, time: Int64s, device: Int64s, names: list[str], place: Int64s, value: Float64s
    ) -> None:
        """Add values of hardware counters, each of one dispatch, at its start."""
        self._samples.append((time, device, names, place, value))

    def add_dispatches(self, pid: Int64s, number: Int64s) -> None:
        """Add the numbers of dispatches, which count up by one in each process."""
        self._dispatches.append((pid, number))

    def _lost_dispatches(self) -> tuple[int, int]:
        """How many dispatch numbers are missing between the first and the last of each process, and
        of how many."""
        lost = total = 0
        pids, numbers = (np.concatenate(each) for each in zip(*self._dispatches, strict=True))
        for pid in np.unique(pids).tolist():
            own = np.sort(numbers[(pids == pid) & (numbers > 0)])
            different = int(np.count_nonzero(np.diff(own))) + 1
            if different > 1:
                between = int(own[-1] - own[0]) + 1
                lost, total = lost + between - different, total + between
        return lost, total

    def recorded(self, given: Collection[str]) -> Recorded:
        """All rows. `given` are the texts of ranges that are calls."""
        return Recorded(
            work=Work.joined(self._work, self._work_names),
            api=Api.joined(self._api, self._api_names),
            marks=self._joined_marks(given),
            drops=tuple(self.drops),
            lost_dispatches=self._lost_dispatches() if self._dispatches else (0, 0),
        )

    def drop(self, count: int, unit: str, reason: DropReason, where: str) -> None:
        """Report events that are not read."""
        self.drops += drops_of(DropKind.DROPPED_EVENTS, count, unit, reason, where)

    def cut(self, where: str) -> None:
        """Report that a file is cut."""
        cut, reason = DropKind.TRUNCATED_FILE, DropReason.ENTRIES_CUT
        self.drops += drops_of(cut, UNKNOWN, "events", reason, where)

    def machine(self, work: Work) -> Machine:
        """The devices of `work`, whose times are valid; no form has wall time."""
        numbers, place = np.unique(work.device, return_inverse=True)
        names = tuple(_device(number) for number in numbers.tolist())
        known = {_device(number): device for number, device in self.devices.items()}
        base = max(-work.first_ns(), 0)
        return Machine(
            base_ns=base,
            clock=ClockName.BOOTTIME,
            placed=Devices(place.reshape(-1), names),
            devices={name: known.get(name, Device()) for name in names if name != ROOT_DEVICE},
            counters=tuple(self._counters(base)),
            hardware=", ".join(sorted({one.hardware for one in self.devices.values()} - {""})),
        )

    def _joined_marks(self, given: Collection[str]) -> Marks:
        start = np.concatenate([times.begun for times, _, _ in self._marks])
        end = np.concatenate([times.end for times, _, _ in self._marks])
        thread = np.concatenate([thread for _, thread, _ in self._marks])
        texts = [text for _, _, some in self._marks for text in some]
        kept = np.flatnonzero((end > start) & (start >= 0))
        known = MarkTexts()
        numbers = known.of([texts[row] for row in kept.tolist()])
        times = start[kept], end[kept], thread[kept]
        return Marks.of(*times, *numbers, known, given, int((end < start).sum()))

    def _counters(self, base_ns: int) -> Iterator[Counter]:
        """A counter for each name on each device; instances of one dispatch are summed."""
        found: dict[tuple[int, str], list[tuple[Int64s, Float64s]]] = {}
        for time, device, names, place, value in self._samples:
            pairs, pair = distinct(device, place)
            for number, (where, code) in enumerate(pairs):
                rows = pair == number
                found.setdefault((where, names[code]), []).append((time[rows], value[rows]))
        for (where, name), parts in sorted(found.items()):
            times, place = np.unique(np.concatenate([one for one, _ in parts]), return_inverse=True)
            values = np.concatenate([one for _, one in parts])
            summed = np.bincount(place.reshape(-1), weights=values, minlength=len(times))
            yield Counter(_device(where), name, "count", times + base_ns, summed)


def _work(
    kind: str, times: Times, name: Int32s, device: Int64s, queue: Int64s, size: Int64s
) -> Work:
    return Work(
        kind=np.full(len(name), KINDS.index(kind), dtype=np.int64),
        name=name,
        start=times.begun,
        end=times.end,
        device=device,
        stream=queue,
        pid=times.pid,
        correlation=times.correlation,
        bytes=size,
        lane="queue",
    )


def _device(number: int) -> str:
    return ROOT_DEVICE if number == HOST else f"rocm:{number}"


# --- Agents of a machine: which are GPUs, their numbers and names.
#
# Ids differ between forms: handles in JSON, node numbers or `Agent 4` in CSV, `GPU 2` if GPUs were
# counted alone, rows in rocpd. The number of a device is its place among the GPUs.


_LONGEST = 200  # characters of a name
_NAMED = re.compile(r"(?:(Agent|GPU|CPU)[ -]?)?(\d{1,18})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Agent:
    """One agent; `number` is the GPU's, sizes are 0 if not known."""

    id: int
    gpu: bool
    number: int
    name: str = ""
    memory_bytes: int = 0
    compute_units: int = 0

    def device(self) -> Device:
        """Its entry in the manifest."""
        return Device(
            hardware=self.name[:_LONGEST],
            memory_bytes=quantity(self.memory_bytes) if self.memory_bytes > 0 else None,
            compute_units=quantity(self.compute_units) if self.compute_units > 0 else None,
        )


_MOST_DEVICES = 1 << 31


@dataclass(slots=True)
class Agents:
    """The agents of one process by id. If none is known, ids are device numbers. An unknown agent
    among known ones gets a number after theirs."""

    known: dict[int, Agent] = field(default_factory=dict)
    _others: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, agents: Iterable[Agent]) -> Agents:
        sound = (one for one in agents if not one.gpu or abs(one.number) < _MOST_DEVICES)
        return cls({agent.id: agent for agent in sound})

    def devices(self) -> dict[int, Device]:
        """The GPUs by number."""
        return {one.number: one.device() for one in self.known.values() if one.gpu}

    def numbers(self, ids: Int64s) -> Int64s:
        """The device number of each id; `HOST` for the host's agents."""
        found, place = np.unique(ids, return_inverse=True)
        numbers = np.array([self._number(one) for one in found.tolist()], dtype=np.int64)
        return numbers[place.reshape(-1)] if len(ids) else ids

    def of_kernels(self, ids: Int64s) -> Int64s:
        """The device number of each dispatch's agent id, never `HOST`."""
        numbers = self.numbers(ids)
        return np.where(numbers == HOST, self._unknown(HOST), numbers)

    def either(self, first: Int64s, second: Int64s) -> Int64s:
        """The device number of the GPU among two agents, the first if both are; `HOST` if none
        is."""
        numbers = self.numbers(first)
        return np.where(numbers == HOST, self.numbers(second), numbers)

    def named(self, texts: Iterable[str]) -> Int64s:
        """The device number of each agent name, as CSV writes it."""
        return np.array([self._of_text(text) for text in texts], dtype=np.int64)

    def _of_text(self, text: str) -> int:
        found = _NAMED.fullmatch(text.strip())
        if found is None:
            return HOST
        kind, number = (found[1] or "").lower(), int(found[2])
        if kind == "gpu":
            return number
        return HOST if kind == "cpu" else self._number(number)

    def _number(self, one: int) -> int:
        if one < 0:
            return HOST
        if not self.known:
            return one
        if one in self.known:
            return self.known[one].number if self.known[one].gpu else HOST
        return self._unknown(one)

    def _unknown(self, one: int) -> int:
        numbers = (agent.number for agent in self.known.values())
        after = 1 + max((one for one in numbers if abs(one) < _MOST_DEVICES), default=-1)
        return self._others.setdefault(one, after + len(self._others))
