"""Bare ONNX Runtime sessions: every `InferenceSession` that a switched-on script runs by itself.

Each session is a submodule, named after its model; each run is a call, of no stage, branch or step.
Runs inside a pipeline call are the pipeline's business, and so are those of our own sessions.

The methods are wrapped on the class, so it does not matter when a session was made. Operators come
from an `OperatorSource`: a second session of the same model with profiling on, which takes the runs
in place of the script's own. It traces one run at a time: a run that begins while another of the
same session is under way (threads, `run_async`) goes to the script's session and has no operators.
"""

from __future__ import annotations

import functools
import inspect
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from profiler.capture.notices import notice
from profiler.capture.recorder import Invocation, enter, scope
from profiler.errors import InputError
from profiler.events import NO_STEP, ROOT_DEVICE

__all__ = ["BareSession", "OnnxSessions", "device_of_session", "model_name"]

_RUNS = ("run", "run_with_ort_values", "run_with_iobinding", "run_with_ortvaluevector", "run_async")
_OWN = "profiler.capture."
_SUFFIX = "ExecutionProvider"
_DTYPES = {"float": "float32", "double": "float64"}  # ONNX Runtime's names, numpy's names
_KINDS = {"Tensorrt": "cuda", "NvTensorRTRTX": "cuda", "CUDA": "cuda", "Dml": "dml"}


