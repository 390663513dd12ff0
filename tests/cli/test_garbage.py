"""Python's search for garbage in commands that make their tables once and then end."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from tests.runs import write_tiny_bundle

_CIRCLE = """
import sys
class Circle:
    def __init__(self): self.own = self
    def __del__(self): print("found")
if sys.argv[1] == "kept":
    from profiler.cli.terminal import keep_to_the_end
    keep_to_the_end()
Circle()
print("end")
"""


@pytest.mark.parametrize(("way", "printed"), [("usual", "end\nfound\n"), ("kept", "end\n")])
def test_nothing_is_looked_for_at_the_end_of_the_process(way, printed):
    """What a command made is left to the system; what it printed is out."""
    command = [sys.executable, "-c", _CIRCLE, way]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == printed
    assert done.stderr == ""


_ENDED = """
import atexit, sys
from profiler.cli.main import main
class Told:
    def __del__(self): print("freed")
told = Told()
atexit.register(print, "at exit")
sys.argv[:] = ["profile-sd3", *sys.argv[1:]]
main()
"""


@pytest.mark.parametrize(
    ("words", "code", "printed"),
    [
        (["analyze", "{run}", "--no-html"], 0, ["at exit"]),
        (["analyze", "{run}/none"], 2, ["at exit"]),
        (["dump", "{run}/none.pb"], 2, ["at exit", "freed"]),
    ],
    ids=["kept", "refused", "usual"],
)
def test_a_process_that_keeps_its_objects_ends_at_once(words, code, printed, tmp_path):
    """Exit functions still run, and output and exit code are those of any command."""
    run = write_tiny_bundle(tmp_path)
    command = [sys.executable, "-c", _ENDED, *(word.format(run=run) for word in words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert [line for line in done.stdout.splitlines() if line in ("at exit", "freed")] == printed
    assert ("for 2 steps" in done.stdout) == (code == 0)
    assert done.stderr.startswith("profile-sd3: ") == (code == 2)


_FREED = """
import resource, sys
if sys.argv[1] == "kept":
    from profiler.cli.terminal import keep_to_the_end
    keep_to_the_end()
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
b"x" * (8 << 20)
before = faults()
for _ in range(20):
    b"x" * (8 << 20)
print(faults() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_freed_memory_serves_the_next_array():
    """The pages of 8 MiB are made once, not again for each array: the usual way needs thousands."""
    faults = {
        way: int(subprocess.check_output([sys.executable, "-c", _FREED, way], text=True))
        for way in ("usual", "kept")
    }
    assert faults["kept"] < 100 < faults["usual"]


_RETURNED = """
import re
from pathlib import Path
from profiler.cli import terminal
resident = lambda: int(re.search(r"RssAnon:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
terminal.keep_to_the_end()
b"x" * (260 << 20)  # it has been large
arrays = [b"x" * (1 << 20) for _ in range(64)]
del arrays[:-1]  # a hole below the last
before = resident()
terminal.return_freed()
print(before - resident())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="malloc_trim is glibc's")
def test_memory_that_an_import_freed_goes_back_to_the_system():
    """Of 64 MiB, the freed 63 are no longer resident, although the last one is still in use."""
    returned = subprocess.check_output([sys.executable, "-c", _RETURNED], text=True)
    assert int(returned) > 60 << 10
