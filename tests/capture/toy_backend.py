"""A package with a backend of its own, as somebody else would write it, and its runtime."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

__all__ = ["BACKEND", "RUNTIME", "install", "registered", "run"]

_PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "toy-runtime"
version = "1.5"

[project.entry-points."profile_sd3.backends"]
toy = "toy_backend:TOY"

[tool.setuptools]
py-modules = ["toy_runtime", "toy_backend"]
"""

RUNTIME = '''
class Engine:
    """Executes two layers; `listener` is told when each begins and ends."""

    def __init__(self, index):
        self.index = index
        self.listener = None

    def forward(self, sample):
        for layer in ("blocks.0.toy", "blocks.1.toy"):
            if self.listener is not None:
                self.listener(layer)
            sample = sample + 1
        if self.listener is not None:
            self.listener(None)
        return sample

    def __call__(self, sample):
        return self.forward(sample)


class Pipeline:
    """Calls its engine twice."""

    def __init__(self):
        self.unet = Engine(3)

    def __call__(self, sample):
        return self.unet.forward(self.unet.forward(sample))
'''

BACKEND = '''
import sys

from profiler.capture.backend import Backend


class ToyOperators:
    """An OperatorSource: each layer that the engine tells of is a command."""

    def __init__(self, request):
        from profiler.capture.operator_source import SourceSummary

        self.request, self.engine = request, request.part
        self.clock = request.recorder.clock
        self.found, self.layers = [], []
        self.summarized = SourceSummary

    def begin_pipeline(self, pipeline): pass
    def end_pipeline(self, pipeline): pass
    def leave_out(self, invocation): pass

    def before(self, invocation):
        self.layers = []
        self.engine.listener = lambda layer: self.layers.append((layer, self.clock.now_ns()))

    def after(self, invocation):
        from profiler.capture.operator_source import OperatorTrace
        from profiler.trace.events import Track
        from profiler.trace.columns import CommandBuilder

        builder = CommandBuilder()
        track = Track(self.request.device, "Engine", "compute")
        for (layer, begin), (_, end) in zip(self.layers, self.layers[1:]):
            builder.add(track, layer, "Toy", begin, end - begin)
        self.engine.listener = None
        invocation.ops_traced = True
        self.found.append(OperatorTrace(invocation, builder.build(), ()))

    def close(self):
        self.engine.listener = None

    def traces(self):
        found, self.found = self.found, []
        return iter(found)

    def summary(self):
        return self.summarized(events=4, backend="toy")


class Watch:
    """Says when the runtime has been imported."""

    libraries = {"toy_runtime": lambda module: print("noticed", module.__name__)}

    def forget(self): pass
    def undo(self): pass


class Toy(Backend):
    name = "toy"
    packages = ("toy-runtime",)

    def owns(self, part, owner=None):
        runtime = sys.modules.get("toy_runtime")
        return runtime is not None and isinstance(part, runtime.Engine)

    def open(self, request):
        return None if request.selection.nothing else ToyOperators(request)

    def event_cost(self, gaps):  # noqa: ARG002
        from profiler.capture.overhead import EventCost

        return EventCost(1.0)

    def device(self, part, owner, name):
        return f"toy:{part.index}"

    def weight_bytes(self, part):
        return 4_096

    def watch(self, process):
        return Watch()


class Undecided(Toy):
    name = "undecided"

    def owns(self, part, owner=None):
        raise RuntimeError("no driver")


TOY = Toy()
UNDECIDED = Undecided()
NO_BACKEND = Toy
'''


def install(folder: Path) -> Path:
    """The folder that Python is to look in for the package, built and installed below `folder`."""
    sources, target = folder / "sources", folder / "installed"
    sources.mkdir(parents=True)
    (sources / "pyproject.toml").write_text(_PROJECT, encoding="utf-8")
    (sources / "toy_runtime.py").write_text(RUNTIME, encoding="utf-8")
    (sources / "toy_backend.py").write_text(BACKEND, encoding="utf-8")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-build-isolation"]
    command += ["--no-deps", "--no-index", "--target", str(target), str(sources)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


def registered(installed: Path, folder: Path, entry: str) -> Path:
    """A copy below `folder` of what was installed, which registers `entry` instead."""
    target = folder / "installed"
    shutil.copytree(installed, target)
    (entries,) = target.glob("*.dist-info/entry_points.txt")
    entries.write_text(entries.read_text("utf-8").replace("toy_backend:TOY", entry), "utf-8")
    return target


def run(
    target: Path, program: str, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program beside the installed package, in a folder of its own."""
    environment = {**os.environ, "PYTHONPATH": str(target), **(variables or {})}
    command = [sys.executable, "-c", program]
    folder = target.parent
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done
