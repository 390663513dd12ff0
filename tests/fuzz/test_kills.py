"""Commands that are killed at random moments: `python -m tests.fuzz.kills`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.kills import COMMANDS

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")


def _killed(name: str, tries: int) -> None:
    """In a process of its own, which forks: this one may have threads."""
    command = [sys.executable, "-m", "tests.fuzz.kills", name, "--tries", str(tries)]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_few_kills() -> None:
    """The command that repairs what others left, three times."""
    _killed("merge", 3)


@pytest.mark.nightly
@pytest.mark.torch
@pytest.mark.parametrize("name", COMMANDS)
def test_two_hundred_kills(name: str) -> None:
    """Of each command: nothing that finished is lost, the next command works."""
    _killed(name, 200)
