"""Marks in the streams of GPUs: CUDA events, of AMD's by that name too.

`torch.cuda.Event`: https://docs.pytorch.org/docs/stable/generated/torch.cuda.Event.html; times lie
0.5 µs apart (`cudaEventElapsedTime`), and are told in ms as a float of seven digits.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from profiler.capture.device_times import Mark

__all__ = ["EventMark", "StreamMarks"]

_KIND = "cuda"


@dataclass(frozen=True, slots=True)
class EventMark:
    """A `torch.cuda.Event` that was recorded in a stream."""

    event: Any

    def passed(self) -> bool:
        """Whether all ahead of it is done."""
        return bool(self.event.query())

    def since_ns(self, earlier: Mark) -> int:
        """How long after another event of its device."""
        if not isinstance(earlier, EventMark):
            raise TypeError("a mark of another kind")
        return round(float(earlier.event.elapsed_time(self.event)) * 1e6)


class StreamMarks:
    """Puts marks into this thread's current stream of a GPU, `cuda` being `torch.cuda`. It is not
    used before CUDA has been started, and not while it is captured as a graph: an event would
    become a part of that, and asking for one would spoil it."""

    def __init__(self, cuda: Any = None) -> None:
        self._cuda = cuda

    def ready(self, device: str) -> bool:
        """Whether the device is a GPU whose stream is not being captured."""
        kind, _, index = device.partition(":")
        if kind != _KIND or not index.isdecimal():
            return False
        if self._cuda is None:
            self._cuda = getattr(sys.modules.get("torch"), "cuda", None)
        if self._cuda is None or not self._cuda.is_initialized():
            return False
        with self._cuda.device(int(index)):
            return not self._cuda.is_current_stream_capturing()

    def mark(self, device: str) -> EventMark:
        """An event behind all that has been launched on the stream."""
        event = self._cuda.Event(enable_timing=True)
        with self._cuda.device(_index(device)):
            event.record()
        return EventMark(event)

    def empty(self, device: str) -> bool:
        """Whether the stream has nothing to do."""
        with self._cuda.device(_index(device)):
            return bool(self._cuda.current_stream().query())


def _index(device: str) -> int:
    return int(device.partition(":")[2])
