"""What reports call commands: by devices, and on CPUs by what ran there."""

from __future__ import annotations

import polars as pl
import pytest

from profiler.analysis.analyze import analyze
from profiler.analysis.findings.finding import Finding
from profiler.report.model import Part, TableView
from profiler.report.nouns import noun_of, with_nouns
from profiler.report.sentences.findings.words import evidence_pairs
from profiler.report.sentences.nouns import Noun
from profiler.table.columns import Column
from tests.runs import make_call, make_info, make_run


def _noun(devices, submodule=(), **described):
    info = make_info(
        devices={name: {} for name in devices}, submodules={"vae": dict(submodule)}, **described
    )
    return noun_of(analyze(make_run([make_call(0, "vae", 0, 10)], info=info)))


def test_the_noun_is_the_producers():
    """Kernels where all accelerators are GPUs, nodes of ONNX models and operators of torch where
    only CPUs are, commands of NPUs and where nobody knows."""
    onnx = {"model": "vae/model.onnx"}
    assert _noun(["cpu:0", "cuda:0", "rocm:1"]) == Noun.KERNELS
    assert _noun(["cpu:0"], onnx) == Noun.NODES
    assert _noun(["cpu:0"], versions={"torch": "2.13.0"}) == Noun.OPERATORS
    assert _noun(["cpu:0"]) == Noun.COMMANDS
    assert _noun(["cpu:0", "rbln:0"], onnx) == Noun.COMMANDS
    assert _noun([]) == Noun.COMMANDS


@pytest.mark.parametrize(
    ("noun", "labels", "evidence"),
    [
        (Noun.KERNELS, ["events", "kernels + copies"], ["kernels + copies", "mean kernel or copy"]),
        (Noun.NODES, ["nodes + host", "nodes"], ["nodes", "mean node"]),
        (Noun.COMMANDS, ["commands", "commands"], ["commands", "mean command"]),
    ],
)
def test_tables_and_evidence_have_it(noun, labels, evidence):
    """The column of tables and the names of a finding's evidence; keys and values stay."""
    column = Column("commands", pl.Int64(), "", "commands")
    frame = pl.DataFrame({"commands": [1]})
    found = []
    for key in ("devices", "operators"):
        part = with_nouns(Part(table=TableView(key, key, (column,), frame)), noun)
        found.append(str(part.table.columns[0].label))
    assert found == labels
    finding = Finding("host_bound", {"commands": 3, "mean_command_ns": 5})
    part = with_nouns(Part(findings=(finding,)), noun)
    pairs = [*evidence_pairs(finding, part.noun)]
    assert [str(name) for name, _ in pairs] == evidence
    assert pairs[0][1] == "3"
