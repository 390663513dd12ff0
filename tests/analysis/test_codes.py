"""Codes: closed sets of words, which reports have labels for."""

import ast
import importlib
import json
import pkgutil
import re
from enum import StrEnum
from functools import cache
from pathlib import Path

import pytest

import profiler.analysis
from profiler.analysis import tables, worded_note
from profiler.analysis.analyze import analyze
from profiler.analysis.table_text import all_factors, all_sentences, label, value_text
from profiler.text import Note, NoteCode, notes_from, notes_text
from profiler.trace import DropKind, DropReason
from tests.report.hostile import hostile_analysis
from tests.runs import tiny_run

TABLES = {table.name: table.columns for table in tables()}
MODULES = [
    importlib.import_module(found.name)
    for found in pkgutil.walk_packages(profiler.analysis.__path__, "profiler.analysis.")
    if found.name.endswith(".codes")
]
CODES = [
    value
    for module in MODULES
    for value in vars(module).values()
    if isinstance(value, type)
    and issubclass(value, StrEnum)
    and value.__module__ == module.__name__
] + [DropKind, DropReason]


@pytest.mark.parametrize("codes", CODES, ids=lambda codes: codes.__name__)
def test_values_are_stable_words(codes):
    """Snake case, so that a script can compare them and no reader takes them for prose."""
    assert all(re.fullmatch("[a-z0-9_]+", code) for code in codes)


def test_every_reason_has_a_sentence():
    """The catalogue of the reports has each reason of missing data, and none that went."""
    assert set(all_sentences()[DropReason]) == set(DropReason)


@cache
def _tiny():
    return analyze(tiny_run())


@pytest.mark.parametrize("made", [_tiny, hostile_analysis], ids=["tiny", "all"])
def test_notes_of_tables_are_notes(made):
    """A column of notes can be read back, whatever names stand in it."""
    analysis = made()
    for name, columns in TABLES.items():
        for column in columns:
            if column.codes is not None and issubclass(column.codes, NoteCode):
                for text in analysis.tables()[name][column.name]:
                    assert notes_text(notes_from(text, column.codes)) == text


@pytest.mark.parametrize("name", [name for name in TABLES if name != "guidance"])
def test_columns_of_codes_hold_nothing_else(name):
    """Every value of a column of codes is one of them."""
    frame = getattr(_tiny(), name)
    for column in TABLES[name]:
        if column.codes is not None and not issubclass(column.codes, NoteCode):
            assert set(frame[column.name].drop_nulls()) <= set(column.codes)


def _notes_made() -> list[tuple[str, str, str, set[str]]]:
    """Place, enum, code and names of the values of each `Note.of(Enum.CODE, name=…)` of the
    package whose values are all named there."""
    package = Path(profiler.analysis.__file__).parents[1]
    found = []
    for path in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            made = isinstance(node, ast.Call) and ast.unparse(node.func) == "Note.of"
            if made and isinstance(node.args[0], ast.Attribute) and None not in _given(node):
                enum, code = ast.unparse(node.args[0]).split(".")
                place = f"{path.relative_to(package)}:{node.lineno}"
                found.append((place, enum, code, _given(node)))
    return found


def _given(call: ast.Call) -> set[str | None]:
    return {keyword.arg for keyword in call.keywords}


def test_sentences_name_values_that_their_notes_have():
    """No sentence has a place for a value that whoever makes the note does not give."""
    enums = {codes.__name__: codes for codes in all_sentences()}
    made = [note for note in _notes_made() if note[1] in enums]
    assert len(made) > 50
    for place, enum, code, given in made:
        template = label(enums[enum][code]).template
        assert set(re.findall(r"\{(\w+)\}", template)) <= given, (place, template)


def test_factors_are_of_what_shares_are_of():
    """A sentence for a large share has the places of the one for a small share."""
    for codes, templates in all_factors().items():
        for code, said in templates.items():
            places = (re.findall(r"\{(\w+)\}", t) for t in (said, all_sentences()[codes][code]))
            assert len({tuple(sorted(found)) for found in places}) == 1, code


class _Told(NoteCode):
    NOBODY_WROTE_THIS = "nobody_wrote_this"


def test_a_code_without_a_label_reads_as_its_words():
    """A new analysis works before anybody has written its sentences."""
    assert label(_Told.NOBODY_WROTE_THIS) == "nobody wrote this"
    assert worded_note(Note.of(_Told.NOBODY_WROTE_THIS, seconds=3)) == "nobody wrote this"


def test_values_have_the_unit_that_their_name_ends_with():
    """Times, sizes, shares; several values with commas."""
    found = {
        name: value_text(name, value).replace("\N{NO-BREAK SPACE}", " ")
        for name, value in (
            ("a_ns", 1_500_000),
            ("a_bytes", 2048),
            ("a_share", 0.31),
            ("calls", 12_345),
            ("names", ("a", "b")),
        )
    }
    assert [*found.values()] == ["1.50 ms", "2.00 KiB", "31 %", "12,345", "a, b"]


def test_a_note_as_json_is_its_code_and_its_values():
    """Notes within notes and several values, too."""
    inner = Note.of(_Told.NOBODY_WROTE_THIS, a_ns=5)
    note = Note.of(_Told.NOBODY_WROTE_THIS, why=inner, names=("x", "y"))
    assert json.loads(notes_text([note])) == [
        {
            "code": "nobody_wrote_this",
            "why": {"code": "nobody_wrote_this", "a_ns": 5},
            "names": ["x", "y"],
        }
    ]
