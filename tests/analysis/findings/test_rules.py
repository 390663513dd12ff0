"""Every rule finds what it must, stays silent just below, and is described."""

import re
from enum import StrEnum
from functools import cache
from pathlib import Path

import pytest
from msgspec.structs import astuple, replace

from profiler.analysis import (
    Finding,
    change,
    find,
    findings,
    profiling_overhead,
    rules,
    words,
)
from profiler.analysis.analyze import analyze
from profiler.analysis.result import SEVERITIES
from profiler.report import catalogue
from profiler.text import Note, in_language
from profiler.trace.manifest_fields import Device
from tests.analysis.findings import (  # noqa: F401 (they fill CASES)
    compilation_cases,
    memory_cases,
    operator_cases,
    outside_nodes_cases,
    over_time_cases,
    rank_cases,
    redundancy_cases,
    step_cache_cases,
    submodule_cases,
    trust_cases,
    waiting_cases,
)
from tests.analysis.findings.cases import CASES
from tests.runs import make_run, tiny_run

DOCUMENTATION = Path(__file__).parents[3] / "docs" / "findings.md"
_HANGUL = re.compile(r"[가-힣]")
_PLACE = re.compile(r"\{\w+\}")


@cache
def _of(number):
    """What the rule of a case finds in its run; what any rule finds in any run is for test_find."""
    case = CASES[number]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(findings, "rules", lambda: {case.rule: rules()[case.rule]})
        return find(case.build())


def _found(case):
    return [*_of(CASES.index(case))]


@pytest.mark.parametrize(
    "case", [c for c in CASES if c.evidence is not None], ids=lambda c: f"{c.rule}-{c.name}"
)
def test_triggers(case):
    """The rule finds one thing, with these numbers."""
    (finding,) = _found(case)
    expected = {
        key: pytest.approx(value) if isinstance(value, float) else value
        for key, value in case.evidence.items()
    }
    assert {key: finding.evidence.get(key) for key in case.evidence} == expected


@pytest.mark.parametrize(
    "case", [c for c in CASES if c.evidence is None], ids=lambda c: f"{c.rule}-{c.name}"
)
def test_near_misses(case):
    """The rule has no evidence, or just too little."""
    assert _found(case) == []


@pytest.mark.parametrize("rule", rules())
def test_every_rule_has_both(rule):
    """A run that triggers it, and one that must not."""
    assert {case.evidence is None for case in CASES if case.rule == rule} == {True, False}


def test_cases_are_of_rules():
    """No case is left of a rule that went."""
    assert {case.rule for case in CASES} == set(rules())


def test_every_rule_is_described():
    """docs/findings.md has a section a rule, and each names its evidence."""
    text = DOCUMENTATION.read_text(encoding="utf-8")
    sections = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL))
    assert set(sections) == set(rules())
    for case in CASES:
        for finding in _found(case):
            missing = [k for k in finding.evidence if f"`{k}`" not in sections[case.rule]]
            missing = [k for k in missing if not k.startswith("lost_") or "`lost_" not in text]
            assert not missing, f"{case.rule} lacks {missing}"


def test_findings_are_plain_values():
    """Evidence is numbers and text, its units end the names, and words are whole sentences."""
    for number in range(len(CASES)):
        for finding in _of(number):
            assert finding.severity in SEVERITIES
            assert finding.cost_ns is None or (
                type(finding.cost_ns) is int and finding.cost_ns >= 0
            )
            assert all(
                type(value) in (int, float, str) or isinstance(value, (StrEnum, Note, tuple))
                for value in finding.evidence.values()
            )
            assert all(
                type(value) is int
                for key, value in finding.evidence.items()
                if key.endswith(("_ns", "_bytes"))
            )
            said = words(finding)
            for text in (said.caveat, said.recommendation):
                assert text.endswith((".", "?")), text
            assert not said.title.endswith("."), said.title


def test_translated_findings_have_their_values():
    """Titles, recommendations and caveats are Korean with values filled in, or English if nobody
    translated them: a new rule needs no translation."""
    korean = catalogue("ko")
    given = [
        in_language(text, korean)
        for case in CASES
        for finding in _found(case)
        for text in astuple(words(finding))
    ]
    assert not [text for text in given if _PLACE.search(text)]
    assert any(map(_HANGUL.search, given))


def test_what_overlaps_with_collectives_is_no_more_than_is_computed():
    """Of 200 ns that are exposed 50 can be hidden, which is said; if it is 49, overlapping is no
    advice."""
    few, enough = (
        next(f for f in find(build()) if f.rule == "exposed_collectives")
        for build in (
            rank_cases.hardly_any_computation_outside_of_a_collective,
            rank_cases.a_quarter_as_much_computation_outside_of_a_collective,
        )
    )
    assert "Overlapping gains at most 50 ns" in words(enough).recommendation
    assert change(enough) == "Overlap collectives with computation (at most 50 ns), or send less"
    assert "Overlap" not in words(few).recommendation
    assert change(few) == "Find which rank is late, or send less: little is left to overlap"


