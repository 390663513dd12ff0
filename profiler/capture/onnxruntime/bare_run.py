"""One run of a bare session, from its begin to its end: a call, of no stage, branch or step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from profiler.capture.arrays import described
from profiler.capture.invocations import Invocation
from profiler.capture.onnxruntime.bare_session import BareSession
from profiler.capture.scopes import Scope, enter, scope
from profiler.events import NO_STEP
from profiler.interruptions import let_pass

__all__ = ["BareRun", "launch_async", "run_to_its_end"]

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
        self._source: Any = None  # what traces it
        self._target: Any = None  # the session that runs in place of the script's own
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
        with bare.lock:
            if bare.source is not None:
                self._source = bare.source
                try:
                    bare.source.before(self._invocation)
                except Exception as error:
                    let_pass(error)
                    self._source = bare.source = None  # it is not asked again
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
        """It has returned, on whatever thread. Again without effect."""
        try:
            self._recorder.end_call(self._invocation, failed=failed)
            if self._source is not None:
                self._source.after(self._invocation)
            if not failed:
                self._recorder.spent(self._invocation, self._invocation.end_ns)
        except Exception as error:  # noqa: BLE001 - the script's run must not fail of us
            let_pass(error)
            self._recorder.lose(self._bare.submodule, error)


def run_to_its_end(run: BareRun) -> Any:
    """Execute a run that returns when it is done."""
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
    """The call lasts until ONNX Runtime calls back, on a thread of its own."""
    callback = run.arguments["callback"]

    def called_back(results: Any, user_data: Any, error: str) -> None:
        try:
            run.end(failed=bool(error))
        finally:
            run.arguments = {}  # they hold this function, which holds the run
            callback(results, user_data, error)

    run.arguments["callback"] = called_back
    try:
        return run.execute()
    except BaseException:
        run.end(failed=True)
        raise


def _shapes(arguments: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The inputs by name as "dtype[d0,d1,…]", as far as the arguments show them."""
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
