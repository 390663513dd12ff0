"""The package of docs/comfyui.md, with ComfyUI's interface of nodes imitated."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

import profiler
from tests.docs.pages import REPOSITORY, Page

torch = pytest.importorskip("torch", reason="needs the torch extra")


class Net(torch.nn.Module):
    """What ComfyUI's models hold."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.inner(x)


class Codec(Net):
    """A VAE: entered by `encode` and `decode`."""

    def decode(self, x):
        return self.inner(x)


def comfyui():
    """`nodes` as ComfyUI has it: loaders by name, each with RETURN_TYPES and the name of its
    function."""

    class CheckpointLoaderSimple:
        RETURN_TYPES = ("MODEL", "CLIP", "VAE")
        FUNCTION = "load_checkpoint"

        def load_checkpoint(self, ckpt_name):
            patcher = SimpleNamespace(model=SimpleNamespace(diffusion_model=Net()))
            clip = SimpleNamespace(cond_stage_model=Net())
            return (patcher, clip, None if ckpt_name == "no vae" else vae())

    class VAELoader:
        RETURN_TYPES = ("VAE",)
        FUNCTION = "load_vae"

        def load_vae(self, vae_name):
            return (vae(),)

    class OddLoader:
        RETURN_TYPES = ("MODEL",)
        FUNCTION = "load"

        @staticmethod
        def load():
            return {"ui": {}}

    class EmptyLatentImage:
        RETURN_TYPES = ("LATENT",)
        FUNCTION = "generate"

        def generate(self):
            return ({"samples": torch.zeros(1, 4)},)

    def vae():
        return SimpleNamespace(first_stage_model=Codec())

    module = ModuleType("nodes")
    module.NODE_CLASS_MAPPINGS = {
        one.__name__: one
        for one in (CheckpointLoaderSimple, VAELoader, OddLoader, EmptyLatentImage)
    }
    return module


@pytest.fixture
def nodes(monkeypatch):
    """ComfyUI's nodes once it has imported the package of the page."""
    module = comfyui()
    monkeypatch.setitem(sys.modules, "nodes", module)
    page = Page.read(REPOSITORY / "docs" / "comfyui.md")
    (block,) = page.python
    names = {}
    exec(compile(block.text, "comfyui.md", "exec"), names)
    assert names["NODE_CLASS_MAPPINGS"] == {}
    return module.NODE_CLASS_MAPPINGS


def execute(nodes, name, **inputs):
    """As ComfyUI's executor does: an object of the class, its function by name."""
    node = nodes[name]()
    return getattr(node, nodes[name].FUNCTION)(**inputs)


def test_what_loaders_return_is_named(nodes, tmp_path):
    """The calls of a workflow's models are those of `model`, `clip` and `vae`, whichever node
    loaded them; what returns nothing of these is left alone."""
    with profiler.profile({"other": Net()}, out=tmp_path / "runs") as run:
        model, clip, _ = execute(nodes, "CheckpointLoaderSimple", ckpt_name="no vae")
        (vae,) = execute(nodes, "VAELoader", vae_name="a")
        (latent,) = execute(nodes, "EmptyLatentImage")
        assert execute(nodes, "OddLoader") == {"ui": {}}
        conditioning = clip.cond_stage_model(torch.ones(1, 4))
        for _ in range(2):
            latent["samples"] = model.model.diffusion_model(latent["samples"] + conditioning)
        vae.first_stage_model.decode(latent["samples"])
    calls = profiler.load(run.path).calls["submodule"].to_list()
    assert calls == ["clip", "model", "model", "vae"]


def test_two_models_of_a_workflow(nodes, tmp_path):
    """Their calls are of one submodule: nothing tells them apart."""
    with profiler.profile({"other": Net()}, out=tmp_path / "runs") as run:
        for name in ("base", "refiner"):
            model, *_ = execute(nodes, "CheckpointLoaderSimple", ckpt_name=name)
            model.model.diffusion_model(torch.ones(1, 4))
    calls = profiler.load(run.path).calls["submodule"].to_list()
    assert calls == ["model", "model"]
