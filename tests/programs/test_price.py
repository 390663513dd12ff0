"""What a run says it cost, against the script's own stop watch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.capture.switched_on import CALLS_ONLY, whole

pytest.importorskip("diffusers", reason="needs the torch extra")
pytestmark = pytest.mark.torch

PROGRAM = (Path(__file__).parent / "first_pipe.py").read_text(encoding="utf-8")


def test_the_first_use_is_counted(scripts):
    """`traced_ns` is what the script saw of its first `pipe()`: attaching, opening the run and all
    of our hooks are in it and in `hooks_ns`. What is left lies between the two clocks."""
    ended = scripts.run(PROGRAM, **CALLS_ONLY)
    assert ended.code == 0, ended.err
    overhead, seen_ns = whole(ended.bundle).info.overhead, int(ended.out)
    assert 0.8 * seen_ns < overhead.traced_ns <= seen_ns
    assert overhead.hooks_ns < overhead.traced_ns
    assert 0 < overhead.untraced_low_ns <= overhead.untraced_ns <= overhead.untraced_high_ns
