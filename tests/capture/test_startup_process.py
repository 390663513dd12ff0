"""Switched-on processes, for real: scripts in a Python that has the start-up files."""

from __future__ import annotations

import pytest

import profiler
from profiler.trace import NO_STEP
from tests.capture.switched_on import (
    CALLS_ONLY,
    ENCODER,
    ONE_RUN,
    ROOT,
    SESSION,
    STARTUP,
    Environment,
    drops,
    labels,
    whole,
)

SEEN = """
    import sys
    print(sorted(name for name in sys.modules if name.partition(".")[0] in {
        "profiler", "_profile_sd3_startup", "numpy", "onnxruntime", "torch", "msgspec", "google"}))
    print([type(f).__module__ for f in sys.meta_path if "profiler." in type(f).__module__])
"""


def test_nothing_is_imported_while_off(scripts):
    """Without the variable, or with an empty one, nothing of profile-sd3 is in the process."""
    for switch in (None, ""):
        ended = scripts.run(SEEN, RBLN_PROFILER=switch)
        assert (ended.out, ended.err) == ("[]\n[]\n", "")


def test_zero_is_off(scripts):
    """RBLN_PROFILER=0 leaves only the look at the variable."""
    ended = scripts.run(SEEN, RBLN_PROFILER="0")
    assert (ended.out, ended.err) == ("['_profile_sd3_startup']\n[]\n", "")


def test_on_without_a_model(scripts):
    """A process that is on and runs no model imports no heavy library and writes nothing."""
    ended = scripts.run(SEEN)
    modules, finders = ended.out.splitlines()
    assert "profiler.capture.startup" in modules
    assert not {"numpy", "onnxruntime", "torch", "msgspec", "google"} & set(eval(modules))
    assert finders == "['profiler.capture.imports']"
    assert (ended.err, ended.bundles) == ("", [])
    assert not (scripts.work / "traces").exists()


EVERY_WAY = (
    SESSION
    + """
    import threading

    file, text = made(), made(open("encoder.onnx", "rb").read())
    value = onnxruntime.OrtValue.ortvalue_from_numpy(x)
    binding = file.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_output("y")
    answered = threading.Event()
    results = []

    def answer(values, data, error):
        results.append((values[0], data, error))
        answered.set()

    results.append(file.run(None, {"x": x})[0])
    results.append(file.run_with_ort_values(["y"], {"x": value})[0].numpy())
    file.run_with_iobinding(binding)
    results.append(binding.copy_outputs_to_cpu()[0])
    file.run_async(["y"], {"x": x}, answer, "data")
    answered.wait()
    results.append(text.run(output_names=["y"], input_feed={"x": x})[0])
    print(results)
    """
)


@pytest.mark.parametrize(
    ("gone", "said"),
    [
        (
            "found.pth",
            "profile-sd3: not profiling: ModuleNotFoundError: No module named 'profiler'",
        ),
        ("_profile_sd3_startup.py", "Error processing line 1 of "),
    ],
)
def test_half_of_it_removed(tmp_path, gone, said):
    """Where files of the package are gone but the start-up file is not, scripts run, and stderr
    says so while the variable is set."""
    half = Environment(tmp_path)
    half.work.mkdir()
    (half.packages / "found.pth").write_text(f"{ROOT}\n")  # no other installation of ours
    (half.packages / gone).unlink()
    ended = half.run("print('done')")
    assert (ended.code, ended.out) == (0, "done\n")
    assert ended.err.startswith(said)
    assert half.run("print('done')", RBLN_PROFILER=None).err == ""


def test_every_way_to_run_a_session(scripts):
    """Each run of a bare session is a call with its operators; the script's results are those
    of an unprofiled run."""
    ended = scripts.run(EVERY_WAY)
    plain = scripts.run(EVERY_WAY, RBLN_PROFILER="")
    assert ended.code == 0, ended.err
    assert ended.out == plain.out
    assert ended.err == f"profile-sd3: the run is in {ended.bundle}\n"
    assert labels(ended.bundle) == [ENCODER] * 4 + [("tiny", "", "", NO_STEP)]
    calls = [entry.call for entry in whole(ended.bundle).calls]
    assert [call.ops_traced for call in calls] == [True] * 5
    shown = [dict(call.input_shapes) for call in calls]
    assert shown == [{"x": "float32[2,3]"}] * 2 + [{}] + [{"x": "float32[2,3]"}] * 2
    commands = profiler.load(ended.bundle).commands.filter(call=0)
    assert commands.select("layer", "op_type").rows() == [("add", "Add"), ("mul", "Mul")]


def test_calls_alone(scripts):
    """`ops` none records the calls and opens no second session."""
    ended = scripts.run(SESSION + "    made().run(None, {'x': x})\n", **CALLS_ONLY)
    assert labels(ended.bundle) == [ENCODER]
    assert [entry.commands for entry in whole(ended.bundle).calls] == [0]


