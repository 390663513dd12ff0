"""A module binds each of its names once, so that no definition replaces another unnoticed."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

_PACKAGE = Path(__file__).parents[1] / "profiler"


def bound(statements: list[ast.stmt]) -> Iterator[str]:
    """Names that the statements bind, one for each binding.

    An `if` or a `try` binds a name once, in however many branches. Overloads, `_`, and submodules
    of one package (`import a.b`, `import a.c`) are left out: those repeat a name by design.
    """
    for node in statements:
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if not any("overload" in ast.unparse(each) for each in node.decorator_list):
                yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = [each.asname or each.name for each in node.names]
            yield from (name for name in names if "." not in name)
        elif isinstance(node, ast.If | ast.Try):
            handlers = getattr(node, "handlers", [])
            final = getattr(node, "finalbody", [])
            yield from {*bound([*node.body, *node.orelse, *final])} | {
                name for handler in handlers for name in bound(handler.body)
            }
        elif isinstance(node, ast.For | ast.With):
            yield from bound(node.body)
            yield from targets([node.target] if isinstance(node, ast.For) else [])
        elif isinstance(node, ast.Assign):
            yield from targets(node.targets)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            yield from targets([node.target])


def targets(nodes: list[ast.expr]) -> Iterator[str]:
    """Names that an assignment to these targets binds; attributes and keys are none."""
    for node in nodes:
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Tuple | ast.List):
            yield from targets(node.elts)
        elif isinstance(node, ast.Starred):
            yield from targets([node.value])


def repeated(text: str) -> list[str]:
    """Names that a module of this text binds more than once at its own level."""
    counts = Counter(bound(ast.parse(text).body))
    return sorted(name for name, times in counts.items() if times > 1 and name != "_")


def test_no_module_binds_a_name_twice() -> None:
    """Neither a function, a class, a constant nor an import replaces another of its module."""
    found = {
        str(path.relative_to(_PACKAGE)): names
        for path in sorted(_PACKAGE.rglob("*.py"))
        if (names := repeated(path.read_text(encoding="utf-8")))
    }
    assert found == {}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("A = 1\nA = 2", ["A"]),
        ("A: int = 1\n(A, B) = 2, 3", ["A"]),
        ("def f(): ...\nclass f: ...", ["f"]),
        ("from a import f\ndef f(): ...", ["f"]),
        ("if x:\n    A = 1\nA = 2", ["A"]),
        ("A = 1\nA += 2\nA.b = 3\nA[0] = 4", []),
        ("if x:\n    A = 1\nelse:\n    A = 2", []),
        ("try:\n    import a\nexcept ImportError:\n    a = None", []),
        ("@overload\ndef f(): ...\n@typing.overload\ndef f(): ...\ndef f(): ...", []),
        ("A: int\nA = 1", []),
        ("import a.b\nimport a.c", []),
    ],
)
def test_what_counts_as_twice(text: str, names: list[str]) -> None:
    """Definitions and values count; branches of one condition, overloads and `+=` do not."""
    assert repeated(text) == names
