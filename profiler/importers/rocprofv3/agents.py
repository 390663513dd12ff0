"""Agents of a machine: which are GPUs, which of these each is, what it is called.

Ids differ between forms: handles in JSON, node numbers or `Agent 4` in CSV, `GPU 2` where GPUs were
counted alone, rows in rocpd. The number of a device is its place among the GPUs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from profiler.importers.rocprofv3.rows import HOST
from profiler.trace.columns import Int64s
from profiler.trace.manifest_fields import Device, quantity

__all__ = ["Agent", "Agents"]

_LONGEST = 200  # characters of a name
_NAMED = re.compile(r"(?:(Agent|GPU|CPU)[ -]?)?(\d{1,18})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Agent:
    """`number` counts the GPUs; sizes are 0 where they are not told."""

    id: int
    gpu: bool
    number: int
    name: str = ""
    memory_bytes: int = 0
    compute_units: int = 0

    def device(self) -> Device:
        """What a manifest says of it."""
        return Device(
            hardware=self.name[:_LONGEST],
            memory_bytes=quantity(self.memory_bytes) if self.memory_bytes > 0 else None,
            compute_units=quantity(self.compute_units) if self.compute_units > 0 else None,
        )


@dataclass(slots=True)
class Agents:
    """The agents of one process by their id. Where none is known ids are numbers of devices; an
    unknown one among known ones gets a number of its own behind theirs."""

    known: dict[int, Agent] = field(default_factory=dict)
    _others: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, agents: Iterable[Agent]) -> Agents:
        return cls({agent.id: agent for agent in agents})

    def devices(self) -> dict[int, Device]:
        """The GPUs by number."""
        return {one.number: one.device() for one in self.known.values() if one.gpu}

    def numbers(self, ids: Int64s) -> Int64s:
        """The number of the device of each id; `HOST` for those of the host."""
        found, place = np.unique(ids, return_inverse=True)
        numbers = np.array([self._number(one) for one in found.tolist()], dtype=np.int64)
        return numbers[place.reshape(-1)] if len(ids) else ids

    def of_kernels(self, ids: Int64s) -> Int64s:
        """The same for dispatches, none of which runs on the host."""
        numbers = self.numbers(ids)
        return np.where(numbers == HOST, self._unknown(HOST), numbers)

    def either(self, first: Int64s, second: Int64s) -> Int64s:
        """The number of the GPU of two, of the first where both are one; `HOST` without any."""
        numbers = self.numbers(first)
        return np.where(numbers == HOST, self.numbers(second), numbers)

    def named(self, texts: Iterable[str]) -> Int64s:
        """The number of the device that each text names, as CSV does."""
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
        after = 1 + max((agent.number for agent in self.known.values()), default=-1)
        return self._others.setdefault(one, after + len(self._others))
