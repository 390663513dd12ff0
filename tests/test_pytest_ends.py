"""A run of tests ends where one of its processes dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes are forked here")
def test_a_forked_child_does_not_keep_the_run_waiting(tmp_path: Path) -> None:
    """A process of pytest-xdist that is killed ends the run and is named, though a child that it
    forked lives on."""
    (tmp_path / "test_dies.py").write_text(_DIES, encoding="utf-8")
    root = Path(__file__).parents[1]
    arguments = ("-p", "tests.conftest", "-n", "1", "--max-worker-restart=0", "-c", os.devnull)
    command = [sys.executable, "-m", "pytest", *arguments, "--rootdir", ".", "test_dies.py"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    try:
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=environment | {"PYTHONPATH": str(root)},
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
