"""The first call of a model waits for no import of ours and no look at all of the garbage."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.capture.switched_on import CALLS_ONLY, labels

pytest.importorskip("torch", reason="needs the torch extra")
pytestmark = pytest.mark.torch

PROGRAM = (Path(__file__).parent / "first_call.py").read_text(encoding="utf-8")


@pytest.mark.parametrize(("option", "collects"), [("", True), ("gc_off", False)])
def test_what_the_first_call_waits_for(scripts, option, collects):
    """Nothing of ours is imported in it, no full collection is set off, and the script's setting of
    the collector is as it was."""
    ended = scripts.run(PROGRAM, option, **CALLS_ONLY)
    assert ended.out == f"imported [] full collections in our code 0 {collects}\n", ended.err
    assert len(labels(ended.bundle)) == 1
