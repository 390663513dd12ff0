"""The ONNX Runtime backend: parts that own an `InferenceSession`, and their settings."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profiler.capture.backend import Backend, CallHooks, Watcher, Watching
from profiler.capture.patching import Around, ByIdentity, Wraps, attributes, weakly
from profiler.errors import InputError
from profiler.plugins import let_pass

if TYPE_CHECKING:
    from profiler.capture.onnxruntime.sessions import BareSession, OnnxSessions
    from profiler.capture.operator_source import Gaps, OperatorSource, SourceRequest
    from profiler.capture.overhead import EventCost
    from profiler.trace.manifest_fields import SubmoduleSettings


# --- Sessions that a pipeline, or other profiled code, holds directly: submodules like modules.
#
# The operator source of such a session gets a `BareSession` in its place, and sets the session to
# run on there.


LIBRARY = "onnxruntime.capi.onnxruntime_inference_collection"  # defines InferenceSession
RUNS = ("run", "run_with_iobinding", "run_with_ort_values")
_STANDING: ByIdentity[BareSession] = ByIdentity()


def is_session(part: Any) -> bool:
    """Whether `part` is an `InferenceSession` itself. Imports nothing."""
    known = _kind()
    return known is not None and isinstance(part, known)


def standing_in(part: Any) -> Any:
    """The object that an operator source gets for `part`: a `BareSession` for a session, else
    `part` itself."""
    if not is_session(part):
        return part
    from profiler.capture.onnxruntime.sessions import BareSession, model_name

    known = _STANDING.get(part)
    if known is None:
        known = _STANDING[part] = BareSession(part, model_name(part))
    return known


def through(session: Any, name: str, around: Around) -> Around:
    """Wrap `around` for the method `name` of `session`: the method runs on the session that its
    source has put in its place."""
    of = weakref.ref(session)

    def redirected(original: Any, args: Any, kwargs: Any) -> Any:
        def run(*args: Any, **kwargs: Any) -> Any:
            bare = _STANDING.get(of())
            placed = bare.session if bare is not None else bare
            if placed is bare:
                return original(*args, **kwargs)
            return getattr(placed, name)(*args, **kwargs)

        return around(run, args, kwargs)

    return redirected


def session_kinds() -> Sequence[type]:
    """The class `InferenceSession`, if ONNX Runtime is imported."""
    known = _kind()
    return () if known is None else (known,)


def outside(captured: Mapping[str, Any], alive: Sequence[Any]) -> Iterator[tuple[str, str, Any]]:
    """The `alive` sessions that no captured part holds, once for each method that runs them: an
    empty name, method, session. Sessions that could not be opened are skipped."""
    held: set[int] = set()
    for owner in captured.values():
        held.add(id(owner))
        for value in attributes(owner).values():
            held |= {id(value), id(getattr(value, "session", None))}
    for session in alive:
        opened = is_session(session) and getattr(session, "_sess", None) is not None
        if opened and id(session) not in held:
            yield from (("", name, session) for name in RUNS if hasattr(session, name))


def _kind() -> type | None:
    known = getattr(sys.modules.get(LIBRARY), "InferenceSession", None)
    return known if isinstance(known, type) else None


# --- ONNX Runtime: parts that hold an `InferenceSession` or open one, and a script's own sessions.


class OnnxRuntime(Backend):
    """Parts that offer `session_options()` and `open_session(options)`, hold an
    `onnxruntime.InferenceSession` as `session`, or are one."""

    name = "onnxruntime"
    packages = ("onnxruntime", "optimum-onnx")
    order = 3  # asked last: any object may have an attribute named session

    def owns(self, part: Any, owner: Any = None) -> bool:  # noqa: ARG002
        return hasattr(part, "open_session") or hasattr(part, "session") or is_session(part)

    def executes(self, part: Any) -> bool:
        """Whether `part` opens, holds or is an ONNX Runtime session: any object may have an
        attribute named session."""
        session = getattr(part, "session", None)
        return hasattr(part, "open_session") or is_session(part) or is_session(session)

    def entry_points(self, part: Any) -> tuple[str, ...]:
        if not is_session(part):
            return super().entry_points(part)
        return tuple(name for name in RUNS if hasattr(part, name))

    def title(self, part: Any) -> str:
        """The name of a session's model; of other parts the class."""
        if not is_session(part):
            return super().title(part)
        return str(standing_in(part).submodule)

    def device(self, part: Any, owner: Any, name: str) -> str:
        return super().device(standing_in(part), owner, name)

    def hook_calls(self, wraps: Wraps, owner: Any, name: str, hooks: CallHooks) -> None:
        raw = is_session(owner)
        around = through(owner, name, hooks.around) if raw else hooks.around
        self.hook_method(wraps, owner, name, around)

    def executed_kinds(self) -> Sequence[type]:
        return session_kinds()

    def outside(
        self, captured: Mapping[str, Any], alive: Sequence[Any]
    ) -> Iterable[tuple[str, str, Any]]:
        return outside(captured, alive)

    def open(self, request: SourceRequest) -> OperatorSource | None:
        if request.selection.nothing:
            return None
        from profiler.capture.onnxruntime.operators import ProfiledPart

        return ProfiledPart(replace(request, part=standing_in(request.part)))

    def event_cost(self, gaps: Gaps) -> EventCost | None:
        from profiler.capture.onnxruntime import operators as cost

        return cost.onnx_event_cost(gaps)

    def weight_bytes(self, part: Any) -> int | None:
        """Bytes of the initializers of the part's model, read from the graph; None if
        unreadable."""
        from profiler.capture.onnxruntime.sessions import model_of
        from profiler.capture.onnxruntime.weights import model_weights

        try:
            return model_weights(model_of(standing_in(part))).total_bytes
        except InputError as error:
            let_pass(error)
            return None

    def settings(self, part: Any) -> SubmoduleSettings | None:
        from profiler.capture.onnxruntime.weights import session_settings

        return session_settings(part)

    def holder(self, part: Any) -> Callable[[], Any]:
        if is_session(part):
            return weakly(part)
        script_session: Callable[[], Any] | None = getattr(part, "script_session", None)
        if script_session is not None:  # of a session outside pipelines
            return script_session
        return weakly(part if hasattr(part, "open_session") else part.session)

    def model_path(self, part: Any) -> Path | None:
        from profiler.capture.onnxruntime.sessions import model_path_of

        return model_path_of(standing_in(part))

    def watch(self, process: Watching) -> Watcher | None:
        return _SessionWatcher(process)


class _SessionWatcher:
    """Watches for a script's own sessions. Imports what that takes once ONNX Runtime is
    imported."""

    def __init__(self, process: Watching) -> None:
        self._process = process
        self._sessions: OnnxSessions | None = None

    @property
    def libraries(self) -> dict[str, Callable[[Any], None]]:
        return {LIBRARY: self._watch}

    def _watch(self, module: Any) -> None:
        if self._sessions is None:
            from profiler.capture.onnxruntime.sessions import OnnxSessions

            self._sessions = OnnxSessions(self._process.recording, self._process.open_source)
        self._sessions.watch(module)

    def forget(self) -> None:
        if self._sessions is not None:
            self._sessions.forget()

    def undo(self) -> None:
        if self._sessions is not None:
            self._sessions.undo()


BACKEND = OnnxRuntime()