@pytest.mark.parametrize(
    ("build", "cause", "recommendation"),
    [
        (waiting_cases.one_long_gap, "launch-bound", ".item()"),
        (
            waiting_cases.one_long_gap_for_another_device,
            "waiting for another device",
            "compares placements",
        ),
    ],
)
def test_idle_gaps_say_what_the_device_waits_for(build, cause, recommendation):
    """Title and recommendation follow the largest cause; one gap is once."""
    (finding,) = [f for f in find(build()) if f.rule == "idle_gaps" and f.where.device == "cuda:0"]
    said = words(finding)
    assert " once, " in said.title
    assert said.title.endswith(f"mainly {cause}")
    assert recommendation in said.recommendation


_PROCESSOR = "transformers/models/owlv2/image_processing_owlv2.py"


@pytest.mark.parametrize(
    ("host_in", "stage", "told", "untold"),
    [
        ("poll", "denoise", "scheduler", "worker processes"),
        ("poll", "run", "callbacks", "scheduler"),
        (f"{_PROCESSOR}: resize", "run", "worker processes", "callbacks"),
        (f"{_PROCESSOR}: post_process_object_detection", "run", "callbacks", "worker processes"),
    ],
)
def test_gaps_between_calls_are_advised_by_what_the_host_was_in(host_in, stage, told, untold):
    """Image processing belongs into workers; schedulers are those of diffusion alone."""
    build = waiting_cases.between_calls_for(host_in, stage)
    (finding,) = [f for f in find(build) if f.rule == "idle_gaps"]
    for text in (change(finding), words(finding).recommendation):
        assert told in text
        assert untold not in text


def test_a_device_that_waits_for_a_loader_needs_workers():
    """Neither the line nor the text advises fewer launches, which load no data."""
    build = waiting_cases.a_gap_in_which_the_host_loads_data
    (finding,) = [f for f in find(build()) if f.rule == "host_bound"]
    said = words(finding)
    assert said.title.endswith("; at least 300 µs of that for the DataLoader")
    assert "num_workers" in said.recommendation
    assert "num_workers" in change(finding)


def test_a_device_that_waits_between_calls_for_a_loader_needs_workers():
    """The same is said of gaps between calls, which gain no more than that."""
    build = waiting_cases.one_long_gap_between_calls_in_which_the_host_loads_data
    (finding,) = [f for f in find(build()) if f.rule == "idle_gaps"]
    said = words(finding)
    assert said.title.endswith("mainly between calls; at least 150 µs of that for the DataLoader")
    assert "num_workers" in said.recommendation
    assert "num_workers" in change(finding)
    assert finding.cost_ns == 150_001


@pytest.mark.parametrize(
    ("build", "wait_ns", "cost_ns"),
    [
        (waiting_cases.a_gap_in_which_the_host_loads_data, 400_000, 300_000),
        (
            waiting_cases.more_gaps_in_which_the_host_loads_data_than_are_listed,
            25 * 300_000,
            25 * 300_000,
        ),
    ],
)
def test_loading_ahead_gains_what_a_device_waits_for_the_loader(build, wait_ns, cost_ns):
    """Not its other waits for the host; shorter gaps than those that are looked at may be for it,
    too, if the shortest of these is."""
    (finding,) = [f for f in find(build()) if f.rule == "host_bound"]
    assert (finding.evidence["host_wait_ns"], finding.cost_ns) == (wait_ns, cost_ns)


@pytest.mark.parametrize(("role", "told"), [("attention", "backend"), ("mlp", "TunableOp")])
def test_slow_products_are_advised_by_role(role, told):
    """No tuning of products changes attention; types have a rule of their own."""
    build = operator_cases.a_product_below_a_quarter_of_the_roof
    (finding,) = [f for f in find(build()) if f.rule == "slow_products"]
    finding = replace(finding, evidence={**finding.evidence, "role": role})
    for text in (change(finding), words(finding).recommendation):
        assert told in text
        assert "16-bit" not in text


@pytest.mark.parametrize(
    ("size", "units", "told", "untold"),
    [
        (16, None, "multiples of 64", "split K"),
        (64, None, "TunableOp", "multiples of 64"),
        (256, 4, "TunableOp", "split K"),
        (256, 5, "split K", "multiples of 64"),
    ],
)
def test_slow_products_are_advised_by_their_sizes(size, units, told, untold):
    """Multiples of 64 are no advice for products that have them. 256×256 are four tiles of 128×128,
    too few for five compute units."""
    build = operator_cases.a_slow_product(size, devices={"cuda:0": Device(compute_units=units)})
    (found,) = [one for one in find(build) if one.rule == "slow_products"]
    for text in (change(found), words(found).recommendation):
        assert told in text
        assert untold not in text


def test_worst_comes_first():
    """Severity, then what makes the trace doubtful, then cost: of each run that is doubtful, and of
    some others."""
    doubtful = [case for case in CASES if case.rule in profiling_overhead.RECORDING_RULES]
    for case in (*doubtful, *CASES[::10]):
        ranks = [
            (
                SEVERITIES.index(f.severity),
                f.rule not in profiling_overhead.RECORDING_RULES,
                -(f.cost_ns or 0),
            )
            for f in find(case.build())
        ]
        assert ranks == sorted(ranks)


def test_nothing_ran():
    """An empty run has no findings; the tiny one's two steps are not worth one about steps."""
    assert find(analyze(make_run())) == ()
    assert all(isinstance(finding, Finding) for finding in find(analyze(tiny_run())))


def test_findings_do_not_change():
    """They are frozen."""
    (finding, *_) = find(trust_cases.lost_events())
    with pytest.raises(AttributeError, match="immutable"):
        finding.rule = "other"
