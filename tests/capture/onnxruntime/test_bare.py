"""Bare ONNX Runtime sessions in scripts with nothing but RBLN_PROFILER=1."""

from __future__ import annotations

import functools

import onnx
import pytest

import profiler
from profiler.trace.manifest_fields import stated
from tests.capture.onnx_pipelines import gathering, ran, weighted
from tests.capture.switched_on import drops, labels, whole
from tests.runs import told

SESSION = """
    import threading
    import numpy as np
    import onnxruntime

    def made(model="gather.onnx", options=None, providers=("CPUExecutionProvider",)):
        return onnxruntime.InferenceSession(model, options, providers=list(providers))
    def feeds(rows, row=0):
        return {"x": np.ones((rows, 3), np.float32), "i": np.array([row])}
    def run(session, rows, row=0):
        try:
            session.run(None, feeds(rows, row))
        except Exception as error:
            print(type(error).__name__)
"""


THREADS = """
    session = made()
    def work(first):
        for rows in range(first, first + 10):
            run(session, rows)
    threads = [threading.Thread(target=work, args=(n,)) for n in (1, 11, 21)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
"""


@pytest.fixture
def scripts(scripts, tmp_path):
    onnx.save(gathering(), str(tmp_path / "gather.onnx"))
    return scripts


def call(rows, submodule="gather", inputs=True):
    """What `ran` says of a run on so many rows."""
    shape = f"[{rows},3]"
    shown = f"x: float32{shape}; i: int64[1]" if inputs else ""
    return submodule, shown, [f"add float{shape}", f"gather float{shape}"]


def test_failing_runs(scripts):
    """Runs that ONNX Runtime refuses, or ends early, leave the operators of the others theirs; the
    script catches the errors, so that nothing is missing."""
    script = """
    session = made()
    run(session, 1)
    session.run_with_ort_values(["y"], {
        name: onnxruntime.OrtValue.ortvalue_from_numpy(value) for name, value in feeds(2).items()})
    run(session, 3, row=99)
    for wrong in [{"x": np.ones((3, 2), np.float32), "i": np.array([0])}, {"x": 1}]:
        try:
            session.run(None, wrong)
        except Exception as error:
            print(type(error).__name__)
    options = onnxruntime.RunOptions()
    options.terminate = True
    try:
        session.run(None, feeds(4), options)
    except Exception as error:
        print(type(error).__name__)
    run(session, 5)
    """
    ended = scripts.run(SESSION + script)
    expected = ["InvalidArgument", "InvalidArgument", "ValueError", "Fail"]
    assert ended.out.split() == expected, ended.err
    assert ran(ended.bundle) == [call(1), call(2), call(5)]
    assert whole(ended.bundle).info.drops == ()


def test_asynchronous_runs_that_overlap(scripts):
    """Runs that `run_async` queues, and one beside them, each have their own operators."""
    script = """
    session = made()
    answered = threading.Semaphore(0)
    def answer(values, rows, error):
        assert not error and len(values) == 1
        answered.release()
    for rows in range(1, 21):
        session.run_async(["y"], feeds(rows), answer, rows)
    run(session, 30)
    for _ in range(20): answered.acquire()
    """
    ended = scripts.run(SESSION + script)
    assert ended.code == 0, ended.err
    assert sorted(ran(ended.bundle)) == sorted(call(rows) for rows in [*range(1, 21), 30])
    assert drops(ended.bundle) == []


def test_threads_share_a_session(scripts):
    """Runs in three threads of one session each have their own operators."""
    ended = scripts.run(SESSION + THREADS)
    assert sorted(ran(ended.bundle)) == sorted(call(rows) for rows in range(1, 31))
    assert drops(ended.bundle) == []


def test_sessions_of_every_make(scripts):
    """From a path, a `Path` and bytes, with one `SessionOptions` for several sessions, with
    providers by name, with options, and by default: all are traced, and the options stay as the
    script set them."""
    script = """
    from pathlib import Path
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    text = Path("gather.onnx").read_bytes()
    sessions = [
        made("gather.onnx", options),
        made(Path("gather.onnx"), options),
        made(text, options),
        made(text, providers=[("CPUExecutionProvider", {})]),
        onnxruntime.InferenceSession("gather.onnx", providers=["CPUExecutionProvider"],
                                     provider_options=[{}]),
        onnxruntime.InferenceSession("gather.onnx"),
    ]
    for rows, session in enumerate(sessions, 1):
        run(session, rows)
    print(options.enable_profiling, repr(options.optimized_model_filepath),
          [s.get_session_options().enable_profiling for s in sessions])
    """
    ended = scripts.run(SESSION + script)
    assert ended.out == f"False '' {[False] * 6}\n", ended.err
    assert ran(ended.bundle) == [
        call(1, "gather"),
        call(2, "gather_2"),
        call(3, "gathering"),
        call(4, "gathering_2"),
        call(5, "gather_3"),
        call(6, "gather_4"),
    ]
    devices = {entry.call.device for entry in whole(ended.bundle).calls}
    assert devices == {"cpu:0"}


