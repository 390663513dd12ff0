"""Korean texts end as their kind does: decision 15, "Style"."""

from __future__ import annotations

import re

import pytest

from profiler.report.language import catalogue
from tests.report.said_templates import all_templates

NOTES = (  # where notes and caveats are written
    "cli/commands/fleet/history.py",
    "cli/fleet/words.py",
    "report/excerpts.py",
    "report/facts.py",
    "report/recorders.py",
    "report/replay_facts.py",
    "report/sentences/capabilities.py",
    "report/sentences/comparison.py",
    "report/sentences/denoise.py",
    "report/sentences/drops.py",
    "report/sentences/memory.py",
    "report/sentences/prediction.py",
    "report/sentences/recording.py",
    "report/sentences/requests.py",
    "report/sentences/timing.py",
    "report/tracing_cost.py",
)
CHANGES = ("report/sentences/findings/changes.py",)
LABEL = 3  # words of a label beside notes, such as "only in base"
NOUNS = ("이름", "절감", "스트림", "시스템", "다음", "처음", "포함")  # that end as nominal forms do
KOREAN = catalogue("ko")


def written_in(places: tuple[str, ...]) -> dict[str, str]:
    """The Korean of what these modules say, by its English."""
    return {
        english: KOREAN[english]
        for english, found in all_templates().items()
        if english in KOREAN and str(found).partition(":")[0] in places
    }


def ends(text: str) -> list[str]:
    """How the sentences and clauses of a text end, without what stands in parentheses after them;
    what stands in them is a clause of its own."""
    within = re.findall(r"\(([^()]*)\)", text)
    whole = re.sub(r"\s*\([^()]*\)", "", text)
    return [
        clause.rstrip(" .:;")
        for one in (whole, *within)
        for clause in re.split(r"[.:;](?:\s|$)", one)
    ]


def is_nominal(clause: str) -> bool:
    """Whether a clause ends in a nominal form of its verb: its last letter is ㅁ."""
    last = clause[-1:]
    return "가" <= last <= "힣" and (ord(last) - 0xAC00) % 28 == 16 and not clause.endswith(NOUNS)


@pytest.mark.parametrize(
    ("clause", "nominal"),
    [
        ("파일에 명령이 없음", True),
        ("파일에 명령이 없다", False),
        ("텍스트 스트림", False),
        ("", False),
    ],
)
def test_nominal_forms_are_told(clause, nominal):
    """By their last consonant, which some nouns have as well."""
    assert is_nominal(clause) is nominal


def test_sentences_are_plain_declaratives():
    """What is a sentence in English has no nominal form in Korean."""
    wrong = {
        english: korean
        for english, korean in KOREAN.items()
        if english.endswith(".") and not english[0].islower() and any(map(is_nominal, ends(korean)))
    }
    assert not wrong


def test_notes_are_plain_declaratives():
    """Notes say what is so in `~다`, whether their English ends with a period or not."""
    wrong = {
        english: korean
        for english, korean in written_in(NOTES).items()
        if len(english.split()) > LABEL and any(map(is_nominal, ends(korean)))
    }
    assert not wrong


def test_what_a_reader_may_do_is_a_plain_declarative():
    """Changes that findings propose end in `~다`."""
    wrong = {
        english: korean
        for english, korean in written_in(CHANGES).items()
        if len(english.split()) > LABEL and not ends(korean)[0].endswith("다")
    }
    assert not wrong


def test_headings_and_labels_are_nouns():
    """Everything else ends in a noun or a nominal form."""
    elsewhere = set(KOREAN) - set(written_in(NOTES)) - set(written_in(CHANGES))
    wrong = {
        english: KOREAN[english]
        for english in elsewhere
        if not english.endswith(".") and KOREAN[english].endswith("다")
    }
    assert not wrong
