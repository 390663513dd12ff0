"""What interrupts the user's program inside our code reaches it, and capture goes on afterwards."""

from __future__ import annotations

import ctypes
import functools
import gc
import importlib
import queue
import signal
import sys
import threading
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path

import pytest

import profiler
from profiler.capture import (
    FakeClock,
    Options,
    PipelineHooks,
    Recorder,
    Session,
    Settings,
    SwitchedOn,
    open_session,
)
from profiler.capture.calls import Scope, scope
from profiler.capture.imports import waiting, when_imported
from profiler.errors import OutputError
from profiler.files import write_atomically
from profiler.plugins import let_pass
from profiler.trace import JOURNAL_NAME, merge_bundle

from .interrupting import Interruptions, TimeIsUp, handled
from .toy import ToyPipeline

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")


def alarm():
    signal.raise_signal(signal.SIGALRM)


def passed(action):
    """Whether what `action` raises is an interruption."""
    try:
        action()
    except Exception as error:  # noqa: BLE001 - a crash is an answer as well, until it is mended
        try:
            let_pass(error)
        except type(error) as found:
            return found is error
        return False
    raise AssertionError("nothing was raised")


def nested(number, frame):
    def deeper():
        raise TimeIsUp("deep")

    deeper()


class Alarms:
    def method(self, number, frame):
        raise TimeIsUp("of a method")

    def __call__(self, number, frame):
        frame = None
        self.method(number, frame)


def with_more(more, number, frame):
    raise TimeIsUp(more)


@pytest.mark.parametrize(
    "handler",
    [
        nested,
        Alarms().method,
        functools.partial(with_more, "of a partial"),
        lambda *given: nested(1, given),
        lambda number, frame=None: [].pop(),
    ],
)
def test_signal_handlers_of_every_kind_are_told(handler):
    """Whatever a handler looks like, and whatever it raises, comes of the signal."""
    before = signal.signal(signal.SIGALRM, handler)
    try:
        assert passed(alarm)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_what_ran_is_not_an_interruption():
    """Neither an error of C code, of a property, with arguments or without, nor one of a handler
    that was called by hand."""

    class Shy:
        @property
        def size(self):
            raise queue.Empty

        @property
        def shape(self):
            raise TimeIsUp("when asked")

    for action in (
        lambda: Shy().size,
        lambda: Shy().shape,
        lambda: int("x"),
        lambda: next(iter(())),
        lambda: {}["x"],
        lambda: nested(1, None),
        lambda: queue.SimpleQueue().get_nowait(),
    ):
        assert not passed(action)


def test_an_exception_that_a_thread_has_set_is_an_interruption():
    """As of `PyThreadState_SetAsyncExc`, which some libraries end what takes too long with."""
    own = ctypes.c_ulong(threading.get_ident())

    def set_one():
        ctypes.pythonapi.PyThreadState_SetAsyncExc(own, ctypes.py_object(TimeIsUp))
        return sum(number for number in range(9))

    assert passed(set_one)


def test_a_handlers_timeout_is_no_error_of_the_disk(tmp_path: Path):
    """A `TimeoutError` is an `OSError`: what was made of it on the way is not what is raised."""

    def chunks():
        alarm()
        yield b"data"

    with handled(lambda: TimeoutError("the time is up")), pytest.raises(OutputError) as found:
        write_atomically(tmp_path / "file", chunks())
    with pytest.raises(TimeoutError, match="the time is up"):
        let_pass(found.value)


@pytest.mark.parametrize("suppressed", [True, False])
def test_an_interruption_that_a_library_raises_another_error_for(suppressed):
    """It is what the library was handling, with or without `from None`. What the script itself is
    handling when our code fails is no interruption of that code."""

    def library():
        try:
            alarm()
        except TimeIsUp:
            if suppressed:
                raise ValueError("no data") from None
            int("x")

    with handled(lambda: TimeIsUp("late")):
        with pytest.raises(ValueError) as found:  # noqa: PT011 - of either text
            library()
        with pytest.raises(TimeIsUp, match="late"):
            let_pass(found.value)
        try:
            alarm()
        except TimeIsUp:
            assert not passed(lambda: int("x"))


def test_interruptions_that_the_script_has_handled():
    """They are not raised again for an error of ours: whoever raised and caught them again, kept
    them in a future, or took their tracebacks away."""

    def again(error):
        with suppress(TimeIsUp, KeyboardInterrupt):
            raise error

    def in_future(error):
        future = Future()
        future.set_exception(error)
        with suppress(TimeIsUp, KeyboardInterrupt):
            future.result()

    def cleared(error):
        error.__traceback__ = None

    with handled(lambda: TimeIsUp("late")):
        for handle in (again, in_future, cleared):
            for interrupted in (alarm, interrupted_by_key):
                try:
                    interrupted()
                except (TimeIsUp, KeyboardInterrupt) as error:
                    handle(error)
                    assert not passed(lambda: int("x"))


def interrupted_by_key():
    raise KeyboardInterrupt


def last_calls(recorder):
    """What was recorded of the last pipeline call."""
    last = recorder.pipelines[-1]
    return [call.submodule for call in recorder.finished() if call.pipeline is last]


@pytest.fixture
def few_objects():
    """Coverage looks through the objects of the process for modules, again and again here: those
    that other tests have left are not among them. They stay frozen, as tests/conftest.py wants."""
    gc.freeze()


ENCODERS = ["text_encoder", "text_encoder_2", "text_encoder_3"]
CALLS = [*ENCODERS, *ENCODERS, "transformer", "vae"]
EVERY = [pytest.param(1, marks=pytest.mark.nightly), 5]


