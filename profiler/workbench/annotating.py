"""A model, or a folder of them, and a run → copies with what the run measured on the nodes.

annotated = annotate(Path("sd3-onnx"), Path("traces"), Path("sd3-hot"))
annotated.files[0].annotation.nodes[0]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profiler.analysis.operators import command_positions
from profiler.analysis.roles import with_roles
from profiler.capture.onnxruntime.onnx_graph import ExportedModel, build_layer_map
from profiler.errors import InputError
from profiler.graph.annotate import MeasuredCommand
from profiler.graph.annotate_files import (
    AnnotatedFile,
    Measurement,
    annotate_file,
    annotate_folder,
)
from profiler.graph.executed import optimized_graph
from profiler.graph.model_file import model_files
from profiler.run.run import Run
from profiler.sources import load
from profiler.trace.manifest_fields import Submodule

__all__ = ["Annotated", "AnnotatedModel", "annotate"]

_FOLDERS = {"vae_decoder": "vae", "vae_encoder": "vae"}  # parts of a submodule with two graphs


@dataclass(frozen=True, slots=True)
class AnnotatedModel:
    """A model that `calls` traced calls of `submodule` were written on."""

    submodule: str
    calls: int
    file: AnnotatedFile

    def to_json(self) -> dict[str, Any]:
        """The submodule and where its time went, as a JSON object."""
        return {"submodule": self.submodule, **self.file.to_json()}


@dataclass(frozen=True, slots=True)
class Annotated:
    """What `annotate` wrote: a file a model; `copied` are models of a folder that the run does not
    know, `notes` say what could not be told."""

    run_id: str
    models: Sequence[AnnotatedModel]
    copied: Sequence[Path]
    notes: Sequence[str]

    def to_json(self) -> dict[str, Any]:
        """All of it as a JSON object."""
        return {"run": self.run_id, "models": [model.to_json() for model in self.models]}


def annotate(
    model: Path,
    traces: Path,
    out: Path,
    *,
    submodule: str = "",
    runtime: bool = True,
    say: Callable[[str], None] = lambda _: None,
) -> Annotated:
    """Write `model` to `out` with the time, share, calls, bytes and role that a run measured.

    `model` is an ONNX file or a folder of them, `traces` a bundle, a folder of which the newest is
    taken, or one `.pb`. `submodule` says what of the run a single model is, "" to tell by the run
    or by names. With `runtime` ONNX Runtime optimizes the model once more, so that time of fused
    nodes is placed at nodes; it runs nothing. `say` hears what is done. Raises InputError where a
    model or the run cannot be read or fit each other not, OutputError where `out` cannot be
    written or is an input.
    """
    sources = model_files(model)
    run = with_roles(load(traces))
    named = _submodules(model, sources, run, submodule)
    notes: list[str] = []
    say(f"annotating {model}")
    with ExitStack() as stack:
        measured = {}
        for path, name in named.items():
            optimized = _optimized(stack, path, notes) if runtime else None
            measured[path] = _measurement(path, run, name, optimized)
        if model.is_dir():
            files = annotate_folder(model, out, measured)
        else:
            files = [annotate_file(model, out, measured[sources[0]])]
    models = [
        AnnotatedModel(named[file.source], _calls(run, named[file.source]), file) for file in files
    ]
    return Annotated(run.run_id, models, [path for path in sources if path not in named], notes)


def _submodules(model: Path, sources: list[Path], run: Run, asked: str) -> dict[Path, str]:
    """The submodule of the run that each model is; models that are none are left out."""
    known = [str(name) for name in run.calls["submodule"].unique(maintain_order=True)]
    names = ", ".join(known)
    if asked:
        if asked not in known:
            raise InputError(f"the run has no submodule {asked}: give one of {names}")
        if model.is_dir():
            raise InputError("--submodule names one model: give its file instead of the folder")
        return {sources[0]: asked}
    found = _told_by_run(sources, run, known)
    for path in sources:
        called = (_FOLDERS.get(name, name) for name in (path.parent.resolve().name, path.stem))
        name = next((name for name in called if name in known), "")
        if path not in found and name and name not in found.values():
            found[path] = name
    if not found and not model.is_dir() and len(known) == 1:
        return {sources[0]: known[0]}
    if not found:
        raise InputError(f"which submodule {model} is cannot be told: give --submodule {names}")
    return found


def _told_by_run(sources: list[Path], run: Run, known: list[str]) -> dict[Path, str]:
    """The submodules whose models lie, as the run tells, where the paths end."""
    found = {}
    for name in known:
        told = Path(run.info.submodules.get(name, Submodule()).model).parts
        for path in sources:
            if len(told) > 1 and path.resolve().parts[-len(told) :] == told:
                found[path] = name
    return found


def _optimized(stack: ExitStack, path: Path, notes: list[str]) -> Path | None:
    """The graph that ONNX Runtime executes, there until `stack` ends; None where it makes none."""
    try:
        return stack.enter_context(optimized_graph(path))
    except InputError as error:
        notes.append(f"{error}: time of fused nodes stays at their layers")
        return None


def _measurement(path: Path, run: Run, submodule: str, optimized: Path | None) -> Measurement:
    rows = command_positions(run, submodule)
    commands = [
        MeasuredCommand(**{**row, "role": row["role"] or ""}) for row in rows.iter_rows(named=True)
    ]
    layers = build_layer_map(ExportedModel(path), optimized)
    return Measurement(
        commands,
        lambda name, op_type: layers.place_of(name, op_type)[0],
        optimized,
        _about(run, submodule, commands),
    )


def _about(run: Run, submodule: str, commands: list[MeasuredCommand]) -> dict[str, str]:
    """What the model's own metadata gets."""
    calls = _calls(run, submodule)
    total_ns = sum(command.duration_ns for command in commands)
    device = run.info.submodules.get(submodule, Submodule()).device
    about = {
        "run": run.run_id,
        "submodule": submodule,
        "device": device,
        "calls": str(calls),
        "time": f"{total_ns / max(calls, 1) / 1000:.1f} µs of operators a call",
    }
    return {name: text for name, text in about.items() if text}


def _calls(run: Run, submodule: str) -> int:
    """The calls whose operators were traced."""
    calls = run.calls["ops_traced"] & (run.calls["submodule"].cast(str) == submodule)
    return int(calls.sum())
