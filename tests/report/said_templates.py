"""Every message template in the source: what catalogues of languages hold, no more, no less."""

from __future__ import annotations

import ast
import importlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import profiler
from profiler.analysis.question import tables
from profiler.analysis.table_text import columns_of
from profiler.report.build import section_kinds
from profiler.report.language import template_messages
from profiler.run.columns import DATA_ONLY, Column

PACKAGE = Path(profiler.__file__).parent
SAY = re.compile(r'\b(?:say|message)\(\s*"((?:[^"\\]|\\.)*)"')
_GIVE_EVIDENCE = ("_evidence", "_gaps", "_launches", "_longest_host_work", "_of_steps")
LETTER = re.compile(r"[^\W\d_]")
PLACE = re.compile(r"\{(\w+)\}")


def needs_words(template: str) -> bool:
    """Whether anything but values and signs stands in `template`."""
    return bool(LETTER.search(PLACE.sub("", template)))


def python_templates() -> Iterator[tuple[str, str]]:
    """Template and place of each `said` and `counted` with literals, and of evidence's names."""
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        in_findings = path.parent.name == "findings" and path.parent.parent.name == "analysis"
        if not in_findings and "said" not in text and "counted" not in text:
            continue
        within, in_page = path.relative_to(PACKAGE), _on_page(path)
        for node in ast.walk(ast.parse(text)):
            for template in _templates(node, in_page=in_page):
                yield template, f"{within}:{node.lineno}"
            for key in _evidence_keys(node) if in_findings else ():
                yield evidence_name(key), f"{within}:{node.lineno}"


def _on_page(path: Path) -> bool:
    """Whether what a module counts may stand on the page; the terminal is English."""
    return path.stem not in ("prediction", "notebook") and "query" not in path.parts


def _templates(node: ast.AST, *, in_page: bool) -> Iterator[str]:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return
    if node.func.id == "said" and node.args and isinstance(node.args[0], ast.Constant):
        yield node.args[0].value
    if node.func.id == "counted" and len(node.args) > 1 and in_page:
        for noun in ast.walk(node.args[1]):
            if isinstance(noun, ast.Constant) and isinstance(noun.value, str):
                yield f"{{number}} {noun.value}"
                yield f"{{number}} {noun.value}s"


def _evidence_keys(node: ast.AST) -> Iterator[str]:
    """Literal keys of a mapping that is, or becomes part of, a finding's evidence."""
    if isinstance(node, ast.keyword) and node.arg == "evidence":
        yield from _keys(node.value)
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            if isinstance(target, ast.Name) and target.id == "evidence" and node.value:
                yield from _keys(node.value)
            elif ast.unparse(target).startswith("evidence["):
                yield from _constants(target)
    if isinstance(node, ast.FunctionDef) and node.name in _GIVE_EVIDENCE:
        for part in ast.walk(node):
            if isinstance(part, ast.Return) and part.value:
                yield from _keys(part.value)


def _constants(value: ast.AST) -> Iterator[str]:
    for part in ast.walk(value):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value


def _keys(value: ast.AST) -> Iterator[str]:
    for part in ast.walk(value):
        if isinstance(part, ast.Dict):
            for key in part.keys:
                if isinstance(key, ast.Constant):
                    yield key.value
                if isinstance(key, ast.JoinedStr):  # worst_{over}
                    yield from ("worst_tracks", "worst_devices")


def evidence_name(key: str) -> str:
    for suffix in ("_ns", "_bytes"):
        key = key.removesuffix(suffix)
    return key.replace("_", " ")


def table_templates() -> Iterator[tuple[str, str]]:
    """Labels and meanings of the columns that the page shows, and names of its tables."""
    folder = PACKAGE / "report"
    of_page = [
        folder / "html" / f"{name}.py"
        for name in ("card_columns", "devices_strip", "icicle", "two_timelines")
    ]
    of_page.append(folder / "compared_parts.py")
    of_page.append(PACKAGE / "cli" / "fleet" / "page_tables.py")
    for path in (*sorted((folder / "sections").glob("*.py")), *of_page):
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        names = vars(importlib.import_module(f"profiler.{module}"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("table", "columns_of"):
                place = f"{path.name}:{node.lineno}"
                for column in _of_table(node, names):
                    yield column.label, place
                    yield column.meaning, place
                if len(node.args) > 2 and isinstance(node.args[1], ast.Constant):
                    yield node.args[1].value, place


def _of_table(node: ast.Call, names: dict[str, object]) -> Iterator[Column]:
    """The columns of a `table(key, name, columns, declared, …)` or `columns_of(columns,
    declared)`; where `columns` are chosen at run time, of all tuples that could be meant."""
    *_, shown, declared = node.args[: 4 if ast.unparse(node.func) == "table" else 2]
    found = names[ast.unparse(declared)]
    tuples = [names[name] for name in names if name[0] == "_" and _is_columns(names[name])]
    if ast.unparse(shown) in names:
        tuples = [names[ast.unparse(shown)]]
    known = {column.name for column in found}
    for columns in tuples:
        if all(isinstance(one, Column) or one in known for one in columns):
            yield from columns_of(columns, found)


def _is_columns(value: object) -> bool:
    """Whether it is a tuple of columns and names of such."""
    return (
        isinstance(value, tuple)
        and any(isinstance(one, str) for one in value)
        and all(isinstance(one, (str, Column)) for one in value)
    ) or (isinstance(value, tuple) and bool(value) and all(isinstance(o, Column) for o in value))


def declared_templates() -> Iterator[tuple[str, str]]:
    """Titles, labels and meanings of tables that no section names: they stand at the end of one."""
    known = {name for kind in section_kinds() for name in kind.tables}
    for table in tables():
        if table.name not in known:
            shown = [column for column in table.columns if column.importance != DATA_ONLY]
            texts = (text for column in shown for text in (column.label, column.meaning))
            for text in (table.title, *texts):
                yield text, table.name


def script_templates() -> Iterator[tuple[str, str]]:
    """What the page's scripts say, and its frame."""
    for frame in sorted((PACKAGE / "report" / "html" / "templates").glob("*.html")):
        for text in template_messages(frame.read_text(encoding="utf-8")):
            yield text, frame.name
    for path in sorted((PACKAGE / "report" / "html" / "templates").glob("*.js")):
        for text in SAY.findall(path.read_text(encoding="utf-8")):
            yield json.loads(f'"{text}"'), path.name


def all_templates() -> dict[str, str]:
    """Every template that needs words, and a place where it stands."""
    found: dict[str, str] = {}
    tables_say = (*table_templates(), *declared_templates())
    for template, place in (*python_templates(), *tables_say, *script_templates()):
        if needs_words(template):
            found.setdefault(template, place)
    return found
