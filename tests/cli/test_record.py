"""`profile-sd3 record` runs a command switched on, passes signals and exit code, says where."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from profiler.trace import NO_STEP
from tests.capture.switched_on import Ended, Environment, default_signals, drops, labels, whole
from tests.command_line import run_command

SCRIPT = """
import sys, threading
import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession("encoder.onnx", providers=["CPUExecutionProvider"])
for _ in range(int(sys.argv[1])):
    session.run(None, {"x": np.ones((2, 3), np.float32)})
print("ran", sys.argv[1:], flush=True)
if "wait" in sys.argv:
    while not threading.Event().wait(0.1):  # a signal in the instant it begins is seen then
        pass
sys.exit(4 if "fail" in sys.argv else 0)
"""
ENCODER = ("encoder", "", "", NO_STEP)
posix = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    return Environment(tmp_path_factory.mktemp("environment"))


@pytest.fixture
def scripts(python, tmp_path):
    scripts = python.at(tmp_path)
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    return scripts


def started(scripts, *arguments, **settings):
    return subprocess.Popen(
        [scripts.python, "-m", "profiler", "record", *arguments],
        preexec_fn=default_signals(),  # noqa: PLW1509 - it only resets signals
        cwd=scripts.work,
        env=scripts.variables(settings),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.fixture
def recorded(scripts, monkeypatch, capfd):
    """Runs `record` in the tests' process, which has imported what it imports, with the Python that
    is switched on as its own; only the command is a process."""
    for name in [name for name in os.environ if name.startswith(("RBLN_", "PYTHON"))]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(scripts.work)
    monkeypatch.setattr(sys, "executable", scripts.python)

    def record(*arguments, **settings):
        with monkeypatch.context() as patch:
            for name, value in settings.items():
                patch.setenv(name, value)
            code = run_command("record", *arguments)
        out, err = capfd.readouterr()
        return Ended(code, out, err, sorted(scripts.work.glob("traces/*")))

    return record


def test_a_command(scripts):
    """The command gets its own arguments; its bundle lies in ./traces and is named at the end."""
    command = ("--", scripts.python, "script.py", "2", "--ops", "x")
    ended = scripts.ended(started(scripts, "--ops", "none", *command))
    assert (ended.code, ended.out) == (0, "ran ['2', '--ops', 'x']\n")
    assert labels(ended.bundle) == [ENCODER] * 2
    where = f"traces/{ended.bundle.name}"
    said = f"profile-sd3: the run is in {where}: `profile-sd3 analyze {where}` reports on it\n"
    assert ended.err == said


@pytest.mark.parametrize("command", [["script.py", "1"], ["-m", "script", "1"]])
def test_without_naming_python(recorded, command):
    """A script or `-m module` alone is run by the Python that profile-sd3 is installed in."""
    ended = recorded("--ops=none", "--", *command)
    assert (ended.code, ended.out) == (0, "ran ['1']\n")
    assert labels(ended.bundle) == [ENCODER]


def test_options_and_environment(scripts, recorded):
    """Options win over the configuration, which they share with the environment."""
    settings = {"RBLN_PROFILER_CONFIG": '{"name": "a", "ops": "none"}', "RBLN_PROFILER_DIR": "b"}
    ended = recorded("--name", "c", "--out", "traces", "script.py", "1", **settings)
    assert ended.bundle.name == "c"
    assert not (scripts.work / "b").exists()


def test_the_exit_code(recorded):
    """The command's exit code is record's."""
    ended = recorded("--ops=none", "--", "script.py", "1", "fail")
    assert ended.code == 4
    assert drops(ended.bundle) == []


def test_measure_overhead(recorded):
    """Every fourth call is left out, as in `profile-sd3 run`."""
    ended = recorded("--measure-overhead", "--", "script.py", "5")
    entries = whole(ended.bundle).calls
    assert [entry.call.ops_traced for entry in entries] == [True, True, True, False, True]


def test_what_failed_is_not_called_nothing(recorded):
    """A process that could not record has said why: record does not say that nothing ran."""
    busy = {"RBLN_PROFILER_CONFIG": '{"config": {"encoder": {"device": "tpu"}}}'}
    ended = recorded("--", "script.py", "1", **busy)
    assert (ended.code, ended.out, ended.bundles) == (3, "ran ['1']\n", [])
    assert ended.err.startswith("profile-sd3: encoder is not profiled: encoder is configured for")
    assert ended.err.count("\n") == 1


@posix
def test_a_signal_is_passed_on(scripts):
    """SIGTERM ends the command, whose bundle is whole, and record's code is the shell's 143."""
    process = started(scripts, "--ops=none", "--", "script.py", "1", "wait")
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    ended = scripts.ended(process)
    assert ended.code == 128 + signal.SIGTERM
    assert labels(ended.bundle) == [ENCODER]
    assert drops(ended.bundle) == [("aborted_run", "the run ended with SIGTERM")]
    assert "profile-sd3: the run is in traces/" in ended.err


@posix
def test_a_killed_command(scripts, recorded):
    """After SIGKILL the bundle that it had begun is named, with what completes it."""
    (scripts.work / "script.py").write_text(
        SCRIPT.replace("print(", "import os; os.kill(os.getpid(), 9)\nprint("), encoding="utf-8"
    )
    ended = recorded("--ops=none", "--name=cut", "--", "script.py", "1")
    assert ended.code == 128 + signal.SIGKILL
    said = "profile-sd3: traces/cut was cut short: `profile-sd3 merge traces/cut` completes it\n"
    assert ended.err == said


def test_a_line_of_the_journal_that_is_cut(scripts, recorded):
    """A process that a full disk kept from telling all that it had to spoils no other's line."""
    cut = """
import json, os
with open(json.loads(os.environ["RBLN_PROFILER_CONFIG"])["journal"], "ab") as journal:
    journal.write(b'\\n{"bundle": "/runs/\\xc3')
"""
    (scripts.work / "script.py").write_text(cut + SCRIPT, encoding="utf-8")
    ended = recorded("--ops=none", "--name=run", "--", "script.py", "1")
    assert ended.code == 0
    analyze = "`profile-sd3 analyze traces/run` reports on it"
    assert ended.err == f"profile-sd3: the run is in traces/run: {analyze}\n"


