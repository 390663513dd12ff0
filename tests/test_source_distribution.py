"""The source distribution holds what git holds, whatever else lies in the clone."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

_REPOSITORY = Path(__file__).parents[1]
_BUILD = "import sys; from scikit_build_core.build import build_sdist; build_sdist(sys.argv[1])"
_LEFT_BY_WORK = (
    *(".venv/lib/python3.12/site-packages/numpy/tests/test_a.py", ".venv/bin/profiler/x"),
    *("build/cp312/x.o", "profiler/trace/_core.abi3.so", "profiler/__pycache__/a.pyc"),
    *("traces/one/host.pb", "sample_traces/tiny_two_devices/report.html"),
)


def _tracked() -> list[str]:
    """The files of the clone that git knows, as they are."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=_REPOSITORY, capture_output=True, text=True, check=True
    )
    names = filter(None, listed.stdout.split("\0"))
    return [name for name in names if (_REPOSITORY / name).is_file()]


def test_it_holds_what_git_holds(tmp_path):
    """Every file of git's is in it and no other, where an environment, a build and runs lie in the
    clone, too."""
    pytest.importorskip("scikit_build_core", reason="needs the dev extra")
    if not (_REPOSITORY / ".git").exists():
        pytest.skip("this is no clone")
    clone, tracked = tmp_path / "clone", _tracked()
    for name in (*tracked, *_LEFT_BY_WORK):
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
    for name in tracked:
        shutil.copyfile(_REPOSITORY / name, clone / name)
    for name in _LEFT_BY_WORK:
        (clone / name).write_bytes(b"")
    out = tmp_path / "out"
    subprocess.run([sys.executable, "-c", _BUILD, out], cwd=clone, check=True, capture_output=True)
    (path,) = out.iterdir()
    with tarfile.open(path) as archive:
        members = [member.name for member in archive if not member.isdir()]
    packed = {name.partition("/")[2] for name in members}
    assert packed - {"PKG-INFO"} == set(tracked)
