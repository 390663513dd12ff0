"""RBLN: submodules of optimum-rbln, whose runtimes are called through proxies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from profiler.capture.backend import Backend
from profiler.capture.rbln.configuration import configuration_of, own_configuration
from profiler.capture.rbln.runtimes import rbln_device, slots_of

if TYPE_CHECKING:
    from profiler.capture.operator_source import OperatorSource, SourceRequest

__all__ = ["BACKEND", "Rbln"]


class Rbln(Backend):
    """A part keeps runtimes, or its submodule has an `rbln_config`."""

    name = "rbln"
    packages = ("optimum-rbln", "rebel-compiler")
    order = 2

    def owns(self, part: Any, owner: Any = None) -> bool:
        return configuration_of(owner) is not None or bool(slots_of(part))

    def open(self, request: SourceRequest) -> OperatorSource | None:
        """None where the part's runtimes are elsewhere. Calls of runtimes that are not to be traced
        are numbered all the same, for the files of the others to be named."""
        from profiler.capture.rbln.operators import RblnRuntimes

        return RblnRuntimes.of(request)

    def device(self, part: Any, owner: Any, name: str) -> str:
        return rbln_device(owner, name) or super().device(part, owner, name)

    def configured(self, pipeline: Any, submodule: str, part: str) -> Mapping[str, Any]:
        return own_configuration(pipeline, submodule, part)


BACKEND = Rbln()
