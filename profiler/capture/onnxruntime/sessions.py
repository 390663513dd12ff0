"""ONNX Runtime sessions that a script runs itself, and profiled replacements for them.

    folders = profile_in_turn([pair], Path("traces"), ("a", "b"), repeats=10)

Each session is a submodule named after its model, and each run is a call without stage, branch
or step. `run` is wrapped on the class, so sessions made earlier are included. `profile_in_turn`
runs two models in turn, so that clocks and other processes affect both equally.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
import statistics
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from profiler.capture.backend import open_source
from profiler.capture.calls import Invocation, Scope, described, enter, scope
from profiler.capture.operator_source import NewSessions, SourceRequest, when_gone
from profiler.capture.patching import ByIdentity, ClassPatches, weakly
from profiler.capture.run_info import part_facts
from profiler.capture.session import Session
from profiler.capture.settings import Options
from profiler.errors import InputError
from profiler.ort_profiles import device_of_session
from profiler.plugins import let_pass
from profiler.trace.bundle import WORK_NAME
from profiler.trace.events import NO_STEP

# --- The extra time of first calls on sessions that were opened for profiling.
#
# A new session allocates its arena in its first call, and again in its second, when ONNX Runtime
# knows the sizes for the shapes. Without profiling these calls would have run on the part's own
# session. That was warm if it had run before: in an earlier run in this process, before a renewal,
# or in a run with traced and untraced calls, whose two sessions are both new once. Otherwise it may
# have been as new as ours.


_NEW = 2  # slower calls on a new session
_FEWEST, _MOST = 2, 200  # later calls of the same input shapes
_LONGER = (0.15, 0.3, 0.45)  # part of a first call, if there are no later ones: least, usual, most

_have_run: ByIdentity[bool] = ByIdentity()  # own sessions, or the parts


@dataclass(frozen=True, slots=True)
class _First:
    """A call on a new session; `warm`: without profiling it would have run on a warm session."""

    shapes: frozenset[tuple[str, str]]
    duration_ns: int
    warm: bool


class FirstCalls:
    """The first calls of one part; `own` is its own session, or the part itself if it opens its
    session."""

    def __init__(self, own: Any) -> None:
        self._warm = own in _have_run
        self._own = weakly(own)
        self._firsts: list[_First] = []
        self._later: dict[frozenset[tuple[str, str]], list[int]] = {}
        self._ours_ran = 0
        self._own_ran = 0
        self._own_calls: list[tuple[Invocation, bool]] = []  # whether another session had warmed up

    def add(self, invocation: Invocation, duration_ns: int, *, ran: int, renewed: bool) -> None:
        """Add a returned call on one of our sessions, which had run `ran` times before; `renewed`:
        others of ours had run before it in place of the part's own one."""
        if invocation.failed:
            return
        shapes = frozenset(invocation.input_shapes.items())
        warm = renewed or self._warm or ran + self._own_ran >= _NEW
        if ran >= _NEW:
            later = self._later.setdefault(shapes, [])
            if len(later) < _MOST:
                later.append(duration_ns)
        elif invocation.recorded:
            invocation.on_new_session = True
            self._firsts.append(_First(shapes, duration_ns, warm))
        self._ours_ran += 1

    def own_runs(self, invocation: Invocation) -> None:
        """Add a starting untraced call on the own session, which is compared at the end."""
        if self._own_ran < _NEW + _MOST:
            warm = self._own_ran + self._ours_ran >= _NEW
            invocation.on_new_session = self._own_ran < _NEW and not self._warm
            self._own_calls.append((invocation, warm and not self._warm))
        self._own_ran += 1

    def close(self) -> None:
        """Mark the own session as warm for later runs, at the end of this one."""
        own = self._own()
        if own is not None and (self._firsts or self._later):
            with suppress(TypeError):  # it cannot be referenced weakly
                _have_run[own] = True

    def cost(self) -> NewSessions:
        """The extra time of the first calls: against two later calls of the same input shapes, or
        for those that would have been warm, the usual part (with the embedded SD3 0.42 on one core,
        0.22 on two)."""
        compared = [(first, self._later) for first in self._firsts]
        own_later: dict[frozenset[tuple[str, str]], list[int]] = {}
        for number, (call, late) in enumerate(self._own_calls):
            shapes = frozenset(call.input_shapes.items())
            duration_ns = call.end_ns - call.start_ns
            if call.failed or call.end_ns < 0:
                continue
            if number >= _NEW:
                own_later.setdefault(shapes, []).append(duration_ns)
            elif late and call.recorded:
                compared.append((_First(shapes, duration_ns, warm=True), own_later))
        found = sum((_longer(*one) for one in compared), start=NewSessions())
        return NewSessions(max(found.ns, 0.0), max(found.least_ns, 0.0), max(found.most_ns, 0.0))


