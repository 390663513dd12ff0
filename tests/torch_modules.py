"""Which test modules import torch into the process that runs them: found in what they say.

    uses_torch(Path("tests/capture/torch/test_operators.py"))

`.ci/run` runs these in processes of their own (`pytest --torch alone`): what torch, or a profiler
in it, does to a process can end no other test.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

__all__ = ["uses_torch"]

_ROOT = Path(__file__).parents[1]
_LIBRARIES = {"accelerate", "diffusers", "onnxscript", "peft", "torch", "transformers"}
_IMPORTING = {"importorskip", "import_module"}


@cache
def uses_torch(path: Path) -> bool:
    """Whether a module, or one of the tests' own that it imports, names torch or what imports it:
    in an import, to `pytest.importorskip`, or as the mark."""
    text = path.read_text(encoding="utf-8")
    if not any(name in text for name in (*_LIBRARIES, "tests.")):
        return False
    said = set(_said(ast.parse(text)))
    if any(name.partition(".")[0] in _LIBRARIES for name in said):
        return True
    ours = (_ROOT / f"{name.replace('.', '/')}.py" for name in said if name.startswith("tests."))
    return any(uses_torch(module) for module in ours if module.is_file() and module != path)


def _said(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute) and node.attr == "torch":
            yield "torch" if getattr(node.value, "attr", "") == "mark" else ""
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in _IMPORTING:
            yield from _imported(node, tree)


def _imported(call: ast.Call, tree: ast.AST) -> Iterator[str]:
    """What a call imports; where that is no text, any text of the module may be it."""
    given = call.args[:1]
    among = given if isinstance(given[0], ast.Constant) else ast.walk(tree)
    yield from (str(node.value) for node in among if isinstance(node, ast.Constant))
