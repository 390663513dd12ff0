"""The shape of the code: who imports whom, what is public, what things are called."""

from __future__ import annotations

import ast
import importlib.util
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import profiler

_REPOSITORY = Path(__file__).parents[1]
_PACKAGE = _REPOSITORY / "profiler"
_MODULES = sorted(_PACKAGE.rglob("*.py"))
_TOP = sorted(
    path.stem
    for path in _PACKAGE.iterdir()
    if path.suffix == ".py" or (path / "__init__.py").is_file()
)
_EVERYWHERE = {"/data", "/home", "/mnt", "/opt", "/srv", "/tmp", "/usr/src", "/var/tmp"}
"""Folders that any machine has, or may have: a file that names one tells nothing about ours."""
_TEXT = (".cfg", ".html", ".ipynb", ".js", ".md", ".proto", ".py", ".sh", ".toml", ".txt", ".yml")


def _lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    """The import contracts of pyproject.toml, held against the package in `folder`."""
    if importlib.util.find_spec("importlinter") is None:
        pytest.skip("import-linter is missing: install the dev extra")
    program = (
        "import sys\n"  # an editable installation finds the repository's package, not the folder's
        "sys.meta_path = [f for f in sys.meta_path if 'ditable' not in type(f).__name__ + "
        "type(f).__module__]\n"
        "from importlinter.cli import lint_imports_command; lint_imports_command()"
    )
    command = [sys.executable, "-c", program, "--no-cache"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_import_contracts_hold() -> None:
    """The directions in which code may depend on code hold in every module."""
    done = _lint_imports(_REPOSITORY)
    assert done.returncode == 0, done.stdout


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package's modules and the contracts, to break them."""
    folder = tmp_path_factory.mktemp("copy")
    for path in _MODULES:
        target = folder / path.relative_to(_REPOSITORY)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    shutil.copyfile(_REPOSITORY / "pyproject.toml", folder / "pyproject.toml")
    return folder


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("events", "import numpy"),
        ("errors", "import profiler.trace.events"),
        ("trace/reader", "from profiler.run.run import Run"),
        ("trace/reader", "from profiler.capture.calls import Clock"),
        ("trace/writer", "import polars"),
        ("capture/recorder", "from profiler.run.run import Run"),
        ("capture/recorder", "from profiler.importers import kineto"),
        ("capture/recorder", "from profiler.pipelines import sd3"),
        ("importers/kineto/read", "from profiler.capture.calls import Clock"),
        ("importers/kineto/read", "import torch"),
        ("pipelines/sd3", "from profiler.analysis import analyze"),
        ("table/load", "from profiler.capture.calls import Clock"),
        ("table/load", "import onnxruntime"),
        ("table/load", "import google.protobuf.message"),
        ("analysis/analyze", "import plotly"),
        ("analysis/analyze", "from profiler.text import said"),
        ("analysis/analyze", "import pandas"),
        ("analysis/analyze", "from profiler import text as units"),
        ("report/units", "from profiler.importers import kineto"),
        ("report/units", "from profiler.cli import main"),
        ("report/units", "from profiler.sources import load"),
        ("report/units", "from profiler.sources import load"),
        ("analysis/analyze", "from profiler.sources import load"),
        ("importers/registry", "from profiler.sources import resolve"),
        ("sources/load", "from profiler import text as units"),
        ("sources/load", "from profiler.capture.calls import Clock"),
        ("plugins", "from profiler.errors import InputError"),
        ("cli/commands/dump", "import profiler"),
        ("cli/commands/dump", "import torch"),
    ],
)
def test_import_contracts_bite(copy: Path, module: str, line: str) -> None:
    """An import against the directions breaks a contract, inside a function as well."""
    path = copy / "profiler" / f"{module}.py"
    before = path.read_text(encoding="utf-8")
    path.write_text(f"{before}\n\ndef _late() -> None:\n    {line}\n", encoding="utf-8")
    done = _lint_imports(copy)
    path.write_text(before, encoding="utf-8")
    assert done.returncode == 1, done.stdout
    assert "BROKEN" in done.stdout


