"""Calls of several threads at once: each has its own operators, or a drop that counts it and says
why it has none, in the manifest and in the report."""

from __future__ import annotations

import threading
from pathlib import Path

import polars as pl
import pytest

import profiler
from tests.runs import told

torch = pytest.importorskip("torch", reason="needs the torch extra")
pytestmark = pytest.mark.torch

THREADS, CALLS = 3, 10


class Transformer(torch.nn.Module):
    """In each call it waits for the other threads', once at its begin and once at its end."""

    def __init__(self, turn):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.turn = turn

    def forward(self, hidden_states):
        self.turn.wait(timeout=120)
        found = self.linear(hidden_states)
        self.turn.wait(timeout=120)
        return found


class Pipeline:
    def __init__(self, turn):
        self.transformer = Transformer(turn)

    def __call__(self, rows):
        return self.transformer(torch.ones(rows, 4))


def test_each_call_of_several_threads_has_its_operators_or_is_told(tmp_path: Path, cli):
    """Thirty calls, three at a time: whoever has operators has those of its own call, once; whoever
    has none is counted in a drop with a reason."""
    pipeline = Pipeline(threading.Barrier(THREADS))

    def work():
        with torch.no_grad():
            for _ in range(CALLS):
                pipeline(2)

    with profiler.profile(pipeline, out=tmp_path) as run:
        threads = [threading.Thread(target=work) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=120)
    loaded = profiler.load(run.path)
    assert len(loaded.calls) == THREADS * CALLS
    traced = loaded.calls.filter(pl.col("ops_traced"))["call"].to_list()
    own = loaded.commands.filter((pl.col("op_type") == "aten::linear") & (pl.col("call") >= 0))
    assert own["call"].sort().to_list() == sorted(traced)
    assert set(own["layer"].cast(pl.String)) <= {"linear"}
    drops = [drop for drop in loaded.info.drops if drop.kind == "untraced_call"]
    assert sum(drop.count for drop in drops) == THREADS * CALLS - len(traced)
    assert {drop.where for drop in drops} <= {"transformer"}
    assert all("they have no operators, because " in told(drop) for drop in drops)
    code, out, _ = cli("analyze", run.path, "--no-html", "--full")
    assert code == 0
    text = " ".join(out.split())
    assert all(f"in transformer: {drop.count} call" in text for drop in drops)
