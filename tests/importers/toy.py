"""The package with an importer of its own that docs/importers.md shows, and a trace for it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

_PAGE = Path(__file__).parents[2] / "docs" / "importers.md"


def _block(language: str) -> str:
    """The only block of a language on the page that shows how to write an importer."""
    (found,) = re.findall(
        rf"^```{language}\n(.*?)^```$", _PAGE.read_text(), re.DOTALL | re.MULTILINE
    )
    return found


PROJECT, MODULE = _block("toml"), _block("python")


def install(folder: Path) -> Path:
    """Install the package from its sources; the folder that it is in then."""
    sources, target = folder / "sources", folder / "installed"
    sources.mkdir()
    (sources / "pyproject.toml").write_text(PROJECT)
    (sources / "toy_traces.py").write_text(MODULE)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-build-isolation"]
    command += ["--no-deps", "--no-index", "--target", str(target), str(sources)]
    subprocess.run(command, check=True, capture_output=True)
    return target


def run(installed: Path, *arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """`profile-sd3 ARGUMENTS` in a process that has the package."""
    command = [sys.executable, "-m", "profiler", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


def write_trace(path: Path, *lines: str) -> Path:
    """A trace for it, by default of two calls that take 3 ms and 5 ms."""
    text = lines or ("transformer blocks.0 3", "transformer blocks.0 5")
    path.write_text("\n".join(("TOYS", *text)) + "\n")
    return path
