"""Commands that are killed at random moments, and long runs on bad machines: a few kills, and at
night all of `python -m tests.fuzz.kills` and `python -m tests.fuzz.soak`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.kills import COMMANDS
from tests.fuzz.soak import CASES

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")


def _passes(module: str, *words: str) -> None:
    """In a process of its own, which forks: this one may have threads."""
    command = [sys.executable, "-m", f"tests.fuzz.{module}", *words]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_few_kills() -> None:
    """The command that repairs what others left, three times."""
    _passes("kills", "merge", "--tries", "3")


@pytest.mark.nightly
@pytest.mark.torch
@pytest.mark.parametrize("name", COMMANDS)
def test_two_hundred_kills(name: str) -> None:
    """Of each command: nothing that finished is lost, the next command works."""
    _passes("kills", name)


@pytest.mark.nightly
@pytest.mark.torch
@pytest.mark.parametrize("name", CASES)
def test_ten_thousand_calls(name: str) -> None:
    """On both runtimes, beside readers, with few files, bad clocks and disks."""
    _passes("soak", name)
