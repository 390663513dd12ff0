"""Exit codes where standard error is full or closed: they stay what they are."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SAMPLE = Path(__file__).resolve().parents[2] / "sample_traces" / "tiny_two_devices"
ENDS = ["2>/dev/full", "2>&-"]
pytestmark = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")


def ended(command: list[str], end: str, **options: object) -> tuple[int, str]:
    """The exit code and stdout of a command whose stderr is `end`, as a shell sets it."""
    shell = ["sh", "-c", f'exec "$@" {end}', "sh", *command]
    done = subprocess.run(shell, stdout=subprocess.PIPE, text=True, check=False, **options)
    return done.returncode, done.stdout


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "profiler", *map(str, words)]


@pytest.mark.parametrize("end", ENDS)
def test_a_command_that_says_something(tmp_path: Path, end: str) -> None:
    """A refusal ends with 2; a command that only remarks something goes on to its end, with 0."""
    assert ended(command("merge", tmp_path), end) == (2, "")
    bundle = shutil.copytree(SAMPLE, tmp_path / "bundle")
    next(bundle.glob("000_*.pb")).unlink()
    code, out = ended(command("merge", bundle), end)
    assert code == 0
    assert "merged.pb" in out


def test_nothing_gets_the_descriptor_of_stderr() -> None:
    """Where stderr is closed, what is opened next would get its number, and what a library writes
    there."""
    program = (
        "import sys; from profiler.cli.terminal import write_what_fits; write_what_fits(); "
        "print(open(sys.argv[1]).fileno() > 2); sys.stderr.write('lost')"
    )
    assert ended([sys.executable, "-c", program, __file__], "2>&-") == (0, "True\n")
