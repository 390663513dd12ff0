"""Two instances of one class that are compiled in two ways: nothing more is compiled under us."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs the torch extra")

import profiler  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 4)
        self.second = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def wrapped(backend, **options):
    return lambda module: torch.compile(module, backend=backend, **options)


def in_place(backend, **options):
    def compiled(module):
        module.compile(backend=backend, **options)
        return module

    return compiled


def by_method(backend):
    def compiled(module):
        module.forward = torch.compile(module.forward, backend=backend)
        return module

    return compiled


WAYS = {
    "as a module, in place": (wrapped("eager"), in_place("eager")),
    "by two backends": (wrapped("eager"), wrapped("aot_eager")),
    "in place by two backends": (in_place("eager"), in_place("aot_eager")),
    "whole, dynamic": (in_place("eager", fullgraph=True), in_place("eager", dynamic=True)),
    "as a module, by method": (wrapped("eager"), by_method("eager")),
}


class Pipeline:
    def __init__(self, ways):
        self.prior = ways[0](Net().eval())
        self.decoder = ways[1](Net().eval())

    @torch.no_grad()
    def __call__(self):
        x = torch.ones(2, 4)
        for _ in range(3):
            x = self.decoder(self.prior(x))


def counted(ways, run):
    """Graphs and frames that dynamo has counted when `run` has called a new pipeline."""
    counters = torch._dynamo.utils.counters
    torch._dynamo.reset()
    counters.clear()
    run(Pipeline(ways))
    return dict(counters["stats"]), dict(counters["frames"])


@pytest.fixture(autouse=True)
def _as_before():
    yield
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()


@pytest.mark.parametrize("ops", [pytest.param("none", marks=pytest.mark.nightly), "all"])
@pytest.mark.parametrize("name", WAYS)
def test_nothing_more_is_compiled(tmp_path, name, ops):
    """Dynamo counts as many graphs and frames as without capture, with operators and without."""

    def captured(pipeline):
        with profiler.profile(pipeline, out=tmp_path, ops=ops):
            pipeline()

    ways = WAYS[name]
    assert counted(ways, captured) == counted(ways, lambda pipeline: pipeline())
