"""Title, caveat and recommendation of findings.

    words(finding).title  == "cuda:0 waits for the host to launch work for 36 % of the time"

Each module of this package has those of some rules in `WORDS`; it is found by being here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from profiler.analysis.findings.finding import Finding
from profiler.analysis.registry import question_modules
from profiler.report.named_values import named_value
from profiler.report.sentences.worded import value_text
from profiler.text import Note, Noun, Said, Value, count, evidence_name, joined, said

__all__ = [
    "RuleWords",
    "Words",
    "all_words",
    "evidence_pairs",
    "gained",
    "number",
    "texts",
    "words",
]


class Words(Struct, frozen=True):
    """What a finding says: `title` in one sentence, `caveat`, what misleads or breaks when one
    follows it blindly, `recommendation`, what to do."""

    title: str
    caveat: str
    recommendation: str


RuleWords = Mapping[str, Callable[[Finding], Words]]


@lru_cache
def all_words() -> RuleWords:
    """What the modules of this package say, by rule."""
    found: dict[str, Callable[[Finding], Words]] = {}
    for module in question_modules():
        found |= getattr(module, "WORDS", {})
    return MappingProxyType(found)


def words(finding: Finding) -> Words:
    """What a finding says; of a rule that nobody wrote sentences for its name."""
    of_rule = all_words().get(finding.rule)
    if of_rule is None:
        return Words(Said(finding.rule.replace("_", " ")), "", "")
    found = of_rule(finding)
    gain = gained(finding)
    if gain is None:
        return found
    return replace(found, caveat=joined(" ", [found.caveat, gain] if found.caveat else [gain]))


def gained(finding: Finding) -> Said | None:
    """What a replay says that following the finding gains; None where it says nothing."""
    if "gain_ns" not in finding.evidence:
        return None
    given = texts(finding)
    slow = number(finding, "gain_ns") == number(finding, "gain_low_ns")
    return said(
        "A replay of the run without that work and its launches gains {gain} with the host as slow "
        "as it was recorded, and {other} with a host that is never late.",
        gain=given["gain_ns"],
        other=given["gain_high_ns" if slow else "gain_low_ns"],
    )


def texts(finding: Finding) -> dict[str, str]:
    """The evidence, what it is about and `cost_share` as people read them, by name; with plain
    spaces, since titles stand in files too."""
    values: dict[str, Value | None] = {
        field.name: getattr(finding.where, field.name) for field in fields(finding.where)
    }
    values |= {"cost_share": finding.cost_share, **finding.evidence}
    return {name: _spaced(name, value) for name, value in values.items() if value is not None}


def _spaced(name: str, value: Value) -> str:
    text = value_text(name, value)
    return text if isinstance(text, Said) else text.replace("\N{NO-BREAK SPACE}", " ")


def number(finding: Finding, name: str) -> float:
    """A number of the evidence; 0 where there is none of that name."""
    value = finding.evidence.get(name)
    return value if isinstance(value, (int, float)) else 0


def evidence_pairs(finding: Finding, noun: Noun = Noun.COMMANDS) -> Iterator[tuple[str, str]]:
    """Names and values of the evidence as people read them; `noun` is what commands are called."""
    for key, value in finding.evidence.items():
        if isinstance(value, (Note, tuple, StrEnum)):
            yield key.replace("_", " "), value_text(key, value)
            continue
        name, text = named_value(key, value)
        whole = isinstance(value, int) and text == str(value)  # and has no unit
        name = evidence_name(name, noun)
        yield name, count(value) if whole and isinstance(value, int) else text
