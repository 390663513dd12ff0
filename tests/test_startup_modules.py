"""What starting costs: the modules that are imported before anybody has asked for their work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

_REPOSITORY = Path(__file__).parents[1]
_HEAVY = frozenset(
    {
        *("numpy", "polars", "pandas", "pyarrow", "plotly", "google.protobuf", "yaml", "duckdb"),
        *("onnx", "onnxruntime", "torch", "diffusers", "transformers", "msgspec", "rich"),
    }
)
"""Libraries that take 10 ms and more to import."""

_IMPORTED = """
import os, sys
before = set(sys.modules)
{program}
found = {{name: getattr(sys.modules[name], "__file__", None) for name in sys.modules}}
import json
print()
print(json.dumps({{name: found[name] for name in found.keys() - before}}))
"""
_HOOK = """
os.environ["RBLN_PROFILER"] = "1"
from profiler.capture.startup import from_environment
from_environment()
"""
_HELP = """
from profiler.cli.main import main
sys.argv = ["profile-sd3", "--help"]
try:
    main()
except SystemExit:
    pass
"""


def imported(program: str, folder: Path) -> dict[str, str]:
    """Modules that a program imports in a process of its own, and their files."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("RBLN_")}
    command = [sys.executable, "-c", _IMPORTED.format(program=program)]
    done = subprocess.run(
        command, cwd=folder, env=clean, capture_output=True, text=True, check=True
    )
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    ("program", "most"),
    [("import profiler.capture.startup", 2500), (_HOOK, 3300)],
    ids=["imported", "switched on"],  # which imports a module of each backend as well
)
def test_the_hook_imports_the_standard_library_and_little_of_ours(
    program, most, tmp_path, monkeypatch
):
    """Every Python process that RBLN_PROFILER reaches imports these before the user's code runs:
    no library, and a limited number of our code lines."""
    monkeypatch.syspath_prepend(str(_REPOSITORY / "benchmarks"))
    from structure import File

    found = imported(program, tmp_path)
    ours = {name: file for name, file in found.items() if name.partition(".")[0] == "profiler"}
    assert "profiler.capture.startup" in ours
    libraries = {name.partition(".")[0] for name in found.keys() - ours.keys()}
    assert libraries - sys.stdlib_module_names == set()
    lines = {name: File.read(Path(file)).code for name, file in ours.items()}
    assert sum(lines.values()) <= most, lines


@pytest.mark.parametrize(
    ("program", "allowed"),
    [
        ("import profiler; profiler.ProfilerError; profiler.__version__", set()),
        (_HELP, {"msgspec", "rich"}),  # older versions of typer import rich
    ],
    ids=["import", "help"],
)
def test_imports_are_light(program, allowed, tmp_path):
    """`import profiler` with its errors, and the command line with its help, import none of the
    libraries that do the work."""
    assert _HEAVY & imported(program, tmp_path).keys() <= allowed
