"""Python's search for garbage in commands that make their tables once and then end."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

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


_LEFT = """
import sys
from profiler.cli.terminal import keep_to_the_end, leave
class Told:
    def __init__(self, name): self.name = name
    def __del__(self): print(self.name)
if sys.argv[1] == "kept":
    keep_to_the_end()
leave(Told("first"))
leave(Told("second"))
print("end")
"""


@pytest.mark.parametrize(
    ("way", "printed"), [("usual", "first\nsecond\nend\n"), ("kept", "second\nend\n")]
)
def test_the_first_of_what_is_left_is_never_freed(way, printed):
    """Where the command keeps to the end, the first; everything else as soon as it can be."""
    command = [sys.executable, "-c", _LEFT, way]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == printed
    assert done.stderr == ""


@pytest.mark.parametrize(("way", "printed"), [("usual", "end\nfound\n"), ("kept", "end\n")])
def test_nothing_is_looked_for_at_the_end_of_the_process(way, printed):
    """What a command made is left to the system; what it printed is out."""
    command = [sys.executable, "-c", _CIRCLE, way]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == printed
    assert done.stderr == ""


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
