"""profile-sd3: profile inference pipelines submodule by submodule, and analyze what they did.

    import profiler
    run = profiler.load("traces/")
    run.to_pandas().groupby("layer").duration_ns.sum()
    profiler.analyze(run).to_pandas("roles")

Everything here is imported on first use, so that `import profiler` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from profiler.table.annotation import annotate_with
from profiler.table.drawing import draw_with, show_with

if TYPE_CHECKING:
    import polars as pl

    from profiler._version import __version__
    from profiler.analysis.result import Analysis
    from profiler.capture.named_submodules import submodule
    from profiler.capture.pipelines.user_labels import step
    from profiler.capture.profile import profile
    from profiler.capture.startup import done, start
    from profiler.errors import ProfilerError
    from profiler.sources.analyze import analyze
    from profiler.sources.load import load
    from profiler.table.run import Run

__all__ = [
    "Analysis",
    "ProfilerError",
    "Run",
    "__version__",
    "analyze",
    "done",
    "load",
    "profile",
    "start",
    "step",
    "submodule",
]

_HOME = {
    "Analysis": "profiler.analysis.result",
    "ProfilerError": "profiler.errors",
    "Run": "profiler.table.run",
    "__version__": "profiler._version",
    "analyze": "profiler.sources.analyze",
    "done": "profiler.capture.startup",
    "load": "profiler.sources.load",
    "profile": "profiler.capture.profile",
    "start": "profiler.capture.startup",
    "step": "profiler.capture.pipelines.user_labels",
    "submodule": "profiler.capture.named_submodules",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'profiler' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__


def _shown(of: Run | Analysis) -> str:
    from profiler.report.notebook import as_html

    return as_html(of)


def _annotated(run: Run) -> pl.DataFrame:
    from profiler.analysis.annotation import annotated_commands

    return annotated_commands(run)


def _drawn(analysis: Analysis, name: str, **options: Any) -> Any:
    from profiler.report.figures import figure

    return figure(analysis, name, **options)


annotate_with(_annotated)
draw_with(_drawn)
show_with(_shown)
