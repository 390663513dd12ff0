"""RBLN: submodules of optimum-rbln, whose runtimes are called through proxies, and runtimes that a
script calls by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from profiler.capture.backend import Backend, Watcher, Watching
from profiler.capture.rbln.configuration import (
    configuration_of,
    device_number,
    own_configuration,
)
from profiler.capture.rbln.runtimes import DEVICE_KIND, rbln_device, slots_of
from profiler.capture.rbln.script_runtimes import CALLS, ScriptRuntimes, is_runtime

if TYPE_CHECKING:
    from profiler.capture.operator_source import OperatorSource, SourceRequest

__all__ = ["BACKEND", "Rbln"]


class Rbln(Backend):
    """A part keeps runtimes or is one, or its submodule has an `rbln_config`."""

    name = "rbln"
    packages = ("optimum-rbln", "rebel-compiler")
    order = 2

    def owns(self, part: Any, owner: Any = None) -> bool:
        known = configuration_of(owner) is not None or bool(slots_of(part))
        return known or is_runtime(part)

    def entry_points(self, part: Any) -> tuple[str, ...]:
        if not is_runtime(part):
            return super().entry_points(part)
        return tuple(name for name in CALLS if callable(getattr(part, name, None)))

    def open(self, request: SourceRequest) -> OperatorSource | None:
        """None where the part's runtimes are elsewhere. Calls of runtimes that are not to be traced
        are numbered all the same, for the files of the others to be named."""
        from profiler.capture.rbln.operators import RblnRuntimes

        return RblnRuntimes.of(request)

    def device(self, part: Any, owner: Any, name: str) -> str:
        if is_runtime(part):
            return f"{DEVICE_KIND}:{device_number(getattr(part, 'device', None)) or 0}"
        return rbln_device(owner, name) or super().device(part, owner, name)

    def configured(self, pipeline: Any, submodule: str, part: str) -> Mapping[str, Any]:
        return own_configuration(pipeline, submodule, part)

    def watch(self, process: Watching) -> Watcher | None:
        return ScriptRuntimes(process)


BACKEND = Rbln()
