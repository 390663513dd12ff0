"""The trace format: codec, bundle, manifest. Its loops are compiled: `_core`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from profiler.errors import ProfilerError


def __getattr__(name: str) -> Any:
    """The compiled core, or what to do if there is none: a clone's folder as it is has none."""
    if name != "_core":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return import_module(f"{__name__}._core")
    except ImportError as error:
        raise ProfilerError(
            f"the compiled core of profile-sd3 cannot be loaded ({error}): what is imported is the "
            f"source in {__path__[0]}; install it (`pip install .` there) and start Python in "
            "another folder, or install it with `pip install -e .`"
        ) from error
