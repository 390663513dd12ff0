"""Size and shape of the package: what the architecture costs who adds to it.

    python benchmarks/structure.py [CHECKOUT]

Prints modules, lines of code without docstrings and comments, functions' lengths (median, 95th
percentile), and how many files refer to each table of an analysis.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import statistics
import tokenize
from collections.abc import Iterator
from pathlib import Path

_NO_CODE = frozenset(
    {
        *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
        *(tokenize.ENCODING, tokenize.ENDMARKER),
    }
)
_NO_TABLES = frozenset({"run", "accounting", "step_summary", "device_profiles"})


def code_lines(text: str) -> int:
    """Lines of Python that hold code: no blank lines, comments or docstrings."""
    documented = {
        line
        for node in ast.walk(ast.parse(text))
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


def function_lengths(text: str) -> Iterator[int]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield (node.end_lineno or node.lineno) - node.lineno + 1


def refers(text: str, table: str) -> bool:
    """Whether a module names `table` as an attribute, a key, a keyword or a field."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and node.attr == table:
            return True
        if isinstance(node, ast.Constant) and node.value == table:
            return True
        if isinstance(node, ast.keyword) and node.arg == table:
            return True
        if isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") == table:
            return True
    return False


def tables_of(package: Path) -> list[str]:
    """Names of an analysis' tables as `docs/json.md` lists them in the same checkout."""
    listed = (package.parent / "docs" / "json.md").read_text("utf-8")
    return sorted(set(re.findall(r"^## (\w+)$", listed, re.MULTILINE)) - _NO_TABLES)


def main(root: Path) -> None:
    package = root / "profiler"
    texts = {path: path.read_text("utf-8") for path in sorted(package.rglob("*.py"))}
    lengths = sorted(length for text in texts.values() for length in function_lengths(text))
    print(f"modules: {sum(map(bool, map(str.strip, texts.values())))}")
    print(f"lines of code: {sum(map(code_lines, texts.values())):,}")
    print(f"modules over 300 lines: {sum(t.count(chr(10)) > 300 for t in texts.values())}")
    at = lengths[round(0.95 * (len(lengths) - 1))]
    median = statistics.median(lengths)
    print(f"functions: {len(lengths):,}, median {median:g} lines, 95th percentile {at}")
    counts = {
        table: sum(refers(text, table) for text in texts.values()) for table in tables_of(package)
    }
    if not counts:
        return
    worst = max(counts, key=lambda table: counts[table])
    print(f"files that refer to a table: median {statistics.median(counts.values()):g}", end="")
    print(f", worst {counts[worst]} ({worst}), of {len(counts)} tables")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path, nargs="?", default=Path(__file__).parents[1])
    main(parser.parse_args().checkout)
