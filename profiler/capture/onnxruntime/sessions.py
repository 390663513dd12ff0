"""Bare ONNX Runtime sessions: every `InferenceSession` that a switched-on script runs by itself.

Each session is a submodule, named after its model; each run is a call, of no stage, branch or step.
Runs inside a pipeline call are the pipeline's business, and so are those of our own sessions.

The methods are wrapped on the class, so it does not matter when a session was made. Operators come
from an `OperatorSource`: a second session of the same model with profiling on, which takes the runs
in place of the script's own.
"""

from __future__ import annotations

import functools
import inspect
import os
import threading
import weakref
from collections.abc import Callable
from itertools import count
from typing import Any

from profiler.capture.class_patches import ClassPatches
from profiler.capture.onnxruntime.bare_run import BareRun, launch_async, run_to_its_end
from profiler.capture.onnxruntime.bare_session import BareSession, model_name
from profiler.capture.scopes import scope
from profiler.interruptions import let_pass

__all__ = ["OnnxSessions"]

_RUNS = ("run", "run_with_ort_values", "run_with_iobinding", "run_with_ortvaluevector", "run_async")
_OWN = "profiler.capture."


class OnnxSessions:
    """Watches the class `InferenceSession`.

    `recording()` gives the session that records, None while nothing is recorded. `open_source`
    gives the operator source of a bare session, None where its operators are not traced.
    """

    def __init__(
        self, recording: Callable[[], Any], open_source: Callable[[Any, BareSession], Any]
    ) -> None:
        self._recording = recording
        self._open_source = open_source
        self._bare: weakref.WeakKeyDictionary[Any, BareSession] = weakref.WeakKeyDictionary()
        self._own: weakref.WeakSet[Any] = weakref.WeakSet()
        self._names: dict[str, BareSession] = {}
        self._lock = threading.RLock()
        self._patches = ClassPatches()

    def watch(self, module: Any) -> None:
        """Watch all sessions; `module` is `onnxruntime.capi.onnxruntime_inference_collection`."""
        if self._patches:
            return
        made = module.InferenceSession.__init__

        @functools.wraps(made)
        def __init__(session: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            caller = inspect.currentframe()
            caller = caller.f_back if caller is not None else None
            if caller is not None and str(caller.f_globals.get("__name__")).startswith(_OWN):
                self._own.add(session)
            made(session, *args, **kwargs)

        self._patches.replace(module.InferenceSession, "__init__", __init__)
        for name in _RUNS:
            if name in vars(module.Session):
                original = vars(module.Session)[name]
                self._patches.replace(module.Session, name, self._watched(name, original))

    def forget(self) -> None:
        """Begin anew: names are free again, and no session has a source."""
        self._bare = weakref.WeakKeyDictionary()
        self._names = {}
        self._lock = threading.RLock()

    def undo(self) -> None:
        """Leave the classes as they were."""
        self._patches.undo()
        self.forget()

    def _watched(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(original)
        names = tuple(signature.parameters)
        empty = inspect.Parameter.empty
        wanted = sum(given.default is empty for given in signature.parameters.values())
        launch = launch_async if name == "run_async" else run_to_its_end

        @functools.wraps(original)
        def run(session: Any, *args: Any, **kwargs: Any) -> Any:
            open_now = scope()
            if open_now.pipeline is not None or open_now.call is not None or session in self._own:
                return original(session, *args, **kwargs)
            recording = self._recording()
            if recording is None:
                return original(session, *args, **kwargs)
            try:
                if not kwargs and wanted <= len(args) + 1 <= len(names):  # binding takes 4 µs
                    arguments = dict(zip(names, (session, *args), strict=False))
                else:
                    arguments = signature.bind(session, *args, **kwargs).arguments
            except TypeError as error:
                let_pass(error)
                return original(session, *args, **kwargs)  # says what is wrong
            begun = self._begun(recording, session, name, original, arguments)
            return original(session, *args, **kwargs) if begun is None else launch(begun)

        return run

    def _begun(
        self, recording: Any, session: Any, name: str, original: Any, arguments: dict[str, Any]
    ) -> BareRun | None:
        """A run that has begun; None where it is not to be recorded, or cannot be."""
        submodule, begun = "onnxruntime", None  # until it has a name
        try:
            bare = self._bare_session(recording, session)
            submodule = bare.submodule
            if bare.refused:
                return None
            begun = BareRun(recording, bare, session, name, original, arguments)
            begun.begin()
        except Exception as error:  # noqa: BLE001 - the script's run must not fail of us
            if begun is not None:
                begun.end(failed=True)
            let_pass(error)
            recording.recorder.lose(submodule, error)
            return None
        except BaseException:
            if begun is not None:
                begun.end(failed=True)
            raise
        return begun

    def _bare_session(self, recording: Any, session: Any) -> BareSession:
        with self._lock:
            bare = self._bare.get(session)
            if bare is None:
                bare = self._named(session)
                try:
                    self._trace(recording, bare, session)
                    self._bare[session] = bare
                except BaseException:  # the script was interrupted: again on the next run
                    if self._names.get(bare.submodule) is bare:
                        del self._names[bare.submodule]
                    if bare.source is not None:
                        bare.source.close()
                    raise
            return bare

    def _trace(self, recording: Any, bare: BareSession, session: Any) -> None:
        """Give it a source, where its operators can be traced."""
        try:
            bare.source = self._open_source(recording, bare)
        except Exception as error:  # noqa: BLE001 - calls are recorded all the same
            let_pass(error)
            recording.recorder.lose(bare.submodule, error, for_good=True)
        if bare.source is not None:
            weakref.finalize(session, _close, bare.source, os.getpid()).atexit = False

    def _named(self, session: Any) -> BareSession:
        """The session under a name of its own: that of its model, or of a session of the same
        model that is gone; with a number where others have it."""
        name = model_name(session)
        for number in count(1):
            bare = BareSession(session, name if number == 1 else f"{name}_{number}")
            other = self._names.get(bare.submodule)
            if other is None or (other.gone and other.model_path == bare.model_path):
                self._names[bare.submodule] = bare
                return bare
        raise AssertionError


def _close(source: Any, process: int) -> None:
    """The script has let go of its session, and so does the source. In a forked child the files
    of the source are the parent's."""
    if os.getpid() == process:
        source.close()
