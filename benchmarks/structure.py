"""Size and shape of the package: what the architecture costs who adds to it.

    python benchmarks/structure.py [CHECKOUT]

Prints modules, lines of code without docstrings and comments, functions' lengths (median, 95th
percentile), and how many files refer to each table of an analysis: name it as an attribute, a key,
a keyword or a field. Many tables are called as columns, fields or methods are (`calls`, `devices`),
which counts files that mean those: the last lines are of the others, and of those outside of the
folders that may name them.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import statistics
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

_NO_CODE = frozenset(
    {
        *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
        *(tokenize.ENCODING, tokenize.ENDMARKER),
    }
)
_NO_TABLES = frozenset({"run", "accounting", "step_summary", "device_profiles"})


def code_lines(text: str, nodes: Sequence[ast.AST]) -> int:
    """Lines of Python that hold code: no blank lines, comments or docstrings. `nodes` are those of
    its syntax tree."""
    documented = {
        line
        for node in nodes
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        for line in _docstring(node)
    }
    coded = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in _NO_CODE
        for line in range(token.start[0], token.end[0] + 1)
    }
    return len(coded - documented)


def _docstring(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> range:
    first = node.body[0] if node.body else None
    if ast.get_docstring(node, clean=False) is None or first is None:
        return range(0)
    return range(first.lineno, (first.end_lineno or first.lineno) + 1)


def function_lengths(nodes: Iterable[ast.AST]) -> Iterator[int]:
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield (node.end_lineno or node.lineno) - node.lineno + 1


def named(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """What a module names as an attribute, a key, a keyword or a field."""
    for node in nodes:
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.keyword) and node.arg is not None:
            yield node.arg
        elif isinstance(node, ast.AnnAssign):
            yield getattr(node.target, "id", "")


def other_meanings(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Columns that a module declares, and fields and methods of its classes but `Analysis`."""
    for node in nodes:
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Column" and node.args:
            yield str(getattr(node.args[0], "value", ""))
        elif isinstance(node, ast.ClassDef) and node.name != "Analysis":
            for part in node.body:
                if isinstance(part, ast.AnnAssign):
                    yield getattr(part.target, "id", "")
                elif isinstance(part, ast.FunctionDef):
                    yield part.name


def tables_of(package: Path) -> list[str]:
    """Names of an analysis' tables as a page of the same checkout lists them."""
    pages = (package.parent / "docs" / name for name in ("tables.md", "json.md"))
    listed = next(page for page in pages if page.exists()).read_text("utf-8")
    return sorted(set(re.findall(r"^## (\w+)$", listed, re.MULTILINE)) - _NO_TABLES)


def main(root: Path) -> None:
    package = root / "profiler"
    texts = {path: path.read_text("utf-8") for path in sorted(package.rglob("*.py"))}
    trees = {path: [*ast.walk(ast.parse(text))] for path, text in texts.items()}
    lengths = sorted(length for nodes in trees.values() for length in function_lengths(nodes))
    print(f"modules: {sum(map(bool, map(str.strip, texts.values())))}")
    print(f"lines of code: {sum(code_lines(texts[path], trees[path]) for path in texts):,}")
    print(f"modules over 300 lines: {sum(t.count(chr(10)) > 300 for t in texts.values())}")
    at = lengths[round(0.95 * (len(lengths) - 1))]
    median = statistics.median(lengths)
    print(f"functions: {len(lengths):,}, median {median:g} lines, 95th percentile {at}")
    found = Counter(name for nodes in trees.values() for name in {*named(nodes)})
    known = tables_of(package)
    _told("files that refer to a table", {table: found[table] for table in known})
    taken = {name for nodes in trees.values() for name in other_meanings(nodes)}
    own = [table for table in known if table not in taken]
    _told("of a name of its own", {table: found[table] for table in own})
    places = [package / "analysis", package / "report" / "sections"]
    outside = Counter(
        name
        for path, nodes in trees.items()
        if not any(path.is_relative_to(place) for place in places)
        for name in {*named(nodes)}
    )
    _told("outside of analysis/ and report/sections/", {table: outside[table] for table in own})


def _told(what: str, counts: dict[str, int]) -> None:
    if counts:
        worst = max(counts, key=lambda table: counts[table])
        median = statistics.median(counts.values())
        print(
            f"{what}: median {median:g}, worst {counts[worst]} ({worst}), of {len(counts)} tables"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path, nargs="?", default=Path(__file__).parents[1])
    main(parser.parse_args().checkout)
