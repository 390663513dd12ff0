"""Long runs, many readers and bad machines: no call is lost, little memory is taken, nothing torn
is read, nothing is left open.

    python -m tests.fuzz.soak [NAME…] [--calls 10000]

Each case runs a script bare and with RBLN_PROFILER=1, and compares what the system says of the two
processes; the bundle's calls are counted in its manifest and its folder. The clock is stepped by a
few lines of C ahead of the C library, the full disk is a tmpfs, which root alone can mount.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.capture.switched_on import Environment

__all__ = ["CASES", "soak"]

MEMORY_MB = 60  # above the bare program
READERS = 20

_CLOCK = """
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static volatile int back;
void step_back(void) { back = 1; }
int clock_gettime(clockid_t which, struct timespec *now) {
  int code = syscall(SYS_clock_gettime, which, now);
  if (which == CLOCK_REALTIME && back) now->tv_sec -= 3600;
  return code;
}
"""

_ORT = """
import numpy as np
import onnxruntime
session = onnxruntime.InferenceSession("encoder.onnx", providers=["CPUExecutionProvider"])
x, each = np.ones((2, 3), np.float32), 1
def call():
    session.run(None, {"x": x})
"""

_TORCH = """
import torch
from diffusers import DiffusionPipeline
from diffusers.configuration_utils import ConfigMixin, register_to_config
from diffusers.models.modeling_utils import ModelMixin

class Part(ModelMixin, ConfigMixin):
    @register_to_config
    def __init__(self, width=8):
        super().__init__()
        self.inner = torch.nn.Linear(width, width)

    def forward(self, x):
        return self.inner(x)

class Small(DiffusionPipeline):
    def __init__(self, text_encoder, transformer, vae):
        super().__init__()
        self.register_modules(text_encoder=text_encoder, transformer=transformer, vae=vae)

    @torch.no_grad()
    def __call__(self):
        x = self.text_encoder(torch.ones(1, 8))
        for _ in range(8):
            x = self.transformer(x)
        return self.vae(x)

torch.set_num_threads(1)
call, each = Small(Part(), Part(), Part()), 10
"""

_LOOP = """
import os, sys, time
def descriptors():  # once what waits until the pipeline rests has been done
    return min(time.sleep(0.5) or len(os.listdir("/proc/self/fd")) for _ in range(10))
count = int(sys.argv[1]) // each
for number in range(count):
    if number == count // 10:
        early = descriptors()
    if number == count // 2 and "LD_PRELOAD" in os.environ:
        import ctypes
        ctypes.CDLL(None).step_back()
    call()
print(count * each, descriptors() - early)
"""

_SLOW = """
import os, time
def slow(function):
    def later(*arguments, **options):
        time.sleep(0.003)
        return function(*arguments, **options)
    return later
for name in ("open", "write", "replace", "rename", "fsync"):
    setattr(os, name, slow(getattr(os, name)))
