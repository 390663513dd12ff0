"""What the commands of a run are called: their producer's word."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from profiler.messages import Said, said

__all__ = ["Noun", "evidence_name"]


class Noun(StrEnum):
    """Of GPUs kernels, of ONNX Runtime nodes, of torch on a CPU operators, else commands."""

    KERNELS = "kernels"
    NODES = "nodes"
    OPERATORS = "operators"
    COMMANDS = "commands"


_EVIDENCE: Mapping[Noun, Mapping[str, Said]] = {
    Noun.KERNELS: {
        "commands": said("kernels + copies"),
        "mean command": said("mean kernel or copy"),
    },
    Noun.NODES: {"commands": said("nodes"), "mean command": said("mean node")},
    Noun.OPERATORS: {"commands": said("operators"), "mean command": said("mean operator")},
    Noun.COMMANDS: {},
}


def evidence_name(name: str, noun: Noun) -> str:
    """The name of a value of a finding's evidence, where it is about commands."""
    return _EVIDENCE[noun].get(name, name)
