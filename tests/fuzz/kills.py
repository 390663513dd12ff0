"""SIGKILL at random moments: nothing that finished is lost, nothing half made is seen, and the next
command works.

    python -m tests.fuzz.kills [NAME…] [--tries 200] [--seed N]

Each try forks a process that has imported everything already, lets it run the command, and kills
it, and all that it started, after a part of the time that the command takes, drawn uniformly: from
its start or from its first file. What the killed pipeline itself wrote down of
its finished calls (`seen`) is compared with what is there.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.command_line import run_command

__all__ = ["COMMANDS", "campaign"]

RUN = Path("traces/run")
STEPS = 3
_MOST_S = 120  # that a process may take
_BEFORE = "ended before"  # by itself: no kill, tried again
_WHOLE = 4  # tries that nothing is killed in: the first imports, the others are timed


@dataclass(frozen=True)
class Command:
    """In a folder of its own: what is laid there, what is killed, and the check of what it left,
    which returns a word for that. `again` runs the command once more, to its end; in one of `every`
    tries, where that takes long."""

    work: Callable[[], object]
    check: Callable[[Callable[[], object]], str]
    lay: Callable[[], object] = lambda: None
    every: int = 1


def seen(_: object = None, *rest: object) -> Any:
    """Note that a call has finished, outside of the profiler: a byte in a file."""
    handle = os.open("seen", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(handle, b".")
    os.close(handle)
    return {}


def ran(*words: object) -> str:
    """What a command prints that must work."""
    code, said = _command(*words)
    assert code == 0, (words, code, said)
    return said


def _command(*words: object) -> tuple[int, str]:
    sys.stdout.flush()
    os.ftruncate(1, 0)
    os.lseek(1, 0, os.SEEK_SET)
    code = run_command(*words)
    sys.stdout.flush()
    said = Path("said").read_text(encoding="utf-8")
    assert "Traceback" not in said, said
    return code, said


# --- What records: run, record, and a pipeline of torch.


def _run() -> None:
    from profiler.cli.commands import run as module

    @contextmanager
    def bar(*_: object) -> Iterator[Any]:
        yield seen

    module.bar = bar  # type: ignore[attr-defined]
    size = ("--height", "64", "--width", "64", "--warmup", "0", "--steps", STEPS)
    assert run_command("run", *size, "--name", "run") == 0


_SCRIPT = """
import os
import numpy as np
import onnxruntime
session = onnxruntime.InferenceSession("encoder.onnx", providers=["CPUExecutionProvider"])
handle = os.open("seen", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
for _ in range(100):
    session.run(None, {"x": np.ones((2, 3), np.float32)})
    os.write(handle, b".")
"""


def _lay_script() -> None:
    Path("script.py").write_text(_SCRIPT, encoding="utf-8")
    _made["python"].at(Path.cwd())


def _record() -> None:
    words = ("--name", "run", "--", _made["python"].python, "script.py")
    assert run_command("record", *words) == 0


def _torch() -> None:
    import profiler
    import tests.capture.tiny_diffusers as tiny

    pipe = _made["pipe"]
    settings = {"num_inference_steps": STEPS, "output_type": "np", **tiny.SIZE}
    with profiler.profile(pipe, out="traces", name="run"):
        for _ in range(2):
            pipe("a cat", callback_on_step_end=seen, **settings)


def _recorded(again: Callable[[], object]) -> str:
    """A run that was killed is whole, or `merge` makes it so: with each call whose line was written
    and each that the pipeline has seen the end of; it says which lack their operators."""
    finished = Path("seen").stat().st_size if Path("seen").exists() else 0
    there = [one.name for one in Path("traces").glob("*")] if Path("traces").exists() else []
    assert [name for name in there if not name.startswith(".")] in ([], ["run"]), there
    journal = RUN / ".calls"
    noted = _lines(journal.read_bytes()) if journal.exists() else set()
    listed = (RUN / "manifest.json").exists() and _manifest()["calls"]
    ended = "whole"
    code, said = _command("analyze", "traces", "--no-html")
    if code:
        assert (code, said.count("\n")) == (2, 1), said
        code, said = _command("merge", RUN)
        if code:
            assert (code, said.count("\n")) == (2, 1), said
            assert (noted, finished) == (set(), 0), said
            ended = "before the first call"
        else:
            ended = "merged"
            ran("analyze", "traces", "--no-html")
    if ended != "before the first call":
        _all_calls(noted, finished, cut=not listed)
    again()
    return ended


def _manifest() -> dict[str, Any]:
    return json.loads((RUN / "manifest.json").read_bytes())


def _lines(data: bytes) -> set[int]:
    """The numbers of the calls in a journal, without the reader of the profiler."""
    found = set()
    for line in data.split(b"\n"):
        try:
            found.add(json.loads(line)["call"]["index"])
        except ValueError:
            continue
    return found


def _all_calls(noted: set[int], finished: int, *, cut: bool) -> None:
    manifest = _manifest()
    calls = [one.get("call", one) for one in manifest["calls"]]
    numbers = {one["index"] for one in calls}
    assert numbers == set(range(len(calls))), sorted(numbers)
    assert noted <= numbers, sorted(noted - numbers)
    counted = [
        one for one in calls if one.get("stage") == "denoise" or one["submodule"] == "encoder"
    ]
    assert len(counted) >= finished, (len(counted), finished)
    without = sum(not one["ops_traced"] for one in calls)
    drops = [one for one in manifest.get("drops", []) if one["kind"] == "untraced_call"]
    assert sum(one["count"] for one in drops) == without, (without, drops)
    assert not cut or any(one["kind"] == "aborted_run" for one in manifest["drops"])
    if cut:  # else it ended while its summary or its page was written, which `merge` knows not of
        _no_scratch(RUN)


def _newest() -> Path:
    return max(Path("traces").glob("run*"), key=lambda one: one.stat().st_mtime_ns)


def _no_scratch(folder: Path) -> None:
    left = [one.name for one in folder.iterdir() if one.name.startswith(".")]
    assert not left, left


# --- What reads: import, merge, analyze, fleet add.


def _lay_trace() -> None:
    from tests.importers.kineto.traces import flux

    flux().write(Path.cwd()).replace("trace.json")


def _import() -> None:
    assert run_command("import", "trace.json", "--name", "run") == 0


def _imported(again: Callable[[], object]) -> str:
    """The bundle is there, and whole, or it is not; then it can be imported."""
    visible = [one for one in Path("traces").glob("*") if not one.name.startswith(".")]
    assert visible in ([], [RUN]), visible
    if not visible or not any(RUN.iterdir()):
        ended = "nothing"
        again()
    else:
        ended = "whole"
    bundle = _newest()
    ran("analyze", bundle, "--no-html", "--strict")
    manifest = json.loads((bundle / "manifest.json").read_bytes())
    assert len(manifest["calls"]) == 5
    assert not manifest.get("drops")
    return ended


def _lay_cut() -> None:
    """A run of 40 calls that was killed: half of them have files."""
    from profiler.capture.run_info import NOT_ENDED
    from profiler.trace import BundleWriter, CommandBuilder, Journal
    from tests.runs import TINY_CALLS, TINY_INFO

    with BundleWriter.create(RUN.parent, RUN.name) as bundle:
        bundle.begin(replace_info(TINY_INFO, drops=(NOT_ENDED,)))
        journal = Journal.create(bundle.directory)
        for index in range(40):
            call = replace(
                TINY_CALLS[0], index=index, start_ns=TINY_CALLS[0].start_ns + index * 500
            )
            journal.add(call, awaits_operators=True)
            if index % 2:
                bundle.write_call(call, CommandBuilder().build())
        journal.close()


def replace_info(info: Any, **changes: Any) -> Any:
    from msgspec import structs

    return structs.replace(info, **changes)


def _merge() -> None:
    assert run_command("merge", RUN) == 0


def _merged(again: Callable[[], object]) -> str:
    """It is whole, or can be merged: all 40 calls, of which 20 are said to lack operators."""
    cut = (RUN / ".calls").exists()
    again()
    manifest = _manifest()
    assert len(manifest["calls"]) == 40
    lost = [one["count"] for one in manifest["drops"] if one["kind"] == "untraced_call"]
    assert sum(lost) == 20, manifest["drops"]
    assert len(manifest["drops"]) == len({str(one) for one in manifest["drops"]})
    assert [one["kind"] for one in manifest["drops"]].count("aborted_run") == 1
    _no_scratch(RUN)
    ran("analyze", RUN, "--no-html")
    return "cut" if cut else "whole"


def _lay_run() -> None:
    from tests.runs import write_tiny_bundle

    Path("traces").mkdir()
    write_tiny_bundle(Path("made")).replace(RUN)


def _analyze() -> None:
    assert run_command("analyze", RUN) == 0


def _analyzed(again: Callable[[], object]) -> str:
    """The page is whole, or not there; the run is as it was."""
    page = RUN / "report.html"
    ended = "page" if page.exists() else "nothing"
    assert not page.exists() or page.read_text().rstrip().endswith("</html>")
    ran("analyze", RUN, "--strict")
    assert page.read_text().rstrip().endswith("</html>")
    return ended


def _lay_runs() -> None:
    from tests.fleet.bundles import write_bundles

    write_bundles(Path("traces"), 4)


def _add() -> None:
    assert run_command("fleet", "add", "set", "traces") == 0


def _added(again: Callable[[], object]) -> str:
    """Each run is in the data set once, whatever was written before."""
    import polars as pl

    before = len(list(Path("set").rglob("*.parquet")))
    again()
    assert ran("fleet", "add", "set", "traces").startswith("added 0 runs to set, 4 it has")
    tables = Path("set").rglob("runs/**/*.parquet")
    keys = pl.concat(
        [pl.read_parquet(one).select("run", "batch") for one in tables], how="vertical"
    )
    assert keys["run"].n_unique() == 4
    return "some" if before else "nothing"


COMMANDS = {
    "run": Command(_run, _recorded, every=10),
    "record": Command(_record, _recorded, _lay_script, every=10),
    "import": Command(_import, _imported, _lay_trace),
    "merge": Command(_merge, _merged, _lay_cut),
    "analyze": Command(_analyze, _analyzed, _lay_run),
    "fleet add": Command(_add, _added, _lay_runs),
    "torch": Command(_torch, _recorded, every=10),
}
"""By name; the pipeline of torch last, since what has imported it is slow to fork."""

_made: dict[str, Any] = {}


# --- Trying them.


def _begun(work: Callable[[], object], folder: Path) -> int:
    """A process, the first of its group, that works in `folder`, prints into the file `said`, and
    ends with 0 if all went well."""
    pid = os.fork()
    if pid:
        with contextlib.suppress(OSError):  # the child was first, or has ended
            os.setpgid(pid, pid)
        return pid
    try:
        os.setpgid(0, 0)
        os.chdir(folder)
        os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
        said = os.open("said", os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
        os.dup2(said, 1)
        os.dup2(said, 2)
        work()
        sys.stdout.flush()
        with Path("modules").open("a", encoding="utf-8") as file:
            print(*sys.modules, file=file)
        os._exit(0)
    except BaseException:  # noqa: BLE001 - the process that waits reads what it was
        import traceback

        Path("failed").write_text(traceback.format_exc(), encoding="utf-8")
    os._exit(1)


def _waited(pid: int, folder: Path) -> None:
    """Wait for the end of a process that has to work. Raises AssertionError."""
    until = time.monotonic() + _MOST_S
    while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
        if time.monotonic() > until:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise AssertionError(f"it takes longer than {_MOST_S} s")
        time.sleep(0.005)
    if ended[1]:
        failed = folder / "failed"
        raise AssertionError(failed.read_text() if failed.exists() else f"status {ended[1]}")


@dataclass(frozen=True)
class _Times:
    """How long a command took to its first file, and from there to its end, in s."""

    first: float
    rest: float


def _tried(
    command: Command, folder: Path, part: float, whole: list[_Times], *, late: bool, again: bool
) -> tuple[_Times, str]:
    """The times of a command that is killed after a part of the time that the `whole` ones took,
    from its first file if `late`, and what it left. Without such, it runs to its end."""
    _waited(_begun(command.lay, folder), folder)
    laid, begin = _files(folder), time.monotonic()
    pid = _begun(command.work, folder)
    if late or not whole:
        _until_a_file(pid, folder, laid)
    first = time.monotonic() - begin
    if not whole:
        _waited(pid, folder)
        killed = False
    else:
        time.sleep(part * max(one.rest + one.first * (not late) for one in whole))
        killed = not os.waitpid(pid, os.WNOHANG)[0]
        if killed:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    times = _Times(first, time.monotonic() - begin - first)

    def check() -> None:
        once_more = command.work if again else lambda: None
        Path("ended").write_text(command.check(once_more), encoding="utf-8")

    _waited(_begun(check, folder), folder)
    return times, (folder / "ended").read_text() if killed else _BEFORE


def _until_a_file(pid: int, folder: Path, laid: set[str]) -> None:
    """Until a process has written something beside what was laid for it, or has ended."""
    here = os.WEXITED | os.WNOHANG | os.WNOWAIT
    while _files(folder) <= laid and os.waitid(os.P_PID, pid, here) is None:
        time.sleep(0.002)


def _files(folder: Path) -> set[str]:
    """What lies below a folder, but for what is printed into it."""
    below = (entry for _, *names in os.walk(folder) for entry in (*names[0], *names[1]))
    return {*below, "said"}


def _make(name: str, folder: Path) -> None:
    """What is made once, for all tries."""
    if name == "record":
        from tests.capture.switched_on import Environment

        _made["python"] = Environment(folder)
    if name == "torch":
        import tests.capture.tiny_diffusers as tiny

        _made["pipe"] = tiny.quiet(tiny.sd3())


def campaign(name: str, tries: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Kill one command so often: what it left, and the findings."""
    command, rng = COMMANDS[name], random.Random(f"{name} {seed}")
    left: Counter[str] = Counter()
    found: list[str] = []
    with tempfile.TemporaryDirectory(prefix="kills-") as scratch:
        _made.clear()
        _make(name, Path(scratch) / "python")
        whole: list[_Times] = []
        for number in range(_WHOLE + 3 * tries):
            if left.total() - left[_BEFORE] == tries:
                break
            folder = Path(scratch) / "try"
            folder.mkdir()
            known = whole[1:] if number >= _WHOLE else []
            late, part = rng.random() < 0.5, rng.random()
            again = number % command.every == 0
            try:
                times, ended = _tried(command, folder, part, known, late=late, again=again)
                left[ended] += number >= _WHOLE
                whole += [times] * (number < _WHOLE)
                if not number:
                    _import_all((folder / "modules").read_text())
            except AssertionError as error:
                if number < _WHOLE:
                    raise
                left["found"] += 1
                found.append(f"{name}, seed {seed}, try {number}, part {part:.3f}: {error}")
            shutil.rmtree(folder)
    return left, found


def _import_all(modules: str) -> None:
    """Import what a whole try has imported, so that no other waits for that. Nothing is computed
    here, because threads do not outlive a fork."""
    for name in modules.split():
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    gc.freeze()  # a collection in a child would copy all of it


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"of {', '.join(COMMANDS)}; all if none is given")
    parser.add_argument("--tries", type=int, default=200)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    every = []
    for name in options.names or COMMANDS:
        left, found = campaign(name, options.tries, options.seed)
        print(f"{name}, seed {options.seed}: {dict(left)}", *found, sep="\n", flush=True)
        every += found
    return bool(every)


if __name__ == "__main__":
    sys.exit(main())
