"""The ends of a switched-on process, each for real: its bundle is whole, or `merge` makes it so."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from profiler.errors import InputError
from profiler.trace import JOURNAL_NAME, find_bundles, merge_bundle
from tests.capture.switched_on import (
    CALLS_ONLY,
    ENCODER,
    ONE_RUN,
    SESSION,
    drops,
    labels,
    whole,
)

posix = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")


def test_sys_exit(scripts):
    """`sys.exit` keeps its code and closes a whole bundle."""
    ended = scripts.run(ONE_RUN + "    import sys; sys.exit(3)\n", **CALLS_ONLY)
    assert ended.code == 3
    assert (labels(ended.bundle), drops(ended.bundle)) == ([ENCODER], [])


def test_an_exception(scripts):
    """An uncaught exception is shown as ever, and the bundle says that it ended the run."""
    ended = scripts.run(ONE_RUN + "    raise ValueError('mine')\n", **CALLS_ONLY)
    assert ended.code == 1
    assert "ValueError: mine\n" in ended.err
    assert labels(ended.bundle) == [ENCODER]
    assert drops(ended.bundle) == [("aborted_run", "the run ended with ValueError: mine")]


# Python begins to wait for a lock without another look for signals: one that comes just then is
# handled when the wait ends, or with the next signal. So scripts wait again and again.
_WAITS = "    while not threading.Event().wait(0.1): pass\n"
WAITING = ONE_RUN + "    print(1, flush=True)\n" + _WAITS
# A shell's background job has SIGINT ignored, and so would be the script if the tests run in one.
TERMINAL = """
    import signal, sys, threading
    signal.signal(signal.SIGINT, signal.default_int_handler)
"""


@posix
@pytest.mark.parametrize(
    ("number", "failure"),
    [
        (signal.SIGINT, "KeyboardInterrupt"),
        (signal.SIGTERM, "SIGTERM"),
        (signal.SIGHUP, "SIGHUP"),
    ],
)
def test_signals(scripts, number, failure):
    """A process that a signal ends is still seen to die of it, and its bundle is whole."""
    ended = scripts.interrupted(TERMINAL + WAITING, number, **CALLS_ONLY)
    assert ended.code == -number
    assert labels(ended.bundle) == [ENCODER]
    assert drops(ended.bundle) == [("aborted_run", f"the run ended with {failure}")]


@posix
def test_the_scripts_own_handler(scripts):
    """A handler that the script has set for SIGTERM decides; leaving through it closes the run."""
    own = "    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(7))\n"
    ended = scripts.interrupted(TERMINAL + own + WAITING, signal.SIGTERM, **CALLS_ONLY)
    assert ended.code == 7
    assert (labels(ended.bundle), drops(ended.bundle)) == ([ENCODER], [])


@posix
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(("end", "code"), [("2>/dev/full", 0), ("2>&-", 3)])
def test_a_stderr_that_takes_nothing(scripts, end, code):
    """What we have to say is lost where stderr is full or closed, and the script's exit code stays
    what it is."""
    script = ONE_RUN + f"    import sys; print('done'); sys.exit({code})\n"
    (scripts.work / "script.py").write_text(dedent(script))
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {end}', "sh", scripts.python, "script.py"],
        cwd=scripts.work,
        env=scripts.variables({"RBLN_PROFILER": "1", **CALLS_ONLY}),
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (code, "done\n")
    (bundle,) = (scripts.work / "traces").iterdir()
    assert (labels(bundle), drops(bundle)) == ([ENCODER], [])


@posix
@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc who handles a signal")
def test_a_handler_in_c(scripts):
    """What `faulthandler.register` was told to do at SIGTERM it does, and the script goes on; so it
    does at SIGUSR1, whose default would end it. What it dumps stays as it is. It dumps this thread
    alone: others run on meanwhile, and Python reading their stacks can crash with no tool about."""
    script = """
        import faulthandler, signal
        stacks = open("stacks", "w")
        faulthandler.enable()
        faulthandler.register(signal.SIGTERM, file=stacks, all_threads=False)
        faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=False)
    """
    end = """
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.raise_signal(number)
        print(faulthandler.is_enabled())
    """
    ended = scripts.run(dedent(script) + dedent(ONE_RUN) + dedent(end), **CALLS_ONLY)
    assert (ended.code, ended.out) == (0, "True\n"), ended.err
    assert (scripts.work / "stacks").read_text().count("script.py") == 2
    assert (labels(ended.bundle), drops(ended.bundle)) == ([ENCODER], [])


ELSEWHERE = {
    "sys.exit in a thread": "threading.Thread(target=lambda: sys.exit(9)).start()",
    "an exception in a thread": "threading.Thread(target=lambda: 1 / 0).start()",
    "an exception at exit": "atexit.register(lambda: 1 / 0)",
}


@pytest.mark.parametrize("what", ELSEWHERE)
def test_what_ends_no_process(scripts, what):
    """A thread that leaves or fails, and an exit function that fails, end no run early."""
    script = ONE_RUN + f"    import atexit, sys, threading\n    {ELSEWHERE[what]}\n"
    ended = scripts.run(script, **CALLS_ONLY)
    assert ended.code == 0
    assert ended.err.endswith(f"profile-sd3: the run is in {ended.bundle}\n")
    assert (labels(ended.bundle), drops(ended.bundle)) == ([ENCODER], [])


@pytest.mark.parametrize("ops", ["all", "none"])
def test_what_still_runs_at_the_end(scripts, ops):
    """The script's own exit functions, and threads that the interpreter waits for, are recorded."""
    script = """
    import atexit, threading
    session = made()
    run = lambda: session.run(None, {"x": x})
    def last():
        threading.main_thread().join()
        run()
    run()
    atexit.register(run)
    threading.Thread(target=last).start()
    """
    ended = scripts.run(SESSION + script, RBLN_PROFILER_CONFIG=f'{{"ops": "{ops}"}}')
    assert (labels(ended.bundle), drops(ended.bundle)) == ([ENCODER] * 3, [])


