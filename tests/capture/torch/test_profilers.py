"""Beside a torch.profiler of the script's own, and in several threads: torch has one a process."""

from __future__ import annotations

import sys
import threading

import polars as pl
import pytest

import profiler
from profiler.capture import Options, Session
from profiler.trace.events import component_of

pytest.importorskip("diffusers", reason="needs the torch extra")
torch = pytest.importorskip("torch", reason="needs the torch extra")

from profiler.capture.torch.modules import leave, running_session, say_running  # noqa: E402
from profiler.capture.torch.script_profilers import PROFILERS  # noqa: E402
from tests.capture import tiny_diffusers as tiny  # noqa: E402 - it imports them

pytestmark = pytest.mark.torch

CALLS = ["text_encoder", "text_encoder_2", "transformer", "transformer", "transformer", "vae"]


def own_profiler():
    return torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])


def test_a_profiler_without_a_hash():
    """It records as ever while profilers are watched, and is not taken for one of ours."""

    class Theirs(torch.autograd.profiler.profile):
        __hash__ = None

    watching = object()
    PROFILERS.watch(watching)
    try:
        with Theirs() as theirs:
            during = PROFILERS.waiting
            torch.ones(1).add(1)
        assert (during, PROFILERS.waiting) == (False, False)
    finally:
        PROFILERS.leave(watching)
    assert "aten::add" in {event.name for event in theirs.function_events}


def generate(pipeline, on_step=None):
    return pipeline(
        "a cat",
        num_inference_steps=3,
        output_type="np",
        generator=torch.Generator().manual_seed(0),
        callback_on_step_end=on_step,
        **tiny.SIZE,
    ).images


def around(pipeline, theirs, out):
    """It was started first."""
    with theirs, profiler.profile(pipeline, out=out) as run:
        generate(pipeline)
    return run


def inside(pipeline, theirs, out):
    """It runs in our block, around the call of the pipeline."""
    with profiler.profile(pipeline, out=out) as run, theirs:
        generate(pipeline)
    return run


def in_one_step(pipeline, theirs, out):
    """It records the second step, in the middle of our session."""

    def on_step(_, step, *others):
        if step == 0:
            theirs.__enter__()
        elif step == 1:
            theirs.__exit__(None, None, None)
        return others[-1]

    with profiler.profile(pipeline, out=out) as run:
        generate(pipeline, on_step)
    return run


def to_the_end(pipeline, theirs, out):
    """It begins in the middle of our session and ends after our run."""

    def on_step(_, step, *others):
        if step == 0:
            theirs.__enter__()
        return others[-1]

    with profiler.profile(pipeline, out=out) as run:
        generate(pipeline, on_step)
    torch.ones(2).erf()
    theirs.__exit__(None, None, None)
    assert "aten::erf" in {event.name for event in theirs.events()}
    return run


@pytest.mark.parametrize(
    ("use", "traced"),
    [(around, []), (inside, []), (in_one_step, [0, 1, 2, 4, 5]), (to_the_end, [0, 1, 2])],
)
def test_a_profiler_of_the_script_keeps_all_that_it_recorded(tmp_path, use, traced):
    """Whenever it runs, its events are its own, and ours is not started or stops first: every call
    is there, those that it cost their operators are drops, and pixels stay the same."""
    pipeline, theirs = tiny.flux(), own_profiler()
    expected = generate(pipeline)
    run = use(pipeline, theirs, tmp_path)
    assert "aten::addmm" in {event.name for event in theirs.events()}
    loaded = profiler.load(run.path)
    assert loaded.calls["submodule"].cast(str).to_list() == CALLS
    having = loaded.calls.filter("ops_traced")["call"].to_list()
    assert having == traced
    assert set(loaded.commands.filter(pl.col("call") >= 0)["call"]) == set(traced)
    assert {drop.kind for drop in loaded.drops} == {"untraced_call"}
    assert sum(drop.count for drop in loaded.drops) == len(CALLS) - len(traced)
    assert (generate(pipeline) == expected).all()
    assert not torch.autograd.profiler._is_profiler_enabled


def test_the_notice_is_one_sentence(tmp_path, capfd, monkeypatch):
    """The user is told once, on stderr, what a profiler of the script's own costs."""
    from profiler.capture.torch import operators

    monkeypatch.setattr(operators.TRACING, "_noticed", False)
    around(tiny.flux(), own_profiler(), tmp_path)
    (line,) = [line for line in capfd.readouterr().err.splitlines() if "the script's own" in line]
    assert line == (
        "profile-sd3: the script's own torch.profiler is running, and torch has one a process: "
        "calls that run meanwhile are recorded without their operators"
    )


