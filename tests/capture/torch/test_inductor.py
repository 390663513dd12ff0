"""A module that inductor compiles for the CPU: a layer a kernel, and no operator `dynamo`."""

from __future__ import annotations

import polars as pl
import pytest

torch = pytest.importorskip("torch", reason="needs the torch extra")

import profiler  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nightly, pytest.mark.filterwarnings("ignore")]


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(8)
        self.fc = torch.nn.Linear(8, 8)

    def forward(self, x):
        return torch.nn.functional.gelu(self.fc(self.norm(x)))


class Pipeline:
    def __init__(self):
        self.transformer = torch.compile(Net().eval())

    @torch.no_grad()
    def __call__(self):
        return self.transformer(self.transformer(torch.ones(512, 8)))


def test_a_layer_for_each_kernel(tmp_path):
    """The first call, which compiles, and the second hold the same commands: a kernel, the product
    between, a kernel; compiling is a compilation."""
    torch._dynamo.reset()
    pipeline = Pipeline()
    with profiler.profile(pipeline, out=tmp_path) as capture:
        pipeline()
    run = profiler.load(capture.path)
    for call in (0, 1):
        commands = run.commands.filter(pl.col("call") == call).sort("start_ns")
        layers = commands["layer"].cast(pl.String).to_list()
        assert [layer.split("::")[0] for layer in layers] == [
            "Net/inductor",
            "Net/fx",
            "Net/inductor",
        ]
        assert len(set(layers)) == 3
        assert "dynamo" not in set(commands["op_type"].cast(pl.String))
    assert [found.call for found in run.info.compilations] == [0]
