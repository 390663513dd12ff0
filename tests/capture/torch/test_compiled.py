"""Profiling makes torch.compile compile nothing anew, however often the pipeline is called."""

from __future__ import annotations

import pytest

import profiler

pytest.importorskip("diffusers", reason="needs the torch extra")
torch = pytest.importorskip("torch", reason="needs the torch extra")

from profiler.capture.torch.modules import ModuleRanges, close_range, open_range  # noqa: E402
from tests.capture import tiny_diffusers as tiny  # noqa: E402 - it imports them

pytestmark = pytest.mark.torch

CALLS = 11  # torch gives up after 8 compilations of one frame
EAGER = {"backend": "eager", "fullgraph": True}


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.linear = torch.nn.LayerNorm(4), torch.nn.Linear(4, 4)

    def forward(self, x):
        return x + self.linear(self.norm(x))


class Blocks(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.blocks = Block(), torch.nn.ModuleList([Block(), Block()])

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return x


def wrapped(root):
    return torch.compile(root, **EAGER)


def in_place(root):
    root.compile(**EAGER)
    return root


def blocks(root):
    """As diffusers' compile_repeated_blocks."""
    for block in root.blocks:
        block.compile(**EAGER)
    return root


def wrapped_block(root):
    root.blocks[0] = torch.compile(root.blocks[0], **EAGER)
    return root


def forward(root):
    root.forward = torch.compile(root.forward, **EAGER)
    return root


def inner_forward(root):
    root.first.forward = torch.compile(root.first.forward, **EAGER)
    return root


def function(root):
    """One of the script's that calls modules: nobody can know of it."""
    first = root.first
    both = torch.compile(lambda x: first.linear(first.norm(x)), **EAGER)
    first.forward = lambda x: x + both(x)
    return root


def graphs(rewrite, *, profiled):
    """How many graphs torch compiled in `CALLS` calls, each as one call of a pipeline."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    root = rewrite(Blocks().eval())
    ranges = ModuleRanges(root)
    with torch.no_grad():
        for _ in range(CALLS):
            if profiled:
                ranges.attach()
                open_range("call")
            root(torch.ones(2, 4))
            if profiled:
                close_range("call")
                ranges.detach()
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


@pytest.mark.parametrize(
    "rewrite", [wrapped, in_place, blocks, wrapped_block, forward, inner_forward, function]
)
def test_nothing_is_compiled_anew(rewrite):
    """As many graphs are compiled as without us, and `fullgraph` holds to the last call."""
    expected = graphs(rewrite, profiled=False)
    assert expected > 0
    assert graphs(rewrite, profiled=True) == expected


def generate(pipeline):
    generator = torch.Generator().manual_seed(1)
    options = {"num_inference_steps": 1, "max_sequence_length": 16, "output_type": "latent"}
    pipeline("a cat", generator=generator, **options, **tiny.SIZE)


def test_a_compiled_transformer_is_compiled_once(tmp_path):
    """In a pipeline that is called again and again, as `torch.compile` returned it: its hooks lie
    outside, and its wrapper is what is traced."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    pipeline = tiny.flux()
    with profiler.profile(pipeline, out=tmp_path) as run:
        pipeline.transformer = torch.compile(pipeline.transformer, **EAGER)
        for _ in range(CALLS):
            generate(pipeline)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    loaded = profiler.load(run.path)
    assert loaded.drops == ()
    assert loaded.calls["ops_traced"].all()


def test_what_is_compiled_is_one_piece():
    """Neither below torch.compile's wrapper nor below a module with a compiled method is anything
    hooked; below one that torch must not compile all is."""

    def hooked(root):
        ranges = ModuleRanges(root)
        ranges.attach()
        count = len(ranges)
        ranges.detach()
        return count

    chain = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Sequential(torch.nn.ReLU()))
    assert hooked(chain) == 3
    assert hooked(torch.compile(chain, **EAGER)) == 0
    chain[1].forward = torch.compile(chain[1].forward, **EAGER)
    assert hooked(chain) == 2
    chain[1].forward = torch.compiler.disable(chain[1].forward)
    assert hooked(chain) == 3


def test_hooks_have_the_same_ids_each_time():
    """What compiled code is guarded by: the ids of a module's hooks; nothing is left behind."""
    chain = torch.nn.Sequential(torch.nn.ReLU())
    chain[0].register_forward_pre_hook(lambda *_: None)
    before = dict(chain[0]._forward_pre_hooks)
    ranges, found = ModuleRanges(chain), []
    for _ in range(2):
        ranges.attach()
        found.append([list(chain[0]._forward_pre_hooks), list(chain[0]._forward_hooks)])
        assert list(chain[0]._forward_hooks_always_called) == found[-1][1]
        ranges.detach()
    assert found[0] == found[1]
    assert found[0][0][-1] == next(iter(before))  # ours comes first
    assert chain[0]._forward_pre_hooks == before
    assert not chain[0]._forward_hooks
    assert not chain[0]._forward_hooks_always_called
