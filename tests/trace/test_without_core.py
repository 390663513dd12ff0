"""Who imports the source as it lies in a clone, without a compiled core, is told what to do."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import profiler
from tests.command_line import refused

_PACKAGE = Path(profiler.__file__).parent
_SAMPLE = Path(__file__).parents[2] / "sample_traces" / "tiny_two_devices"
# An editable installation finds the repository's package, not the folder's.
_FROM_HERE = """
import sys
sys.meta_path = [f for f in sys.meta_path if "ditable" not in type(f).__name__ + type(f).__module__]
sys.path.insert(0, "")
"""


def _run(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _FROM_HERE + program]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_a_source_tree(tmp_path):
    """`import profiler` works; reading a trace is one sentence, in Python a ProfilerError."""
    target = tmp_path / "profiler"
    shutil.copytree(_PACKAGE, target, ignore=shutil.ignore_patterns("_core*.so", "__pycache__"))
    load = f"import profiler\ntry: profiler.load({str(_SAMPLE)!r})\n"
    load += "except profiler.ProfilerError as error: print(error)"
    done = _run(tmp_path, load)
    assert done.stderr == ""
    for part in ("the compiled core", str(target / "trace"), "pip install ."):
        assert part in done.stdout
    words = ["profile-sd3", "analyze", str(_SAMPLE), "--no-html"]
    done = _run(tmp_path, f"sys.argv = {words}\nfrom profiler.cli.main import main\nmain()")
    refused((done.returncode, done.stdout, done.stderr), "the compiled core")
