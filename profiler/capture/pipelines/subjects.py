"""What `profiler.profile` is given, as what can be attached: pipelines, and modules together.

subjects(pipe)                      # the pipeline
subjects([base, refiner])           # two pipelines
subjects({"unet": unet, "scheduler": scheduler})    # two objects under these names
subjects(generate)                  # what a function refers to
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator, Mapping
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from profiler.capture.pipelines.components import (
    Together,
    is_executed,
    is_scheduler,
    schedulers,
)
from profiler.capture.pipelines.submodules import entries, present_entries

__all__ = ["subjects"]

_FUNCTIONS = (FunctionType, MethodType, BuiltinFunctionType, functools.partial)


def subjects(given: Any) -> list[Any]:
    """The pipelines that `given` stands for, with all modules that belong to none as one. Raises
    InputError where it has nothing that executes anything."""
    pipelines: list[Any] = []
    together = Together()
    for name, value in _named(given):
        if is_scheduler(value) or (is_executed(value) and not schedulers(value)):
            together.add(name or type(value).__name__, value)
        elif not any(value is known for known in pipelines) and (not name or _is_pipeline(value)):
            pipelines.append(value)
    if any(is_executed(value) for value in together.alive().values()):
        pipelines.append(together)
    for pipeline in pipelines or [given]:
        entries(pipeline)
    return pipelines


def _is_pipeline(value: Any) -> bool:
    return not isinstance(value, (type, ModuleType, *_FUNCTIONS)) and bool(present_entries(value))


def _named(given: Any) -> Iterator[tuple[str, Any]]:
    """The objects that were given, with their names; "" for one that needs none."""
    if isinstance(given, Mapping):
        yield from ((str(name), value) for name, value in given.items())
    elif isinstance(given, (list, tuple, set)):
        yield from (pair for value in given for pair in _named(value))
    elif isinstance(given, functools.partial):
        yield from _named(given.func)
        yield from _named([*given.args])
        yield from given.keywords.items()
    elif isinstance(given, MethodType):
        yield from _named(given.__self__)
        yield from _of_function(given.__func__)
    elif isinstance(given, FunctionType):
        yield from _of_function(given)
    else:
        yield "", given


def _of_function(function: Any) -> Iterator[tuple[str, Any]]:
    """What a function refers to, by the names that it has there."""
    try:
        found = inspect.getclosurevars(inspect.unwrap(function))
    except (TypeError, ValueError):
        return
    yield from {**found.globals, **found.nonlocals}.items()
