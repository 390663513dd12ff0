"""A process that profiles is ended in every way, in the middle of a run, for real."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from textwrap import dedent

import pytest

import profiler
from profiler.cli.commands.merge import MergeOptions, merge
from profiler.errors import InputError
from profiler.trace import JOURNAL_NAME, MANIFEST_NAME, find_bundles, read_journal, read_manifest
from tests.capture.switched_on import default_signals
from tests.runs import told

ROOT = Path(__file__).resolve().parents[2]
STEPS = 12
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")

SCRIPT = """
    import sys
    import profiler
    from profiler.pipelines.sd3 import StableDiffusion3Pipeline
    from profiler.pipelines.tiny import default_model_folder

    ops, steps, stop = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    pipe = StableDiffusion3Pipeline.from_folder(default_model_folder())

    def at_step_end(pipeline, step, *rest):
        print(step, flush=True)
        if step == stop:
            end = sys.stdin.readline().strip()  # a signal arrives here, or a word
            if end == "exit":
                sys.exit(3)
            if end == "raise":
                raise ValueError("no more")
        return {}

    settings = dict(num_inference_steps=steps, seed=1, height=64, width=64)
    def draw():
        pipe("a cat", **settings, callback_on_step_end=at_step_end)
    if sys.argv[4] == "block":
        with profiler.profile(pipe, ops=ops, out="traces", name="run"):
            draw()
    else:
        profiler.start(ops=ops, out="traces", name="run")
        draw()