def _longer(
    first: _First, later_calls: Mapping[frozenset[tuple[str, str]], list[int]]
) -> NewSessions:
    later = later_calls.get(first.shapes, [])
    if len(later) < _FEWEST:
        duration_ns = first.duration_ns if first.warm else 0
        least, usual, most = (part * duration_ns for part in _LONGER)
        return NewSessions(usual, least, most)
    most = float(first.duration_ns - min(later))
    if not first.warm:
        return NewSessions(most_ns=most)
    more = first.duration_ns - statistics.median(later)
    return NewSessions(more, float(first.duration_ns - max(later)), most)


# --- Profiled ONNX Runtime sessions in place of a part's own.


def opened_session(part: Any) -> Any:
    """The session that `part` has open, None if it would open one on first use."""
    return getattr(part, "opened_session", None) if hasattr(part, "open_session") else part.session


class Lending:
    """Replaces a part's `own` session (None: opened on first use) by ours. A session that other
    code sets meanwhile stays."""

    def __init__(self, part: Any, own: Any) -> None:
        self._part = part
        self._own = own
        self._placed: Any = None

    def lend(self, session: Any) -> None:
        """Set the part's session, whatever it was."""
        self._placed = session
        self._part.session = session

    def put(self, session: Any) -> None:
        """Set the part's session, unless other code has replaced ours."""
        if self._is_in_place():
            self._part.session = self._placed = session

    def give_back(self) -> None:
        """Restore the part's own session."""
        if self._placed is None or not self._is_in_place():
            return
        if self._own is None:
            del self._part.session
        else:
            self._part.session = self._own

    def _is_in_place(self) -> bool:
        try:
            return opened_session(self._part) is self._placed
        except AttributeError:  # the part is gone
            return False


def open_profiled(part: Any, own: Any, prefix: Path, optimized: Path | None) -> Any:
    """Open a session of `part` with profiling on, which accepts bindings and values of the part's
    session `own`, None if it has none open. Writes the optimized graph, without its weights, to
    `optimized`, if given.

    Raises InputError if the part profiles its session itself: that profile would lack its runs.
    """
    import onnxruntime

    opens = hasattr(part, "open_session")
    options = part.session_options() if opens else copied_options(own)
    if options.enable_profiling:
        raise InputError(
            "ONNX Runtime's own profiling is on in its session: switch off enable_profiling there, "
            "or use activate_profiler=False"
        )
    weights = None if optimized is None else optimized.with_name(f"{optimized.name}.data")
    _enable_profiling(options, prefix, optimized, weights)
    try:
        if opens:
            session = part.open_session(options)
        else:
            providers = list(own.get_provider_options().items())
            session = onnxruntime.InferenceSession(model_of(part), options, providers=providers)
    finally:
        if weights is not None:
            weights.unlink(missing_ok=True)
    _take_what_belongs_to(session, own)
    return session


def copied_options(session: Any) -> Any:
    """A copy of the options that a session was made with."""
    options = session._sess.session_options  # noqa: SLF001 - the public ones are no copy
    options.optimized_model_filepath = ""
    return options


