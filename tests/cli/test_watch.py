"""`analyze --watch`: a run that goes on is shown call by call, and reported on at its end."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from profiler.cli.commands.record import watch
from profiler.errors import InputError
from profiler.trace import JOURNAL_NAME, ROOT_DEVICE, BundleWriter, CommandBuilder, Journal, RunInfo
from profiler.trace.bundle import JournalReader
from tests.cli.pty_command import PtyCommand
from tests.runs import EPOCH, make_call

MS = 1_000_000


class Recorded:
    """A run as a capture writes it, one call at a time."""

    def __init__(self, parent: Path, name: str = "a") -> None:
        self.bundle = BundleWriter.create(parent, name)
        self.bundle.begin(RunInfo(producer="capture"))
        self.journal = Journal.create(self.bundle.directory)
        self.directory = self.bundle.directory
        self._calls = 0

    def call(self, submodule: str, step: int = -1) -> None:
        begin = 10 * self._calls * MS
        stage = "denoise" if step >= 0 else "encode"
        place = {"stage": stage, "step": step, "device": "cpu:0", "pipeline": 0}
        call = make_call(self._calls, submodule, begin, begin + 5 * MS, **place)
        self.journal.add(call, awaits_operators=False)
        self.bundle.write_call(call, CommandBuilder().build())
        self._calls += 1

    def end(self) -> None:
        self.bundle.write_host((), CommandBuilder().build(), ROOT_DEVICE)
        self.bundle.finish(RunInfo(producer="capture"))
        self.journal.remove()


class Script:
    """What happens while `watch` waits: one of the `actions` each time, in their order."""

    def __init__(self, *actions) -> None:
        self._actions = list(actions)

    def __call__(self, _seconds: float) -> None:
        self._actions.pop(0)()


def terminal() -> Console:
    return Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)


def clock() -> int:
    return EPOCH + 1000 * MS


def test_calls_appear_as_they_return(tmp_path):
    """Each look shows the calls up to then; the end hands the bundle to the report."""
    run, console = Recorded(tmp_path), terminal()
    run.call("text_encoder")
    actions = Script(
        lambda: run.call("transformer", step=0), lambda: run.call("transformer", step=1), run.end
    )
    assert watch(tmp_path, console, drawn=True, now_ns=clock, wait=actions) == run.directory
    text = console.file.getvalue()
    looks = ("1 call in 1.00 s, encode", "2 calls in 1.00 s, denoise, 1 step done", "2 steps done")
    places = [text.index(look) for look in looks]
    assert places == sorted(places)


def test_waits_for_the_first_run(tmp_path):
    """Where there is no run at all, not even a folder, the one that begins is shown."""
    runs = []

    def begin():
        runs.append(Recorded(tmp_path / "traces"))

    def end_it():
        runs[0].end()

    actions = Script(begin, lambda: runs[0].call("unet", step=0), end_it)
    console = terminal()
    found = watch(tmp_path / "traces", console, drawn=True, now_ns=clock, wait=actions)
    assert found == runs[0].directory
    assert "waiting for a run in " in console.file.getvalue()


def test_runs_that_have_ended_are_reported_at_once(tmp_path):
    """Nothing goes on: there is nothing to wait for."""
    run = Recorded(tmp_path)
    run.call("unet")
    run.end()
    assert watch(tmp_path, terminal(), drawn=True, wait=Script()) == tmp_path
    assert watch(run.directory, terminal(), drawn=True, wait=Script()) == run.directory


KILLED = """
import sys
from pathlib import Path
from tests.cli.test_watch import Recorded
run = Recorded(Path(sys.argv[1]))
run.call("text_encoder")
run.call("transformer", step=0)
print("recorded", flush=True)
input()
"""


def recording_process(folder: Path) -> subprocess.Popen[bytes]:
    """A process that has recorded two calls, and goes on until it is killed."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(folder)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout.readline() == b"recorded\n"
    return process


def test_a_killed_run_shows_what_it_did(tmp_path):
    """Its calls are shown a last time, and a sentence says how to complete it."""
    console = terminal()
    with recording_process(tmp_path) as process:

        def kill(_seconds):
            process.kill()
            process.wait()

        with pytest.raises(InputError, match="was killed before its end: `profile-sd3 merge"):
            watch(tmp_path, console, drawn=True, now_ns=clock, wait=kill)
    assert "2 calls in 15.0 ms, denoise, 1 step done" in console.file.getvalue()


def test_a_run_without_a_call(tmp_path):
    """A run that ended before its first call leaves no bundle, and a sentence."""
    run = Recorded(tmp_path)

    def leave():
        run.journal.remove()
        for file in run.directory.iterdir():
            file.unlink()
        run.directory.rmdir()

    with pytest.raises(InputError, match="ended without a call"):
        watch(tmp_path, terminal(), drawn=True, now_ns=clock, wait=Script(leave))


def test_a_pipe_gets_no_drawing(tmp_path):
    """Where the console is no terminal, the run is waited for in silence."""
    run, console = Recorded(tmp_path), Console(file=io.StringIO(), width=80)
    run.call("unet")
    watch(tmp_path, console, drawn=False, now_ns=clock, wait=Script(run.end))
    assert console.file.getvalue() == ""


def test_in_a_terminal(tmp_path):
    """The command shows a run of another process while it goes on, and ends as it says where that
    is killed."""
    arguments = ("-m", "profiler", "analyze", tmp_path, "--watch", "--no-html")
    with recording_process(tmp_path) as process:
        shown = PtyCommand(arguments, environment={"PYTHONPATH": None})
        shown.read_until("run a: 2 calls in ")
        process.kill()
        process.wait()
        assert shown.finish() == 2
    assert "was killed before its end" in shown.text
    assert shown.text.count("Traceback") == 0


def test_a_line_that_is_not_whole_is_read_later(tmp_path):
    """A line of the journal counts once, when it is whole; one that was cut by a full disk spoils
    no other."""
    run = Recorded(tmp_path)
    path, reader = run.directory / JOURNAL_NAME, JournalReader(run.directory)
    run.call("text_encoder")
    run.call("unet", step=0)
    whole = path.read_bytes()
    half = whole.rindex(b"\n") + 20
    path.write_bytes(whole[:half])
    assert [entry.call.submodule for entry in reader.read()] == ["text_encoder"]
    path.write_bytes(whole)
    assert [entry.call.submodule for entry in reader.read()] == ["unet"]
    assert reader.read() == []
    path.write_bytes(whole + b'\n{"call": cut' + whole[: whole.index(b"\n", 2)])
    assert [entry.call.index for entry in reader.read()] == [0]
    run.journal.remove()
    assert reader.read() == []
