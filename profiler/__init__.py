"""profile-sd3: profile inference pipelines submodule by submodule, and analyze what they did.

    import profiler
    run = profiler.load("traces/")
    run.to_pandas().groupby("layer").duration_ns.sum()
    profiler.analyze(run).to_pandas("roles")

Everything here is imported on first use, so that `import profiler` costs next to nothing.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

    from profiler.analysis.result import Analysis
    from profiler.capture.calls import step
    from profiler.capture.profile import profile, submodule
    from profiler.capture.startup import done, start
    from profiler.errors import ProfilerError
    from profiler.importers.importing import import_trace
    from profiler.run.run import Run
    from profiler.tools.sources import analyze, diff, load, predict
    from profiler.trace import __version__

__all__ = [
    "Analysis",
    "ProfilerError",
    "Run",
    "__version__",
    "analyze",
    "diff",
    "done",
    "import_trace",
    "load",
    "predict",
    "profile",
    "start",
    "step",
    "submodule",
]


_HOME = {
    "Analysis": "profiler.analysis.result",
    "ProfilerError": "profiler.errors",
    "Run": "profiler.run.run",
    "__version__": "profiler.trace",
    "analyze": "profiler.tools.sources",
    "diff": "profiler.tools.sources",
    "done": "profiler.capture.startup",
    "import_trace": "profiler.importers.importing",
    "load": "profiler.tools.sources",
    "load_ipython_extension": "profiler.tools.notebook",  # `%load_ext profiler`
    "predict": "profiler.tools.sources",
    "profile": "profiler.capture.profile",
    "start": "profiler.capture.startup",
    "step": "profiler.capture.calls",
    "submodule": "profiler.capture.profile",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'profiler' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__


class _MovedModules:
    """Finds modules under their former names; the last finder to be asked."""

    @staticmethod
    def find_spec(name: str, *_: object) -> ModuleSpec | None:
        if not name.startswith("profiler."):
            return None
        from profiler.plugins import moved_module

        return moved_module(name)


sys.meta_path.append(_MovedModules)