def test_a_script_that_profiles_its_session_itself(scripts):
    """ONNX Runtime's own profile stays the script's, with every run in it; the calls are recorded
    without operators, and stderr says why."""
    script = """
    import json
    options = onnxruntime.SessionOptions()
    options.enable_profiling = True
    session = made(options=options)
    run(session, 1)
    run(session, 2)
    events = json.load(open(session.end_profiling()))
    print(sum(event["name"] == "model_run" for event in events))
    """
    ended = scripts.run(SESSION + script)
    assert ended.out == "2\n"
    assert [(row[0], row[2]) for row in ran(ended.bundle)] == [("gather", [])] * 2
    assert (
        "gather is not recorded whole, the script goes on: InputError: ONNX Runtime's" in ended.err
    )
    (drop,) = profiler.load(ended.bundle).drops
    assert (drop.kind, drop.where, drop.count) == ("untraced_call", "gather", -1)
    assert "ONNX Runtime's own profiling is on" in told(drop)


def test_a_session_that_does_not_tell_of_its_model(scripts):
    """A subclass whose metadata cannot be read runs, under a name that says no more."""
    script = """
    class Reticent(onnxruntime.InferenceSession):
        def get_modelmeta(self):
            raise RuntimeError("not here")
    with open("gather.onnx", "rb") as file:
        run(Reticent(file.read(), providers=["CPUExecutionProvider"]), 2)
    """
    ended = scripts.run(SESSION + script)
    assert (ended.code, ended.out) == (0, "")
    assert ran(ended.bundle) == [call(2, "model")]


def test_a_run_that_cannot_be_recorded_runs(scripts):
    """A session whose providers cannot be asked for runs; stderr says so once."""
    script = """
    class Closed(onnxruntime.InferenceSession):
        def get_providers(self):
            raise RuntimeError("not here")
        get_provider_options = get_providers
    made()
    session = Closed("gather.onnx", providers=["CPUExecutionProvider"])
    for _ in range(2):
        run(session, 1)
        print(session.run(None, feeds(1))[0].shape)
    """
    ended = scripts.run(SESSION + script)
    assert (ended.code, ended.out) == (0, "(1, 3)\n(1, 3)\n")
    assert ended.err.count("is not recorded whole, the script goes on") == 1


def test_undoing_keeps_the_patches_of_others():
    """What another tool put over a watched method stays; the rest is as it was."""
    import onnxruntime.capi.onnxruntime_inference_collection as module

    from profiler.capture.onnxruntime.sessions import OnnxSessions

    before = dict(vars(module.Session))
    sessions = OnnxSessions(lambda: None, lambda *_: None)
    sessions.watch(module)
    ours = module.Session.run
    try:
        module.Session.run = theirs = functools.partialmethod(ours)
        sessions.undo()
        assert dict(vars(module.Session)) == before | {"run": theirs}
    finally:
        module.Session.run = before["run"]


def test_the_manifest_describes_bare_sessions(scripts):
    """Device, model, weights and profiled sessions of each, also of one whose operators are not
    traced, as of a pipeline's submodules."""
    folder = scripts.work / "unet"
    folder.mkdir()
    weighted(folder, external=True)
    script = """
    run(made(), 1)
    unet = made("unet/model.onnx")
    unet.run(None, {"x": np.ones((1, 64), np.float32)})
    unet.run(None, {"x": np.ones((1, 64), np.float32)})
    made(open("gather.onnx", "rb").read()).run(None, feeds(1))
    """
    ended = scripts.run(SESSION + script, RBLN_PROFILER_CONFIG='{"ops": "all gather=none"}')
    known = whole(ended.bundle).info.submodules
    here = scripts.work.name
    assert {name: stated(facts) for name, facts in known.items()} == {
        "gather": {
            "device": "cpu:0",
            "activate_profiler": False,
            "model": f"{here}/gather.onnx",
            "weight_bytes": 0,
            "profiled_sessions": 0,
        },
        "unet": {
            "device": "cpu:0",
            "activate_profiler": True,
            "model": "unet/model.onnx",
            "weight_bytes": 64 * 4 * 4,
            "profiled_sessions": 1,
        },
        "gathering": {
            "device": "cpu:0",
            "activate_profiler": True,
            "weight_bytes": 0,
            "profiled_sessions": 1,
        },
    }


