"""Profiled sessions in place of a part's own: what is the part's, who shares it, who changes it."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import onnxruntime
import pytest

import profiler
from profiler.capture import EventCost
from profiler.capture.onnxruntime import operators
from profiler.capture.onnxruntime.sessions import open_profiled
from profiler.errors import InputError
from tests.capture.onnx_pipelines import Part, Pipeline, call_on, gathering, opened, ran, ways
from tests.runs import told

RUN = ways()["run"]


@pytest.fixture(autouse=True)
def quick_estimate(monkeypatch):
    """The cost of an event is measured once per run; its own test measures it for real."""
    monkeypatch.setattr(operators, "onnx_event_cost", lambda _: EventCost(5_000.0))


@pytest.mark.parametrize("made", ["before", "during"])
def test_bindings_that_a_part_keeps(tmp_path, made):
    """ONNX Runtime takes a binding on the session alone that made it. A part that keeps one from
    before the run, or from it, runs with it before, during and after."""
    kept = {}

    def bound(session, x):
        if "binding" not in kept:
            kept["binding"] = session.io_binding()
        binding = kept["binding"]
        binding.bind_cpu_input("x", x)
        binding.bind_cpu_input("i", np.array([0]))
        binding.bind_output("y")
        session.run_with_iobinding(binding)
        return binding.copy_outputs_to_cpu()[0]

    pipe = Pipeline(text_encoder=Part(opened(gathering())))
    runs = [("text_encoder", rows, bound) for rows in (1, 2)]
    if made == "before":
        pipe(*runs)
    with profiler.profile(pipe, out=tmp_path) as run:
        profiled = pipe(*runs)
    assert [y.tolist() for y in [*profiled, *pipe(*runs)]] == [[[2.0, 2.0, 2.0]]] * 4
    assert ran(run.path) == [call_on("text_encoder", rows) for rows in (1, 2)]


def test_values_that_belong_to_a_session(tmp_path):
    """An `OrtValue` that the part's session has made goes into a profiled run, too."""

    def owned(session, x):
        value = session.create_ortvalue_from_shape_and_type(x.shape, np.float32, "cpu")
        value.update_inplace(x)
        index = onnxruntime.OrtValue.ortvalue_from_numpy(np.array([0]))
        return session.run_with_ort_values(["y"], {"x": value, "i": index})[0].numpy()

    pipe = Pipeline(text_encoder=Part(opened(gathering())))
    with profiler.profile(pipe, out=tmp_path) as run:
        assert pipe(("text_encoder", 2, owned))[0].tolist() == [[2.0, 2.0, 2.0]]
    assert ran(run.path) == [call_on("text_encoder", 2)]


def test_submodules_that_share_a_session(tmp_path):
    """Parts that the user gave one session are traced each by its own choice: traced calls run on
    a profiled session of the submodule, the others on the shared one, and all give the same."""
    shared = opened(gathering())
    pipe = Pipeline(
        text_encoder=Part(shared),
        text_encoder_2=Part(shared),
        text_encoder_3=Part(shared),
        transformer=Part(shared),
    )
    used = []

    def noting(session, x):
        used.append(session is shared)
        return RUN(session, x)

    names = ("text_encoder", "text_encoder_2", "text_encoder_3", "transformer")
    runs = [(name, rows, noting) for rows in (1, 2, 3) for name in names]
    ops = "every:2 text_encoder_2=first text_encoder_3=none transformer=all"
    plain = pipe(*runs)
    used.clear()
    with profiler.profile(pipe, out=tmp_path, ops=ops) as run:
        profiled = pipe(*runs)
    assert [y.tolist() for y in profiled] == [y.tolist() for y in plain]
    left_out = [
        *(False, False, True, False),
        *(True, True, True, False),
        *(False, True, True, False),
    ]
    assert used == left_out
    assert ran(run.path) == [
        (*call_on(name, rows)[:2], [] if own else call_on(name, rows)[2])
        for (name, rows, _), own in zip(runs, left_out, strict=True)
    ]
    loaded = profiler.load(run.path)
    assert loaded.drops == ()
    sessions = {n: f.profiled_sessions for n, f in loaded.info.submodules.items()}
    assert sessions == dict(zip(names, (1, 1, 0, 1), strict=True))
    assert {getattr(pipe, name).session for name in names} == {shared}