def test_sessions_of_one_name(scripts):
    """Sessions of one model file are told apart by a number; model.onnx is named by its folder."""
    (scripts.work / "vae_decoder").mkdir()
    file = scripts.work / "vae_decoder" / "model.onnx"
    file.write_bytes((scripts.work / "encoder.onnx").read_bytes())
    script = (
        "    for s in [made(), made(), made('vae_decoder/model.onnx')]: s.run(None, {'x': x})\n"
    )
    ended = scripts.run(SESSION + script, **CALLS_ONLY)
    assert [row[0] for row in labels(ended.bundle)] == ["encoder", "encoder_2", "vae_decoder"]


def test_a_session_made_again_and_again(scripts):
    """A script that drops its session and makes the next of the same model has one submodule;
    each call has the operators of its own run."""
    ended = scripts.run(SESSION + "    for _ in range(3): made().run(None, {'x': x})\n")
    assert labels(ended.bundle) == [ENCODER] * 3
    assert [entry.commands for entry in whole(ended.bundle).calls] == [2, 2, 2]
    assert drops(ended.bundle) == []


def test_sessions_that_are_gone_leave_nothing_but_their_calls(scripts):
    """However many sessions a script makes and drops: at most one has files to be read, and the
    manifest is written anew only for a session that has something new to say."""
    script = """
    import os
    def run():
        made().run(None, {"x": x})
        (bundle,) = os.listdir("traces")
        work, manifest = f"traces/{bundle}/.operators", f"traces/{bundle}/manifest.json"
        return len(os.listdir(work)), os.stat(manifest).st_mtime_ns
    ends = [run() for _ in range(30)]
    print(max(folders for folders, _ in ends), len({written for _, written in ends}))
    """
    ended = scripts.run(SESSION + script)
    assert ended.out == "1 1\n", ended.err
    assert labels(ended.bundle) == [ENCODER] * 30
    assert [entry.commands for entry in whole(ended.bundle).calls] == [2] * 30
    assert drops(ended.bundle) == []
    info = whole(ended.bundle).info
    assert info.submodules["encoder"].profiled_sessions == 30
    assert info.overhead.operator_events == 30 * 4


def test_a_failing_run_is_the_scripts_business(scripts):
    """The script catches ONNX Runtime's own error: nothing is missing, the next run is a call."""
    script = """
    session = made()
    for shape in [(2, 3), (4, 4), (2, 3)]:
        try:
            session.run(None, {"x": np.ones(shape, np.float32)})
        except Exception as error:
            print(type(error).__name__)
    """
    ended = scripts.run(SESSION + script)
    assert ended.out == "InvalidArgument\n"
    assert labels(ended.bundle) == [ENCODER] * 2
    assert drops(ended.bundle) == []


def test_threads(scripts):
    """Runs of one session in several threads are all calls, each with its operators."""
    script = """
    import threading
    session, other = made(), made()
    def work(session):
        for _ in range(20):
            session.run(None, {"x": x})
    threads = [threading.Thread(target=work, args=(s,)) for s in (session, session, other)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    """
    ended = scripts.run(SESSION + script)
    manifest = whole(ended.bundle)
    names = [entry.call.submodule for entry in manifest.calls]
    assert sorted(names) == ["encoder"] * 40 + ["encoder_2"] * 20
    assert {entry.call.index for entry in manifest.calls} == set(range(60))
    assert {(entry.call.ops_traced, entry.commands) for entry in manifest.calls} == {(True, 2)}
    assert drops(ended.bundle) == []


def test_the_entry_point_of_later_pythons(scripts):
    """What `profile_sd3.start` names switches on as the `.pth` file does, and a second time
    nothing happens: the two files never meet, but a virtual environment may read one twice."""
    entries = [
        line
        for line in (STARTUP / "profile_sd3.start").read_text().splitlines()
        if not line.startswith("#")
    ]
    script = f"""
    import pkgutil, sys
    before = list(sys.meta_path)
    for entry in {entries}:
        pkgutil.resolve_name(entry)()
    print({entries}, sys.meta_path == before)
    """
    ended = scripts.run(script)
    assert ended.out == "['_profile_sd3_startup:start'] True\n"
    assert ended.err == ""


@pytest.mark.parametrize(
    ("setting", "value", "sentence"),
    [
        ("RBLN_PROFILER_CONFIG", "{", "RBLN_PROFILER_CONFIG is not valid JSON"),
        ("RBLN_PROFILER_CONFIG", '{"ops": "some"}', "RBLN_PROFILER_CONFIG: ops='some'"),
        ("RBLN_PROFILER", "2", "RBLN_PROFILER is '2'"),
    ],
)
def test_a_bad_setting_lets_the_script_run(scripts, setting, value, sentence):
    """What cannot be used is one line on stderr; the script runs to its end, unprofiled."""
    ended = scripts.run(ONE_RUN + "    print('done')\n", **{setting: value})
    assert (ended.code, ended.out, ended.bundles) == (0, "done\n", [])
    assert ended.err.startswith(f"profile-sd3: not profiling: {sentence}")
    assert ended.err.count("\n") == 1


