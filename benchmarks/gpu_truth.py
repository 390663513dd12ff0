"""What calls of submodules really take on a GPU: CUDA events around each, without any profiler.

An event is a mark in the stream of a call: its time is when the device came to it. From the mark
before a call to the mark behind it is what profile-sd3 calls the call's elapsed time. On a
processor (for trying a script) the clock of the host stands in for events.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

__all__ = ["Timed", "synchronize"]


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


class _HostMark:
    """Stands for a CUDA event where there is no GPU."""

    def __init__(self) -> None:
        self.at = 0.0

    def record(self) -> None:
        self.at = time.perf_counter() * 1e3

    def elapsed_time(self, later: _HostMark) -> float:
        return later.at - self.at


def _mark() -> Any:
    mark = torch.cuda.Event(enable_timing=True) if torch.cuda.is_available() else _HostMark()
    mark.record()
    return mark


class Timed:
    """Wraps what a pipeline calls its submodules by, and notes marks while it is on.

    `through` stands between (a CUDA graph of the call); `undo` puts all back.
    """

    def __init__(self, pipeline: Any, through: Callable[[Any], Any] = lambda call: call) -> None:
        self.calls: list[tuple[str, Any, Any, int, int]] = []
        self.on = False
        self._own: list[tuple[Any, str]] = []
        for name, module in pipeline.components.items():
            if name.startswith(("text_encoder", "transformer")) and module is not None:
                self._wrap(name, module, "forward", through)
            if name == "vae":
                self._wrap(name, module, "decode", through)

    def _wrap(self, name: str, module: Any, method: str, through: Callable[[Any], Any]) -> None:
        setattr(module, method, self._timed(name, through(getattr(module, method))))
        self._own.append((module, method))

    def undo(self) -> None:
        for module, method in self._own:
            delattr(module, method)

    def _timed(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            if not self.on:
                return call(*args, **kwargs)
            begun, begin = time.perf_counter_ns(), _mark()
            result = call(*args, **kwargs)
            self.calls.append((name, begin, _mark(), begun, time.perf_counter_ns()))
            return result

        return timed

    @contextmanager
    def noting(self) -> Iterator[None]:
        self.on, self.calls = True, []
        try:
            yield
        finally:
            self.on = False

    def measured(self, call: Callable[[], Any]) -> dict[str, Any]:
        """One call: its wall time until the device is done, and where its submodules' calls lie.

        Times are in ms: `begin` and `end` of a call on the device, from the mark ahead of the
        pipeline call; `asked` and `returned` on the host, from the same moment.
        """
        synchronize()
        with self.noting():
            start = time.perf_counter_ns()
            first = _mark()
            call()
            last = _mark()
            returned = time.perf_counter_ns()
            synchronize()
            wall = time.perf_counter_ns() - start
        return {
            "wall_ms": wall / 1e6,
            "returned_ms": (returned - start) / 1e6,
            "device_ms": first.elapsed_time(last),
            "calls": [
                {
                    "name": name,
                    "begin": round(first.elapsed_time(begin), 4),
                    "end": round(first.elapsed_time(end), 4),
                    "asked": (begun - start) / 1e6,
                    "returned": (done - start) / 1e6,
                }
                for name, begin, end, begun, done in self.calls
            ],
        }