def test_nothing_to_record(scripts, recorded):
    """A command that runs no model, and one without our Python, are told apart; both end with exit
    code 3, unless that is allowed, and one that fails with its own."""
    ended = recorded("--", "-c", "pass")
    assert ended.code == 3
    assert ended.err.endswith("traces: no pipeline, module or ONNX Runtime session ran\n")
    assert recorded("--allow-empty", "--", "-c", "exit(0)").code == 0
    assert recorded("--", "-c", "exit(5)").code == 5
    ended = recorded("--", scripts.python, "-S", "-c", "pass")
    assert ended.code == 3
    assert "no process of the command was switched on: install profile-sd3" in ended.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--ops", "some", "--", "true"], "ops='some'"),
        (["--config", "{", "--", "true"], "RBLN_PROFILER_CONFIG is not valid JSON"),
        (["--compress", "zip", "--", "true"], "compress is 'zip'"),
        (
            ["--out", "script.py/traces", "--", "script.py", "1"],
            "cannot write script.py/traces (Not a directory): something else has that name",
        ),
        (["--", "no-such-command"], "cannot run no-such-command: No such file or directory"),
    ],
)
def test_one_sentence_and_exit_code_2(recorded, arguments, sentence):
    """What cannot be used ends in exit code 2 and one sentence, and the command is not run."""
    ended = recorded(*arguments)
    assert (ended.code, ended.out, ended.bundles) == (2, "", [])
    assert ended.err.startswith(f"profile-sd3: {sentence}")
    assert ended.err.count("\n") == 1
