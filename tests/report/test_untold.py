"""What a foreign trace cannot tell is said in the section that lacks it, and nowhere else."""

from __future__ import annotations

import pytest
from msgspec import structs

from profiler.analysis.analyze import analyze
from profiler.analysis.dropped_data import (
    CONSEQUENCES,
    missing_parts,
    unchecked,
)
from profiler.analysis.findings import checked_text, rules
from tests.runs import TINY_INFO, Command, make_call, make_run, tiny_run


def _on(device, *capabilities, producer="nsys"):
    """One call with a command, of a producer that tells these."""
    info = structs.replace(TINY_INFO, capabilities=capabilities, producer=producer, devices={})
    command = Command(0, device, "stream 7", "compute", "gemm", 0, 10, op_type="gemm")
    call = make_call(0, "model", 0, 10, stage="run", device=device)
    return make_run(calls=(call,), commands=(command,), spans=(), info=info)


def _said(run):
    """The lines, by section."""
    analysis = analyze(run)
    sections = {"findings", *(section for section, *_ in CONSEQUENCES.values())}
    found = {
        section: [part.lead for part in missing_parts(section, analysis)] for section in sections
    }
    return {section: lines for section, lines in found.items() if lines}


def test_a_captured_run_says_nothing():
    """Its producer states no capabilities: each table has reasons of its own."""
    assert _said(tiny_run()) == {}


@pytest.mark.parametrize("code", CONSEQUENCES)
def test_what_is_lacking_is_said_once(code):
    """In one section, in one line, and with the number of rules that need it where no rule found
    anything; the others' capabilities are there."""
    section, sentence = CONSEQUENCES[code]
    there = {*CONSEQUENCES} - {code}
    run = _on("cuda:0", *there, producer="toy")
    assert _said(run) == {section: [sentence]}
    analysis = analyze(run)
    assert analysis.findings == ()
    number = sum(code in rule.needs for rule in rules().values())
    what = {"timeline": "start times"}.get(code, code)
    need = f"{number} need{'' if number > 1 else 's'} {what}: not in this file"
    checked = f"{len(rules()) - number} of {len(rules())} rules checked, none applies"
    assert str(checked_text(analysis)) == f"{checked}; {need}"


def test_the_line_says_how_to_record_it():
    """Where its producer can."""
    lines = _said(_on("cuda:0", "timeline", "launches", producer="kineto"))
    assert lines["shapes"][0].endswith("Record with record_shapes=True.")
    assert lines["memory"][0].endswith("Record with profile_memory=True.")
    lines = _said(_on("cuda:0", "timeline", producer="kineto"))
    assert lines["shapes"][0].endswith(
        "Record with ProfilerActivity.CPU, too, and record_shapes=True."
    )


def test_launches_are_of_devices_apart_from_the_host():
    """A CPU, whose nodes the host runs itself, lacks neither launches nor an allocator."""
    run = _on("cpu:0", "timeline", producer="onnxruntime")
    assert set(_said(run)) == {"shapes"}
    assert set(unchecked(analyze(run))) == {"shapes"}