def test_a_session_on_another_device_than_configured(scripts):
    """It is refused in one sentence, as a pipeline is; others are recorded, and the script runs."""
    script = """
    run(made(), 1)
    run(made(open("gather.onnx", "rb").read()), 2)
    print("ran")
    """
    config = '{"config": {"gather": {"device": "tpu"}, "gathering": {"device": 0}}}'
    ended = scripts.run(SESSION + script, RBLN_PROFILER_CONFIG=config)
    assert ended.out == "ran\n"
    assert ran(ended.bundle) == [call(2, "gathering")]
    refused = "gather is configured for device tpu but runs on cpu:0: give the session providers"
    assert f"profile-sd3: gather is not profiled: {refused} there, or leave" in ended.err


def test_nothing_but_a_refused_session(scripts):
    """No bundle without a call is left."""
    config = '{"config": {"gather": {"device": "tpu"}}}'
    ended = scripts.run(SESSION + "    run(made(), 1)\n", RBLN_PROFILER_CONFIG=config)
    assert (ended.code, ended.bundles) == (0, [])


@pytest.mark.parametrize("ops", ["last", "steps:3"])
def test_a_selection_that_bare_sessions_never_meet(scripts, ops):
    """No second session is opened where no call can be traced, and that is said once."""
    script = """
    run(made(), 1)
    run(made(open("gather.onnx", "rb").read()), 2)
    """
    settings = {"RBLN_PROFILER_CONFIG": f'{{"ops": "{ops}"}}'}
    ended = scripts.run(SESSION + script, **settings)
    known = whole(ended.bundle).info.submodules
    assert [known[name].profiled_sessions for name in ("gather", "gathering")] == [0, 0]
    assert ended.err.count("this chooses steps of a pipeline alone") == 1
    assert drops(ended.bundle) == []


def test_opening_a_profiled_session_is_our_overhead(scripts):
    """And no work of the host's."""
    ended = scripts.run(SESSION + "    run(made(), 1)\n")
    loaded = profiler.load(ended.bundle)
    assert loaded.commands.filter(call=-1).is_empty()
    assert loaded.info.overhead.hooks_ns > 0


def test_sessions_before_and_after_a_pipeline(scripts):
    """A script's own sessions, made before and after its pipeline, are calls of their own beside
    the pipeline's, whose parts run in the order of the pipeline."""
    script = """
    before = made()
    run(before, 1)
    from profiler.pipelines.sd3 import StableDiffusion3Pipeline
    from profiler.pipelines.tiny import default_model_folder
    pipe = StableDiffusion3Pipeline.from_folder(default_model_folder())
    after = made()
    pipe("a cat", num_inference_steps=2, height=64, width=64)
    run(after, 2)
    run(before, 3)
    """
    ended = scripts.run(SESSION + script)
    bare = ("", "", -1)
    assert labels(ended.bundle) == [
        ("gather", *bare),
        *(
            (f"text_encoder{number}", "encode", branch, -1)
            for branch in ("prompt", "negative_prompt")
            for number in ("", "_2", "_3")
        ),
        ("transformer", "denoise", "batched", 0),
        ("transformer", "denoise", "batched", 1),
        ("vae", "decode", "", -1),
        ("gather_2", *bare),
        ("gather", *bare),
    ]
    own = [row for row in ran(ended.bundle) if row[0].startswith("gather")]
    assert own == [call(1), call(2, "gather_2"), call(3)]
    assert profiler.load(ended.bundle).calls["ops_traced"].all()
    assert drops(ended.bundle) == []


def test_some_runs_of_a_session_in_threads(scripts):
    """With `every:2`, runs in several threads go to one session or the other: each call has the
    operators of its own run, or none."""
    ended = scripts.run(SESSION + THREADS, RBLN_PROFILER_CONFIG='{"ops": "every:2"}')
    found = sorted(ran(ended.bundle))
    whole_calls = sorted(call(rows) for rows in range(1, 31))
    assert [row[:2] for row in found] == [row[:2] for row in whole_calls]
    traced = [row for row in found if row[2]]
    assert len(traced) == 15
    assert [row for row in whole_calls if row in traced] == traced
    assert drops(ended.bundle) == []


def test_a_model_in_ort_format(scripts):
    """ORT's own format tells of no modules, nor of the graph's name: nodes keep their names for
    layers, which a sentence says, and a session from bytes is called `model`."""
    script = """
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = "gather.ort"
    options.add_session_config_entry("session.save_model_format", "ORT")
    made(options=options)
    session = made("gather.ort")
    for rows in (1, 2, 3):
        run(session, rows)
    made(open("gather.ort", "rb").read()).run(None, feeds(4))
    """
    ended = scripts.run(SESSION + script)
    assert ran(ended.bundle) == [call(1), call(2), call(3), call(4, "model")]
    (file, kind), (made, same) = [(told, kind) for kind, told in drops(ended.bundle)]
    assert kind == same == "doubtful_label"
    beginning = "their layers have the names of ONNX nodes, not of modules: "
    assert file.startswith(f"{beginning}gather.ort is not a readable ONNX model (")
    assert made.startswith(f"{beginning}the session's model is not a readable ONNX model (")
