"""Sessions that a pipeline, or whatever is profiled, holds itself: submodules as modules are.

For its operator source a `BareSession` stands in for such a session, and the source puts a profiled
one in there; what calls the session runs on that.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from profiler.capture.wraps import Around, attributes

if TYPE_CHECKING:
    from profiler.capture.onnxruntime.bare_session import BareSession

__all__ = ["LIBRARY", "RUNS", "is_session", "outside", "session_kinds", "standing_in", "through"]

LIBRARY = "onnxruntime.capi.onnxruntime_inference_collection"  # defines InferenceSession
RUNS = ("run", "run_with_iobinding", "run_with_ort_values")
_STANDING: weakref.WeakKeyDictionary[Any, BareSession] = weakref.WeakKeyDictionary()


def is_session(part: Any) -> bool:
    """Whether `part` is an `InferenceSession` itself. Nothing is imported for that."""
    known = _kind()
    return known is not None and isinstance(part, known)


def standing_in(part: Any) -> Any:
    """What an operator source is given as `part`: itself, but for a session."""
    if not is_session(part):
        return part
    from profiler.capture.onnxruntime.bare_session import BareSession, model_name

    if part not in _STANDING:
        _STANDING[part] = BareSession(part, model_name(part))
    return _STANDING[part]


def through(session: Any, name: str, around: Around) -> Around:
    """As `around`, for the method `name` of `session`: on what its source has put in its place."""
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
    """The class of sessions, where ONNX Runtime is imported."""
    known = _kind()
    return () if known is None else (known,)


def outside(captured: Mapping[str, Any], alive: Sequence[Any]) -> Iterator[tuple[str, str, Any]]:
    """The sessions that are `alive` and that no captured part holds: no name, method, session. One
    that could not be opened may be alive as well, without what a session runs on."""
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
