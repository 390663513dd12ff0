"""What reports call the commands of devices: their producer's word.

Tables and data have the column `commands` whatever ran. A reader of a GPU's report has it headed
*kernels* where it counts these, as other tools call them, and *events* where what the host did to
launch them is among it, of ONNX Runtime's *nodes*, of torch's on
a CPU *operators*.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from msgspec.structs import replace

from profiler.analysis.result import Analysis
from profiler.report.model import Part
from profiler.text import Noun, Said, said
from profiler.trace.events import device_kind

__all__ = ["all_events", "noun_of", "of_devices", "on_gpus", "with_nouns"]

_GPUS = frozenset(("cuda", "rocm", "hip", "xpu", "mps", "gpu"))
_OF_ENGINES = ("tensorrt",)  # their layers and inferences are kernels of several functions
_OF_DEVICES = ("operators", "roles", "blocks", "roofline", "roofline_roles", "split")
_OF_CALLS = ("calls", "submodules", "devices")  # what the host launched for them, too


def _labels(noun: Said, of_devices: Said, of_calls: Said, of_rows: Said) -> Mapping[str, Said]:
    return {
        "shapes": noun,
        **dict.fromkeys(_OF_DEVICES, of_devices),
        **dict.fromkeys(_OF_CALLS, of_calls),
        "devices": of_rows,
    }


_LABELS: Mapping[Noun, Mapping[str, Said]] = {  # of the column `commands`, by keys of tables
    Noun.KERNELS: _labels(
        said("kernel launches"),
        said("kernels + copies"),
        said("events"),
        said("events"),
    ),
    Noun.NODES: _labels(said("nodes"), said("nodes"), said("nodes"), said("nodes + host")),
    Noun.OPERATORS: _labels(
        said("operators run"),
        said("operators run"),
        said("operators run"),
        said("operators + host"),
    ),
    Noun.COMMANDS: {},
}
_ALL: Mapping[Noun, Said] = {
    Noun.KERNELS: said("events"),
    Noun.NODES: said("nodes + host"),
    Noun.OPERATORS: said("operators + host"),
    Noun.COMMANDS: said("commands"),
}
_ON_DEVICES: Mapping[Noun, str] = {
    Noun.KERNELS: "kernels + copies",
    Noun.NODES: "nodes",
    Noun.OPERATORS: "operators",
    Noun.COMMANDS: "commands",
}


def all_events(noun: Noun) -> Said:
    """What all commands of a run are called, those of the host included."""
    return _ALL[noun]


def of_devices(noun: Noun) -> Mapping[str, str]:
    """What names of counts of the devices' commands become: `commands`, `commands outside
    calls`."""
    own = _ON_DEVICES[noun]
    return {"commands": own, "commands outside calls": f"{own} outside calls"}


def on_gpus(analysis: Analysis) -> bool:
    """Whether the accelerators of a run are GPUs, all of them, as its producer told them."""
    kinds = _kinds(analysis) - {"cpu"}
    return bool(kinds) and kinds <= _GPUS


def noun_of(analysis: Analysis) -> Noun:
    """What the commands of a run are called, by its devices and, on CPUs, by what ran there."""
    run = analysis.run
    if run.producer in _OF_ENGINES:
        return Noun.COMMANDS
    if on_gpus(analysis):
        return Noun.KERNELS
    if _kinds(analysis) != {"cpu"}:
        return Noun.COMMANDS
    if any(submodule.model.endswith(".onnx") for submodule in run.submodules.values()):
        return Noun.NODES
    return Noun.OPERATORS if run.producer == "kineto" or "torch" in run.versions else Noun.COMMANDS


def _kinds(analysis: Analysis) -> set[str]:
    return {device_kind(name) for name in analysis.run.devices}


def with_nouns(part: Part, noun: Noun) -> Part:
    """A part as readers of a run whose commands are called `noun` call things."""
    part = replace(part, noun=noun) if part.findings else part
    view = part.table
    label = _LABELS[noun].get(view.key) if view is not None else None
    if view is None or label is None:
        return part
    columns = tuple(
        dataclasses.replace(column, label=label) if column.name == "commands" else column
        for column in view.columns
    )
    return replace(part, table=replace(view, columns=columns))