@pytest.mark.usefixtures("few_objects")
@pytest.mark.parametrize("stride", EVERY)
def test_wherever_a_call_is_interrupted_the_next_is_recorded(stride):
    """An exception of a signal's handler, at any place of our code around a pipeline call, reaches
    the caller; nothing stays open, and the next call has all of its calls."""
    at, interruptions = stride // 2, Interruptions()
    while True:
        recorder = Recorder(FakeClock())
        pipeline = ToyPipeline(recorder.clock)
        hooks = PipelineHooks(pipeline, recorder, lambda entry: None, lambda pipeline: None)
        hooks.attach()
        found = interruptions.run(at, pipeline, 1)
        assert scope() == Scope(), interruptions.where
        pipeline(num_inference_steps=1)
        assert last_calls(recorder) == CALLS, interruptions.where
        assert recorder.at_rest(), interruptions.where
        assert recorder.failures == {}, interruptions.where
        hooks.detach()
        assert type(pipeline) is ToyPipeline
        if not found:
            break
        at += stride
    assert at > 300


@pytest.fixture
def process():
    """One that is left as it was, also where a test fails."""
    process = SwitchedOn(open_session)
    yield process
    process.switch_off()


@pytest.mark.usefixtures("few_objects")
@pytest.mark.parametrize("stride", [pytest.param(3, marks=pytest.mark.nightly), 211])
def test_wherever_attaching_is_interrupted_the_next_use_is_recorded(
    tmp_path: Path, process: SwitchedOn, stride: int
):
    """In a process that is switched on, an exception of a signal's handler on a pipeline's first
    use reaches the caller, and the second use is recorded as it would have been."""
    at, interruptions = stride // 2, Interruptions()
    while True:
        process.switch_on(Settings.of({"out": tmp_path / str(at), "ops": "none"}))
        process._pipelines.watch_class(ToyPipeline)
        pipeline = ToyPipeline(FakeClock())
        found = interruptions.run(at, pipeline, 1)
        assert pipeline(num_inference_steps=1).keys() == {"latent_sample"}
        path = process.switch_off()
        assert type(pipeline) is ToyPipeline
        assert path is not None, interruptions.where
        calls = profiler.load(path).calls
        last = calls.filter(calls["pipeline"] == calls["pipeline"].max())
        assert last["submodule"].to_list() == CALLS, interruptions.where
        if not found:
            break
        at += stride
    assert at > 1000


@pytest.mark.usefixtures("few_objects")
@pytest.mark.parametrize("stride", [pytest.param(3, marks=pytest.mark.nightly), 61])
def test_wherever_closing_is_interrupted_the_pipeline_is_as_it_was(tmp_path: Path, stride):
    """An exception of a signal's handler while a run is closed reaches who closes it; nothing stays
    hooked, what the pipeline does is no part of the run, and `merge` completes what was written."""
    at, interruptions = stride // 2, Interruptions()
    while True:
        pipeline = ToyPipeline(FakeClock())
        session = Session.open(Options("none"), tmp_path, str(at), clock=pipeline.clock)
        session.attach(pipeline)
        pipeline(num_inference_steps=1)
        found = interruptions.run(at, session.close)
        assert type(pipeline) is ToyPipeline, interruptions.where
        assert not vars(pipeline.scheduler).keys() & {"step", "set_timesteps"}, interruptions.where
        pipeline(num_inference_steps=1)
        assert len(session.recorder.invocations) == 8
        if (tmp_path / str(at) / JOURNAL_NAME).exists():
            merge_bundle(tmp_path / str(at))
        assert len(profiler.load(tmp_path / str(at)).calls) == 8, interruptions.where
        if not found:
            break
        at += stride
    assert at > 300


def test_a_property_that_only_we_ask_for_is_not_the_users_error(tmp_path: Path):
    """What a pipeline's own attribute raises when we look at it is a drop, though the exception is
    the user's; one of a signal that comes meanwhile is not."""

    class Shy(ToyPipeline):
        ends = None

        @property
        def image_encoder(self):
            if self.ends is not None:
                self.ends()

    def refuse():
        raise TimeIsUp("not now")

    pipeline = Shy(FakeClock())
    session = Session.open(Options("none"), tmp_path, clock=pipeline.clock)
    session.attach(pipeline)
    pipeline.ends = refuse
    pipeline(num_inference_steps=1)
    pipeline.ends = alarm
    with handled(lambda: TimeIsUp("the time is up")), pytest.raises(TimeIsUp):
        pipeline(num_inference_steps=1)
    pipeline.ends = None
    pipeline(num_inference_steps=1)
    assert list(session.recorder.failures) == [("Shy", "TimeIsUp: not now")]
    assert len(profiler.load(session.close()).calls) == 16


def test_an_import_that_is_interrupted_is_watched_again(tmp_path: Path, monkeypatch, capsys):
    """An exception of a signal's handler while we look at a library reaches the import, which the
    script may try again; a failure of ours is said, and is no failure of the import."""
    for name in ("interrupted_library", "failing_library"):
        (tmp_path / f"{name}.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    seen = []

    def look(module):
        seen.append(module.__name__)
        if len(seen) == 1:
            alarm()

    when_imported("interrupted_library", look)
    with handled(lambda: TimeIsUp("the time is up")), pytest.raises(TimeIsUp):
        importlib.import_module("interrupted_library")
    importlib.import_module("interrupted_library")
    assert seen == ["interrupted_library"] * 2
    when_imported("failing_library", lambda module: nested(1, None))
    importlib.import_module("failing_library")
    assert "failing_library is not profiled: TimeIsUp: deep" in capsys.readouterr().err
    assert not {"interrupted_library", "failing_library"} & set(waiting())
