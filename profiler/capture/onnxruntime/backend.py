"""ONNX Runtime: parts that hold an `InferenceSession` or open one, and a script's own sessions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profiler.capture.backend import Backend, Watcher, Watching
from profiler.capture.wraps import weakly
from profiler.errors import InputError

if TYPE_CHECKING:
    from profiler.capture.event_cost import EventCost
    from profiler.capture.operator_source import OperatorSource, SourceRequest

__all__ = ["BACKEND", "OnnxRuntime"]


class OnnxRuntime(Backend):
    """A part offers `session_options()` and `open_session(options)`, or holds an
    `onnxruntime.InferenceSession` as `session`."""

    name = "onnxruntime"
    packages = ("onnxruntime", "onnx", "optimum-onnx")
    order = 3  # asked last: any object may have something that it calls a session

    def owns(self, part: Any, owner: Any = None) -> bool:  # noqa: ARG002
        return hasattr(part, "open_session") or hasattr(part, "session")

    def open(self, request: SourceRequest) -> OperatorSource | None:
        if request.selection.nothing:
            return None
        from profiler.capture.onnxruntime.operators import ProfiledPart

        return ProfiledPart(request)

    def event_cost(self) -> EventCost | None:
        from profiler.capture.onnxruntime import cost

        return cost.onnx_event_cost()

    def weight_bytes(self, part: Any) -> int | None:
        """Of its model's initializers, which are read from the graph."""
        from profiler.capture.onnxruntime.session_swap import model_of
        from profiler.capture.onnxruntime.weights import model_weights

        try:
            return model_weights(model_of(part)).total_bytes
        except InputError:
            return None

    def holder(self, part: Any) -> Callable[[], Any]:
        script_session: Callable[[], Any] | None = getattr(part, "script_session", None)
        if script_session is not None:  # of a bare session
            return script_session
        return weakly(part if hasattr(part, "open_session") else part.session)

    def model_path(self, part: Any) -> Path | None:
        from profiler.capture.onnxruntime.session_swap import model_path_of

        return model_path_of(part)

    def watch(self, process: Watching) -> Watcher | None:
        from profiler.capture.onnxruntime.sessions import OnnxSessions

        return OnnxSessions(process.recording, process.open_source)


BACKEND = OnnxRuntime()
