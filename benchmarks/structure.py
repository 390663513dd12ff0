"""Size and shape of a checkout: files, lines, imports, cycles, and how deep `analyze` goes.

    python benchmarks/structure.py [CHECKOUT] [--static]

Code lines are lines of Python that hold code: no blank line, comment or docstring. Nodes are those
of the syntax trees without docstrings, which no layout changes. Lines of other files are those
that are not blank. Files are measured by all their lines and, beside, by their code lines;
`__init__`, `__main__` and the files of one subcommand may be short. Imports are statements,
wherever they stand.

Cycles are counted three times: over all imports, over those that are ever executed (none below
`if TYPE_CHECKING`), and over those that importing the module executes (none in functions either).
A package is what lies directly in profiler/, a folder or a file; a cycle is a set of files, or
packages, each of which reaches each other. `from a import b` leads to the file of `a.b` if there is
one, else to that of `a`.

Unless `--static` is given, `analyze --no-html` of the sample runs in the checkout's own environment
(`.venv`, else this Python, in which it must be installed) under `sys.setprofile`, in all threads,
from the command's start, `profiler.cli.main` imported: our files that execute any code, modules
that are imported meanwhile among them, and those in which a function is called, lambdas and
comprehensions among them; and how many of our frames at most stand on one stack.
"""

from __future__ import annotations

import argparse
import ast
import io
import shutil
import statistics
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_NO_CODE = frozenset(
    {
        *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
        *(tokenize.ENCODING, tokenize.ENDMARKER),
    }
)
_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
_OTHER_FILES = {
    "JS": (".js",),
    "templates (HTML, CSS)": (".html", ".css"),
    "C++": (".cpp", ".hpp", ".inc"),
    "JSON and other data": (".json", ".toml", ".txt", ".tsv", ".csv", ".proto"),
}
_PROGRAM = """
import os, sys, threading
import profiler
from profiler.cli import main

root, sample = sys.argv[1:]
package = os.path.join(root, "profiler", "")
if not profiler.__file__.startswith(package):
    sys.exit(f"{root} is not installed in {sys.executable}")
executed, called, deepest = set(), set(), 0

def note(frame, event, _):
    global deepest
    code = frame.f_code
    if event != "call" or not code.co_filename.startswith(package):
        return
    executed.add(code.co_filename)
    if code.co_flags & 1:  # CO_OPTIMIZED: neither a module nor the body of a class
        called.add(code.co_filename)
    depth = 0
    while frame is not None:
        depth += frame.f_code.co_filename.startswith(package)
        frame = frame.f_back
    deepest = max(deepest, depth)

sys.argv = ["profile-sd3", "analyze", sample, "--no-html"]
threading.setprofile(note)
sys.setprofile(note)
try:
    getattr(main, "run", main.main)()  # older versions have no `run`
except SystemExit as ended:
    if ended.code:
        raise
finally:
    sys.setprofile(None)
print("\\n", len(executed), len(called), deepest)
"""


@dataclass(frozen=True)
class File:
    """A Python file: its text, the nodes of its syntax tree, and its code lines."""

    path: Path
    text: str
    nodes: list[ast.AST]
    code: int

    @staticmethod
    def read(path: Path) -> File:
        text = path.read_text("utf-8")
        nodes = [*ast.walk(ast.parse(text))]
        return File(path, text, nodes, code_lines(text, nodes))

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())


def code_lines(text: str, nodes: Sequence[ast.AST]) -> int:
    """Lines of Python that hold code: no blank lines, comments or docstrings. `nodes` are those of
    its syntax tree."""
    documented = {line for node in nodes for line in _docstring(node)}
    coded = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in _NO_CODE
        for line in range(token.start[0], token.end[0] + 1)
    }
    return len(coded - documented)


def _docstring(node: ast.AST) -> range:
    """Lines of a node's docstring, none if it has none."""
    if not isinstance(node, _DOCUMENTED) or ast.get_docstring(node, clean=False) is None:
        return range(0)
    return range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)


def nodes_without_docstrings(nodes: Sequence[ast.AST]) -> int:
    """Number of nodes; a docstring, which is left out, is two: an expression and its string."""
    return len(nodes) - 2 * sum(bool(_docstring(node)) for node in nodes)


def function_lengths(nodes: Iterable[ast.AST]) -> Iterator[int]:
    """Lines of each function from its `def` to its end."""
    for node in nodes:
        if isinstance(node, _FUNCTIONS):
            yield (node.end_lineno or node.lineno) - node.lineno + 1


def module_name(path: Path, root: Path) -> str:
    """Dotted name by which the file at `path` is imported."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(tree: ast.AST, *, typing: bool = True, late: bool = True) -> Iterator[str]:
    """Modules that a tree imports, and each name that it takes from one, as `module.name`: without
    those for the type checker alone if not `typing`, and those in functions if not `late`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for branch in [*(node.body if typing else ()), *node.orelse]:
                yield from imports(ast.Module([branch], []), typing=typing, late=late)
        elif late or not isinstance(node, _FUNCTIONS):
            yield from imports(node, typing=typing, late=late)


def graph(trees: dict[str, ast.AST], **which: bool) -> dict[str, set[str]]:
    """For each module those that it imports, of the same package."""
    found: dict[str, set[str]] = {}
    for module, tree in trees.items():
        named = imports(tree, **which)
        known = (name if name in trees else name.rpartition(".")[0] for name in named)
        found[module] = {name for name in known if name in trees and name != module}
    return found