@pytest.mark.parametrize("ops", ["all", "none"])
def test_a_daemon_thread_that_runs_on(scripts, ops):
    """A thread that runs a model while the interpreter goes leaves one bundle, and that is whole.
    (ONNX Runtime may end such a process by SIGABRT, profiled or not.)"""
    script = """
    import threading
    session, begun = made(), threading.Event()
    def loop():
        while True:
            session.run(None, {"x": x})
            begun.set()
    threading.Thread(target=loop, daemon=True).start()
    begun.wait()
    """
    ended = scripts.run(SESSION + script, RBLN_PROFILER_CONFIG=f'{{"ops": "{ops}"}}')
    assert ended.err.startswith(f"profile-sd3: the run is in {ended.bundle}\n")
    assert "leaked" not in ended.err
    assert set(labels(ended.bundle)) == {ENCODER}
    assert {kind for kind, _ in drops(ended.bundle)} <= {"untraced_call"}


def test_the_end_while_files_are_written(scripts):
    """What the writing thread still has to do when the script is done is done."""
    script = """
    session = made()
    for _ in range(400):
        session.run(None, {"x": x})
    """
    ended = scripts.run(SESSION + script, **CALLS_ONLY)
    assert (labels(ended.bundle), drops(ended.bundle)) == ([ENCODER] * 400, [])


def merged(bundle):
    """Have `merge` complete a bundle that was cut short: the calls in it."""
    assert (bundle / JOURNAL_NAME).is_file()
    with pytest.raises(InputError, match=r"`profile-sd3 merge .*` completes it"):
        find_bundles(bundle)
    merge_bundle(bundle)
    assert "aborted_run" in [kind for kind, _ in drops(bundle)]
    return labels(bundle)


@posix
@pytest.mark.parametrize(
    ("leave", "code"),
    [
        ("os._exit(3)", 3),
        ("os.abort()", -signal.SIGABRT),
        ("os.execv('/bin/sh', ['sh', '-c', 'exit 5'])", 5),
    ],
)
def test_an_end_that_asks_nobody(scripts, leave, code):
    """`os._exit`, a crash and `exec` leave every call that had returned, for `merge`."""
    ended = scripts.run(ONE_RUN + f"    import os; {leave}\n")
    assert (ended.code, ended.err) == (code, "")
    assert merged(ended.bundle) == [ENCODER]
    assert [entry.commands for entry in whole(ended.bundle).calls] == [0]
    assert "untraced_call" in [kind for kind, _ in drops(ended.bundle)]


CLOSING = (
    TERMINAL
    + ONE_RUN
    + """
    from profiler.trace.bundle import BundleWriter
    finish = BundleWriter.finish
    def told(*arguments):
        print("closing", flush=True)
        sys.stdin.readline()  # a signal arrives here
        return finish(*arguments)
    BundleWriter.finish = told
"""
)
CLOSING_AT_A_SIGNAL = CLOSING + '    print("running", flush=True)\n' + _WAITS

# No thread can be started any more. Python 3.12 and later start none at this point anyway.
CLOSING_WITHOUT_THREADS = CLOSING.replace("print(", "threading.stack_size(1 << 46)\n        print(")


@posix
@pytest.mark.parametrize(
    ("number", "script"),
    [(signal.SIGTERM, CLOSING), (signal.SIGHUP, CLOSING_WITHOUT_THREADS)],
    ids=["", "no threads"],
)
def test_a_signal_while_the_run_is_written(scripts, number, script):
    """SIGTERM while the run is being closed waits until that is done, whether or not a thread can
    watch over it."""
    ended = scripts.interrupted(script, number, **CALLS_ONLY)
    assert ended.code == -number
    assert (labels(ended.bundle), drops(ended.bundle)) == ([ENCODER], [])


@posix
def test_ctrl_c_twice(scripts):
    """The first Ctrl-C ends the script, the second the closing of its run: `merge` completes it."""
    ended = scripts.interrupted(CLOSING_AT_A_SIGNAL, signal.SIGINT, signal.SIGINT, **CALLS_ONLY)
    assert ended.code == -signal.SIGINT
    said = "profile-sd3: interrupted while it was written: `profile-sd3 merge "
    assert ended.err.splitlines()[-1] == f"{said}{ended.bundle}` completes it"
    assert merged(ended.bundle) == [ENCODER]


@posix
def test_sigterm_twice(scripts):
    """The second SIGTERM ends the process at once."""
    ended = scripts.interrupted(CLOSING_AT_A_SIGNAL, signal.SIGTERM, signal.SIGTERM, **CALLS_ONLY)
    assert ended.code == -signal.SIGTERM
    assert merged(ended.bundle) == [ENCODER]


@posix
def test_a_script_that_takes_sigterm_back(scripts):
    """It ends as by SIGKILL, which docs/known-limits.md says: `merge` completes the run."""
    script = ONE_RUN + "    import signal, threading\n"
    script += (
        "    signal.signal(signal.SIGTERM, signal.SIG_DFL)\n    print(1, flush=True)\n" + _WAITS
    )
    ended = scripts.interrupted(script, signal.SIGTERM, **CALLS_ONLY)
    assert ended.code == -signal.SIGTERM
    assert merged(ended.bundle) == [ENCODER]
