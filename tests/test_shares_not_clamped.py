"""Shares are never clamped: one outside 0…1 is an error that tests must see and no report hide.

A call of `min` with 1, of `max` with 0, or of `clip` (and their kin in NumPy and Polars) may stand
where lengths of time or positions are cut. It may not stand in a statement that has to do with a
share: one that names one, or a function that is named after one.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1] / "profiler"
MODULES = sorted([*(ROOT / "analysis").rglob("*.py"), *(ROOT / "report").rglob("*.py")])

_SHARE = re.compile(r"share(?!d)|utili[sz]ation|of_peak|of_roofline|percent|fraction")
_CUTS = {  # what is called, the bound that makes it a clamp of a share
    **dict.fromkeys(("min", "minimum", "min_horizontal", "fmin"), 1),
    **dict.fromkeys(("max", "maximum", "max_horizontal", "fmax"), 0),
}
_CLIPS = frozenset(("clip", "clip_min", "clip_max", "clamp"))
_EXPRESSIONS = frozenset(("with_columns", "select", "agg", "filter"))  # each argument of its own
_SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.Expr, ast.keyword)


def clamped_shares(source: str) -> list[int]:
    """The lines of `source` in which a share is clamped."""
    found: set[int] = set()
    _visit(ast.parse(source), (), found)
    return sorted(found)


def _visit(node: ast.AST, around: tuple[str, ...], found: set[int]) -> None:
    """Look for clamps beneath `node`; `around` are the names of what they would be part of."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        around = (node.name,)
    elif isinstance(node, _SIMPLE):
        around = (*around[:1], *_names(node)) if isinstance(node, ast.Return) else _names(node)
    if isinstance(node, ast.Call) and _is_clamp(node) and any(map(_SHARE.search, around)):
        found.add(node.lineno)
    own = isinstance(node, ast.Call) and _called(node) in _EXPRESSIONS
    for child in ast.iter_child_nodes(node):
        is_expression = own and isinstance(child, ast.expr) and child in node.args
        _visit(child, _names(child) if is_expression else around, found)


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _names(node: ast.AST) -> tuple[str, ...]:
    """The names in a statement: variables, attributes, arguments, columns."""
    names = []
    for child in ast.walk(node):
        if isinstance(child, ast.Name):
            names.append(child.id)
        elif isinstance(child, ast.Attribute):
            names.append(child.attr)
        elif isinstance(child, ast.keyword) and child.arg:
            names.append(child.arg)
        elif isinstance(child, ast.Constant) and isinstance(child.value, str):
            names += [child.value] if child.value.isidentifier() else []
    return tuple(names)


def _is_clamp(call: ast.Call) -> bool:
    name = _called(call)
    if name in _CLIPS:
        return True
    bound = _CUTS.get(name)
    return bound is not None and any(_is_number(given, bound) for given in call.args)


def _is_number(node: ast.AST, value: int) -> bool:
    """Whether an argument is the number `value`, also as `pl.lit(1.0)`."""
    if isinstance(node, ast.Call) and len(node.args) == 1:
        node = node.args[0]
    number = isinstance(node, ast.Constant) and not isinstance(node.value, (bool, str))
    return number and node.value == value


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_share_is_clamped(path):
    """No module of the analysis or the report cuts a share to 0…1."""
    lines = clamped_shares(path.read_text(encoding="utf-8"))
    assert not lines, f"{path.relative_to(ROOT)}, lines {lines}: a share is clamped"


@pytest.mark.parametrize(
    "source",
    [
        "share = min(busy / total, 1)",
        "share = max(0.0, 1 - busy / total)",
        "table.with_columns(idle_share=(pl.col('idle_ns') / total).clip(0, 1))",
        "table.with_columns(pl.col('utilization').clip(upper_bound=1.0))",
        "row['of_peak'] = np.minimum(flops / peak, 1.0)",
        "def _share(part, whole):\n    return min(part / whole, 1.0)",
        "said('idle {share}', share=percent(max(idle, 0) / total))",
        "x = pl.min_horizontal('of_roofline', pl.lit(1.0))",
    ],
)
def test_a_clamped_share_is_found(source):
    """In every way that it could be written."""
    assert clamped_shares(source)


@pytest.mark.parametrize(
    "source",
    [
        "length = max(end - begin, 0)",
        "took = pl.col('duration_ns').clip(0)",
        "def _share(part, whole):\n    size = max(whole, 0)\n    return part / size",
        "table.with_columns(pl.col('duration_ns').clip(0)).with_columns(share=share)",
        "share = min(shares)",
        "share = max(least, most)",
    ],
)
def test_what_is_no_share_may_be_cut(source):
    """Lengths of time of untrusted traces, positions, the smallest of several shares."""
    assert not clamped_shares(source)
