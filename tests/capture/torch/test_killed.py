"""SIGKILL for a torch pipeline, at random: in a step, or while operators are being written."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from textwrap import dedent

import pytest

import profiler
from profiler.trace import merge_bundle, read_journal

pytest.importorskip("diffusers", reason="needs the torch extra")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX"),
]

ROOT = Path(__file__).resolve().parents[3]
STEPS = 3
CALLS = 6 + STEPS + 1  # of one pipeline call: three encoders for two prompts, the steps, the VAE

SCRIPT = """
    import sys
    import profiler
    import tests.capture.tiny_diffusers as tiny
    from profiler.trace.bundle import BundleWriter

    write = BundleWriter.write_call

    def say(*words):
        sys.stdout.write(" ".join(map(str, words)) + "\\n")
        sys.stdout.flush()

    def told(bundle, call, commands, *rest):
        say("writes", call.index, len(commands))
        return write(bundle, call, commands, *rest)

    def stepped(pipe, step, timestep, arguments):
        say("step", drawn, step)
        return arguments

    BundleWriter.write_call = told
    pipe = tiny.quiet(tiny.sd3())
    settings = dict(num_inference_steps=STEPS, output_type="np", **tiny.SIZE)
    if STEPS > 100:  # each call has a session of its own, which is converted at once
        import profiler.capture.host_work as conversions
        import profiler.capture.torch.profiler_session as session
        conversions._LONGEST_S = session.LONGEST_S = 0.0
    with profiler.profile(pipe, ops=sys.argv[1], out="traces", name="run"):
        for drawn in range(1000):
            pipe("a cat", callback_on_step_end=stepped, **settings)
"""

ENOUGH = 400  # lines


def killed(folder: Path, ops: str, kind: str, count: int, *, steps: int = STEPS) -> list[list[str]]:
    """Kill the script once it has said `kind` so many times, or `ENOUGH` of anything (files without
    operators wait for an idle moment): all that it said, in words."""
    script = dedent(SCRIPT).replace("STEPS", str(steps))
    (folder / "script.py").write_text(script, encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, str(folder / "script.py"), ops],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,  # so that `communicate` gets all that `readline` leaves
    )
    assert process.stdout is not None
    said: list[bytes] = []
    while count and len(said) < ENOUGH:
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        said.append(line)
        count -= line.startswith(kind.encode())
    process.send_signal(signal.SIGKILL)
    said += process.communicate()[0].splitlines()
    assert process.returncode == -signal.SIGKILL
    return [line.decode().split() for line in said]


def returned(said: Iterable[list[str]]) -> int:
    """How many calls had returned at least when the script was killed."""
    steps = [(int(words[1]), int(words[2])) for words in said if words[0] == "step"]
    drawn, step = max(steps)
    return drawn * CALLS + 6 + step + 1


def test_a_kill_in_a_long_pipeline_call_loses_the_open_session(tmp_path: Path) -> None:
    """What earlier sessions of the pipeline call that still runs recorded of its steps is in files.
    The encoders' wait for the call's end, which tells whether they are passes of a loop. Drops
    count the calls without operators, and the manifest's entries of these say so."""
    killed(tmp_path, "all", "writes", 3, steps=100_000)
    bundle = tmp_path / "traces" / "run"
    merge_bundle(bundle)
    run = profiler.load(bundle)
    assert set(run.calls["pipeline"]) == {0}
    traced = run.calls["ops_traced"]
    assert traced.sum() >= 2
    lost = {d.where: d.count for d in run.drops if d.detail.code == "killed_before_read"}
    untraced = run.calls.filter(~traced)["submodule"].value_counts()
    assert lost == dict(untraced.iter_rows())
    assert lost.keys() <= {"transformer", "text_encoder", "text_encoder_2", "text_encoder_3"}


@pytest.mark.parametrize(
    ("kind", "ops", "seed"),
    [("step", "all", 0), ("writes", "all", 0)]
    + [
        pytest.param(kind, ops, seed, marks=pytest.mark.nightly)
        for kind in ("step", "writes")
        for ops in ("none", "all")
        for seed in range(3)
        if (ops, seed) != ("all", 0)
    ],
)
def test_killed_at_random(tmp_path: Path, ops: str, kind: str, seed: int) -> None:
    """Every call that had returned is there; operators are, of every file whose writing had ended,
    and how many calls lack theirs is said."""
    count = random.Random(f"{kind} {ops} {seed}").randrange(1, 3 * CALLS)
    said = killed(tmp_path, ops, kind, count)
    bundle = tmp_path / "traces" / "run"
    noted = read_journal(bundle)
    merge_bundle(bundle)
    run = profiler.load(bundle)
    assert run.calls["call"].to_list() == list(range(len(run.calls))) == sorted(noted)
    assert returned(said) <= len(run.calls) <= returned(said) + CALLS
    begun = [(int(words[1]), int(words[2])) for words in said if words[0] == "writes"]
    counted = dict(run.commands.group_by("call").len().iter_rows())
    for call, commands in begun[:-1]:
        assert counted.get(call, 0) == commands
    assert set(counted) <= {call for call, commands in begun if commands}
    lost = [drop for drop in run.drops if drop.kind == "untraced_call"]
    without = len(run.calls) - len(counted)
    assert sum(drop.count for drop in lost) == (without if ops == "all" else 0)
    assert {"aborted_run", "missing_file"} <= {drop.kind for drop in run.drops}
    assert [path for path in bundle.iterdir() if path.name.startswith(".")] == []
