"""Sessions of a script's own whose runs are interrupted in our code: the next ones are recorded."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import profiler
from profiler.capture import Settings, SwitchedOn, open_session
from tests.capture.interrupting import Interruptions
from tests.capture.onnx_pipelines import gathering, opened

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")


@pytest.fixture
def process():
    """One that is left as it was, also where a test fails."""
    process = SwitchedOn(open_session)
    yield process
    process.switch_off()


@pytest.mark.parametrize(
    ("ops", "stride"),
    [
        ("none", 101),
        ("all", 397),
        pytest.param("none", 2, marks=pytest.mark.nightly),
        pytest.param("all", 7, marks=pytest.mark.nightly),
    ],
)
def test_wherever_a_run_is_interrupted_the_next_is_recorded(
    tmp_path: Path, process: SwitchedOn, ops: str, stride: int
):
    """An exception of a signal's handler, at any place of our code around the first run of a
    session, reaches the script; the second run is a call, with its operators where they are
    traced."""
    model = tmp_path / "gather.onnx"
    onnx.save(gathering(), str(model))
    feeds = {"x": np.ones((2, 3), np.float32), "i": np.array([0])}
    at, interruptions = stride // 2, Interruptions()
    while True:
        process.switch_on(Settings.of({"out": tmp_path / str(at), "ops": ops}))
        session = opened(str(model))
        found = interruptions.run(at, session.run, None, feeds)
        (result,) = session.run(None, feeds)
        assert (result == 2).all()
        path = process.switch_off()
        assert path is not None, interruptions.where
        last = profiler.load(path).calls.row(-1, named=True)
        assert (last["submodule"], last["ops_traced"]) == ("gather", ops == "all"), (
            interruptions.where
        )
        if not found:
            break
        at += stride
    assert at > 200
