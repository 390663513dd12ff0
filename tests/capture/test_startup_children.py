"""Children of a switched-on process, however they are started: each has a bundle of its own."""

from __future__ import annotations

import json
import sys

import pytest

from profiler.trace import MERGED_NAME
from tests.capture.switched_on import CALLS_ONLY, ENCODER, SESSION, drops, labels, whole

posix = pytest.mark.skipif(sys.platform == "win32", reason="fork of POSIX")


def test_a_child_process_inherits(scripts):
    """A Python that the script starts elsewhere has a bundle of its own in the same folder."""
    (scripts.work / "below").mkdir()
    child = "import os; os.chdir('..')" + SESSION.replace("\n    ", "\n")
    (scripts.work / "child.py").write_text(child + "made().run(None, {'x': x})\n")
    script = """
    import subprocess, sys
    made().run(None, {"x": x})
    subprocess.run([sys.executable, "../child.py"], cwd="below", check=True)
    """
    settings = json.dumps({"ops": "none", "name": "run"})
    ended = scripts.run(SESSION + script, RBLN_PROFILER_CONFIG=settings)
    assert [bundle.name for bundle in ended.bundles] == ["run", "run-2"]
    assert [labels(bundle) for bundle in ended.bundles] == [[ENCODER]] * 2


@posix
@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_multiprocessing(scripts, method):
    """A worker that makes a session of its own leaves a bundle of its own, however it was
    started, and the parent's is what it would be without it."""
    script = """
    import multiprocessing
    def work(count):
        session = made()
        for _ in range(count):
            session.run(None, {"x": x})
    if __name__ == "__main__":
        session = made()
        session.run(None, {"x": x})
        process = multiprocessing.get_context("METHOD").Process(target=work, args=(3,))
        process.start()
        process.join()
        session.run(None, {"x": x})
        print(process.exitcode)
    """.replace("METHOD", method)
    ended = scripts.run(SESSION + script)
    assert ended.out == "0\n"
    assert sorted(labels(bundle) for bundle in ended.bundles) == [[ENCODER] * 2, [ENCODER] * 3]
    assert [drops(bundle) for bundle in ended.bundles] == [[], []]


@posix
def test_a_fork_that_leaves(scripts):
    """A forked child that leaves touches nothing of the parent's run, which goes on."""
    script = """
    import os
    session = made()
    session.run(None, {"x": x})
    pid = os.fork()
    if not pid:
        os._exit(5)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    session.run(None, {"x": x})
    """
    ended = scripts.run(SESSION + script)
    assert ended.out == "5\n"
    assert labels(ended.bundle) == [ENCODER] * 2
    assert [entry.commands for entry in whole(ended.bundle).calls] == [2, 2]
    assert drops(ended.bundle) == []


@posix
def test_a_fork_that_runs_on(scripts):
    """A forked child that ends as scripts do closes a bundle of its own, as its parent does.
    (Where ONNX Runtime was imported ahead of the fork, it aborts at the end of such a child.)"""
    forked = "    import os, sys\n    pid = os.fork()\n"
    script = """
    for _ in range(2 if pid else 3):
        made().run(None, {"x": x})
    if not pid:
        sys.exit(6)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    """
    ended = scripts.run(forked + SESSION + script, **CALLS_ONLY)
    assert ended.out == "6\n"
    assert sorted(labels(bundle) for bundle in ended.bundles) == [[ENCODER] * 2, [ENCODER] * 3]
    assert [drops(bundle) for bundle in ended.bundles] == [[], []]


@posix
def test_a_fork_with_a_pipeline(scripts):
    """In a forked child the parent's pipeline has no hooks; the parent's run goes on."""
    script = """
    import os
    from profiler.pipelines.sd3 import StableDiffusion3Pipeline
    from profiler.pipelines.tiny import default_model_folder
    pipe = StableDiffusion3Pipeline.from_folder(default_model_folder())
    def draw():
        pipe("a cat", num_inference_steps=1, seed=1, height=64, width=64)
    draw()
    print(type(pipe) is StableDiffusion3Pipeline, flush=True)
    pid = os.fork()
    if not pid:
        print(type(pipe) is StableDiffusion3Pipeline, flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
    draw()
    """
    ended = scripts.run(script)
    assert ended.out == "False\nTrue\n"
    assert len(labels(ended.bundle)) == 16
    assert all(entry.commands > 0 for entry in whole(ended.bundle).calls)
    assert drops(ended.bundle) == []


