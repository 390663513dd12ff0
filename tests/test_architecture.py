"""The shape of the code: who imports whom, what is public, what things are called."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import profiler

_REPOSITORY = Path(__file__).parents[1]
_PACKAGE = _REPOSITORY / "profiler"
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


def test_import_contracts_bite(tmp_path: Path) -> None:
    """An import against each of the rules breaks a contract, inside a function as well."""
    for path in _PACKAGE.rglob("*.py"):
        target = tmp_path / path.relative_to(_REPOSITORY)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    shutil.copyfile(_REPOSITORY / "pyproject.toml", tmp_path / "pyproject.toml")
    wrong = {
        "errors": "import profiler.trace.events",
        "capture/calls": "import profiler.run.load",
        "run/load": "import profiler.importers.importing",
        "analysis/kernels": "import profiler.report.build",
        "compare/compare": "import profiler.fleet.dataset",
        "prediction/replay": "import plotly",
        "importers/importing": "import torch",
        "cli/commands/dump": "import profiler",
    }
    for module, line in wrong.items():
        with (tmp_path / "profiler" / f"{module}.py").open("a", encoding="utf-8") as file:
            file.write(f"\n\ndef _late() -> None:\n    {line}\n")
    done = _lint_imports(tmp_path)
    assert done.returncode == 1, done.stdout
    assert "0 kept, 7 broken" in done.stdout


def test_public_names_of_the_package() -> None:
    """The package's names are those of the design, and each can be reached."""
    assert profiler.__all__ == [
        "Analysis",
        "ProfilerError",
        "Run",
        "__version__",
        "analyze",
        "diff",
        "done",
        "import_trace",
        "load",
        "predict",
        "profile",
        "start",
        "step",
        "submodule",
    ]
    assert dir(profiler) == profiler.__all__
    for name in profiler.__all__:
        assert getattr(profiler, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'missing'"):
        profiler.missing  # noqa: B018


def test_a_moved_module_is_forwarded() -> None:
    """What documentation had plug-ins import is found under its old name, with a warning."""
    from profiler.trace import Call

    sys.modules.pop("profiler.events", None)
    with pytest.warns(DeprecationWarning, match="profiler.events is profiler.trace.events now"):
        import profiler.events
    assert profiler.events.Call is Call
    with pytest.warns(DeprecationWarning, match="profiler.run.columns"):
        from profiler.table.columns import Column
    assert Column.__module__ == "profiler.run.columns"
    with pytest.raises(ModuleNotFoundError):
        import profiler.table.tiles


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