"""


class Child:
    """The script; at the end of step `stop` it waits for what becomes of it. `how` is "block", a
    `with profiler.profile`, or "process", the whole process switched on."""

    def __init__(
        self, folder: Path, ops: str, stop: int, *, steps: int = STEPS, how: str = "block"
    ) -> None:
        (folder / "script.py").write_text(dedent(SCRIPT), encoding="utf-8")
        self.bundle = folder / "traces" / "run"
        self._process = subprocess.Popen(
            [sys.executable, str(folder / "script.py"), ops, str(steps), str(stop), how],
            preexec_fn=default_signals(),  # noqa: PLW1509 - it only resets signals
            cwd=folder,
            env={"PYTHONPATH": str(ROOT), "PATH": ""},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,  # so that `communicate` gets all that `readline` leaves
        )

    def until(self, step: int) -> None:
        """Wait for the end of a step."""
        assert self._process.stdout is not None
        said = b""
        while said != b"%d\n" % step:
            said = self._process.stdout.readline()
            if not said:
                raise AssertionError(self._process.communicate()[1])

    def end(self, how: signal.Signals | str) -> tuple[int, list[int]]:
        """End it by a signal or a word: its exit code, and the steps that it printed since."""
        if isinstance(how, signal.Signals):
            self._process.send_signal(how)
            how = ""
        out, _ = self._process.communicate(how.encode(), timeout=120)
        return self._process.returncode, [int(line) for line in out.split()]


SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(1, 5))]
"""One of each that always runs, and what is tried besides."""


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("ops", ["none", "all"])
def test_killed_at_a_random_step(tmp_path: Path, capsys, ops: str, seed: int) -> None:
    """SIGKILL after any step: every call that had returned is in the bundle that `merge`
    completes, with the times it had, and what is lost of it is said."""
    stop = random.Random(f"{ops} {seed}").randrange(STEPS)
    child = Child(tmp_path, ops, stop)
    child.until(stop)
    assert child.end(signal.SIGKILL) == (-signal.SIGKILL, [])
    with pytest.raises(InputError, match=r"has not ended: .*merge .*run` completes it"):
        find_bundles(tmp_path / "traces")
    noted = [json.loads(line) for line in (child.bundle / JOURNAL_NAME).read_bytes().split()]

    merge(MergeOptions(directory=child.bundle))

    lost = capsys.readouterr().err
    assert find_bundles(tmp_path / "traces") == [child.bundle]
    run = profiler.load(child.bundle)
    finished = 6 + stop + 1
    assert len(run.calls) == len(noted) == finished
    assert run.calls["start_ns"].to_list() == [entry["call"]["start_ns"] for entry in noted]
    denoised = run.calls.filter(run.calls["stage"].cast(str) == "denoise")
    assert denoised["step"].to_list() == list(range(stop + 1))
    assert not run.calls["ops_traced"].any()
    manifest = read_manifest(child.bundle / MANIFEST_NAME)
    assert manifest.info.pipeline == "StableDiffusion3Pipeline"
    assert manifest.info.submodules["transformer"].device == "cpu:0"
    kinds = {(drop.kind, drop.where): drop for drop in run.drops}
    assert ("aborted_run", "run") in kinds
    assert ("missing_file", "host.pb") in kinds
    untraced = [drop.count for drop in run.drops if drop.kind == "untraced_call"]
    assert sum(untraced) == (finished if ops == "all" else 0)
    assert "it was killed" in lost
    assert {path.name for path in child.bundle.iterdir() if path.name.startswith(".")} == set()


def test_a_run_that_goes_on_is_not_merged(tmp_path: Path) -> None:
    """While its process lives, `merge` leaves a run alone, and says so."""
    child = Child(tmp_path, "none", 3)
    child.until(3)
    try:
        with pytest.raises(InputError, match="still going on: end it first"):
            merge(MergeOptions(directory=child.bundle))
    finally:
        child.end(signal.SIGKILL)
    merge(MergeOptions(directory=child.bundle))
    assert len(profiler.load(child.bundle).calls) == 10


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("ops", ["none", "all"])
def test_killed_while_it_computes(tmp_path: Path, ops: str, seed: int) -> None:
    """SIGKILL anywhere in a step: no call is lost that had returned before the script said so."""
    step = random.Random(f"{ops} computes {seed}").randrange(40)
    child = Child(tmp_path, ops, -1, steps=5_000)
    child.until(step)
    code, further = child.end(signal.SIGKILL)
    assert code == -signal.SIGKILL
    merge(MergeOptions(directory=child.bundle))
    last = max([step, *further])
    calls = profiler.load(child.bundle).calls
    assert len(calls) in (6 + last + 1, 6 + last + 2)  # one call may have returned meanwhile
    assert calls["call"].to_list() == list(range(len(calls)))
    lost = [drop.kind for drop in read_manifest(child.bundle / MANIFEST_NAME).info.drops]
    assert "truncated_file" not in lost


@pytest.mark.parametrize(
    ("how", "end", "code", "failure"),
    [
        ("block", signal.SIGINT, {1, -signal.SIGINT}, "KeyboardInterrupt"),
        ("process", signal.SIGINT, {1, -signal.SIGINT}, "KeyboardInterrupt"),
        ("block", signal.SIGTERM, {-signal.SIGTERM}, "SIGTERM"),
        ("process", signal.SIGTERM, {-signal.SIGTERM}, "SIGTERM"),
        pytest.param("block", "exit", {3}, "SystemExit: 3", marks=pytest.mark.nightly),
        ("process", "exit", {3}, "SystemExit: 3"),
        ("block", "raise", {1}, "ValueError: no more"),
        pytest.param("process", "raise", {1}, "ValueError: no more", marks=pytest.mark.nightly),
    ],
)
def test_ends_that_can_be_met(
    tmp_path: Path, how: str, end: signal.Signals | str, code: set[int], failure: str
) -> None:
    """Every other end leaves a whole bundle: all calls with their operators, and host work. A
    block in a script that does not take SIGTERM is killed by it; `merge` completes its bundle."""
    child = Child(tmp_path, "all", 5, how=how)
    child.until(5)
    assert child.end(end)[0] in code
    killed = how == "block" and end is signal.SIGTERM
    if killed:
        merge(MergeOptions(directory=child.bundle))
    run = profiler.load(child.bundle)
    assert len(run.calls) == 12
    assert not (child.bundle / JOURNAL_NAME).exists()
    if killed:
        return
    assert run.calls["ops_traced"].all()
    assert run.info.overhead.backpressure_ns == 0
    assert run.spans["name"].to_list().count("step 4") == 1
    lost = [(drop.kind, told(drop)) for drop in run.drops]
    if how == "process" and end == "exit":
        assert lost == []  # a script that exits has done what it wanted
    else:
        assert lost == [("aborted_run", f"the run ended with {failure}")]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_end_profile_sd3_run(tmp_path: Path, number: signal.Signals) -> None:
    """`profile-sd3 run` writes the bundle of what it has when it is told to end, or its terminal
    goes."""
    command = [sys.executable, "-m", "profiler", "run", "--steps", "5000", "--warmup", "0"]
    process = subprocess.Popen(
        [*command, "--name", "run", "--out", str(tmp_path), "--height", "64", "--width", "64"],
        preexec_fn=default_signals(),  # noqa: PLW1509 - it only resets signals
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    journal = tmp_path / "run" / JOURNAL_NAME
    while not (journal.is_file() and len(read_journal(journal.parent)) > 10):
        with suppress(subprocess.TimeoutExpired):  # not asked again and again at once
            process.wait(0.05)
        assert process.poll() is None, process.communicate()[1]
    process.send_signal(number)
    process.communicate(timeout=120)
    assert process.returncode == 128 + number
    run = profiler.load(tmp_path / "run")
    assert len(run.calls) > 10
    assert run.calls["ops_traced"].all()
    assert told(run.drops[-1]) == f"the run ended with SystemExit: {128 + number}"