@posix
def test_a_fork_inside_a_call(scripts):
    """What a child that is forked inside a call runs, that call's end included, is neither in the
    journal nor in the files of the parent's run, which goes on."""
    script = """
    import os
    import profiler
    from profiler.capture.profile import FakeClock
    from tests.capture.toy import ToyPipeline

    pipe = ToyPipeline(FakeClock())
    forward, forked = pipe.transformer.forward, []

    def forking(**inputs):
        if not forked:
            before = os.stat("traces/run/.calls").st_size
            forked.append(os.fork())
            if forked[0]:
                print(os.waitstatus_to_exitcode(os.waitpid(forked[0], 0)[1]))
                print(os.stat("traces/run/.calls").st_size == before)
                print([name for name in os.listdir("traces/run") if "006" <= name[:3] <= "999"])
        return forward(**inputs)

    pipe.transformer.forward = forking
    with profiler.profile(pipe, out="traces", name="run", ops="none"):
        pipe(1)
        if not forked[0]:
            pipe(1)
            os._exit(0)
        pipe(1)
    """
    ended = scripts.run(script, RBLN_PROFILER=None)
    assert ended.out == "0\nTrue\n[]\n", ended.err
    assert len(labels(ended.bundle)) == 16
    assert drops(ended.bundle) == []


@posix
@pytest.mark.parametrize(
    ("end", "ops"),
    [
        ("os._exit(5)", "all"),
        ("os.kill(os.getpid(), 9)", "none"),
        pytest.param("os._exit(5)", "none", marks=pytest.mark.nightly),
        pytest.param("os.kill(os.getpid(), 9)", "all", marks=pytest.mark.nightly),
    ],
)
def test_a_fork_in_mid_run_is_as_without_the_profiler(scripts, end, ops):
    """A child that runs its parent's session and a new one prints, and ends, as it does bare; and
    so does its parent, whose run has its own calls alone."""
    script = """
    import os, sys
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # others' threads would not outlive the fork
    def opened():
        providers = ["CPUExecutionProvider"]
        return onnxruntime.InferenceSession("encoder.onnx", options, providers=providers)
    session = opened()
    for _ in range(20):
        session.run(None, {"x": x})
    pid = os.fork()
    if not pid:
        for one in (session, opened()):
            print(one.run(None, {"x": x})[0].sum(), flush=True)
        END
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    for _ in range(20):
        session.run(None, {"x": x})
    """.replace("END", end)
    bare = scripts.run(SESSION + script, RBLN_PROFILER=None)
    ended = scripts.run(SESSION + script, RBLN_PROFILER_CONFIG=json.dumps({"ops": ops}))
    assert (ended.code, ended.out) == (bare.code, bare.out)
    assert bare.out.startswith("12.0\n12.0\n")
    ours = [one for one in ended.bundles if (one / MERGED_NAME).exists()]
    (parents,) = [one for one in ours if len(labels(one)) == 40]
    assert drops(parents) == []


@posix
def test_a_fork_while_files_are_written(scripts):
    """Children forked while the writing thread works, of whatever it has locked, run and leave a
    bundle of their own; the parent loses nothing."""
    script = """
    import os
    session = made()
    def child():
        made().run(None, {"x": x})
        profiler.done()
        os._exit(0)
    import profiler
    codes = []
    for _ in range(3):
        for _ in range(200):
            session.run(None, {"x": x})
        pid = os.fork()
        if not pid:
            child()
        codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    print(codes)
    """
    ended = scripts.run(SESSION + script, **CALLS_ONLY)
    assert ended.out == "[0, 0, 0]\n"
    assert sorted(len(labels(bundle)) for bundle in ended.bundles) == [1, 1, 1, 600]
    assert [drops(bundle) for bundle in ended.bundles] == [[]] * 4


@posix
def test_garbage_of_the_parent(scripts):
    """Profiled sessions that the parent has let go of are not destroyed in a child, where ONNX
    Runtime would wait for threads that a fork leaves behind."""
    script = """
    import gc, os
    gc.disable()
    model = open("encoder.onnx", "rb").read()
    for _ in range(3):
        cycle = [made(model)]
        cycle[0].run(None, {"x": x})
        cycle.append(cycle)
    del cycle
    pid = os.fork()
    if not pid:
        gc.collect()
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    """
    ended = scripts.run(SESSION + script)
    assert ended.out == "0\n"
    assert [entry.commands for entry in whole(ended.bundle).calls] == [2, 2, 2]


def test_processes_at_the_same_time(scripts):
    """Processes that begin a run of one name in one folder at the same moment have a bundle each,
    with their own calls in it."""
    script = """
    session = made()
    print("ready", flush=True)
    input()
    for _ in range(int(sys.argv[1])):
        session.run(None, {"x": x})
    """
    settings = {"RBLN_PROFILER_CONFIG": json.dumps({"ops": "none", "name": "run"})}
    counts = [2, 3, 4, 5]
    processes = [
        scripts.start("    import sys\n" + SESSION + script, str(count), **settings)
        for count in counts
    ]
    for process in processes:
        assert process.stdout.readline() == "ready\n", process.stderr.read()
    for process in processes:  # all are in front of their first run
        process.stdin.write("go\n")
        process.stdin.flush()
    codes = [scripts.ended(process).code for process in processes]
    bundles = sorted((scripts.work / "traces").iterdir())
    assert codes == [0] * 4
    assert [bundle.name for bundle in bundles] == ["run", "run-2", "run-3", "run-4"]
    assert sorted(len(labels(bundle)) for bundle in bundles) == counts
    assert [drops(bundle) for bundle in bundles] == [[]] * 4
