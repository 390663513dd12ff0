"""A virtual environment with the start-up files in it, and scripts that run there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import venv
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent

import onnx
from onnx import TensorProto, helper

from profiler.trace import MANIFEST_NAME, MERGED_NAME, NO_STEP, read_manifest
from profiler.trace.manifest import Manifest
from tests.runs import told

__all__ = [
    "CALLS_ONLY",
    "ENCODER",
    "ONE_RUN",
    "ROOT",
    "SESSION",
    "STARTUP",
    "Ended",
    "Environment",
    "default_signals",
    "drops",
    "labels",
    "whole",
]

ROOT = Path(__file__).resolve().parents[2]
STARTUP = ROOT / "startup"
EDITABLE = "_editable_skbc_profile_sd3"  # finds the compiled core of `pip install -e`

SESSION = """
    import numpy as np
    import onnxruntime

    x = np.ones((2, 3), np.float32)
    def made(model="encoder.onnx"):
        return onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
"""
"""The beginning of a script that makes bare sessions."""

ONE_RUN = SESSION + "    made().run(None, {'x': x})\n"
CALLS_ONLY = {"RBLN_PROFILER_CONFIG": '{"ops": "none"}'}
ENCODER = ("encoder", "", "", NO_STEP)
"""The labels of a bare run of `encoder.onnx`."""


@dataclass(frozen=True)
class Ended:
    """A script that has ended, and the folders of bundles that it left, by name."""

    code: int
    out: str
    err: str
    bundles: list[Path]

    @property
    def bundle(self) -> Path:
        assert len(self.bundles) == 1, (self.bundles, self.err)
        return self.bundles[0]


def default_signals() -> Callable[[], None] | None:
    """A process's `preexec_fn`: gives it signals as in a terminal, where the tests themselves run
    under nohup or in the background. None elsewhere: it makes Python copy the tests' process, which
    takes longer than many a script."""
    numbers = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)
    ignored = [number for number in numbers if signal.getsignal(number) is signal.SIG_IGN]

    def reset() -> None:
        for number in ignored:
            signal.signal(number, signal.SIG_DFL)

    return reset if ignored else None


class Environment:
    """Python with profile-sd3's start-up files, and a folder to run scripts in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        venv.EnvBuilder(symlinks=True, with_pip=False).create(folder / "venv")
        self.packages = next((folder / "venv").glob("lib/python*/site-packages"))
        found = [str(ROOT), *(path for path in sys.path if path.endswith("-packages"))]
        if find_spec(EDITABLE) is not None:
            found.append(f"import {EDITABLE}")
        (self.packages / "found.pth").write_text("\n".join(found) + "\n", encoding="utf-8")
        for file in STARTUP.glob("*profile_sd3*"):
            (self.packages / file.name).write_bytes(file.read_bytes())
        self.python = str(folder / "venv" / "bin" / "python")
        self.work = folder / "work"

    def at(self, work: Path) -> Environment:
        """The same Python, working in another folder, which gets the model `encoder.onnx`."""
        other = object.__new__(Environment)
        other.__dict__.update(vars(self), work=work)
        onnx.save(tiny_model(), str(work / "encoder.onnx"))
        return other

    def variables(self, settings: Mapping[str, str | None]) -> dict[str, str]:
        """The environment with `settings`; None: without that variable."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("RBLN_", "PYTHON"))}
        return clean | {k: v for k, v in settings.items() if v is not None}

    def start(self, script: str, *arguments: str, **settings: str | None) -> subprocess.Popen[str]:
        """Begin a script; `settings` are environment variables, RBLN_PROFILER=1 unless given."""
        path = self.work / "script.py"
        written = path.with_suffix(".new")
        written.write_text(dedent(script), encoding="utf-8")
        written.replace(path)  # one that was begun before may read it still
        return subprocess.Popen(
            [self.python, str(path), *arguments],
            cwd=self.work,
            env=self.variables({"RBLN_PROFILER": "1", **settings}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=default_signals(),  # noqa: PLW1509 - it only resets signals
        )

    def run(self, script: str, *arguments: str, **settings: str | None) -> Ended:
        """Run a script to its end."""
        return self.ended(self.start(script, *arguments, **settings))

    def interrupted(self, script: str, *numbers: signal.Signals, **settings: str) -> Ended:
        """Send each of `numbers` to a script once it has printed a further line."""
        process = self.start(script, **settings)
        assert process.stdout is not None
        for number in numbers:
            process.stdout.readline()
            process.send_signal(number)
        return self.ended(process)

    def ended(self, process: subprocess.Popen[str]) -> Ended:
        try:
            out, err = process.communicate("\n", timeout=120)
        except subprocess.TimeoutExpired:  # it hangs: end it, and what it has forked
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise
        traces = self.work / "traces"
        bundles = sorted(traces.iterdir()) if traces.is_dir() else []
        return Ended(process.returncode, out, err, bundles)


def tiny_model() -> onnx.ModelProto:
    """y = (x + x) * x in two nodes, x and y float32[2,3]; its graph is called `tiny`."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])
    nodes = [
        helper.make_node("Add", ["x", "x"], ["sum"], name="add"),
        helper.make_node("Mul", ["sum", "x"], ["y"], name="mul"),
    ]
    graph = helper.make_graph(nodes, "tiny", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 8
    return model


def labels(bundle: Path) -> list[tuple[str, str, str, int]]:
    """Submodule, stage, branch and step of each call, in the order of the calls."""
    calls = [entry.call for entry in whole(bundle).calls]
    return [(call.submodule, call.stage, call.branch, call.step) for call in calls]


def drops(bundle: Path) -> list[tuple[str, str]]:
    """Kind and detail of each drop in the manifest."""
    return [(drop.kind, told(drop)) for drop in whole(bundle).info.drops]


def whole(bundle: Path) -> Manifest:
    """The manifest of a bundle whose files are all there, with the sizes that it says."""
    manifest = read_manifest(bundle / MANIFEST_NAME)
    sizes = {entry.file: entry.bytes for entry in manifest.calls} | dict(manifest.files)
    assert MERGED_NAME in sizes
    assert {name: (bundle / name).stat().st_size for name in sizes} == sizes
    return manifest
