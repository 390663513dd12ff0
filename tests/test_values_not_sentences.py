"""Analyses return, and manifests store, codes and values: no string of `profiler/analysis`, of
`trace`, `capture` and `importers` is prose that a report shows.

Prose is a literal of four words or more, some of them words of grammar. It may stand in docstrings,
in declarations of tables, columns, importers and options, in what documents them, in notices on
stderr, and in errors: inside `raise` or `notice(…)`, or under a name (a constant, a variable, a
function) that one of these uses. Words of enums are codes, however few they are.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from enum import StrEnum
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from profiler.trace import manifest_fields as manifest_clocks

_PACKAGE = Path(__file__).parents[1] / "profiler"
_FOLDERS = ("analysis", "capture", "importers", "trace")
_MODULES = [path for folder in _FOLDERS for path in sorted((_PACKAGE / folder).rglob("*.py"))]
_FEWEST = 4
_GRAMMAR = re.compile(
    r"\b(a|an|and|are|as|at|be|been|but|by|can|cannot|do|does|for|from|had|has|have|if|in|is|it|its"
    r"|no|none|not|of|on|only|or|so|than|that|the|their|them|there|they|this|those|to|was|were"
    r"|what|when|where|which|while|who|with|without|your?)\b"
)
_RARE = 8  # in lists of names (`"cat concat pad to"`) one word in so many is also one of grammar
_DECLARATIONS = frozenset(
    {"Column", "column_of", "Table", "DeviceProfile", "Importer", "Option", "Refusal", "Known"}
    | {"compile"}
)
_TOLD_AT_ONCE = frozenset({"notice", "warning", "check_device"})  # on stderr, as an error is
_DOCUMENTING = frozenset({"markdown", "__repr__"})  # a page of docs; what a shell shows
_NAMES_OF_COUNTERS = ("since the pipeline began", "arena in use")  # as recorded


def _prose(node: ast.AST) -> str:
    """The text of a literal that is prose, with X for what an f-string fills in; else ""."""
    text = ""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        text = node.value
    elif isinstance(node, ast.JoinedStr):
        parts = (part.value if isinstance(part, ast.Constant) else "X" for part in node.values)
        text = "".join(map(str, parts))
    words = len(text.split())
    is_prose = words >= _FEWEST and _RARE * len(_GRAMMAR.findall(text)) >= words
    return text if is_prose and not text.endswith(_NAMES_OF_COUNTERS) else ""


def _names(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            yield part.id
        elif isinstance(part, ast.Attribute):
            yield part.attr


def _definitions(tree: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Functions and assignments by what they name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
        elif isinstance(node, ast.Assign):
            yield from ((t.id, node) for t in node.targets if isinstance(t, ast.Name))
            yield from ((t.attr, node) for t in node.targets if isinstance(t, ast.Attribute))


def _of_errors(trees: list[ast.Module]) -> set[str]:
    """Names that errors are made of: those in a `raise`, and those in the definition of one."""
    raised = (
        node
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Raise) or _called(node) in _TOLD_AT_ONCE
    )
    used = {name for node in raised for name in _names(node)}
    made: set[str] = set()
    for tree in trees:
        for name, definition in _definitions(tree):
            holds = any(_prose(part) for part in ast.walk(definition))
            if name in used and holds and not _annotated_as_value(definition):
                made.add(name)
                made.update(_names(definition))
    return made


def _annotated_as_value(definition: ast.AST) -> bool:
    """Whether a function says that it returns anything but the text of an error."""
    returns = definition.returns if isinstance(definition, ast.FunctionDef) else None
    text = "" if returns is None else ast.unparse(returns)
    return bool(text) and text not in ("str", "NoReturn", "None") and not text.endswith("Error")


def _called(node: ast.AST) -> str:
    """The last name of what a call calls."""
    if not isinstance(node, ast.Call):
        return ""
    return getattr(node.func, "attr", getattr(node.func, "id", ""))


def _sentences(tree: ast.Module, of_errors: set[str]) -> Iterator[str]:
    """Prose that is neither documentation nor of an error."""
    allowed: set[ast.AST] = set()
    declared: set[str] = set()  # constants in the declaration of a table or column
    for node in ast.walk(tree):
        called = _called(node)
        documents = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, ast.Raise) or called in _DECLARATIONS | _TOLD_AT_ONCE or documents:
            allowed.update(ast.walk(node))
        if called in _DECLARATIONS:
            declared.update(_names(node))
    for name, definition in _definitions(tree):
        if name in of_errors or name in _DOCUMENTING or name in declared:
            allowed.update(ast.walk(definition))
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            allowed.update(node.values)
        if node not in allowed and (text := _prose(node)):
            yield text


@cache
def _errors_of(folder: str) -> set[str]:
    """Names that the errors and notices of a folder are made of."""
    paths = (_PACKAGE / folder).rglob("*.py")
    return _of_errors([ast.parse(path.read_text(encoding="utf-8")) for path in sorted(paths)])


@pytest.mark.parametrize("path", _MODULES, ids=lambda path: str(path.relative_to(_PACKAGE)))
def test_no_sentence_in_a_value(path: Path) -> None:
    """What an analysis returns, or a manifest stores, are codes and values; errors and notices
    alone are sentences."""
    folder = path.relative_to(_PACKAGE).parts[0]
    found = list(_sentences(ast.parse(path.read_text(encoding="utf-8")), _errors_of(folder)))
    assert not found, "store a code with values, and write its sentence in report/sentences"


def _enums(module: ModuleType) -> list[type[StrEnum]]:
    found = [one for one in vars(module).values() if isinstance(one, type)]
    return [one for one in found if issubclass(one, StrEnum) and one.__module__ == module.__name__]


_MANIFEST = (manifest_clocks, manifest_clocks, manifest_clocks, manifest_clocks)


@pytest.mark.parametrize(
    "enum", [enum for one in _MANIFEST for enum in _enums(one)], ids=lambda enum: enum.__name__
)
def test_words_of_a_manifest_are_codes(enum: type[StrEnum]) -> None:
    """What a manifest says by an enum is a code, or the name of a clock of the system."""
    assert all(re.fullmatch(r"[a-z0-9_]+|CLOCK_[A-Z]+", code) for code in enum), list(enum)


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ('def f(n): return f"the work of {n} operators is unknown"', 1),
        ('def f(): return {"note": "half of it is taken to stay"}', 1),
        ('NOTE = "nothing was measured twice in the run"', 1),
        ('def f():\n    """What the run does not say of it."""', 0),
        ('def f(): raise E("the run has no such step")', 0),
        ('WHY = "record the run with it again"\ndef f(): raise E(WHY)', 0),
        ('notice("the run is in that folder")', 0),
        ('def why(): return "it has no steps at all"\ndef f(): raise E(why())', 0),
        ('Column("x", meaning="the time of its calls")', 0),
        ('OPS = "add sub mul div neg abs min max sin cos where"', 0),
    ],
)
def test_sentences_are_found(code: str, found: int) -> None:
    """Returned, stored and filled-in prose is found; documentation, names and errors are not."""
    tree = ast.parse(code)
    assert len(list(_sentences(tree, _of_errors([tree])))) == found
