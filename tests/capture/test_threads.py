"""Pipelines in threads, in each other and one after the other: each call finds its own labels."""

from __future__ import annotations

import asyncio
import threading

import polars as pl
import pytest

import profiler
from profiler.analysis.analyze import analyze
from profiler.capture import FakeClock, Options, RunClock, Session
from profiler.capture.pipelines import pipeline_hooks
from profiler.trace import NO_PIPELINE
from profiler.trace.events import component_of

from .toy import ToyPipeline

_DENOISED = ("batched", "cond")
_PROMPTS = ("prompt", "negative_prompt")
START = 1_790_000_000_000_000_000


class Turns:
    """Lets threads take turns: each submodule call of a pipeline waits for the other's."""

    def __init__(self, count):
        self.barrier = threading.Barrier(count)

    def join(self, pipeline):
        forward = pipeline.transformer.forward

        def in_turn(**inputs):
            self.barrier.wait(timeout=60)
            result = forward(**inputs)
            self.barrier.wait(timeout=60)
            return result

        pipeline.transformer.forward = in_turn


class Outer:
    """A pipeline that runs two others, as combined pipelines do."""

    def __init__(self, *inner):
        self.inner = inner
        self.transformer = inner[0].transformer
        self.scheduler = inner[0].scheduler

    def __call__(self):
        for pipeline in self.inner:
            pipeline(num_inference_steps=1)


def rows(run, *columns):
    return run.calls.select(*columns).rows()


