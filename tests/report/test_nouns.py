"""What reports call commands: by devices, and on CPUs by what ran there."""

from __future__ import annotations

import polars as pl
import pytest

from profiler.analysis import Finding, ReportInput, Selection
from profiler.analysis.analyze import analyze
from profiler.analysis.document import Part, TableView
from profiler.analysis.finding_text import evidence_pairs, noun_of, with_nouns
from profiler.report import build_report
from profiler.run import Column
from profiler.text import Noun
from tests.runs import Command, make_call, make_info, make_run


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
        (
            Noun.KERNELS,
            ["events", "device operations"],
            ["device operations", "mean kernel or copy"],
        ),
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


_ALL = Selection()


def _reported(devices, submodule, commands, selection=_ALL):
    """The key figure of commands, the sentence of a selection, what was traced and attributed."""
    info = make_info(
        devices={name: {} for name in devices},
        submodules={"vae": submodule},
        attribution={
            devices[-1]: {"to": "calls", "commands": 2, "commands_outside_calls": 1},
        },
    )
    calls = [make_call(0, "vae", 0, 90, device=devices[-1]), make_call(1, "t", 90, 100)]
    analysis = analyze(make_run(calls, commands, info=info), selection)
    report = build_report(ReportInput(analysis, 0, 100))
    facts = {str(fact.label): fact for fact in report.summary.facts}
    groups = {
        str(group.title): dict(group.rows)
        for section in report.sections
        for part in section.parts
        for group in part.groups
    }
    attributed = groups["Attribution"][devices[-1]]
    return facts, report.summary.selection, groups["Run"]["traced"], attributed


@pytest.mark.parametrize(
    ("devices", "submodule", "name", "number", "note", "every"),
    [
        (("cpu:0", "cuda:0"), {}, "Kernels", "2", "1 launch or other host command", "events"),
        (("cpu:0",), {"model": "v.onnx"}, "Nodes", "3", "beside 1 of the host", "nodes + host"),
        (("rbln:0",), {}, "Commands", "4", "2 calls", "commands"),
    ],
)
def test_sentences_and_figures_have_it(devices, submodule, name, number, note, every):
    """Two computing commands, a copy and one of the host: the key figure, the selection, the
    provenance and the attribution call them as their producer does."""
    device, host = devices[-1], devices[0]
    commands = [
        Command(0, device, "stream 7", "compute", "mm", 0, 10),
        Command(0, device, "stream 7", "compute", "mm", 10, 10),
        Command(0, device, "stream 7", "dma", "copy", 20, 10),
        Command(0, host, "thread 1", "host", "launch", 0, 5),
    ]
    facts, nothing, traced, attributed = _reported(devices, submodule, commands)
    assert str(facts[name].value) == number
    assert note in str(facts[name].note)
    assert not nothing
    assert str(traced).endswith(f": 4 {every}")
    own = {"Kernels": "device operations"}.get(name, name.lower())
    assert f"{own} 2, {own} outside calls 1" in attributed
    some = Selection(submodule=("t",))
    facts, selected, _, _ = _reported(devices, submodule, commands, some)
    assert f" 0 of 4 {every}." in str(selected).replace("\N{NO-BREAK SPACE}", " ")
    assert every.capitalize() in facts
