"""Options of a pipeline's submodule: ours, and beside them what the pipeline itself configures.

What a backend finds configured (`Backend.configured`) is honoured as if it had been given to us.
What was given to us wins.
"""

from __future__ import annotations

from typing import Any

from profiler.capture.options import Options
from profiler.capture.pipelines.submodules import Entry
from profiler.capture.registry import configured

__all__ = ["options_for"]


def options_for(pipeline: Any, entry: Entry, options: Options) -> Options:
    """`options` with what `pipeline` configures now of the submodule of `entry`."""
    own = configured(pipeline, entry.submodule, entry.part)
    return options.beside(entry.submodule, own)
