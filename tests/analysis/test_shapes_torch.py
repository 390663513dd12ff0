"""Shapes of a trace that the installed torch records now, against torch's own totals."""

from __future__ import annotations

import pytest

from profiler.analysis import parse_shapes
from profiler.analysis.analyze import analyze
from profiler.importers import import_trace
from profiler.tools.sources import load

torch = pytest.importorskip("torch", reason="needs the torch extra")
pytestmark = pytest.mark.torch


class _Block(torch.nn.Module):
    """Attention and a feed-forward part behind a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(32)
        self.inner, self.outer = torch.nn.Linear(32, 64), torch.nn.Linear(64, 32)

    def forward(self, x):
        heads = self.norm(x).view(2, -1, 4, 8).transpose(1, 2)
        attended = torch.nn.functional.scaled_dot_product_attention(heads, heads, heads)
        return self.outer(torch.relu(self.inner(attended.transpose(1, 2).reshape(x.shape))))


@pytest.fixture(scope="module")
def recording():
    """Five calls of three blocks, with another sequence length in the last of them."""
    blocks = torch.nn.Sequential(*(_Block() for _ in range(3)))
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.no_grad():
        blocks(torch.ones(2, 16, 32))
        with torch.profiler.profile(
            activities=activities, with_stack=True, record_shapes=True
        ) as made:
            for length in (16, 16, 16, 16, 24):
                blocks(torch.ones(2, length, 32))
    return made


@pytest.fixture(scope="module")
def shapes(recording, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trace")
    recording.export_chrome_trace(str(folder / "trace.json"))
    return analyze(load(import_trace(folder / "trace.json", folder / "runs"))).shapes


def _totals(rows, *names):
    """Executions and ms of each key."""
    sums: dict[object, tuple[int, float]] = {}
    for row in rows:
        key = tuple(row[name] for name in names)
        count, ms = sums.get(key, (0, 0.0))
        sums[key] = (count + row["executions"], ms + row["total_ns"] / 1e6)
    return sums


def test_totals_by_type_are_those_of_key_averages(recording, shapes):
    """Each operator that no other one calls has torch's own count and time."""
    known = {one.key: one for one in recording.key_averages()}
    found = _totals(shapes.to_dicts(), "op_type")
    expected = {"aten::linear", "aten::layer_norm", "aten::relu"}
    assert {(name,) for name in (*expected, "aten::scaled_dot_product_attention")} <= found.keys()
    for (name,), (count, ms) in found.items():
        alone = known[name].count == count
        assert alone or name not in expected
        if alone:
            assert ms == pytest.approx(known[name].cpu_time_total / 1e3, rel=1e-3, abs=1e-3)


def test_totals_by_shape_are_those_of_key_averages(recording, shapes):
    """The same by the dims of the inputs: two lengths are two rows, three blocks are one."""
    known = {
        (one.key, str([dims for dims in one.input_shapes if dims])): one
        for one in recording.key_averages(group_by_input_shape=True)
    }
    rows = shapes.filter(
        shapes["op_type"].is_in(["aten::linear", "aten::scaled_dot_product_attention"])
    )
    for row in rows.to_dicts():
        dims = [list(tensor.dims) for tensor in parse_shapes(row["shapes"]).inputs]
        one = known[row["op_type"], str(dims)]
        assert row["executions"] == one.count
        expected = one.cpu_time_total / 1e3
        assert row["total_ns"] / 1e6 == pytest.approx(expected, rel=1e-3, abs=1e-3)
    labels = set(rows["label"])
    assert {"linear 32×32×64 fp32", "linear 48×32×64 fp32"} < labels
    assert {"attention B2 H4 S16 D8 fp32", "attention B2 H4 S24 D8 fp32"} < labels
    assert rows["executions"].sum() == 3 * 5 * 3
