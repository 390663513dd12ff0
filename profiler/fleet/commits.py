"""Which commit a program ran at, as far as its surroundings tell.

Git is not started: its files are read, so that nothing of a repository's configuration runs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from profiler.errors import InputError

__all__ = ["VARIABLE", "checked_commit", "commit_of"]

VARIABLE = "PROFILE_SD3_COMMIT"
_OF_CI = ("GITHUB_SHA", "CI_COMMIT_SHA", "BUILDKITE_COMMIT", "CIRCLE_SHA1", "GIT_COMMIT")
_NAME = re.compile(r"[\w.+/-]{1,80}")
_HASH = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_REF = re.compile(r"ref: (refs/[\w./+-]{1,250})")
_MOST_BYTES = 4 << 20  # of packed-refs


def commit_of(folder: Path, environment: Mapping[str, str] = os.environ) -> str | None:
    """The commit that variables of the environment name, else that of the git repository around
    `folder`; None where neither tells."""
    for name in (VARIABLE, *_OF_CI):
        told = environment.get(name, "").strip()
        if _NAME.fullmatch(told):
            return told
    return _of_repository(folder)


def checked_commit(text: str) -> str:
    """`text`, if it can name a commit. Raises InputError where it cannot."""
    if not _NAME.fullmatch(text):
        raise InputError(
            f"--commit {text!r:.80} names no commit: give a hash, a tag or a number, 80 characters "
            "at most"
        )
    return text


def _of_repository(folder: Path) -> str | None:
    place = folder.absolute()
    for parent in (place, *place.parents):
        git = parent / ".git"
        if git.is_dir():
            return _head(git, git)
        if git.is_file():  # of a worktree
            named = _line(git).removeprefix("gitdir: ")
            own = (parent / named).resolve()
            common = _line(own / "commondir")
            return _head(own, (own / common).resolve() if common else own)
    return None


def _head(own: Path, common: Path) -> str | None:
    head = _line(own / "HEAD")
    if _HASH.fullmatch(head):
        return head
    ref = _REF.fullmatch(head)
    if ref is None or ".." in ref[1]:
        return None
    loose = _line(own / ref[1]) or _line(common / ref[1])
    return loose if _HASH.fullmatch(loose) else _packed(common / "packed-refs", ref[1])


def _packed(path: Path, ref: str) -> str | None:
    for line in _text(path).splitlines():
        value, _, name = line.partition(" ")
        if name == ref and _HASH.fullmatch(value):
            return value
    return None


def _line(path: Path) -> str:
    return _text(path).partition("\n")[0].strip()


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