def model_of(part: Any) -> Path | bytes:
    """The model of a part: a path, or bytes if its session was made from bytes. Raises InputError
    if neither is known."""
    path = model_path_of(part)
    if path is not None:
        return path
    source = getattr(getattr(part, "session", None), "_model_bytes", None)
    if source is None:
        raise InputError(
            "its session tells neither path nor bytes of its model, and one that records operators "
            "has to be opened: use ops='none', or set model_path"
        )
    return bytes(source)


def model_path_of(part: Any) -> Path | None:
    """The path of a part's model; None if unknown: its session was made from bytes, or it is a
    torch module."""
    session = None if hasattr(part, "open_session") else getattr(part, "session", None)
    # Of optimum's parts the session is asked first: their own `model_path` warns of its end.
    path = getattr(session, "_model_path", None) or getattr(part, "model_path", None)
    return Path(path) if path else None


def _enable_profiling(
    options: Any, prefix: Path, optimized: Path | None, weights: Path | None
) -> None:
    options.enable_profiling = True
    options.profile_file_prefix = str(prefix)
    options.log_severity_level = 3  # it warns that an optimized graph fits this machine only
    if optimized is not None and weights is not None:
        goes_nowhere(weights)
        options.optimized_model_filepath = str(optimized)
        options.add_session_config_entry(
            "session.optimized_model_external_initializers_file_name", weights.name
        )
        options.add_session_config_entry(
            "session.optimized_model_external_initializers_min_size_in_bytes", "0"
        )


def goes_nowhere(path: Path) -> bool:
    """Make `path` a file that discards what is written; returns whether the system can."""
    try:
        path.symlink_to(os.devnull)
    except (OSError, NotImplementedError) as error:  # Windows
        let_pass(error)
        return False
    return True


def _take_what_belongs_to(session: Any, own: Any) -> None:
    """Let `session` use and create bindings and values of the session `own`.

    ONNX Runtime checks in Python that an `IOBinding` and a session's `OrtValue` go to the session
    that made them. A part keeps its bindings, from before the run or for after it.
    """
    itself = weakref.ref(session)  # no reference cycle: it must go when renewed, not with gc

    def run_with_iobinding(iobinding: Any, run_options: Any = None) -> None:
        running = itself()
        if running is not None:
            running._sess.run_with_iobinding(iobinding._iobinding, run_options)  # noqa: SLF001

    session.run_with_iobinding = run_with_iobinding
    session._validate_ortvalue_ownership = lambda _: None  # noqa: SLF001
    for name in ("io_binding", "create_ortvalue_from_shape_and_type"):
        if hasattr(own, name):
            setattr(session, name, getattr(own, name))


# --- A script's own session, in the form that operator sources need, and its name.


class BareSession:
    """A session of the script. `session` is the one to run on: this object for the script's own, or
    one that a source has put in its place. `source` is that source, None if it is not traced."""

    def __init__(self, session: Any, submodule: str) -> None:
        self.script_session: Callable[[], Any] = weakref.ref(session)
        self._model_bytes = getattr(session, "_model_bytes", None)
        self.submodule = submodule
        self.device = device_of_session(session)
        self.refused = False  # whether it must not be recorded
        self.recommendation = "give the session providers there"  # if another device is configured
        self.session: Any = self
        self.source: Any = None
        self.lock = threading.RLock()  # held while a source handles the start of a run
        path = getattr(session, "_model_path", None)
        self.model_path = Path(path) if path else None  # None: made from bytes

    @property
    def gone(self) -> bool:
        """Whether the script has dropped the session."""
        return self.script_session() is None

    @property
    def opened_session(self) -> Any:
        """The session to run on: see `session`. This object represents the script's own, which a
        source must not keep alive; like a session made from bytes, it has the model's bytes."""
        return self.session

    def session_options(self) -> Any:
        """A copy of the options that the script's session was made with."""
        return copied_options(self.script_session())

    def open_session(self, options: Any) -> Any:
        """Open another session of the same model on the same providers."""
        import onnxruntime

        providers = list(self.script_session().get_provider_options().items())
        model = self.model_path or self._model_bytes
        return onnxruntime.InferenceSession(model, options, providers=providers)


