"""The command line in this process, as a user types it, and what a refusal looks like."""

from __future__ import annotations

import sys

import pytest

from profiler.cli.main import run


def run_command(*arguments: object) -> int:
    """The exit code of `profile-sd3 ARGUMENTS`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["profile-sd3", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            run()
    return int(stopped.value.code or 0)


def refused(result: tuple[int, str, str], *words: str) -> str:
    """The sentence of a refusal: of exit code, stdout and stderr, 2 and one line that holds all
    `words`."""
    code, _, err = result
    assert code == 2, err
    assert err.startswith("profile-sd3: ")
    assert err.endswith("\n")
    assert err.count("\n") == 1, err
    for word in words:
        assert word in err
    return err
