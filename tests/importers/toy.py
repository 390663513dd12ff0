"""A package with an importer of its own, as somebody else would write it, and a trace for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "toy-traces"
version = "1.0"

[project.entry-points."profile_sd3.importers"]
toy = "toy_traces:IMPORTER"

[tool.setuptools]
py-modules = ["toy_traces"]
"""

MODULE = '''
from dataclasses import dataclass

from profiler.errors import InputError
from profiler.events import ROOT_DEVICE, Call, Track
from profiler.importers.importer import Importer, Option
from profiler.trace.columns import CommandBuilder
from profiler.trace.manifest import RunInfo


@dataclass
class ToyRun:
    """Lines `submodule layer milliseconds` of one file or several, one call each."""

    name: str
    lines: list
    unit: int
    capabilities = ("timeline", "toys")

    def write(self, bundle):
        time = 10**18
        for index, (submodule, layer, length) in enumerate(self.lines):
            duration = int(length) * 1_000_000 * self.unit
            commands = CommandBuilder()
            commands.add(Track("npu:0", "queue 0", "compute"), layer, "Toy", time, duration)
            call = Call(index, submodule, "denoise", "", index, "npu:0", time, duration, True)
            bundle.write_call(call, commands.build())
            time += duration
        bundle.write_host([], CommandBuilder().build(), ROOT_DEVICE)
        return RunInfo(producer="toy")


def read(paths, options):
    lines = [
        line.split() for path in paths for line in path.read_text().splitlines()[1:]
    ]
    if not lines:
        raise InputError(f"{paths[0]} holds no toy: play again")
    return ToyRun(paths[0].stem, lines, options.get("slower", 1))


IMPORTER = Importer(
    name="toy",
    accepts="a trace of toys (.toy)",
    recognises=lambda path, head: head.startswith(b"TOYS"),
    read=read,
    options=(Option("slower", int, "how many times slower it was", least=1),),
    capabilities=frozenset({"timeline", "toys"}),
)
'''


def install(folder: Path) -> Path:
    """Install the package from its sources; the folder that it is in then."""
    sources, target = folder / "sources", folder / "installed"
    sources.mkdir()
    (sources / "pyproject.toml").write_text(PROJECT)
    (sources / "toy_traces.py").write_text(MODULE)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-build-isolation"]
    command += ["--no-deps", "--no-index", "--target", str(target), str(sources)]
    subprocess.run(command, check=True, capture_output=True)
    return target


def run(installed: Path, *arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """`profile-sd3 ARGUMENTS` in a process that has the package."""
    command = [sys.executable, "-m", "profiler", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


def write_trace(path: Path, *lines: str) -> Path:
    """A trace for it, by default of two calls that take 3 ms and 5 ms."""
    text = lines or ("transformer blocks.0 3", "transformer blocks.0 5")
    path.write_text("\n".join(("TOYS", *text)) + "\n")
    return path