def model_name(session: Any) -> str:
    """The name of a session's submodule: its model's file name, or the folder's for a file
    model.onnx, or the graph's name if the model has no file."""
    path = getattr(session, "_model_path", None)
    if path:
        stem, folder = Path(path).stem, Path(path).absolute().parent.name
        return folder if stem == "model" and folder else stem
    try:
        return str(session.get_modelmeta().graph_name or "model")
    except Exception as error:  # noqa: BLE001 - the user's program goes on
        let_pass(error)
        return "model"


# --- One run of a script's own session: a call without stage, branch or step.


_DTYPES = {"float": "float32", "double": "float64"}  # ONNX Runtime's names, numpy's names


class BareRun:
    """A run by `method` of the script's `session`, with `arguments` by name, `self` among them."""

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
        self._begun_ns = recording.recorder.clock.now_ns()
        self._bare = bare
        self._session, self._method, self._original = session, method, original
        self._recorder = recording.recorder
        self._source: Any = None  # its operator source
        self._target: Any = None  # the session in place of the script's own
        self._invocation = Invocation(
            submodule=bare.submodule,
            stage="",
            branch="",
            step=NO_STEP,
            device=bare.device,
            input_shapes=dict(_shapes(arguments)),
        )

    def begin(self) -> None:
        """Start the call; the time of this method is not part of it."""
        self._invocation.recorded = self._recorder.recording
        bare = self._bare
        with bare.lock:
            if bare.source is not None:
                self._source = bare.source
                try:
                    bare.source.before(self._invocation)
                except Exception as error:
                    let_pass(error)
                    self._source = bare.source = None  # it is not looked up again
                    raise
                self._target = None if bare.session is bare else bare.session
        self._recorder.begin_call(self._invocation)
        self._invocation.hooks_ns = self._invocation.start_ns - self._begun_ns

    def execute(self) -> Any:
        """Run on the session that the source has put in place, or on the script's own."""
        target = self._target
        if target is None or target is self._session or not hasattr(target, self._method):
            return self._original(**self.arguments)
        arguments = {k: v for k, v in self.arguments.items() if k != "self"}
        return getattr(target, self._method)(**arguments)

    def end(self, *, failed: bool) -> None:
        """End the call, on any thread. Again without effect."""
        try:
            self._recorder.end_call(self._invocation, failed=failed)
            if self._source is not None:
                self._source.after(self._invocation)
            if not failed:
                self._recorder.spent(self._invocation, self._invocation.end_ns)
        except Exception as error:  # noqa: BLE001 - the user's program goes on
            let_pass(error)
            self._recorder.lose(self._bare.submodule, error)


def run_to_its_end(run: BareRun) -> Any:
    """Execute a run that is done when it returns."""
    before, failed = scope(), True
    try:
        enter(Scope(before.owner, before.pipeline, before.labels, run, before.host))
        result = run.execute()
        failed = False
        return result
    finally:
        try:
            enter(before)
            run.end(failed=failed)
        except BaseException:  # the script was interrupted: once more, to the end
            enter(before)
            run.end(failed=failed)
            raise


def launch_async(run: BareRun) -> Any:
    """Execute a run that ends when ONNX Runtime calls back, on a thread of its own."""
    callback = run.arguments["callback"]

    def called_back(results: Any, user_data: Any, error: str) -> None:
        try:
            run.end(failed=bool(error))
        finally:
            run.arguments = {}  # they reference this function, which references the run
            callback(results, user_data, error)

    run.arguments["callback"] = called_back
    try:
        return run.execute()
    except BaseException:
        run.end(failed=True)
        raise


