"""Threads that use models for the first time at the same moment: no call of any is missing."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.capture.switched_on import CALLS_ONLY, drops, labels

pytest.importorskip("torch", reason="needs the torch extra")
pytestmark = pytest.mark.torch

HERE = Path(__file__).parent


def test_first_calls_of_several_threads(scripts):
    """Two calls of each of three modules, and of a method that enters a fourth one."""
    ended = scripts.run(
        (HERE / "threads_start_together.py").read_text(encoding="utf-8"), **CALLS_ONLY
    )
    assert ended.code == 0, ended.err
    found = Counter((name, stage) for name, stage, *_ in labels(ended.bundle))
    assert sorted(found.values()) == [2, 2, 2, 2]
    assert [name for name, stage in found if stage == "decode"] == ["vae"]
    assert drops(ended.bundle) == []
