"""Work that is alike is described once: with the same result as one by one."""

from __future__ import annotations

import numpy as np
import pytest

from profiler.importers import import_trace
from profiler.importers.kineto.commands import CommandWriter
from profiler.tools.sources import load
from tests.corpus import CORPUS, needs_corpus

pytestmark = needs_corpus


@pytest.mark.parametrize(
    "name",
    [
        "torch_graph/sglang_decode",  # replays, with captures beside them
        "hta/benchmark_result_2869224_1695835535_trace.json.gz",  # training
        "torch_multirank/trace_filter/sampled_rank-0.json.gz",  # collectives
        "wild/switch_moe_a100.json.gz",
    ],
)
def test_commands_are_those_that_are_described_one_by_one(tmp_path, monkeypatch, name):
    """Graph replays, phases of training, collectives, and operators of several kernels."""
    import_trace(CORPUS / name, tmp_path / "alike")
    monkeypatch.setattr(
        CommandWriter, "_kinds_of_work", lambda writer: np.arange(len(writer.launches))
    )
    import_trace(CORPUS / name, tmp_path / "single")
    alike, single = (load(tmp_path / way).commands for way in ("alike", "single"))
    assert len(alike) > 0
    assert alike.equals(single)