def test_a_folder_that_cannot_be_written(scripts):
    """Where no bundle can be made, the script is told once and runs to its end."""
    (scripts.work / "file").write_text("")
    script = SESSION + "    for _ in 'ab': made().run(None, {'x': x})\n    print('done')\n"
    ended = scripts.run(script, RBLN_PROFILER_DIR="file/traces")
    assert (ended.code, ended.out) == (0, "done\n")
    assert ended.err.startswith("profile-sd3: not profiling: cannot write ")
    assert ended.err.count("\n") == 1


def test_a_name_that_nothing_has(scripts):
    """A configured submodule that never ran is said at the end: the name is likely mistyped."""
    config = '{"ops": "none vea=all", "config": {"encodr": {"activate_profiler": false}}}'
    ended = scripts.run(ONE_RUN, RBLN_PROFILER_CONFIG=config)
    assert "profile-sd3: encodr, vea: configured, but what ran is encoder\n" in ended.err


def test_start_and_done(scripts):
    """Only what runs between `start()` and `done()` is recorded; both may be called again."""
    script = """
    import profiler
    session = made()
    session.run(None, {"x": x})
    profiler.start(ops="none", out="traces")
    profiler.start(ops="none", out="traces")
    session.run(None, {"x": x})
    try:
        profiler.start(ops="all", out="traces")
    except profiler.ProfilerError as error:
        print(error)
    print(profiler.done().name != "", profiler.done())
    session.run(None, {"x": x})
    print("run" in vars(session), type(session).run.__wrapped__ if hasattr(type(session).run,
        "__wrapped__") else None)
    """
    ended = scripts.run(SESSION + script, RBLN_PROFILER="")
    assert ended.err == ""
    assert ended.out.splitlines() == [
        "profiling was started with other settings: call profiler.done() first",
        "True None",
        "False None",
    ]
    assert labels(ended.bundle) == [ENCODER]


def test_start_wins_over_the_environment(scripts):
    """Settings in the script's `start()` begin a run of their own in a switched-on process."""
    script = """
    import profiler
    session = made()
    session.run(None, {"x": x})
    profiler.start(name="mine")
    session.run(None, {"x": x})
    session.run(None, {"x": x})
    """
    ended = scripts.run(SESSION + script, **CALLS_ONLY)
    assert [len(labels(bundle)) for bundle in ended.bundles] == [1, 2]
    assert ended.bundles[1].name == "mine"


def test_our_own_pipeline(scripts):
    """A pipeline that the script makes and calls is recorded by its parts, unasked."""
    script = """
    from profiler.pipelines.sd3 import StableDiffusion3Pipeline
    from profiler.pipelines.tiny import default_model_folder
    pipe = StableDiffusion3Pipeline.from_folder(default_model_folder())
    for _ in range(2):
        pipe("a cat", num_inference_steps=2, seed=1, height=64, width=64)
    """
    ended = scripts.run(script, **CALLS_ONLY)
    encoders = ["text_encoder", "text_encoder_2", "text_encoder_3"]
    once = [
        *(
            (name, "encode", branch, NO_STEP)
            for branch in ("prompt", "negative_prompt")
            for name in encoders
        ),
        *(("transformer", "denoise", "batched", step) for step in range(2)),
        ("vae", "decode", "", NO_STEP),
    ]
    assert labels(ended.bundle) == once * 2
    assert drops(ended.bundle) == []


def test_a_block_of_its_own_wins(scripts):
    """What a switched-on script profiles itself is in that run alone; before and after it, the
    pipeline is recorded as others are."""
    script = """
    import profiler
    from profiler.pipelines.sd3 import StableDiffusion3Pipeline
    from profiler.pipelines.tiny import default_model_folder
    pipe = StableDiffusion3Pipeline.from_folder(default_model_folder())
    def draw():
        pipe("a cat", num_inference_steps=1, seed=1, height=64, width=64)
    draw()
    with profiler.profile(pipe, ops="none", name="mine"):
        draw()
        draw()
    draw()
    """
    ended = scripts.run(script, **CALLS_ONLY)
    assert ended.code == 0, ended.err
    named = {bundle.name.split("-")[0] == "mine": bundle for bundle in ended.bundles}
    assert [len(labels(named[mine])) for mine in (True, False)] == [16, 16]


def test_a_module_of_our_name_is_shadowed(scripts):
    """The script's own `profiler.py` is what it imports, but while the process is recorded: a
    known limit (docs/known-limits.md)."""
    (scripts.work / "profiler.py").write_text("mine = True\n", encoding="utf-8")
    # An editable install finds its package before any folder: a wheel's is found by folder alone.
    script = (
        "import sys; sys.meta_path[:] = [one for one in sys.meta_path "
        "if 'Redirecting' not in type(one).__name__]; "
        "import profiler; print(hasattr(profiler, 'mine'))"
    )
    assert scripts.run(script, RBLN_PROFILER=None).out == "True\n"
    assert scripts.run(script).out == "False\n"
