"""What is said of the nodes of the module tree."""

from __future__ import annotations

from profiler.analysis.module_tree.codes import Node
from profiler.report.sentences.worded import Sentences
from profiler.text import said

__all__ = ["SENTENCES"]

SENTENCES: Sentences = {
    Node: {
        Node.RUN: said("run"),
        Node.STAGE: said("stage"),
        Node.SUBMODULE: said("submodule"),
        Node.MODULE: said("module"),
        Node.ROLE: said("role"),
        Node.OPERATOR: said("operator"),
        Node.UNTRACED: said("calls without operators"),
    },
}