class BareSession:
    """A session of the script, as operator sources want a part: `session` is what runs, the
    script's own or the profiled one that a source puts in its place."""

    def __init__(self, session: Any, submodule: str) -> None:
        self._script_session: Callable[[], Any] = weakref.ref(session)
        self._model_bytes = getattr(session, "_model_bytes", None)
        self.submodule = submodule
        self.device = device_of_session(session)
        self.session: Any = self
        self.source: Any = None
        self.tracing = threading.Lock()  # held while a run is traced
        path = getattr(session, "_model_path", None)
        self.model_path = Path(path) if path else None  # None: made from bytes

    @property
    def gone(self) -> bool:
        """Whether the script has let go of the session."""
        return self._script_session() is None

    @property
    def opened_session(self) -> Any:
        """What stands for the session when no source has put one in its place: it knows the
        model's bytes, as a session made from bytes does."""
        return self

    def model(self) -> Any:
        """The model: where it lies, or its bytes. Raises InputError for ORT's own format."""
        if self.model_path is None:
            assert self._model_bytes is not None
            head = self._model_bytes[:8]
        else:
            with self.model_path.open("rb") as file:
                head = file.read(8)
        if head[4:] == b"ORTM":
            raise InputError("its model has ORT's own format, which shows no layers")
        return self.model_path or self._model_bytes

    def session_options(self) -> Any:
        """A copy of the options that the script's session was made with."""
        session = self._script_session()
        options = session._sess.session_options  # noqa: SLF001 - the public ones are no copy
        options.optimized_model_filepath = ""
        return options

    def open_session(self, options: Any) -> Any:
        """Another session of the same model on the same providers."""
        import onnxruntime

        providers = list(self._script_session().get_provider_options().items())
        return onnxruntime.InferenceSession(self.model(), options, providers=providers)


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
        self._replaced: list[tuple[type, str, Any]] = []

    def watch(self, module: Any) -> None:
        """Watch all sessions; `module` is `onnxruntime.capi.onnxruntime_inference_collection`."""
        if self._replaced:
            return
        made = module.InferenceSession.__init__

        @functools.wraps(made)
        def __init__(session: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            caller = inspect.currentframe()
            caller = caller.f_back if caller is not None else None
            if caller is not None and str(caller.f_globals.get("__name__")).startswith(_OWN):
                self._own.add(session)
            made(session, *args, **kwargs)

        self._replace(module.InferenceSession, "__init__", __init__)
        for name in _RUNS:
            if name in vars(module.Session):
                original = vars(module.Session)[name]
                self._replace(module.Session, name, self._watched(name, original))

    def forget(self) -> None:
        """Begin anew: names are free again, and no session has a source."""
        self._bare = weakref.WeakKeyDictionary()
        self._names = {}
        self._lock = threading.RLock()

    def undo(self) -> None:
        """Leave the classes as they were."""
        while self._replaced:
            owner, name, before = self._replaced.pop()
            setattr(owner, name, before)
        self.forget()

    def _replace(self, owner: type, name: str, value: Any) -> None:
        self._replaced.append((owner, name, vars(owner)[name]))
        setattr(owner, name, value)

    def _watched(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(original)
        launch = _launch_async if name == "run_async" else _run_to_its_end

        @functools.wraps(original)
        def run(session: Any, *args: Any, **kwargs: Any) -> Any:
            open_now = scope()
            if open_now.pipeline is not None or open_now.call is not None or session in self._own:
                return original(session, *args, **kwargs)
            recording = self._recording()
            if recording is None:
                return original(session, *args, **kwargs)
            bare = self._bare_session(recording, session)
            try:
                arguments = signature.bind(session, *args, **kwargs).arguments
            except TypeError:
                return original(session, *args, **kwargs)  # says what is wrong
            begun = _Run(recording, bare, session, name, original, arguments)
            try:
                begun.begin()
            except Exception as error:  # noqa: BLE001 - the script's run must not fail of us
                notice(f"a run of {bare.submodule} is not recorded: {error}")
                return original(session, *args, **kwargs)
            return launch(begun)

        return run

    def _bare_session(self, recording: Any, session: Any) -> BareSession:
        with self._lock:
            bare = self._bare.get(session)
            if bare is None:
                bare = self._bare[session] = self._named(session)
                try:
                    bare.source = self._open_source(recording, bare)
                except Exception as error:  # noqa: BLE001 - calls are recorded all the same
                    notice(f"{bare.submodule}: its operators are not traced: {error}")
                if bare.source is not None:
                    weakref.finalize(session, _close, bare.source, os.getpid()).atexit = False
            return bare

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


class _Run:
    """One run of a bare session, from its begin to its end."""

    def __init__(
        self,
        recording: Any,
        bare: BareSession,
        session: Any,
        method: str,
        original: Callable[..., Any],
        arguments: dict[str, Any],
    ) -> None:
        self.arguments = arguments
        self._bare = bare
        self._session, self._method, self._original = session, method, original
        self._recorder = recording.recorder
        self._traced = False
        self._invocation = Invocation(
            submodule=bare.submodule,
            stage="",
            branch="",
            step=NO_STEP,
            device=bare.device,
            input_shapes=dict(_shapes(arguments)),
        )

    def begin(self) -> None:
        """What this takes is not part of the call."""
        self._invocation.recorded = self._recorder.recording
        bare = self._bare
        if bare.source is not None and bare.tracing.acquire(blocking=False):
            try:
                bare.source.before(self._invocation)
                self._traced = True
            except Exception:
                bare.source = None  # it is not asked again
                bare.tracing.release()
                raise
        self._recorder.begin_call(self._invocation)

    def execute(self) -> Any:
        """Run on the session that traces, or on the script's own."""
        profiled: Any = self._bare.session if self._traced else None
        target: Any = profiled if hasattr(profiled, "_sess") else self._session
        if target is not self._session and self._method == "run_with_iobinding":
            binding = self.arguments["iobinding"]._iobinding  # noqa: SLF001 - it checks its owner
            options = self.arguments.get("run_options")
            return target._sess.run_with_iobinding(binding, options)  # noqa: SLF001
        self.arguments["self"] = target
        return self._original(**self.arguments)

    def end(self, *, failed: bool) -> None:
        """It has returned, on whatever thread."""
        try:
            self._recorder.end_call(self._invocation, failed=failed)
            if self._traced:
                self._bare.source.after(self._invocation)
        except Exception as error:  # noqa: BLE001 - nor must its end
            notice(f"a run of {self._bare.submodule} is not recorded: {error}")
        finally:
            if self._traced:
                self._bare.tracing.release()


def _run_to_its_end(run: _Run) -> Any:
    before = scope()
    enter(replace(before, call=run))
    failed = True
    try:
        result = run.execute()
        failed = False
        return result
    finally:
        enter(before)
        run.end(failed=failed)


def _launch_async(run: _Run) -> Any:
    """The call lasts until ONNX Runtime calls back, on a thread of its own."""
    callback = run.arguments["callback"]

    def called_back(results: Any, user_data: Any, error: str) -> None:
        try:
            run.end(failed=bool(error))
        finally:
            callback(results, user_data, error)

    run.arguments["callback"] = called_back
    try:
        return run.execute()
    except BaseException:
        run.end(failed=True)
        raise


def model_name(session: Any) -> str:
    """The name of a session's submodule: its model's file name, or the folder's where all files
    are called model.onnx, or the graph's name where the model has no file."""
    path = getattr(session, "_model_path", None)
    if path:
        stem, folder = Path(path).stem, Path(path).absolute().parent.name
        return folder if stem == "model" and folder else stem
    return str(session.get_modelmeta().graph_name or "model")


def device_of_session(session: Any) -> str:
    """The device of a session's first provider, "cpu:0" where that is the CPU."""
    providers = session.get_provider_options()
    first = next(iter(session.get_providers()), "CPUExecutionProvider").removesuffix(_SUFFIX)
    if first == "CPU":
        return ROOT_DEVICE
    options = providers.get(f"{first}{_SUFFIX}", {})
    return f"{_KINDS.get(first, first.lower())}:{options.get('device_id', 0)}"


def _shapes(arguments: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The inputs by name as "dtype[d0,d1,…]", as far as the arguments show them."""
    feeds = arguments.get("input_feed") or arguments.get("input_dict_ort_values")
    if not isinstance(feeds, Mapping):
        return
    for name, value in feeds.items():
        if hasattr(value, "dtype") and hasattr(value, "shape"):
            yield name, f"{value.dtype}[{','.join(map(str, value.shape))}]"
        elif hasattr(value, "data_type"):  # an OrtValue: "tensor(float)"
            dtype = value.data_type().removeprefix("tensor(").removesuffix(")")
            yield name, f"{_DTYPES.get(dtype, dtype)}[{','.join(map(str, value.shape()))}]"
