"""`profiler.files`: types are learned by one thread while others wait."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import profiler
from profiler.files import converted, decoded, decoder_of

_HALF_LEARNED = """
from __future__ import annotations

import threading

import msgspec

from profiler.files import converted, decoded

_TEXT, _VALUE = b'{"inner": {"number": 1}}', {"inner": {"number": 1}}
read = []
readers = [
    threading.Thread(target=lambda: read.append(decoded(_TEXT, Outer).inner.number)),
    threading.Thread(target=lambda: read.append(converted(_VALUE, Outer).inner.number)),
]


class Outer(msgspec.Struct):
    inner: Inner


def others_read():
    for thread in readers:
        if thread.ident is None:
            thread.start()
            thread.join(0.1)
    return int


class Inner(msgspec.Struct):
    number: others_read()


read.append(decoded(_TEXT, Outer).inner.number)
for thread in readers:
    thread.join()
print(*read)
"""


def test_others_wait_for_a_type() -> None:
    """Two threads read a struct while a third has learned half of it: each gets its values. Where
    they do not wait, msgspec follows a pointer to nothing."""
    command = [sys.executable, "-c", _HALF_LEARNED]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "1 1 1\n")


_FORKED = """
from __future__ import annotations

import os
import threading

import msgspec

from profiler.files import decoded

_TEXT = b'{"inner": {"number": 1}}'
child = []


class Outer(msgspec.Struct):
    inner: Inner


def forked():
    pid = os.fork()
    if pid == 0:
        os._exit(decoded(_TEXT, Outer).inner.number)
    child.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


forking = threading.Thread(target=forked)


def others_fork():
    if forking.ident is None:
        forking.start()
        forking.join(0.1)
    return int


class Inner(msgspec.Struct):
    number: others_fork()


decoded(_TEXT, Outer)
forking.join()
print(*child)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_fork_waits_for_a_type() -> None:
    """A thread forks while another has learned half of a struct: the child, which has no such
    thread, reads the struct, and waits for nobody."""
    command = [sys.executable, "-c", _FORKED]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "1\n")


def test_values_and_errors() -> None:
    """Text and plain values become the type, or raise as msgspec does; lenient ones are told apart
    from strict ones; a type has one decoder."""
    assert decoded(b'{"a": 1}', dict[str, int]) == converted({"a": 1}, dict[str, int]) == {"a": 1}
    assert decoded('"7"', int, strict=False) == 7
    with pytest.raises(msgspec.ValidationError, match="Expected `int`"):
        decoded('"7"', int)
    with pytest.raises(msgspec.ValidationError, match="Expected `int`"):
        converted("7", int)
    assert decoder_of(list[int]) is decoder_of(list[int])


def _typed_by_itself(tree: ast.Module) -> list[int]:
    """The lines on which msgspec is given a type past `profiler.files`."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [
        call.lineno
        for call in calls
        if ast.unparse(call.func) == "msgspec.convert"
        or (ast.unparse(call.func) == "msgspec.json.Decoder" and (call.args or call.keywords))
        or (
            ast.unparse(call.func) == "msgspec.json.decode"
            and (len(call.args) > 1 or any(one.arg == "type" for one in call.keywords))
        )
    ]


def test_types_are_learned_in_one_place() -> None:
    """No other module of the package gives msgspec a type; the rule sees those that do."""
    folder = Path(profiler.__file__).parent
    texts = {
        path.relative_to(folder).as_posix(): path.read_text("utf-8")
        for path in folder.rglob("*.py")
    }
    found = {
        name: _typed_by_itself(ast.parse(text)) for name, text in texts.items() if "msgspec" in text
    }
    assert [name for name, lines in found.items() if lines] == ["files.py"]
    broken = "msgspec.json.decode(a, type=B)\nmsgspec.json.Decoder(B)\nmsgspec.convert(a, B)\n"
    assert sorted(_typed_by_itself(ast.parse(broken))) == [1, 2, 3]
