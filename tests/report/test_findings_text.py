"""Findings in the terminal."""

import io
from dataclasses import replace

from rich.console import Console

from profiler.analysis.analyze import analyze
from profiler.analysis.findings.finding import Finding
from profiler.analysis.findings.rules import RULES
from profiler.events import DropKind, Loss
from profiler.report.findings_text import evidence_text, findings_section
from profiler.report.text import print_report
from tests.runs import tiny_run

FINDING = Finding(
    rule="rule",
    title="vae takes 31 % of the run",
    evidence={
        "wait_ns": 1_500_000,
        "wait_share": 0.31,
        "held_bytes": 2048,
        "calls": 12_345,
        "ratio": 1.25,
        "layer": "conv",
    },
    hazard="It may be right.",
    remedy="Do something else.",
    severity="high",
)


def _printed(parts, width=200):
    out = io.StringIO()
    console = Console(file=out, width=width, highlight=False)
    for part in parts:
        console.print(part)
    return out.getvalue()


def test_evidence_has_units():
    """By the end of their names."""
    text = evidence_text(FINDING).replace("\N{NO-BREAK SPACE}", " ")
    assert text == (
        "wait 1.50 ms, wait share 31 %, held 2.00 KiB, calls 12,345, ratio 1.25, layer conv"
    )


def test_finding_with_evidence_and_remedy():
    """Severity, title, the first five of the evidence, remedy."""
    title, parts = findings_section([FINDING], 31, 200)
    assert title == "Findings, all 1 with evidence, worst first"
    assert [line.rstrip() for line in _printed(parts).splitlines()] == [
        "high    vae takes 31 % of the run",
        "        wait 1.50 ms, wait share 31 %, held 2.00 KiB, calls 12,345, ratio 1.25",
        "        → Do something else.",
    ]


def test_a_number_stays_with_its_unit():
    """A line that is too short for both begins the next one with both."""
    finding = replace(FINDING, title="vae and all takes 31 % of the run")
    _, parts = findings_section([finding], 31, len("high    vae and all takes 31"))
    assert [line.rstrip() for line in _printed(parts).splitlines()][:2] == [
        "high    vae and all takes",
        "        31 % of the run",
    ]


def test_many_findings():
    """Five whole ones, of the others the title."""
    title, parts = findings_section([FINDING] * 7, 31, 200)
    assert title == "Findings, 5 of 7 with evidence, worst first"
    printed = _printed(parts)
    assert printed.count("vae takes") == 7
    assert printed.count("→ Do something else.") == 5


def test_no_finding():
    """The section says so."""
    title, parts = findings_section([], 31, 80)
    assert (title, _printed(parts)) == ("Findings", "none: 31 rules found no evidence\n")


def test_narrow_terminal_and_hostile_names():
    """Lines wrap; control characters of a trace do not steer the terminal."""
    loss = Loss(DropKind.DROPPED_EVENTS, "a\x1b[31mb.pb", 3, "events", "x\x1b]0;y\x07")
    out = io.StringIO()
    print_report(Console(file=out, width=40, highlight=False), analyze(tiny_run(losses=(loss,))))
    text = out.getvalue()
    assert "\x1b" not in text
    section = text.split("Findings, ")[1].split("\nDevices")[0]
    assert max(map(len, section.splitlines())) <= 45
    assert "dropped events" in section


def test_section_follows_the_accounting():
    """It comes before all tables but that of the stages, and counts the rules."""
    out = io.StringIO()
    print_report(Console(file=out, width=120, highlight=False), analyze(tiny_run()))
    text = out.getvalue()
    places = [text.index(name) for name in ("Where the time went", "Findings", "\nDevices")]
    assert places == sorted(places)
    assert len(RULES) > 12