def test_a_session_that_cannot_be_renewed(tmp_path):
    """Where no further session can be opened the calls go on untraced, which is a drop."""
    path = tmp_path / "model.onnx"
    path.write_bytes(gathering().SerializeToString())
    pipe = Pipeline(text_encoder=Part(opened(str(path))))
    own = pipe.text_encoder.session

    def removing(session, x):
        path.write_bytes(b"no model")
        return RUN(session, x)

    with profiler.profile(pipe, out=tmp_path / "traces", event_cap=17) as run:
        runs = [("text_encoder", rows, removing if rows == 2 else RUN) for rows in (1, 2, 3)]
        assert [y.tolist() for y in pipe(*runs)] == [[[2.0, 2.0, 2.0]]] * 3
        path.write_bytes(gathering().SerializeToString())
    assert pipe.text_encoder.session is own
    untraced = (*call_on("text_encoder", 3)[:2], [])
    assert ran(run.path) == [call_on("text_encoder", 1), call_on("text_encoder", 2), untraced]
    drop, layers = profiler.load(run.path).drops
    # the file is no model meanwhile
    assert told(layers).startswith("their layers have the names of ONNX nodes")
    assert (drop.kind, drop.count) == ("untraced_call", -1)
    assert told(drop).startswith("its profiled session could not be renewed")


@pytest.mark.parametrize("ops", ["all", "every:2"])
def test_a_session_that_the_script_replaces(tmp_path, ops):
    """Where the script gives a part another session during the run, that one runs and stays; its
    calls are a drop, those before it are not."""
    pipe = Pipeline(text_encoder=Part(opened(gathering())))
    other, used = opened(gathering()), []

    def noting(session, x):
        used.append(session is other)
        return RUN(session, x)

    with profiler.profile(pipe, out=tmp_path, ops=ops) as run:
        pipe(("text_encoder", 1, noting))
        pipe.text_encoder.session = other
        pipe(("text_encoder", 2, noting), ("text_encoder", 3, noting))
    assert pipe.text_encoder.session is other
    assert used == [False, True, True]
    operators = [row[2] for row in ran(run.path)]
    assert operators == [call_on("text_encoder", 1)[2], [], []]
    drops = profiler.load(run.path).drops
    assert [(drop.kind, drop.count) for drop in drops] == [
        ("untraced_call", 2 if ops == "all" else 1)
    ]


def test_a_part_whose_session_is_profiled_already(tmp_path):
    """A pipeline whose script has ONNX Runtime's profiling on is refused in one sentence, and is
    as it was: that profile would lack the runs."""
    own = opened(gathering(), enable_profiling=True, profile_file_prefix=str(tmp_path / "own"))
    pipe = Pipeline(text_encoder=Part(own))
    with (
        pytest.raises(InputError, match="own profiling is on in its session: switch off"),
        profiler.profile(pipe, out=tmp_path / "traces"),
    ):
        pass
    assert pipe.text_encoder.session is own
    assert list((tmp_path / "traces").iterdir()) == []
    config = {"text_encoder": {"activate_profiler": False}}
    with profiler.profile(pipe, out=tmp_path / "traces", config=config) as run:
        pipe(("text_encoder", 1, RUN))
    assert ran(run.path) == [(*call_on("text_encoder", 1)[:2], [])]
    own.end_profiling()


@pytest.mark.parametrize("ops", ["all", "text_encoder=none text_encoder_2=all"])
def test_submodules_that_are_one_part(tmp_path, ops):
    """One object under two names: nobody can tell by which name it was called, and each call has
    its operators under the one that it is recorded by."""
    part = Part(opened(gathering()))
    pipe = Pipeline(text_encoder=part, text_encoder_2=part)
    with profiler.profile(pipe, out=tmp_path, ops=ops) as run:
        pipe(("text_encoder", 1, RUN), ("text_encoder_2", 2, RUN))
    assert ran(run.path) == [call_on("text_encoder_2", rows) for rows in (1, 2)]
    assert profiler.load(run.path).drops == ()


def test_a_session_that_was_renewed_is_gone_at_once(tmp_path):
    """Nothing of ours keeps a profiled session alive once nobody runs it, not even until the
    garbage collector comes by: each holds the model's weights."""
    part = Part(opened(gathering()))
    gc.disable()
    try:
        session = open_profiled(part, part.session, tmp_path / "profile", None)
        session.end_profiling()
        seen = weakref.ref(session)
        del session
        assert seen() is None
    finally:
        gc.enable()
