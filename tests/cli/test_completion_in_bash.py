"""Completion in a real bash: installed as users do, asked by the key Tab in a terminal."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.runs import write_tiny_bundle

_COMMAND = Path(sys.executable).with_name("profile-sd3")
_PATIENCE_S = 240
_TO_BEGIN, _TO_END = "\x01", "\x05"


class _Bash:
    """An interactive bash in a terminal, in a folder that is its home as well."""

    def __init__(self, folder: Path) -> None:
        self.ours, theirs = os.openpty()
        path = f"{_COMMAND.parent}{os.pathsep}{os.environ['PATH']}"
        self.process = subprocess.Popen(
            ["bash", "-i"],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=folder,
            env={"HOME": str(folder), "PATH": path, "TERM": "dumb", "LC_ALL": "C.UTF-8"},
            start_new_session=True,
        )
        os.close(theirs)

    def say(self, line: str) -> str:
        """What it writes for a line, up to a mark that is not in the line itself."""
        os.write(self.ours, f"{line}; echo done$((6*7))\r".encode())
        text = ""
        while "done42" not in text:
            ready, _, _ = select.select([self.ours], [], [], _PATIENCE_S)
            assert ready, f"nothing more came: {text!r}"
            text += os.read(self.ours, 1 << 16).decode(errors="replace")
        return text

    def words(self, typed: str) -> list[str]:
        """The words that a line has become, a letter X typed behind its last Tab."""
        said = self.say(f"{typed}X{_TO_BEGIN}printf '%s|' {_TO_END}")
        answer = next(part for part in reversed(said.splitlines()) if "done42" in part)
        return answer.split("done42")[0].rstrip("|").split("|")

    def close(self) -> None:
        os.close(self.ours)
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], list[str]]]:
    """What bash makes of a line, where `--install-completion` was said once and a new shell opened;
    beside a run in `traces/`, one under a name with a space."""
    if shutil.which("bash") is None or not _COMMAND.exists():
        pytest.skip("no bash, or profile-sd3 is not installed beside this Python")
    folder = tmp_path_factory.mktemp("home")
    write_tiny_bundle(folder / "traces").rename(folder / "traces" / "run")
    write_tiny_bundle(folder / "other").rename(folder / "my run")
    (folder / "other").rmdir()
    first = _Bash(folder)
    assert "completion installed" in first.say("profile-sd3 --install-completion")
    first.close()
    shell = _Bash(folder)
    yield shell.words
    shell.close()


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("--section idle,ro\t", ["--section", "idle,roofline", "X"]),
        ("--section=ro\t", ["--section=roofline", "X"]),
        ("traces/run --submodule tr\t", ["traces/run", "--submodule", "transformer", "X"]),
        ("--submodule vae,tr\t", ["--submodule", "vae,transformer", "X"]),
        ("tra\t", ["traces/run", "X"]),
        ("my\t", ["my run", "X"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_tab_completes(complete: Callable[[str], list[str]], typed: str, words: list[str]) -> None:
    """Sections, behind a comma and behind the sign of equality; submodules of the named run, else
    of the newest; runs, through the folder that they are in, also under names with spaces."""
    assert complete(f"profile-sd3 analyze {typed}") == ["profile-sd3", "analyze", *words]


def test_tab_completes_a_placement(complete: Callable[[str], list[str]]) -> None:
    """`--place` gets the submodule and as much as the run's devices have in common, without a space
    behind it."""
    line = complete("profile-sd3 predict traces/run --place tr\trbln:0")
    assert line == ["profile-sd3", "predict", "traces/run", "--place", "transformer=rbln:0X"]
