"""Where a table of an analysis may be named: in its folder, by who declares it, in report sections.

A reference is an attribute of an `Analysis` (`analysis.roles`), or a key: `of.table("roles")`,
`analysis.to_pandas("roles")`, `analysis.tables()["roles"]`. What is an `Analysis` follows from
annotations and from what makes one. Where no class of the package has an attribute of a table's
name, every attribute of that name is a reference; so is every key where no frame
has such a column.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from profiler.analysis.question import tables
from profiler.report.build import section_kinds

_PACKAGE = Path(__file__).parents[1] / "profiler"
_ANALYSIS = _PACKAGE / "analysis"
_SECTIONS = _PACKAGE / "report" / "sections"
_FLEET = _PACKAGE / "fleet"  # what it keeps of a run it declares, as a folder of an analysis does
_MAKERS = frozenset({"analyze", "analyze_run", "assembled"})
_BY_NAME = frozenset({"table", "to_pandas", "describe", "table_named"})
_TABLES = {table.name: table for table in tables()}


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _modules() -> list[Path]:
    return sorted(_PACKAGE.rglob("*.py"))


@cache
def _home(table: str) -> Path:
    """The folder that declares a table."""
    for path in sorted(_ANALYSIS.glob("*/tables.py")):
        for node in ast.walk(_tree(path)):
            named = isinstance(node, ast.keyword) and node.arg == "name"
            if named and table in _constant(node.value):
                return path.parent
    raise AssertionError(f"no folder declares {table}")


@cache
def _declared_attributes() -> frozenset[str]:
    """Attributes and methods of the classes of the package."""
    found = set()
    for path in _modules():
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.ClassDef):
                for part in node.body:
                    if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                        found.add(part.target.id)
                    elif isinstance(part, ast.FunctionDef):
                        found.add(part.name)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                found.add(node.attr)
    return frozenset(found)


def _distinct_attributes() -> frozenset[str]:
    return frozenset(_TABLES) - _declared_attributes()


@cache
def _distinct_keys() -> frozenset[str]:
    columns = {column.name for table in tables() for column in table.columns}
    made = {  # columns of frames that are made and used in a module
        node.arg
        for path in _modules()
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.keyword)
    }
    return _distinct_attributes() - columns - made


def _named(annotation: ast.expr | None) -> bool:
    return annotation is not None and any(
        (isinstance(node, ast.Name) and node.id == "Analysis")
        or (isinstance(node, ast.Constant) and node.value == "Analysis")
        for node in ast.walk(annotation)
    )


def _analyses(tree: ast.Module) -> set[str]:
    """Names that stand for an `Analysis` somewhere in a module."""
    found = {"analysis"}
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and _named(node.annotation):
            found.add(node.arg)
        elif isinstance(node, ast.AnnAssign) and _named(node.annotation):
            found.add(getattr(node.target, "id", getattr(node.target, "attr", "")))
        elif isinstance(node, ast.Assign) and _makes(node.value):
            found.update(target.id for target in node.targets if isinstance(target, ast.Name))
    return found


def _imported(tree: ast.Module) -> set[str]:
    """Names of modules and of what comes from them: their attributes are no tables."""
    return {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }


def _makes(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and _last_name(value.func) in _MAKERS


def _last_name(node: ast.expr) -> str:
    return getattr(node, "attr", getattr(node, "id", ""))


def _references(path: Path) -> Iterator[str]:
    """The tables that a module refers to."""
    tree = _tree(path)
    analyses, imported = _analyses(tree), _imported(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in _TABLES:
            if _last_name(node.value) in imported:
                continue
            of_analysis = _last_name(node.value) in analyses or _makes(node.value)
            if of_analysis or node.attr in _distinct_attributes():
                yield node.attr
        elif isinstance(node, ast.Call) and _last_name(node.func) in _BY_NAME and node.args:
            yield from _constant(node.args[0])
        elif isinstance(node, ast.Compare):
            yield from _compared_names(node)
        elif isinstance(node, ast.Subscript):
            whole = isinstance(node.value, ast.Call) and _last_name(node.value.func) == "tables"
            yield from (
                name
                for name in _constant(node.slice)
                if whole or _last_name(node.value) == "frames" or name in _distinct_keys()
            )


def _compared_names(node: ast.Compare) -> Iterator[str]:
    """Of `table.name == "roles"` the name."""
    sides = (node.left, *node.comparators)
    if any(isinstance(side, ast.Attribute) and side.attr == "name" for side in sides):
        for side in sides:
            yield from _constant(side)


def _constant(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant) and node.value in _TABLES:
        yield str(node.value)


def _reads(folder: Path) -> set[str]:
    """What the tables of a folder, or its constants `READS`, declare to be made from."""
    found = {name for t in tables() if _home(t.name) == folder for name in t.reads}
    for path in folder.glob("*.py"):
        for node in _tree(path).body:
            target = node.targets[0] if isinstance(node, ast.Assign) else None
            if isinstance(node, ast.AnnAssign):
                target = node.target
            if isinstance(target, ast.Name) and target.id == "READS":
                assert node.value is not None
                found.update(ast.literal_eval(node.value))
    return found


def _folder(path: Path) -> Path:
    """The folder of a question that a module lies in; of other modules their own."""
    inside = path.relative_to(_ANALYSIS).parts if path.is_relative_to(_ANALYSIS) else ()
    return _ANALYSIS / inside[0] if len(inside) > 1 else path.parent


def _strangers(path: Path) -> set[str]:
    """The tables that a module refers to and may not."""
    if path.is_relative_to(_SECTIONS):
        return set()
    folder = _folder(path)
    declares = folder == _FLEET or (folder.is_relative_to(_ANALYSIS) and folder != _ANALYSIS)
    allowed = _reads(folder) if declares else set()
    return {name for name in _references(path) if _home(name) != folder} - allowed


# Members of `Analysis` that are values, under the names of the tables that have a row of each.
_VALUES = frozenset({"findings", "drops"})


def test_a_table_is_shown_in_the_section_that_it_declares() -> None:
    """What a section names is declared to be of it, so that a reader of either finds the other."""
    for kind in section_kinds():
        elsewhere = {name: _TABLES[name].section for name in kind.tables}
        if kind.key != "calls":  # the operators of a call are a cut of those of the run
            assert set(elsewhere.values()) <= {kind.key}, (kind.key, elsewhere)


def test_no_table_is_a_special_case() -> None:
    """Nobody asks whether a table is the one of that name, findings and drops included."""
    named = {
        (str(path.relative_to(_PACKAGE)), name)
        for path in _modules()
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.Compare)
        for name in _compared_names(node)
    }
    assert named == set()


@pytest.mark.parametrize("name", ["main.js", "findings.js"])
def test_no_table_of_the_page_is_a_special_case(name: str) -> None:
    """What a row leads to its table says (`TableView.opens`): scripts compare no key of one."""
    text = (_PACKAGE / "report" / "html" / "templates" / name).read_text(encoding="utf-8")
    assert re.findall(rf"\btables\.({'|'.join(_TABLES)})\b|\bkey === ", text) == []
    assert re.findall(r"\]\.includes\(key\)", text) == []


@pytest.mark.parametrize("path", _modules(), ids=lambda path: str(path.relative_to(_PACKAGE)))
def test_a_table_is_named_where_it_is_declared(path: Path) -> None:
    """In its folder, in folders that declare to read it, in report sections, and nowhere else."""
    found = _strangers(path) - _VALUES
    assert not found, "declare it in `reads`, or in READS of a module of the folder"


def test_what_is_declared_is_read() -> None:
    """A folder that declares to read a table of another one names it, outside its declaration."""
    for folder in sorted(path for path in _ANALYSIS.iterdir() if path.is_dir()):
        named = {name for path in folder.glob("*.py") for name in _references(path)}
        assert _reads(folder) <= named, folder.name


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("def f(x: Analysis): return x.calls", {"calls"}),
        ("def f(x: Run): return x.calls", set()),
        ("found = analyze(run)\nfound.steps", {"steps"}),
        ("x.step_times", {"step_times"}),
        ("of.table('roles')", {"roles"}),
        ("a.tables()['calls']", {"calls"}),
        ("frame['calls']", set()),
        ("table.name == 'roles'", {"roles"}),
        ("document['fusions']", {"fusions"}),
    ],
)
def test_references_are_found(tmp_path: Path, text: str, found: set[str]) -> None:
    """Attributes of an analysis and keys are references, columns and a run's tables are not."""
    path = tmp_path / "module.py"
    path.write_text(text, encoding="utf-8")
    assert set(_references(path)) == found
