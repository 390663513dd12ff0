"""torch's profiler as we use it, and the flag by which torch knows that one is running."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

__all__ = [
    "accelerator",
    "allocated",
    "is_ours",
    "is_profiling",
    "leave",
    "new_profiler",
    "quiet",
    "running_session",
    "say_running",
    "started",
    "strand",
]


@dataclass(slots=True)
class _Running:
    """Which of our sessions was started last, counted from 1."""

    session: int = 0


_RUNNING = _Running()
_OURS = 1  # torch's flag while our session runs; a profiler of the script's sets it to True
_LOG_LEVEL, _QUIET = "KINETO_LOG_LEVEL", "6"


def is_ours() -> bool:
    """Whether what torch is recording now is our session."""
    import torch.autograd.profiler as torch_profiler

    return torch_profiler._is_profiler_enabled is _OURS  # noqa: SLF001


def say_running(*, ours: bool) -> None:
    """Have torch's flag say that our session is running, a new one, or that no profiler is."""
    import torch.autograd.profiler as torch_profiler

    if ours:
        _RUNNING.session += 1
    torch_profiler._is_profiler_enabled = _OURS if ours else False  # noqa: SLF001


def running_session() -> int:
    """The number of our session, where it is what torch is recording now; else 0."""
    return _RUNNING.session if is_ours() else 0


def leave(opened: Any, session: int) -> None:
    """Leave a range of torch that was entered in our `session`. Where it was entered while nothing
    was recorded, and something is now, torch raises (2.13).

    Where another profiler has been started since, torch has freed that session, and what it notes
    at the end of a range, with no question asked, would be written into memory of something else:
    such a range is never left, nor destroyed, which would leave it.
    """
    if is_profiling() and running_session() != session:
        strand(opened)
        return
    with suppress(RuntimeError):
        opened.__exit__(None, None, None)


def strand(opened: Any) -> None:
    """Keep a range for ever."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(opened))


def is_profiling() -> bool:
    """Whether any profiler of torch is running."""
    import torch.autograd.profiler as torch_profiler

    return bool(torch_profiler._is_profiler_enabled)  # noqa: SLF001 - there is no public question


def accelerator() -> str | None:
    """torch's name of the accelerator whose work a session records, None without one."""
    import torch

    return next((kind for kind in ("cuda", "xpu") if getattr(torch, kind).is_available()), None)


def new_profiler(*, all_threads: bool = False, memory: bool = False) -> Any:
    """torch.autograd's profiler. torch.profiler's, which wraps it, imports torch's compiler when
    it starts: 800 modules, 2 s. With `memory` it tells of allocations, which costs 5 %."""
    from torch._C._profiler import _ExperimentalConfig
    from torch.autograd.profiler import profile

    return profile(
        use_device=accelerator(),
        use_kineto=True,
        record_shapes=True,
        profile_memory=memory,
        experimental_config=_ExperimentalConfig(profile_all_threads=all_threads),
    )


def started(profiler: Any) -> bool:
    """Start a profiler, quietly. False where this thread has one that torch's flag does not tell
    of, as torch says then."""
    try:
        with quiet():
            profiler.__enter__()
    except RuntimeError:
        say_running(ours=False)
        return False
    return True


@contextmanager
def quiet() -> Iterator[None]:
    """Kineto prints two lines a session in torch 2.13, unless told not to before its first."""
    if _LOG_LEVEL in os.environ:
        yield
        return
    os.environ[_LOG_LEVEL] = _QUIET
    try:
        yield
    finally:
        del os.environ[_LOG_LEVEL]


def allocated() -> dict[str, int]:
    """What torch's allocators hold on CUDA devices now, bytes by device."""
    import torch

    if not torch.cuda.is_available():
        return {}
    return {f"cuda:{i}": torch.cuda.memory_allocated(i) for i in range(torch.cuda.device_count())}