@pytest.mark.parametrize("path", sorted((_PACKAGE / "cli").rglob("*.py")), ids=lambda p: p.stem)
def test_functions_of_the_command_line_are_short(path: Path) -> None:
    """Options are declared above a command's function, which hands values over: 40 lines."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    lines = {each.name: (each.end_lineno or 0) - each.lineno + 1 for each in functions}
    assert {name: count for name, count in lines.items() if count > 40} == {}


@pytest.mark.parametrize("name", _TOP)
def test_every_part_is_under_contract(name: str) -> None:
    """A new part of the package must say on which side of the contracts it stands."""
    document = tomllib.loads((_REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = str(document["tool"]["importlinter"]["contracts"])
    entrances = ("__init__", "__main__")  # they name what is inside, and are named by nobody
    assert name in entrances or re.search(rf"profiler\.{name}\b", contracts)


def _public(tree: ast.Module) -> Iterator[str]:
    """Names without an underscore that a module defines, rather than imports."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                names = target.elts if isinstance(target, ast.Tuple) else [target]
                yield from (name.id for name in names if isinstance(name, ast.Name))


def _exported(tree: ast.Module) -> list[str] | None:
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            exported: list[str] = ast.literal_eval(node.value)
            return exported
    return None


@pytest.mark.parametrize("path", _MODULES, ids=lambda path: str(path.relative_to(_PACKAGE)))
def test_all_names_what_is_public(path: Path) -> None:
    """`__all__` of a module is exactly what it defines without an underscore."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    defined = {name for name in _public(tree) if not name.startswith("_")}
    exported = _exported(tree)
    if path == _PACKAGE / "__init__.py" or (exported is None and not defined):
        return
    assert exported is not None, f"{path.name} has no __all__"
    assert len(set(exported)) == len(exported)
    assert set(exported) - {"__version__"} == defined


def test_public_names_of_the_package() -> None:
    """The package's names are those of the design, and each can be reached."""
    assert profiler.__all__ == [
        "Analysis",
        "ProfilerError",
        "Run",
        "__version__",
        "analyze",
        "done",
        "load",
        "profile",
        "start",
        "step",
        "submodule",
    ]
    assert dir(profiler) == profiler.__all__
    for name in profiler.__all__:
        assert getattr(profiler, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'missing'"):
        profiler.missing


def test_no_module_without_a_subject() -> None:
    """No module or folder is called after nothing (utils, common, misc, helpers), or by a word that
    nobody would search for."""
    empty = {"util", "utils", "common", "misc", "helper", "helpers"}
    empty |= {"kinds", "parts", "surface", "say", "choice", "chosen"}
    assert [
        path for path in _tracked() if empty & {part.split(".")[0] for part in path.parts}
    ] == []


def _tracked() -> list[Path]:
    """Files that git knows, or would know, relative to the repository."""
    if shutil.which("git") is None or not (_REPOSITORY / ".git").exists():
        pytest.skip("this is no git checkout")
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=_REPOSITORY, capture_output=True, text=True, check=True)
    return [Path(line) for line in done.stdout.splitlines() if (_REPOSITORY / line).is_file()]


def test_no_machine_in_the_repository() -> None:
    """No file names the place where this checkout or somebody's home lies."""
    places = {str(place) for place in (_REPOSITORY.parent, Path.home()) if place.parent != place}
    places -= _EVERYWHERE
    named = re.compile("|".join(rf"(?<![\w.]){re.escape(place)}/" for place in places) or r"(?!)")
    found = [
        path
        for path in _tracked()
        if path.suffix in _TEXT
        for text in [(_REPOSITORY / path).read_text(encoding="utf-8", errors="replace")]
        if named.search(text)
    ]
    assert found == []