def packages(edges: dict[str, set[str]]) -> dict[str, set[str]]:
    """The same between what lies directly in the package."""
    found: dict[str, set[str]] = {}
    for module, targets in edges.items():
        source = _package(module)
        found.setdefault(source, set()).update({*map(_package, targets)} - {source})
    return found


def _package(module: str) -> str:
    return ".".join(module.split(".")[:2])


def cycles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Sets of nodes that all reach each other, largest first (Tarjan's algorithm)."""
    found: list[list[str]] = []
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []

    def visit(node: str) -> None:
        number[node] = lowest[node] = len(number)
        stack.append(node)
        for target in edges[node]:
            if target not in number:
                visit(target)
                lowest[node] = min(lowest[node], lowest[target])
            elif target in stack:
                lowest[node] = min(lowest[node], number[target])
        if lowest[node] == number[node]:
            place = stack.index(node)
            if len(stack) - place > 1:
                found.append(sorted(stack[place:]))
            del stack[place:]

    sys.setrecursionlimit(max(sys.getrecursionlimit(), 2 * len(edges) + 1000))
    for node in edges:
        if node not in number:
            visit(node)
    return sorted(found, key=len, reverse=True)


def may_be_short(path: Path) -> bool:
    """Whether a file has a reason to be short: a package's, or one subcommand."""
    return path.stem in ("__init__", "__main__") or path.parent.parts[-2:] == ("cli", "commands")


def print_files(files: list[File]) -> None:
    """Print numbers and sizes of files."""
    print(f"Python files: {len(files):,} ({sum(not f.text.strip() for f in files)} of them empty)")
    print(f"code lines: {sum(f.code for f in files):,}")
    print(f"nodes without docstrings: {sum(nodes_without_docstrings(f.nodes) for f in files):,}")
    counted = [f for f in files if not may_be_short(f.path)]
    for name, of in (("lines", lambda f: f.lines), ("code lines", lambda f: f.code)):
        over = [sum(of(f) > most for f in files) for most in (900, 700)]
        under = sum(of(f) < 60 for f in counted)
        median = statistics.median(of(f) for f in files)
        print(f"files by {name}: over 900 {over[0]}, over 700 {over[1]}, under 60 {under}", end="")
        print(f", median {median:g}, largest {max(of(f) for f in files)}")


def print_imports(files: list[File], root: Path) -> None:
    """Print how many imports there are, and the cycles that they make."""
    count = sum(isinstance(n, ast.Import | ast.ImportFrom) for f in files for n in f.nodes)
    per = 1000 * count / sum(f.code for f in files)
    print(f"imports: {count:,}, {per:.1f} per thousand code lines")
    trees = {module_name(f.path, root): f.nodes[0] for f in files}
    for name, which in (
        ("all imports", {}),
        ("without TYPE_CHECKING", {"typing": False}),
        ("of modules' own level", {"typing": False, "late": False}),
    ):
        edges = graph(trees, **which)
        found = cycles(edges)
        sizes = ", ".join(str(len(cycle)) for cycle in found) or "none"
        print(f"cycles, {name}: packages {len(cycles(packages(edges)))}, files {sizes}", end="")
        named = " ".join([*found[0][:8], "..."][: len(found[0])]) if found else ""
        print(f" (largest: {named})" if named else "")


def print_other(root: Path) -> None:
    """Print lines of what is no Python of the package."""
    package = root / "profiler"
    for name, suffixes in _OTHER_FILES.items():
        paths = [path for path in package.rglob("*") if path.suffix in suffixes]
        texts = [path.read_text("utf-8") for path in paths]
        lines = sum(bool(line.strip()) for text in texts for line in text.splitlines())
        size = sum(path.stat().st_size for path in paths)
        print(f"{name}: {lines:,} lines in {len(paths)} files, {size:,} bytes")
    for name in ("tests", "benchmarks"):
        files = [File.read(path) for path in sorted((root / name).rglob("*.py"))]
        print(f"{name}: {sum(f.code for f in files):,} code lines in {len(files)} files")


def print_functions(files: list[File]) -> None:
    """Print how many functions there are, and how long."""
    lengths = sorted(length for f in files for length in function_lengths(f.nodes))
    at = lengths[round(0.95 * (len(lengths) - 1))]
    median = statistics.median(lengths)
    print(f"functions: {len(lengths):,}, median {median:g} lines, 95th percentile {at}")


def print_executed(root: Path) -> None:
    """Print what `analyze` of the sample executes of the checkout."""
    own = root / ".venv" / "bin" / "python"
    python = own if own.exists() else Path(sys.executable)
    with tempfile.TemporaryDirectory() as folder:
        sample = Path(folder) / "sample"
        shutil.copytree(root / "sample_traces" / "tiny_two_devices", sample)
        command = [str(python), "-c", _PROGRAM, str(root), str(sample)]
        done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True, check=True)
    executed, called, deepest = done.stdout.split()[-3:]
    print(f"analyze --no-html: executes code of {executed} files, {deepest} frames deep", end="")
    print(f"; calls functions of {called}")


def main(root: Path, *, static: bool) -> None:
    files = [File.read(path) for path in sorted((root / "profiler").rglob("*.py"))]
    print_files(files)
    print_functions(files)
    print_imports(files, root)
    print_other(root)
    if not static:
        print_executed(root)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path, nargs="?", default=Path(__file__).parents[1])
    parser.add_argument("--static", action="store_true", help="do not run analyze")
    arguments = parser.parse_args()
    main(arguments.checkout.resolve(), static=arguments.static)
