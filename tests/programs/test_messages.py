"""What a program's user reads on stderr: sentences, and nothing that leaves them wondering."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.capture.switched_on import drops, labels

pytest.importorskip("torch", reason="needs the torch extra")
pytestmark = pytest.mark.torch

HERE = Path(__file__).parent


def _said(error):
    return [line for line in error.splitlines() if line.startswith("profile-sd3: ")]


def test_a_line_of_torch_is_explained(scripts):
    """torch prints an error that is none when its profiler first starts in a thread: we say so,
    once, and every call has its operators."""
    program = (HERE / "in_a_thread.py").read_text(encoding="utf-8")
    plain = scripts.run(program, RBLN_PROFILER=None)
    ours = scripts.run(program)
    assert (ours.code, ours.out) == (0, plain.out)
    assert len(labels(ours.bundle)) == 2
    assert drops(ours.bundle) == []
    explained, where = _said(ours.err)
    assert "External init callback must run in same thread" in explained
    assert "harmless" in explained
    assert str(ours.bundle) in where


def test_ctrl_c_in_our_first_use(scripts):
    """It ends the program as without us, and one sentence says that there is no bundle."""
    program = (HERE / "interrupted_first_use.py").read_text(encoding="utf-8")
    ours = scripts.run(program)
    assert ours.code == -2  # by SIGINT, as Python dies of it
    assert ours.out == "called\n"
    sentence = "profile-sd3: interrupted in the first use of a model: nothing was recorded"
    assert ours.bundles == []
    assert _said(ours.err) == [sentence]


def test_ctrl_c_behind_the_first_use(scripts):
    """Once a call has returned, there is a bundle."""
    program = (HERE / "interrupted_first_use.py").read_text(encoding="utf-8")
    later = program.replace("pressed = False", "pressed = True")
    ours = scripts.run(f"{later}raise KeyboardInterrupt\n")
    assert ours.code == -2
    assert len(labels(ours.bundle)) == 1
