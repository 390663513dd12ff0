"""GPUs with queues, as `torch.cuda` shows them, on a clock that is moved by hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from profiler.testing import FakeClock

__all__ = ["Event", "Gpus"]


@dataclass
class Event:
    """`torch.cuda.Event`, as it documents itself: times are floats of seven digits, in ms."""

    gpus: Gpus
    at_ns: int = -1

    def record(self) -> None:
        self.at_ns = max(self.gpus.clock.now_ns(), self.gpus.busy_until_ns)
        self.gpus.recorded.append(self)

    def query(self) -> bool:
        return self.gpus.clock.now_ns() >= self.at_ns

    def synchronize(self) -> None:
        if self.gpus.failed:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        self.gpus.waits += not self.query()
        self.gpus.clock.advance(max(self.at_ns - self.gpus.clock.now_ns(), 0))

    def elapsed_time(self, end: Event) -> float:
        assert self.query()
        assert end.query()
        ms = (end.at_ns - self.at_ns) * self.gpus.rate / 1e6
        return float(np.float32(ms))


@dataclass
class _Stream:
    gpus: Gpus

    def query(self) -> bool:
        return self.gpus.clock.now_ns() >= self.gpus.busy_until_ns


@dataclass
class Gpus:
    """What of `torch.cuda` marks need. `rate` is how fast the device's clock runs beside the
    host's; `waits` counts how often the host waited for it."""

    clock: FakeClock
    rate: float = 1.0
    started: bool = True
    capturing: bool = False
    failed: bool = False
    busy_until_ns: int = 0
    waits: int = 0
    recorded: list[Event] = field(default_factory=list)

    def launch(self, duration_ns: int) -> None:
        """Give the device work, at no cost to the host."""
        self.busy_until_ns = max(self.clock.now_ns(), self.busy_until_ns) + duration_ns

    def synchronize(self) -> None:
        """The host waits for all of it."""
        self.clock.advance(max(self.busy_until_ns - self.clock.now_ns(), 0))

    def is_initialized(self) -> bool:
        return self.started

    def is_current_stream_capturing(self) -> bool:
        return self.capturing

    def current_stream(self) -> _Stream:
        return _Stream(self)

    @contextmanager
    def device(self, index: int) -> Iterator[None]:
        assert index == 0
        yield

    def Event(self, *, enable_timing: bool) -> Event:  # noqa: N802 - torch's name
        assert enable_timing
        return Event(self)