def operators_of(run, call):
    """What a call executed: layers and operators, in order."""
    columns = ("layer", "op_type")
    return run.commands.filter(pl.col("call") == call).select(pl.col(columns).cast(str)).rows()


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """What calls of two pipelines execute where nothing else runs, by submodule and step."""
    found = {}
    for name, make in (("flux", tiny.flux), ("sdxl", tiny.sdxl)):
        pipeline = make()
        with profiler.profile(pipeline, out=tmp_path_factory.mktemp(name)) as run:
            generate(pipeline)
        loaded = profiler.load(run.path)
        for call, submodule, step in loaded.calls.select(
            "call", pl.col("submodule").cast(str), "step"
        ).rows():
            found.setdefault((submodule, step), []).append(operators_of(loaded, call))
    return found


def test_pipelines_in_threads_have_their_own_operators(tmp_path, alone):
    """Two pipelines at the same time, three times over. Once torch records all threads every call
    of both has the operators that it has alone; until then, what could not be traced is a drop.
    None has another's."""
    pipelines = [tiny.flux(), tiny.sdxl()]
    session = Session.open(Options(), tmp_path)
    for pipeline in pipelines:
        session.attach(pipeline)
    barrier = threading.Barrier(2)

    def on_step(_, step, *others):
        barrier.wait(timeout=120)  # both are in their loops
        return others[-1]

    for _ in range(3):
        threads = [threading.Thread(target=generate, args=(p, on_step)) for p in pipelines]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    run = profiler.load(session.close())
    assert len(run.calls) == 3 * 2 * len(CALLS)
    lost = sum(drop.count for drop in run.drops if drop.kind == "untraced_call")
    calls = run.calls.select("call", pl.col("submodule").cast(str), "step", "ops_traced").rows()
    assert lost == sum(not traced for *_, traced in calls)
    assert sum(traced for *_, traced in calls) >= 2 * 2 * len(CALLS)
    for call, submodule, step, traced in calls:
        found = operators_of(run, call)
        assert found in alone[component_of(submodule), step] if traced else found == []


class Range:
    """A range of torch that counts how often it is left."""

    def __init__(self):
        self.left = 0

    def __exit__(self, *_):
        self.left += 1


@pytest.mark.parametrize(
    ("then", "left"),
    [
        ("the same session", 1),
        ("no profiler", 1),
        ("the script's profiler", 0),
        ("a later session of ours", 0),
    ],
)
def test_a_range_is_left_in_its_own_session_alone(monkeypatch, then, left):
    """torch has freed a session once another profiler has been started, and would write the end of
    the range into that memory, also when the range is destroyed: it stays for ever."""
    flag = "_is_profiler_enabled"
    monkeypatch.setattr(torch.autograd.profiler, flag, False)
    say_running(ours=True)
    opened, session = Range(), running_session()
    if then == "a later session of ours":
        say_running(ours=True)
    elif then != "the same session":
        monkeypatch.setattr(torch.autograd.profiler, flag, then == "the script's profiler")
    before = sys.getrefcount(opened)
    leave(opened, session)
    assert (opened.left, sys.getrefcount(opened) - before) == (left, 1 - left)


def test_a_profiler_that_the_script_starts_within_a_call(tmp_path):
    """Calls, modules and host work are open in our session when it stops for theirs, which has no
    range of ours. The call that is cut off is a drop; once theirs is stopped ours goes on."""
    pipeline, theirs = tiny.flux(), own_profiler()
    seen = []

    def start(*_):
        if not seen:
            theirs.__enter__()
        seen.append(running_session())

    pipeline.transformer.transformer_blocks[0].register_forward_pre_hook(start)

    def on_step(_, step, *others):
        if step == 0:
            theirs.__exit__(None, None, None)
        return others[-1]

    with profiler.profile(pipeline, out=tmp_path) as run:
        generate(pipeline, on_step)
    names = {event.name for event in theirs.events()}
    assert "aten::addmm" in names
    assert not any(name.startswith("profile-sd3") for name in names)
    loaded = profiler.load(run.path)
    assert loaded.calls["submodule"].cast(str).to_list() == CALLS
    assert loaded.calls.filter("ops_traced")["call"].to_list() == [0, 1, 3, 4, 5]
    (drop,) = loaded.drops
    assert (drop.kind, drop.count) == ("untraced_call", 1)
