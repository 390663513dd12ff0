"""What several pipelines of a run have loaded: all that was there at once, each part once."""

from __future__ import annotations

import pytest

import profiler
from profiler.analysis.analyze import analyze
from profiler.capture import Options, Session
from profiler.capture.run_info import LoadedPart, LoadedWeights

pytestmark = pytest.mark.torch


class Held:
    """What has weights."""


def part(submodule, size, holder, device="cpu:0"):
    import weakref

    return LoadedPart(submodule, device, size, weakref.ref(holder))


def test_parts_of_one_name_add_up_and_each_counts_once():
    """Two pipelines that have one text encoder and a transformer each."""
    shared, first, second = Held(), Held(), Held()
    weights = LoadedWeights()
    weights.add([part("text_encoder", 10, shared), part("transformer", 100, first)])
    weights.add([part("text_encoder", 10, shared), part("transformer", 30, second)])
    weights.add([part("transformer_2", 30, second, "cpu:1")])
    assert [weights.of_submodule(n) for n in ("text_encoder", "transformer", "transformer_2")] == [
        {"weight_bytes": 10},
        {"weight_bytes": 130},
        {"weight_bytes": 30, "shared_weight_bytes": 30},
    ]
    assert weights.of_device("cpu:0") == {"weight_bytes": 140}


def test_what_is_gone_makes_room():
    """The most that was there at once, not the sum of what came and went."""
    weights = LoadedWeights()
    for size in (70, 100, 50):
        holder = Held()
        weights.add([part("unet", size, holder)])
        del holder
    assert weights.of_submodule("unet") == {"weight_bytes": 100}
    assert weights.of_device("cpu:0") == {"weight_bytes": 100}


def test_a_part_that_does_not_tell():
    """Of its submodule and its device nothing is known, of others all."""
    holders = Held(), Held()
    weights = LoadedWeights()
    weights.add([part("vae", None, holders[0]), part("unet", 5, holders[1], "cpu:1")])
    assert (weights.of_submodule("vae"), weights.of_device("cpu:0")) == ({}, {})
    assert (weights.of_submodule("unet"), weights.of_device("cpu:1")) == (
        {"weight_bytes": 5},
        {"weight_bytes": 5},
    )


def test_two_pipelines_in_one_run(tmp_path):
    """The manifest and the report have both transformers, and each one's profiled sessions."""
    torch = pytest.importorskip("torch", reason="needs the torch extra")

    class Pipeline:
        def __init__(self, width):
            self.transformer = torch.nn.Linear(width, width, bias=False)

        def __call__(self):
            size = self.transformer.in_features
            return self.transformer(torch.ones(1, size))

    pipes = Pipeline(4), Pipeline(8)
    session = Session.open(Options(), tmp_path)
    for pipe in pipes:
        session.attach(pipe)
    for pipe in (*pipes, pipes[0]):
        pipe()
    run = profiler.load(session.close())
    known = {
        name: (one.weight_bytes, one.profiled_sessions) for name, one in run.info.submodules.items()
    }
    assert known == {"transformer": (4 * 16, 2), "transformer@Pipeline": (4 * 64, 1)}
    devices = analyze(run).devices.select("device", "weight_bytes").rows()
    assert devices == [("cpu:0", 4 * (16 + 64))]