"""

SCRIPTS = {"ort": _ORT, "torch": _TORCH}


class Folder:
    """A folder of one case, whose scripts run by a Python in which profile-sd3 is installed."""

    def __init__(self, python: Environment, place: Path) -> None:
        place.mkdir()
        self.python, self.place, self.traces = python.at(place), place, place / "traces"

    def start(self, script: str, calls: int, *, bare: bool = False, **more: Any) -> Any:
        path = self.place / f"script{abs(hash(script))}.py"
        path.write_text(script, encoding="utf-8")
        with (self.place / "said").open("w") as said:
            return subprocess.Popen(
                [self.python.python, str(path), str(calls)],
                cwd=self.place,
                env=self.python.variables({} if bare else {"RBLN_PROFILER": "1"})
                | more.pop("settings", {}),
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
                **more,
            )

    def run(self, script: str, calls: int, **more: Any) -> tuple[str, float]:
        """What a script prints, and the most memory that it took, in MB. It has to work."""
        process = self.start(script, calls, **more)
        out = process.stdout.read()
        process.stdout.close()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0, (self.place / "said").read_text()
        return out, used.ru_maxrss / 1024

    def ours(self, *words: object, **more: Any) -> subprocess.Popen[str]:
        """A command of profile-sd3, begun."""
        return subprocess.Popen(
            [self.python.python, "-m", "profiler", *map(str, words)],
            cwd=self.place,
            env=self.python.variables({}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **more,
        )

    def bundles(self) -> list[Path]:
        return sorted(one for one in self.traces.iterdir() if not one.name.startswith("."))


def _whole(bundle: Path, calls: int, *, lost: bool = False) -> dict[str, Any]:
    """The manifest of a bundle that has all calls and lacks nothing."""
    manifest = json.loads((bundle / "manifest.json").read_bytes())
    files = list(bundle.glob("[0-9]*_*.pb"))
    assert len(manifest["calls"]) == len(files) == calls, (len(manifest["calls"]), len(files))
    assert [one.name for one in bundle.iterdir() if one.name.startswith(".")] == []
    assert lost or not manifest.get("drops"), manifest["drops"]
    return manifest


def _long(runtime: str) -> Callable[[Folder, int], str]:
    """Many calls of one runtime: all there, within the memory, with no descriptor left open."""

    def case(folder: Folder, calls: int) -> str:
        script = SCRIPTS[runtime] + _LOOP
        said, bare = folder.run(script, calls, bare=True)
        ours, profiled = folder.run(script, calls)
        assert ours.split()[0] == said.split()[0]
        assert int(ours.split()[1]) <= 0, ours
        (bundle,) = folder.bundles()
        _whole(bundle, calls)
        assert profiled - bare <= MEMORY_MB, (bare, profiled)
        return f"{calls:,} calls, {profiled - bare:.0f} MB above {bare:.0f} MB"

    return case


def _beside(folder: Folder, calls: int) -> str:
    """Two recorders in one folder, 20 reports and a watcher at the same time."""
    few = max(calls // 10, 20)
    script = _ORT + _LOOP
    folder.run(script, few)
    (whole,) = folder.bundles()
    recorders = [folder.start(script, calls) for _ in range(2)]
    watcher = folder.ours("analyze", "traces", "--watch", "--no-html")
    readers = [folder.ours("analyze", whole, "--no-html") for _ in range(READERS // 2)]
    readers += [folder.ours("analyze", "traces", "--no-html") for _ in range(READERS // 2)]
    for reader in [*readers, watcher]:
        out, err = reader.communicate(timeout=900)
        assert reader.returncode == 0, err
        assert "Traceback" not in err
        assert "not whole" not in out + err
    for recorder in recorders:
        recorder.communicate(timeout=900)
        assert recorder.returncode == 0
    bundles = folder.bundles()
    assert len(bundles) == 3
    for bundle in bundles:
        _whole(bundle, few if bundle == whole else calls)
    return f"{2 * calls:,} calls, {READERS} reports, one watcher"


def _clock(runtime: str) -> Callable[[Folder, int], str]:
    """The system's clock goes back by an hour in mid-run: calls keep their order, the run its
    length. Operators lie in their calls, or the run says of how many calls it has none."""

    def case(folder: Folder, calls: int) -> str:
        calls //= 10
        source, library = folder.place / "clock.c", folder.place / "clock.so"
        source.write_text(_CLOCK, encoding="utf-8")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
        settings = {"LD_PRELOAD": str(library)}
        begin = time.monotonic_ns()
        folder.run(SCRIPTS[runtime] + _LOOP, calls, settings=settings)
        lasted = time.monotonic_ns() - begin
        (bundle,) = folder.bundles()
        manifest = _whole(bundle, calls, lost=True)
        entries = [one.get("call", one) for one in manifest["calls"]]
        starts = [one["start_ns"] for one in entries]
        assert starts == sorted(starts)
        assert starts[-1] - starts[0] < lasted
        outside, operators = _operators_outside(folder, bundle)
        assert not outside, f"{outside:,} of {operators:,} operators lie outside of their calls"
        without = sum(not one["ops_traced"] for one in entries)
        said = [one["count"] for one in manifest["drops"] if one["kind"] == "untraced_call"]
        assert sum(said) == without, manifest["drops"]
        return f"{calls:,} calls, {operators:,} operators; {without:,} calls are said to have none"

    return case


_OUTSIDE = """
import sys, polars as pl, profiler
run = profiler.load(sys.argv[1])
calls = run.calls.select("call", begin="start_ns", length="duration_ns")
found = run.commands.filter(pl.col("call") >= 0).join(calls, on="call")
end = pl.col("begin") + pl.col("length") + 1_000_000
at, after = pl.col("start_ns"), pl.col("start_ns") + pl.col("duration_ns")
print(found.filter((at < pl.col("begin") - 1_000_000) | (after > end)).height, found.height)
"""


def _operators_outside(folder: Folder, bundle: Path) -> tuple[int, int]:
    done = subprocess.run(
        [folder.python.python, "-c", _OUTSIDE, str(bundle)],
        env=folder.python.variables({}),
        capture_output=True,
        text=True,
        check=True,
    )
    outside, operators = map(int, done.stdout.split())
    assert operators
    return outside, operators


def _few_descriptors() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))


def _descriptors(runtime: str) -> Callable[[Folder, int], str]:
    """A process that may open 64 files records, another reports."""

    def case(folder: Folder, calls: int) -> str:
        calls //= 10
        folder.run(SCRIPTS[runtime] + _LOOP, calls, preexec_fn=_few_descriptors)
        (bundle,) = folder.bundles()
        _whole(bundle, calls)
        report = folder.ours("analyze", bundle, preexec_fn=_few_descriptors)
        _, err = report.communicate(timeout=900)
        assert report.returncode == 0, err
        return f"{calls:,} calls and their report"

    return case


@contextmanager
def _small_disk(place: Path) -> Iterator[None]:
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", place], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", place], check=True)


def _full(folder: Folder, calls: int) -> str:
    """The disk of the bundle fills: the script ends as without the profiler, one sentence says
    what is missing, and what is there can be merged and reported on."""
    bare, _ = folder.run(_ORT + _LOOP, calls, bare=True)
    with _small_disk(folder.traces):
        ours, _ = folder.run(_ORT + _LOOP, calls)
        assert ours.split()[0] == bare.split()[0]
        said = (folder.place / "said").read_text()
        assert "Traceback" not in said
        assert "No space left" in said, said
        (bundle,) = folder.bundles()
        for _ in range(2):  # as it is: in a sentence, or read
            report = folder.ours("analyze", bundle, "--no-html")
            out, err = report.communicate(timeout=900)
            assert report.returncode in (0, 2), err
            assert "Traceback" not in err
            if report.returncode == 2:
                assert err.count("\n") == 1, err
            subprocess.run(["mount", "-o", "remount,size=64m", folder.traces], check=True)
            folder.ours("merge", bundle).communicate(timeout=900)
        assert (report.returncode, bool(out)) == (0, True), err
        kept = len(json.loads((bundle / "manifest.json").read_bytes())["calls"])
    return f"{kept:,} of {calls:,} calls were kept; {said.splitlines()[-1]}"


def _slow(folder: Folder, calls: int) -> str:
    """Each step on the disk takes 3 ms more: nothing is lost."""
    calls //= 10
    _, bare = folder.run(_ORT + _SLOW + _LOOP, calls, bare=True)
    _, profiled = folder.run(_ORT + _SLOW + _LOOP, calls)
    (bundle,) = folder.bundles()
    _whole(bundle, calls)
    assert profiled - bare <= MEMORY_MB, (bare, profiled)
    return f"{calls:,} calls, {profiled - bare:.0f} MB above {bare:.0f} MB"


CASES: dict[str, Callable[[Folder, int], str]] = {
    "ort": _long("ort"),
    "torch": _long("torch"),
    "beside": _beside,
    "clock ort": _clock("ort"),
    "clock torch": _clock("torch"),
    "descriptors ort": _descriptors("ort"),
    "descriptors torch": _descriptors("torch"),
    "full disk": _full,
    "slow disk": _slow,
}


def soak(name: str, calls: int) -> str:
    """What a case tried. Raises AssertionError."""
    with tempfile.TemporaryDirectory(prefix="soak-") as scratch:
        python = Environment(Path(scratch) / "python")
        return CASES[name](Folder(python, Path(scratch) / "case"), calls)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"of {', '.join(CASES)}; all if none is given")
    parser.add_argument("--calls", type=int, default=10_000)
    options = parser.parse_args()
    failed = False
    for name in options.names or CASES:
        begin = time.monotonic()
        try:
            told = soak(name, options.calls)
        except AssertionError as error:
            failed, told = True, f"FOUND: {error}"
        print(f"{name}, {time.monotonic() - begin:.0f} s: {told}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
