"""How tests run: what is left out, and that a run ends where one of its processes dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[1]
_MARKED = """
import pytest

def test_short():
    pass

@pytest.mark.nightly
def test_long():
    pass
"""
_TELLS = """
import pytest

@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        marked = item.get_closest_marker("nightly") is not None
        print("collected", item.nodeid.partition("::")[0], marked)
"""
_DIES = """
import os, signal, time
from pathlib import Path

def test_dies():
    child = os.fork()
    if child == 0:
        time.sleep(600)
        os._exit(0)
    Path("child").write_text(str(child))
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_is_nightly_is_left_out(tmp_path) -> None:
    """A test marked as nightly runs only where `-m`, which pytest knows, says something else."""
    (tmp_path / "test_marked.py").write_text(_MARKED, encoding="utf-8")
    settings = ("-c", str(_ROOT / "pyproject.toml"), "--rootdir", ".", "-n", "0", "-rA")
    command = [sys.executable, "-m", "pytest", *settings, "test_marked.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "PASSED test_marked.py::test_short" in done.stdout
    assert "1 passed, 1 deselected" in done.stdout


def test_what_is_nightly_has_a_short_case(tmp_path: Path) -> None:
    """Sweeps are marked, those of capture among them, and no module is left without a test that
    always runs."""
    modules = [
        path.relative_to(_ROOT).as_posix()
        for path in sorted((_ROOT / "tests").rglob("test_*.py"))
        if "mark.nightly" in path.read_text("utf-8") and path != Path(__file__)
    ]
    (tmp_path / "tells.py").write_text(_TELLS, encoding="utf-8")
    settings = ("-p", "tells", "-n", "0", "--collect-only", "-qq", "-s", *modules)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *settings],
        cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    told = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("collected ")]
    assert told, done.stdout + done.stderr
    nightly = {module for module, marked in told if marked == "True"}
    assert "tests/capture/test_killed.py" in nightly
    assert nightly == {module for module, _ in told}
    assert nightly == {module for module, marked in told if marked == "False"}


_WITH_TORCH = """
import pytest

@pytest.mark.torch
def test_with():
    pass
"""
_IN_A_HELPER = """
def test_by_a_helper():
    from tests.torch_modules import uses_torch  # names torch nowhere else
    import tests.capture.tiny_diffusers
"""
_WITHOUT = """
def test_without():
    torch = "no import"
"""


@pytest.mark.parametrize(
    ("options", "runs"),
    [
        ((), ["test_by_a_helper.py", "test_with.py", "test_without.py"]),
        (("--torch", "alone"), ["test_by_a_helper.py", "test_with.py"]),
        (("--torch", "without"), ["test_without.py"]),
    ],
)
def test_torch_in_processes_of_its_own(tmp_path, options, runs) -> None:
    """Modules that import torch, also through one of the tests' own, can be run alone or left out,
    and each is in one of the two halves."""
    modules = {"with": _WITH_TORCH, "by_a_helper": _IN_A_HELPER, "without": _WITHOUT}
    for name, text in modules.items():
        (tmp_path / f"test_{name}.py").write_text(text, encoding="utf-8")
    settings = ("-p", "tests.conftest", "-c", str(_ROOT / "pyproject.toml"), "--rootdir", ".")
    command = [sys.executable, "-m", "pytest", *settings, "-n", "0", "--collect-only", "-qq"]
    done = subprocess.run(
        [*command, *options, "."],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert [line.partition(":")[0] for line in done.stdout.split("\n") if line] == runs


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes are forked here")
def test_a_forked_child_does_not_keep_the_run_waiting(tmp_path: Path) -> None:
    """A process of pytest-xdist that is killed ends the run and is named, though a child that it
    forked lives on."""
    (tmp_path / "test_dies.py").write_text(_DIES, encoding="utf-8")
    arguments = ("-p", "tests.conftest", "-n", "1", "--max-worker-restart=0", "-c", os.devnull)
    command = [sys.executable, "-m", "pytest", *arguments, "--rootdir", ".", "test_dies.py"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    try:
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=environment | {"PYTHONPATH": str(_ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=240,
            check=False,
        )
    finally:
        os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)
    assert done.returncode == 1
    assert "crashed while running 'test_dies.py::test_dies'" in done.stdout
