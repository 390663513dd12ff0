"""Findings in the terminal."""

import io
from dataclasses import replace

import pytest
from msgspec import structs
from rich.console import Console

from profiler.analysis import Finding, Where, finding_text, rules
from profiler.analysis.analyze import analyze
from profiler.analysis.finding_text import Words
from profiler.report.terminal import evidence_text, finding_texts
from profiler.trace import Drop, DropKind
from tests.report.rendered import part_lines, printed, section_lines
from tests.runs import tiny_run, why

FINDING = Finding(
    rule="rule",
    evidence={
        "wait_ns": 1_500_000,
        "wait_share": 0.31,
        "retained_bytes": 2048,
        "calls": 12_345,
        "ratio": 1.25,
        "layer": "conv",
    },
    severity="high",
)


@pytest.fixture(autouse=True)
def _words(monkeypatch):
    """Sentences of the rule, its title as its evidence has it."""

    def said(finding):
        share = finding.evidence["wait_share"]
        title = f"vae takes {share:.0%} of the run".replace("%", " %")
        long = title.replace("vae", "vae and all") if finding.where.step else title
        return Words(long, "It may be right.", "Do something else.")

    ours = finding_text.rules()
    rule = finding_text.Rule(lambda _: None, said)
    monkeypatch.setattr(finding_text, "rules", lambda: {**ours, "rule": rule})


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
        "wait 1.50 ms, wait share 31 %, retained 2.00 KiB, calls 12,345, ratio 1.25, layer conv"
    )


def test_finding_with_evidence_and_recommendation():
    """Severity, title, the first five of the evidence, recommendation."""
    parts = finding_texts([FINDING], 200)
    assert [line.rstrip() for line in _printed(parts).splitlines()] == [
        "high    vae takes 31 % of the run",
        "        wait 1.50 ms, wait share 31 %, retained 2.00 KiB, calls 12,345, ratio 1.25",
        "        → Do something else.",
    ]


def test_a_number_stays_with_its_unit():
    """A line that is too short for both begins the next one with both."""
    finding = structs.replace(FINDING, where=Where(step=1))
    parts = finding_texts([finding], len("high    vae and all takes 31"))
    assert [line.rstrip() for line in _printed(parts).splitlines()][:2] == [
        "high    vae and all takes",
        "        31 % of the run",
    ]


def test_many_findings():
    """Five whole ones, of the others the title."""
    shown = _printed(finding_texts([FINDING] * 7, 200))
    assert shown.count("vae takes") == 7
    assert shown.count("→ Do something else.") == 5


def test_no_finding():
    """The section says so, and how many rules looked."""
    found = printed(replace(analyze(tiny_run()), findings=()))
    assert part_lines(found, "Findings") == [f"{len(rules())} rules checked, none applies."]


def test_narrow_terminal_and_hostile_names():
    """Lines wrap; control characters of a trace do not steer the terminal."""
    drop = Drop(DropKind.DROPPED_EVENTS, "a\x1b[31mb.pb", 3, "events", why("x\x1b]0;y\x07"))
    text = printed(analyze(tiny_run(drops=(drop,))), 40)
    assert "\x1b" not in text
    section = section_lines(text, "Findings")
    assert max(map(len, section)) <= 45
    assert "dropped events" in " ".join(section)


def test_section_follows_the_time():
    """Findings come first, then stages and steps, then devices."""
    text = printed(analyze(tiny_run()), 120)
    places = [text.index(name) for name in ("\nFindings", "\nStages and steps", "\nDevices")]
    assert places == sorted(places)
    assert len(rules()) > 12


def test_what_is_missing_is_said_in_words():
    """Of one loss, the number and the kinds say nothing new; of several, kinds are words."""
    lost = Drop(DropKind.MISSING_RANK, "job", 126, "ranks", why("2 of 128 were given"))
    cut = Drop(DropKind.TRUNCATED_FILE, "a.pb", 2, "events", why("cut"))
    texts = []
    for drops in ((lost,), (lost, cut)):
        (found,) = [
            each
            for each in analyze(tiny_run(drops=drops)).findings
            if each.rule == "incomplete_trace"
        ]
        texts.append(evidence_text(found).replace("\N{NO-BREAK SPACE}", " "))
    assert texts[0].startswith("worst kind missing rank, where job, details 2 of 128 were given")
    assert texts[1].startswith("losses 2, kinds missing rank, truncated file, worst kind")
