"""torch's profiler as we use it, and the flag by which torch knows that one is running."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = [
    "accelerator",
    "allocated",
    "is_ours",
    "is_profiling",
    "new_profiler",
    "quiet",
    "say_running",
    "started",
]

_OURS = 1  # torch's flag while our session runs; a profiler of the script's sets it to True
_LOG_LEVEL, _QUIET = "KINETO_LOG_LEVEL", "6"


def is_ours() -> bool:
    """Whether what torch is recording now is our session."""
    import torch.autograd.profiler as torch_profiler

    return torch_profiler._is_profiler_enabled is _OURS  # noqa: SLF001


def say_running(*, ours: bool) -> None:
    """Have torch's flag say that our session is running, or that no profiler is."""
    import torch.autograd.profiler as torch_profiler

    torch_profiler._is_profiler_enabled = _OURS if ours else False  # noqa: SLF001


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
