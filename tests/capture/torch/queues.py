"""GPUs with queues, as `torch.cuda` shows them, on a clock that is moved by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from profiler.capture import FakeClock

__all__ = ["Event", "Gpus"]


@dataclass
class Event:
    """`torch.cuda.Event`, as it documents itself: times are floats of seven digits, in ms."""

    gpus: Gpus
    index: int = -1
    at_ns: int = -1

    def record(self) -> None:
        self.index = self.gpus.current
        self.at_ns = max(self.gpus.clock.now_ns(), self.gpus.busy_until_ns[self.index])
        self.gpus.clock.advance(self.gpus.record_ns)
        self.gpus.recorded.append(self)

    def query(self) -> bool:
        self.gpus.check()
        return self.gpus.clock.now_ns() >= self.at_ns

    def elapsed_time(self, end: Event) -> float:
        assert self.index == end.index
        if not (self.query() and end.query()):
            raise RuntimeError("CUDA error: device not ready")
        ms = (end.at_ns - self.at_ns) * self.gpus.rate / 1e6
        return float(np.float32(ms))


@dataclass
class _Stream:
    gpus: Gpus
    index: int

    def query(self) -> bool:
        self.gpus.check()
        return self.gpus.clock.now_ns() >= self.gpus.busy_until_ns[self.index]


@dataclass
class Gpus:
    """What of `torch.cuda` marks need. `rate` is how fast devices' clocks run beside the host's,
    `record_ns` what recording an event takes the host. Nothing can be asked while a graph is
    captured, nor of devices that have `failed`."""

    clock: FakeClock
    rate: float = 1.0
    record_ns: int = 0
    started: bool = True
    capturing: bool = False
    failed: bool = False
    current: int = 0
    busy_until_ns: Counter[int] = field(default_factory=Counter)
    recorded: list[Event] = field(default_factory=list)

    def launch(self, duration_ns: int, index: int = 0) -> None:
        """Give a device work, at no cost to the host."""
        free = max(self.clock.now_ns(), self.busy_until_ns[index])
        self.busy_until_ns[index] = free + duration_ns

    def synchronize(self) -> None:
        """The host waits for all of it."""
        last = max(self.busy_until_ns.values(), default=0)
        self.clock.advance(max(last - self.clock.now_ns(), 0))

    def check(self) -> None:
        if self.capturing:
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
        if self.failed:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    def is_initialized(self) -> bool:
        return self.started

    def is_current_stream_capturing(self) -> bool:
        return self.capturing

    def current_stream(self) -> _Stream:
        return _Stream(self, self.current)

    @contextmanager
    def device(self, index: int) -> Iterator[None]:
        before, self.current = self.current, index
        yield
        self.current = before

    def Event(self, *, enable_timing: bool) -> Event:  # noqa: N802 - torch's name
        assert enable_timing
        return Event(self)
