"""The optimizers that `graph optimize` knows; each runs in a process of its own.

So a native crash, what they print and the memory that they take stay there, and modules that they
put in the interpreter's path (onnxruntime.transformers does) do not reach ours.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import onnx_ir as ir

from profiler.errors import InputError, install_command
from profiler.graph.model_file import all_tensors, read_graph
from profiler.graph.optimize.inserted_casts import remove_inserted_casts
from profiler.graph.optimize.mmdit_attention import write_for_mmdit_fusion
from profiler.graph.optimize.model_type import MODEL_TYPES, model_type_of

__all__ = ["DEFAULT", "LEVELS", "OPTIMIZERS", "Optimized", "Optimizer", "run_optimizer"]

DEFAULT = "ort"
LEVELS = ("basic", "extended", "all")
_PACKAGES = {  # what each needs beside what is always there; the name of its extra, too
    "onnxslim": "onnxslim",
    "onnxsim": "onnxsim",
    "ort-transformers": "sympy",
}
OPTIMIZERS = (DEFAULT, "ort-transformers", "onnxslim", "onnxsim")
_PROTOBUF_BYTES = (1 << 31) - 1
_CRASHES = {6: "abort", 9: "killed, perhaps for memory", 11: "segmentation fault", 15: "terminated"}


@dataclass(frozen=True, slots=True)
class Optimizer:
    """Which optimizer, and how: `level` is one of `LEVELS` for `ort`, `model_type` one of
    `MODEL_TYPES` for `ort-transformers`, "" where it is to follow from the model."""

    name: str = DEFAULT
    level: str = "basic"
    model_type: str = ""

    def check(self) -> None:
        """Raise InputError for an unknown name, level or type, and where its package is not
        installed."""
        for given, known, what in (
            (self.name, OPTIMIZERS, "optimizer"),
            (self.level, LEVELS, "level"),
            (self.model_type or MODEL_TYPES[0], MODEL_TYPES, "model type"),
        ):
            if given not in known:
                raise InputError(f"{what} {given!r} is not known: give one of {', '.join(known)}")
        package = _PACKAGES.get(self.name)
        if package is not None and importlib.util.find_spec(package) is None:
            raise InputError(
                f"{self.name} needs the package {package}: `{install_command(self.name)}`"
            )


@dataclass(frozen=True, slots=True)
class Optimized:
    """An optimized model, by which optimizer (its `model_type` settled), and what was done beside:
    `attention_prepared` and `attention_left`, attentions that were written as the MMDiT fusion
    expects them, and that could not be; `casts_removed`, casts to float32 that ONNX Runtime had
    inserted for its CPU."""

    model: ir.Model
    optimizer: Optimizer
    done: Mapping[str, int]


def run_optimizer(optimizer: Optimizer, source: Path, model: ir.Model, folder: Path) -> Optimized:
    """Optimize the model of the file `source`, whose content is `model`.

    `folder` is there for files as long as the result is used. Raises InputError where the
    optimizer fails.
    """
    if optimizer.name == "ort-transformers" and not optimizer.model_type:
        optimizer = replace(optimizer, model_type=model_type_of(source, model))
    request: dict[str, Any] = asdict(optimizer) | {
        "source": str(source.absolute()),
        "data": str(source.parent.absolute()),
        "out": str((folder / "optimized.onnx").absolute()),
        "error": str((folder / "error.txt").absolute()),
    }
    done: dict[str, int] = {}
    if optimizer.model_type == "mmdit":
        prepared, done = _prepared(source, folder)
        request["source"] = str(prepared.absolute())
    _run(optimizer, request, source, model)
    optimized = read_graph(Path(request["out"]))
    for tensor in all_tensors(optimized):
        if isinstance(tensor, ir.ExternalTensor) and not _lies_in(tensor, folder):
            tensor.base_dir = source.parent.absolute()
    if optimizer.name == "ort" and optimizer.level != "all":  # layouts of `all` are float32's alone
        done = {"casts_removed": remove_inserted_casts(optimized, model)}
    counts = {name: count for name, count in done.items() if count}
    return Optimized(optimized, optimizer, counts)


def _prepared(source: Path, folder: Path) -> tuple[Path, dict[str, int]]:
    """The graph of `source`, its external data where it is, with attention as it is looked for."""
    graph = read_graph(source)
    count = write_for_mmdit_fusion(graph)
    path = folder / "prepared.onnx"
    ir.save(graph, path)
    softmaxes = sum(node.op_type == "Softmax" and not node.domain for node in graph.graph)
    return path, {"attention_prepared": count, "attention_left": softmaxes - count}


def _lies_in(tensor: ir.ExternalTensor, folder: Path) -> bool:
    """Whether the optimizer has written the data of `tensor` into `folder`."""
    return (folder / os.fspath(tensor.location)).is_file()


def _run(optimizer: Optimizer, request: dict[str, Any], source: Path, model: ir.Model) -> None:
    package_root = str(Path(__file__).parents[3])
    paths = [package_root, os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    environment.pop("RBLN_PROFILER", None)  # it is the user's script that is profiled
    finished = subprocess.run(
        [sys.executable, "-m", "profiler.graph.optimize.runner", json.dumps(request)],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    if finished.returncode == 0 and Path(request["out"]).is_file():
        return
    error = Path(request["error"])
    reason = error.read_text("utf-8").strip() if error.is_file() else ""
    if not reason:
        crash = _CRASHES.get(-finished.returncode, f"exit code {finished.returncode}")
        reason = f"it ended early, {crash}"
    advice = "choose another optimizer by --with"
    if sum(tensor.nbytes for tensor in all_tensors(model)) > _PROTOBUF_BYTES:
        advice = "for more than 2 GB of weights take --with ort, or ort-transformers of type mmdit"
    raise InputError(f"{source}: {optimizer.name} cannot optimize it ({reason}): {advice}")