def _shapes(arguments: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The inputs by name as "dtype[d0,d1,…]", as far as known."""
    feeds = arguments.get("input_feed") or arguments.get("input_dict_ort_values")
    if not isinstance(feeds, Mapping):
        return
    for name, value in feeds.items():
        text = described(value)
        if text:
            yield name, text
        elif hasattr(value, "data_type"):  # an OrtValue: "tensor(float)"
            dtype = value.data_type().removeprefix("tensor(").removesuffix(")")
            yield name, f"{_DTYPES.get(dtype, dtype)}[{','.join(map(str, value.shape()))}]"


# --- ONNX models profiled in turn, two at a time, on the same inputs: one bundle per side.
#
# Each pair runs base, new, base, new, …, so that what changes meanwhile (clocks, other processes)
# meets both. Of each side's calls every second has its operators traced; the others run as if
# nobody traced, and tell what tracing costs. A pair's models are loaded while it runs, no longer.


_OPS = "every:2"
_WARMUP = 4  # runs of each model, as many traced as untraced


@dataclass(frozen=True, slots=True)
class ModelPair:
    """Two models that are compared as `submodule`; `inputs` makes the arrays by name that both
    run on."""

    submodule: str
    base: Path
    new: Path
    inputs: Callable[[], Mapping[str, Any]]


def calls_of(repeats: int) -> int:
    """The number of calls of each model: `repeats` and a first one, each traced and untraced."""
    return 2 * repeats + 2


def submodule_name(text: str) -> str:
    """`text` as a valid name of a submodule and its files: letters, digits, `_`, `.` and `-`."""
    return re.sub(r"[^\w.\-]+", "_", text, flags=re.ASCII).strip("._-")[:80] or "model"


def profile_in_turn(
    pairs: Iterable[ModelPair],
    out: Path,
    titles: tuple[str, str],
    *,
    repeats: int,
    on_run: Callable[[], None] = lambda: None,
) -> tuple[Path, Path]:
    """Profile pairs of models in turn, and return the bundles of both sides, written below `out`
    and named by date and `titles`.

    Comparisons exclude each model's first traced and first untraced call; of the others `repeats`
    are traced and as many are not. `on_run` is called after each run. Raises InputError if ONNX
    Runtime does not take a model or fails on the inputs; then no bundle is left.
    """
    sides = [Session.open(Options(_OPS), out, title=title) for title in titles]
    try:
        for pair in pairs:
            _profile_pair(pair, sides, repeats, on_run)
    except BaseException:
        for side in sides:
            _discard(side)
        raise
    base, new = (side.close() for side in sides)
    if base is None or new is None:
        raise InputError("there is no model to run: give two models, or folders with such")
    return base, new


def _profile_pair(
    pair: ModelPair, sides: list[Session], repeats: int, on_run: Callable[[], None]
) -> None:
    inputs = dict(pair.inputs())
    models = [
        _ProfiledModel(side, path, pair.submodule)
        for side, path in zip(sides, (pair.base, pair.new), strict=True)
    ]
    try:
        with sides[0].warmup(), sides[1].warmup():
            for _ in range(_WARMUP):
                for model in models:
                    model.run(inputs)
        for _ in range(calls_of(repeats)):
            for model in models:
                model.run(inputs)
                on_run()
    finally:
        for model in models:
            model.close()


def _discard(side: Session) -> None:
    """Close a session and delete its bundle."""
    import shutil

    path = side.close()
    if path is not None:
        shutil.rmtree(path, ignore_errors=True)


class _ProfiledModel:
    """A model in the bundle of `side`: its session, and its operator source."""

    def __init__(self, side: Session, path: Path, submodule: str) -> None:
        self._side, self._path = side, path
        self._session = _open(path)
        self._bare = BareSession(self._session, submodule)
        folder = side.directory / WORK_NAME
        folder.mkdir(exist_ok=True)
        side.describe(part_facts(submodule, self._bare, self._bare.device, traced=True))
        selection = Options(_OPS).selection(submodule)
        self._bare.source = open_source(
            SourceRequest(
                submodule,
                self._bare,
                self._bare.device,
                folder,
                side.recorder,
                selection=selection,
            )
        )
        assert self._bare.source is not None
        side.add_source(self._bare.source, submodule, lambda: self._bare.gone)

    def run(self, inputs: Mapping[str, Any]) -> None:
        """Run one call. Raises InputError if the model fails on the inputs."""
        session = self._session
        arguments = {"self": session, "output_names": None, "input_feed": inputs}
        run = BareRun(self._side, self._bare, session, "run", type(session).run, arguments)
        run.begin()
        try:
            run_to_its_end(run)
        except Exception as error:  # ONNX Runtime's errors have no common class
            shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in inputs.items())
            raise InputError(
                f"{self._path} does not run on inputs {shapes} ({_first_line(error)}): give sizes "
                "that it takes for its symbolic dimensions"
            ) from error

    def close(self) -> None:
        """Stop tracing and release the model; its operators are written with the next model's."""
        self._bare.source.close()
        self._session = None


def _open(path: Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    # Threads of one session that spin while waiting would take the cores of the other.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise InputError(
            f"ONNX Runtime does not take {path} ({_first_line(error)}): profiled is what it runs"
        ) from error


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


# --- Sessions outside pipelines: every `InferenceSession` that a switched-on script runs itself.
#
# Runs inside a pipeline call are the pipeline's business, and so are those of our own sessions.
# Operators come from an `OperatorSource`: a second session of the same model with profiling on,
# which takes the runs in place of the script's own.


_RUNS = ("run", "run_with_ort_values", "run_with_iobinding", "run_with_ortvaluevector", "run_async")
_OWN = "profiler.capture."


class OnnxSessions:
    """Watches the class `InferenceSession`.

    `recording()` returns the recording session, None while nothing is recorded. `open_source`
    returns the operator source of a bare session, None if its operators are not traced.
    """

    def __init__(
        self, recording: Callable[[], Any], open_source: Callable[[Any, BareSession], Any]
    ) -> None:
        self._recording = recording
        self._open_source = open_source
        self._bare: ByIdentity[BareSession] = ByIdentity()
        self._own: ByIdentity[bool] = ByIdentity()
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
                self._own[session] = True
            made(session, *args, **kwargs)

        self._patches.replace(module.InferenceSession, "__init__", __init__)
        for name in _RUNS:
            if name in vars(module.Session):
                original = vars(module.Session)[name]
                self._patches.replace(module.Session, name, self._watched(name, original))

    def forget(self) -> None:
        """Forget all names and sources, as in a forked child."""
        self._bare = ByIdentity()
        self._names = {}
        self._lock = threading.RLock()

    def undo(self) -> None:
        """Restore the classes."""
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
        """Start a run; None if it must not be recorded, or cannot be."""
        submodule, begun = "onnxruntime", None  # until the session has a name
        try:
            bare = self._bare_session(recording, session)
            submodule = bare.submodule
            if bare.refused:
                return None
            begun = BareRun(recording, bare, session, name, original, arguments)
            begun.begin()
        except Exception as error:  # noqa: BLE001 - the user's program goes on
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
                except BaseException:  # the script was interrupted: retried on the next run
                    if self._names.get(bare.submodule) is bare:
                        del self._names[bare.submodule]
                    if bare.source is not None:
                        bare.source.close()
                    raise
            return bare

    def _trace(self, recording: Any, bare: BareSession, session: Any) -> None:
        """Open the operator source of a session, if its operators can be traced."""
        try:
            bare.source = self._open_source(recording, bare)
        except Exception as error:  # noqa: BLE001 - the user's program goes on
            let_pass(error)
            recording.recorder.lose(bare.submodule, error, for_good=True)
        if bare.source is not None:
            when_gone(session, bare.source.close)

    def _named(self, session: Any) -> BareSession:
        """The session with a free name: that of its model, or of a dropped session of the same
        model; numbered if others have it."""
        name = model_name(session)
        for number in count(1):
            bare = BareSession(session, name if number == 1 else f"{name}_{number}")
            other = self._names.get(bare.submodule)
            if other is None or (other.gone and other.model_path == bare.model_path):
                self._names[bare.submodule] = bare
                return bare
        raise AssertionError
