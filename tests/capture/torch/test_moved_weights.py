"""Offloaded modules: calls and results are those without offload, and what moves weights is a
command of category `dma` with the bytes of these weights, in the module whose weights they are."""

from __future__ import annotations

import polars as pl
import pytest

import profiler
from profiler.capture.torch.modules import moves
from profiler.trace import Offload, OffloadKind

torch = pytest.importorskip("torch", reason="needs the torch extra")
accelerate = pytest.importorskip("accelerate", reason="needs the torch extra")

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:Casting complex:UserWarning")]

CPU = torch.device("cpu")
STEPS = 2
LAYERS = ("blocks.0.up", "blocks.0.down", "blocks.1.up", "blocks.1.down", "proj_out")


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)

    def forward(self, x):
        return x + self.down(self.up(x))


class Transformer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList([Block(), Block()])
        self.proj_out = torch.nn.Linear(8, 8)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.proj_out(x)


class Pipeline:
    def __init__(self, transformer):
        self.transformer = transformer

    @torch.no_grad()
    def __call__(self, x):
        for _ in range(STEPS):
            x = self.transformer(x)
        return x


def size_of(module):
    """Bytes of its parameters, in float32."""
    return sum(4 * parameter.numel() for parameter in module.parameters())


SIZES = {name: size_of(Transformer().get_submodule(name)) for name in LAYERS}
BLOCK = SIZES["blocks.0.up"] + SIZES["blocks.0.down"]


def sequential(transformer, folder):
    return accelerate.cpu_offload(transformer, execution_device=CPU)


def to_disk(transformer, folder):
    return accelerate.disk_offload(transformer, folder, execution_device=CPU)


def placed(transformer, folder):
    places = {"blocks.0": "cpu", "blocks.1": "disk", "proj_out": "cpu"}
    return accelerate.dispatch_model(
        transformer, places, main_device="cpu", offload_dir=folder, force_hooks=True
    )


def grouped(transformer, folder, kind="leaf_level", **options):
    hooks = pytest.importorskip("diffusers.hooks", reason="needs the torch extra")
    hooks.apply_group_offloading(
        transformer, CPU, CPU, offload_type=kind, offload_to_disk_path=str(folder), **options
    )
    return transformer


def grouped_by_blocks(transformer, folder):
    return grouped(transformer, folder, "block_level", num_blocks_per_group=2)


def in_model(transformer, folder):
    """The whole at once, from where it is already: nothing moves."""
    return accelerate.cpu_offload_with_hook(transformer, execution_device=CPU)[0]


ALL = list(SIZES.items())
GROUPS = [("proj_out", SIZES["proj_out"]), ("blocks.0", 2 * BLOCK)]
PARTLY = Offload(
    kind=OffloadKind.DEVICE_MAP, execution_device="cpu:0", device_map={"cpu:0": 2, "disk": 1}
)


@pytest.mark.parametrize(
    ("offload", "moved", "told"),
    [
        (sequential, ALL, OffloadKind.SEQUENTIAL),
        (to_disk, ALL, OffloadKind.SEQUENTIAL),
        (placed, ALL[2:4], OffloadKind.DEVICE_MAP),
        (grouped, ALL, OffloadKind.GROUP),
        (grouped_by_blocks, GROUPS, OffloadKind.GROUP),
        (in_model, [], OffloadKind.MODEL),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_moved_weights(tmp_path, offload, moved, told):
    """One call a step, each with one move for each module or group that is not in place."""
    torch.manual_seed(0)
    pipeline, x = Pipeline(Transformer().eval()), torch.randn(1, 8)
    without = pipeline(x)
    pipeline.transformer = offload(pipeline.transformer, tmp_path / "weights")
    assert torch.equal(pipeline(x), without)
    before = state_of(pipeline.transformer)
    with profiler.profile(pipeline, out=tmp_path) as profiled:
        given = pipeline(x)
    assert torch.equal(given, without)
    assert state_of(pipeline.transformer) == before
    run = profiler.load(profiled.path)
    assert run.drops == ()
    assert run.calls["submodule"].to_list() == ["transformer"] * STEPS
    commands = run.commands.filter(pl.col("call") >= 0).cast(
        dict.fromkeys(("category", "op_type", "layer", "module"), pl.String)
    )
    found = commands.filter(category="dma")
    names = [name for name, _ in moved] * STEPS
    assert set(found["op_type"]) <= {"onload"}
    assert found["layer"].to_list() == found["module"].to_list() == names
    assert found["bytes_read"].to_list() == [size for _, size in moved] * STEPS
    assert found["bytes_written"].equals(found["bytes_read"].alias("bytes_written"))
    products = commands.filter(op_type="aten::linear")
    assert products["layer"].to_list() == [*LAYERS] * STEPS
    (settings,) = run.info.submodule_settings["transformer"]
    assert settings.offload.kind == told
    assert told != OffloadKind.DEVICE_MAP or settings.offload == PARTLY


def state_of(transformer):
    """What is set on the objects that move weights, and the hooks of all modules."""
    found = {}
    for name, module in transformer.named_modules():
        found[name] = [dict(module._forward_hooks), dict(module._forward_pre_hooks)]
        for hook in (getattr(module, "_hf_hook", None), group_of(module)):
            found[name].append(sorted(getattr(hook, "__dict__", {})))
    return found


def group_of(module):
    registry = getattr(module, "_diffusers_hook", None)
    hook = None if registry is None else registry.hooks.get("group_offloading")
    return getattr(hook, "group", None)


def test_model_offload_moves_the_model_before_out():
    """Its weights are told under its class, for they are of no module of the one that runs; the
    meta device stands in for an accelerator."""
    first, last = Transformer(), Block()
    _, hook = accelerate.cpu_offload_with_hook(first, execution_device=torch.device("meta"))
    accelerate.cpu_offload_with_hook(
        last, execution_device=torch.device("meta"), prev_module_hook=hook
    )
    onload, offload = moves({"": last})
    assert (onload.kind, onload.path, onload.nbytes()) == ("onload", "", size_of(last))
    assert (offload.kind, offload.path, offload.nbytes()) == ("offload", "Transformer", 0)
    first.to("meta")
    assert offload.nbytes() == size_of(first)


def test_group_offload_moves_weights_out_again():
    """Of a group in memory: what is elsewhere, either way; the meta device again."""
    hooks = pytest.importorskip("diffusers.hooks", reason="needs the torch extra")
    block, meta = Block(), torch.device("meta")
    hooks.apply_group_offloading(block, CPU, CPU, offload_type="leaf_level")
    group_of(block.up).onload_device = group_of(block.down).onload_device = meta
    found = {(move.path, move.kind): move.nbytes for move in moves(dict(block.named_modules()))}
    sizes = {name: size_of(block.get_submodule(name)) for name in ("up", "down")}
    for name, size in sizes.items():
        assert found[name, "onload"]() == size
        assert found[name, "offload"]() == 0
    block.to(meta)
    assert [found[name, "offload"]() for name in sizes] == list(sizes.values())
