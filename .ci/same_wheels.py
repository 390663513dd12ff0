"""Build the wheel twice, in two copies of the committed tree at different places, and compare.

    python .ci/same_wheels.py [OUT]

Exit code 1, with the files that differ, if the two are not the same bytes. The time of all files is
that of the commit (SOURCE_DATE_EPOCH). `OUT` gets the wheel.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path


def main() -> int:
    root = Path(__file__).resolve().parents[1]
    moment = _run("git", "-C", root, "log", "-1", "--format=%ct").strip()
    with tempfile.TemporaryDirectory() as scratch:
        wheels = [_built(root, Path(scratch) / name, moment) for name in ("one", "other/deeper")]
        sums = [hashlib.sha256(wheel.read_bytes()).hexdigest() for wheel in wheels]
        for wheel, known in zip(wheels, sums, strict=True):
            print(f"{known}  {wheel.name}")
        if len(set(sums)) == 1:
            if sys.argv[1:]:
                Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
                shutil.copy(wheels[0], sys.argv[1])
            return 0
        first, second = map(_contents, wheels)
        print("differ:", *sorted(n for n in {**first, **second} if first.get(n) != second.get(n)))
    return 1


def _built(root: Path, place: Path, moment: str) -> Path:
    """The wheel of the commit, built in a clone at `place`."""
    _run("git", "clone", "-q", root, place / "tree")
    environment = {**os.environ, "SOURCE_DATE_EPOCH": moment}
    pip = (sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", place / "wheels")
    _run(*pip, *os.environ.get("SAME_WHEELS_PIP", "").split(), place / "tree", env=environment)
    (wheel,) = (place / "wheels").glob("*.whl")
    return wheel


def _contents(wheel: Path) -> dict[str, tuple[bytes, tuple[int, ...]]]:
    with zipfile.ZipFile(wheel) as archive:
        return {one.filename: (archive.read(one), one.date_time) for one in archive.infolist()}


def _run(*command: object, env: dict[str, str] | None = None) -> str:
    done = subprocess.run([*map(str, command)], check=True, capture_output=True, text=True, env=env)
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
