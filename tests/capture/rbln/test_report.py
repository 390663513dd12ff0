"""What the terminal says of a run on RBLN's runtimes, recorded on the fake `rebel`."""

from __future__ import annotations

import pytest

from profiler.analysis import extent
from profiler.analysis.analyze import analyze
from profiler.capture import FakeClock
from tests.report.reader import answers, in_columns, plain
from tests.report.rendered import opened

from .fake_rebel import FakeRebel, RBLNStableDiffusion3Pipeline
from .test_operators import ON_ONE, START, record


@pytest.mark.parametrize("width", [80, 120])
def test_its_lines_answer_ten_questions(tmp_path, monkeypatch, width):
    """Two NPUs, one of them with T5 alone: busy shares, the shapes of commands, what it was."""
    rebel = FakeRebel(FakeClock(START), tmp_path)
    rebel.install(monkeypatch)
    monkeypatch.delenv("RBLN_PROFILER", raising=False)
    run = record(RBLNStableDiffusion3Pipeline(rebel, ON_ONE), rebel, tmp_path)
    analysis = analyze(run)
    text = opened(analysis, width, begin_ns=extent(run)[0])
    assert len(text.splitlines()) <= 40
    assert max(map(len, text.splitlines())) <= width
    found = plain(in_columns(text))
    for question, words in answers(analysis).items():
        for word in words:
            assert word in found, f"{question} {word!r} is not in\n{text}"