def test_pipelines_in_threads_keep_apart(tmp_path):
    """Two pipelines whose calls overlap in time have all their calls, each with its own step,
    branch and pipeline call, and no index twice."""
    session = Session.open(Options("none"), tmp_path, clock=RunClock.start())
    turns = Turns(2)
    pipelines = [ToyPipeline(FakeClock(), guidance=guided) for guided in (True, False)]
    for pipeline in pipelines:
        turns.join(pipeline)
        session.attach(pipeline)
    threads = [threading.Thread(target=p, args=(3,)) for p in pipelines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    run = profiler.load(session.close())
    assert run.drops == ()
    assert run.calls["call"].to_list() == list(range(6 + 3 + 1 + 3 + 3 + 1))
    denoiser = [row for row in rows(run, "branch", "step") if row[1] >= 0]
    assert sorted(denoiser) == [(b, step) for b in ("batched", "cond") for step in range(3)]
    assert run.calls["branch"].to_list().count("negative_prompt") == 3
    assert run.spans["kind"].to_list().count("pipeline") == 2
    assert run.spans["kind"].to_list().count("step") == 6
    numbers = {row[1]: row[0] for row in rows(run, "pipeline", "branch") if row[1] in _DENOISED}
    assert sorted(numbers.values()) == [0, 1]
    assert sorted(rows(run, "pipeline", "branch", "step"), key=str) == sorted(
        [(numbers[branch], branch, step) for branch in _DENOISED for step in range(3)]
        + [(numbers["batched"], branch, -1) for branch in _PROMPTS for _ in range(3)]
        + [(numbers["cond"], "prompt", -1) for _ in range(3)]
        + [(number, None, -1) for number in (0, 1)],
        key=str,
    )
    assert sorted(run.spans.group_by("pipeline", "kind").len().rows()) == [
        (number, kind, count)
        for number in (0, 1)
        for kind, count in (("pipeline", 1), ("stage", 3), ("step", 3))
    ]
    work = run.commands.filter(pl.col("layer").cast(pl.String) == "scheduler.step")
    assert sorted(work.select("pipeline", "step").rows()) == [
        (number, step) for number in (0, 1) for step in range(3)
    ]


@pytest.mark.torch
def test_diffusers_pipelines_in_threads(tmp_path):
    """Two real pipelines at the same time: each thread's calls have that pipeline's labels."""
    pytest.importorskip("diffusers", reason="needs the torch extra")
    from . import tiny_diffusers as tiny

    pipelines = [tiny.flux(), tiny.sdxl()]
    session = Session.open(Options("none"), tmp_path)
    barrier = threading.Barrier(2)

    def together(pipeline, step, timestep, tensors):
        barrier.wait(timeout=60)
        return tensors

    def run(pipeline):
        session.attach(pipeline)
        pipeline("a cat", num_inference_steps=2, callback_on_step_end=together, **tiny.SIZE)

    threads = [threading.Thread(target=run, args=(pipeline,)) for pipeline in pipelines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    loaded = profiler.load(session.close())
    labels = rows(loaded, "submodule", "branch", "step")
    assert sorted(((component_of(name), *rest) for name, *rest in labels), key=str) == [
        *(("text_encoder", "prompt", -1) for _ in "ab"),
        *(("text_encoder_2", "prompt", -1) for _ in "ab"),
        *(("transformer", "cond", step) for step in (0, 1)),
        *(("unet", "batched", step) for step in (0, 1)),
        *(("vae", None, -1) for _ in "ab"),
    ]
    assert sorted(loaded.calls["call"].to_list()) == list(range(10))
    parts = {component_of(pair[1]): pair[0] for pair in rows(loaded, "pipeline", "submodule")}
    assert {parts["transformer"], parts["unet"]} == {0, 1}
    analysis = analyze(loaded)
    assert (analysis.accounting.overlapping, analysis.accounting.told_apart) == (2, True)
    assert analysis.accounting.end_to_end_ns == sum(analysis.pipelines["duration_ns"])
    assert analysis.accounting.wall_ns < analysis.accounting.end_to_end_ns
    assert analysis.pipelines["calls"].to_list() == [5, 5]
    assert analysis.pipelines["residual_share"].max() <= 0.01
    assert analysis.accounting.residual_share <= 0.01
    steps = analysis.steps.select("pipeline", "step", "calls").rows()
    assert sorted(steps) == [(number, step, 1) for number in (0, 1) for step in (0, 1)]


def test_one_pipeline_in_two_threads(tmp_path):
    """Two threads that call the same encoder at the same time record a call each, whole."""
    pipeline = ToyPipeline(FakeClock())
    barrier = threading.Barrier(2)
    forward = pipeline.text_encoder.forward

    def together(**inputs):
        barrier.wait(timeout=60)
        return forward(**inputs)

    pipeline.text_encoder.forward = together
    session = Session.open(Options("none"), tmp_path, clock=RunClock.start())
    session.attach(pipeline)
    threads = [
        threading.Thread(target=pipeline.text_encoder, kwargs={"input_ids": None}) for _ in "ab"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    run = profiler.load(session.close())
    assert run.calls["submodule"].to_list() == ["text_encoder"] * 2
    assert run.calls["pipeline"].to_list() == [NO_PIPELINE] * 2


def test_pipelines_inside_a_pipeline(tmp_path):
    """Calls belong to the inner pipelines; their stages and steps tile the outer's span."""
    clock = FakeClock(START)
    inner = [ToyPipeline(clock), ToyPipeline(clock, guidance=False)]
    outer = Outer(*inner)
    session = Session.open(Options("none"), tmp_path, clock=clock)
    for pipeline in (outer, *inner):
        session.attach(pipeline)
    outer()
    run = profiler.load(session.close())
    named = [(component_of(name), branch) for name, branch in rows(run, "submodule", "branch")]
    assert [row for row in named if row[0] == "transformer"] == [
        ("transformer", "batched"),
        ("transformer", "cond"),
    ]
    assert len(run.calls) == 8 + 5
    for frame in (run.calls, run.spans, run.commands):
        assert set(frame["pipeline"]) == {0}
    assert analyze(run).accounting.residual_share <= 0.01
    spans = run.spans.select("kind", "name", "start_ns", "duration_ns").rows()
    assert [(kind, name, start - START, length) for kind, name, start, length in spans] == [
        ("pipeline", "Outer", 0, 4849),
        ("stage", "encode", 0, 1210),
        ("stage", "denoise", 1210, 1017),
        ("step", "step 0", 1217, 1010),
        ("stage", "decode", 2227, 500),
        ("stage", "encode", 2727, 605),
        ("stage", "denoise", 3332, 1017),
        ("step", "step 0", 3339, 1010),
        ("stage", "decode", 4349, 500),
    ]


def test_pipeline_calls_in_warmup_have_no_number(tmp_path):
    """What runs in warm-up counts for nothing: the first recorded pipeline call is number 0."""
    clock = FakeClock(START)
    pipeline = ToyPipeline(clock)
    session = Session.open(Options("none"), tmp_path, clock=clock)
    session.attach(pipeline)
    with session.warmup():
        pipeline(num_inference_steps=1)
    pipeline(num_inference_steps=1)
    run = profiler.load(session.close())
    assert set(run.calls["pipeline"]) == set(run.spans["pipeline"]) == {0}


def test_a_run_that_is_closed_while_it_runs_keeps_what_has_ended(tmp_path):
    """Closing from inside a call keeps the finished calls, names the open one, and ends the spans
    there."""
    clock = FakeClock(START)
    pipeline = ToyPipeline(clock)
    session = Session.open(Options("none"), tmp_path, clock=clock)
    session.attach(pipeline)
    decode = pipeline.vae.decode
    closed = []

    def close_first(latents):
        closed.append(session.close("SIGTERM"))
        return decode(latents)

    pipeline.vae.decode = close_first
    pipeline(num_inference_steps=1)
    run = profiler.load(closed[0])
    assert len(run.calls) == 7
    assert [(drop.kind, drop.where) for drop in run.drops] == [
        ("untraced_call", "vae"),
        ("aborted_run", "run"),
    ]
    assert run.spans["kind"].to_list() == ["pipeline", "stage", "stage", "step"]
    assert session.close() == closed[0]


class Waiting(ToyPipeline):
    """Lets a thread that looks for the scheduler wait."""

    waiter = None

    @property
    def scheduler(self):
        if threading.current_thread() is self.waiter:
            self.looking.set()
            assert self.go_on.wait(60)
        return self._scheduler

    @scheduler.setter
    def scheduler(self, value):
        self._scheduler = value
        self.looking, self.go_on = threading.Event(), threading.Event()


def test_closing_while_another_thread_looks_for_what_to_hook(tmp_path):
    """A pipeline call that has just begun hooks nothing once the session is closed."""
    clock = FakeClock(START)
    pipeline = Waiting(clock)
    parts = ("transformer", "text_encoder", "vae", "scheduler", "tokenizer")
    before = {name: set(vars(getattr(pipeline, name))) for name in parts}
    session = Session.open(Options("none"), tmp_path, clock=clock)
    session.attach(pipeline)
    pipeline.waiter = threading.Thread(target=pipeline)
    pipeline.waiter.start()
    assert pipeline.looking.wait(60)
    session.close()
    pipeline.go_on.set()
    pipeline.waiter.join()
    assert type(pipeline) is Waiting
    assert type(pipeline.tokenizer).__bases__ == (object,)
    assert {name: set(vars(getattr(pipeline, name))) for name in parts} == before


@pytest.mark.torch
def test_a_replaced_module_is_hooked_once(tmp_path, monkeypatch):
    """Of two threads that begin a call after a module was replaced, one hooks the new one."""
    torch = pytest.importorskip("torch", reason="needs the torch extra")

    class Pipeline:
        def __init__(self):
            self.transformer = torch.nn.Linear(2, 2)

        def __call__(self):
            return self.transformer(torch.ones(1, 2))

    known_names, started = pipeline_hooks.argument_names, []
    second_waits_or_ended = threading.Event()

    class Lock:
        lock = threading.RLock()

        def __enter__(self):
            if threading.current_thread() is second:
                second_waits_or_ended.set()
            self.lock.acquire()

        def __exit__(self, *_):
            self.lock.release()

    def call():
        pipeline()
        second_waits_or_ended.set()

    def names(function):
        if not started:  # the first thread is hooking: the second one comes
            started.append(second.start())
            assert second_waits_or_ended.wait(60)
        return known_names(function)

    pipeline, second = Pipeline(), threading.Thread(target=call)
    session = Session.open(Options("none"), tmp_path)
    session.attach(pipeline)._hooks._lock = Lock()
    pipeline.transformer = replaced = torch.nn.Linear(2, 2)
    monkeypatch.setattr(pipeline_hooks, "argument_names", names)
    pipeline()
    second.join()
    assert (len(replaced._forward_pre_hooks), len(replaced._forward_hooks)) == (1, 1)
    run = profiler.load(session.close())
    assert (len(replaced._forward_pre_hooks), len(replaced._forward_hooks)) == (0, 0)
    assert len(run.calls) == 2


def test_a_session_attaches_again_after_detaching(tmp_path):
    """Between attachments nothing is recorded; afterwards calls are appended to the same run."""
    clock = FakeClock(START)
    pipeline = ToyPipeline(clock)
    session = Session.open(Options("none"), tmp_path, clock=clock)
    for recorded in (True, False, True):
        attachment = session.attach(pipeline) if recorded else None
        pipeline(num_inference_steps=1)
        if attachment is not None:
            attachment.detach()
            attachment.detach()
    run = profiler.load(session.close())
    assert len(run.calls) == 16
    assert run.calls["pipeline"].to_list() == [0] * 8 + [1] * 8
    with pytest.raises(profiler.ProfilerError, match="this run is closed"):
        session.attach(pipeline)


@pytest.mark.parametrize(("own", "expected"), [(True, NO_PIPELINE), (False, 0)])
def test_a_pipelines_own_thread_is_in_no_pipeline_call(tmp_path, own, expected):
    """A known limit (docs/known-limits.md); a task of asyncio is in the call."""

    class Decoding(ToyPipeline):
        def __call__(self):
            if own:
                thread = threading.Thread(target=self.vae.decode, args=(1,))
                thread.start()
                thread.join()
            else:
                asyncio.run(self.decoded())

        async def decoded(self):
            return self.vae.decode(1)

    clock = FakeClock()
    pipe = Decoding(clock)
    with profiler.profile(pipe, ops="none", out=tmp_path, clock=clock) as recorded:
        pipe()
    assert rows(profiler.load(recorded.path), "submodule", "pipeline") == [("vae", expected)]
