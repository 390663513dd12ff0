"""Modules that are entered elsewhere than by `forward`: what enters them is a call, also if it is
the first that the script makes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from profiler.trace import MANIFEST_NAME
from tests.capture.switched_on import CALLS_ONLY, drops, labels

pytest.importorskip("transformers", reason="needs the torch extra")
pytest.importorskip("diffusers", reason="needs the torch extra")
pytestmark = pytest.mark.torch

HERE = Path(__file__).parent
CALLS = [
    ("llava", "encode"),  # get_image_features of the script
    ("llava", "encode"),  # that of generate, ahead of its loop
    *[("llava", "run")] * 4,
    ("vae", "encode"),  # in tiles
    ("vae", "decode"),
    ("t5", "encode"),  # the encoder that generate calls
    *[("t5", "run")] * 3,
]


@pytest.mark.parametrize("ops", ["none", "all"])
def test_what_generates_encodes_and_tiles(scripts, ops):
    """The output is that of the plain program, every way into a model is a call, and at least 99 %
    of what modules executed lies in calls."""
    program = (HERE / "vision_language.py").read_text(encoding="utf-8")
    plain = scripts.run(program, RBLN_PROFILER=None)
    ours = scripts.run(program, RBLN_PROFILER_CONFIG=json.dumps({"ops": ops}))
    assert (ours.code, ours.out) == (0, plain.out), ours.err
    assert [(name, stage) for name, stage, *_ in labels(ours.bundle)] == CALLS
    assert drops(ours.bundle) == []
    coverage = json.loads((ours.bundle / MANIFEST_NAME).read_text()).get("coverage")
    assert coverage is None or coverage["share"] >= 0.99  # None: nothing ran outside of calls


@pytest.mark.parametrize(
    "first", ["vae.encode(pixels)", "llava.generate(input_ids=ids, pixel_values=pixels)"]
)
def test_the_first_call_of_a_script(scripts, first):
    """A script's first call of a model is not `forward`, so that it is under way when the first
    module is called."""
    text = (HERE / "vision_language.py").read_text(encoding="utf-8")
    program = text.partition("with torch.no_grad():")[0]
    ours = scripts.run(f"{program}with torch.no_grad():\n    {first}\n", **CALLS_ONLY)
    assert ours.code == 0, ours.err
    name = first.partition(".")[0]
    assert labels(ours.bundle)[0] == (name, "encode", "", -1)
    assert {call[0] for call in labels(ours.bundle)} == {name}
    assert "coverage" not in json.loads((ours.bundle / MANIFEST_NAME).read_text())


def test_methods_that_the_script_replaces(scripts):
    """Replaced between making a model and its first call, of a class with `functools.wraps` or by
    torch, or of an instance: the script's functions run, and once."""
    program = """
        import functools

        import torch


        class Vae(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = torch.nn.Linear(2, 2)

            def decode(self, z):
                return self.linear(z).sum()


        class Frozen(Vae):
            def decode(self, z):
                return super().decode(z)


        torch.manual_seed(0)
        vae, frozen, own = Vae(), Frozen(), Vae()
        original = Vae.decode


        @functools.wraps(original)
        def decode(self, z):
            return original(self, z) + 100


        Vae.decode = decode
        Frozen.decode = torch.no_grad()(Frozen.decode)
        plain = own.decode
        own.decode = lambda z: plain(z * 2) + 1
        for model in (vae, frozen, own):
            for _ in range(2):
                made = model.decode(torch.ones(2))
                print(made.requires_grad, made.item())
        """
    plain = scripts.run(program, RBLN_PROFILER=None)
    ours = scripts.run(program, **CALLS_ONLY)
    assert (ours.code, ours.out) == (0, plain.out), ours.err


def test_a_compiled_way(scripts):
    """A method that the script compiles whole before its first call is compiled whole."""
    ours = scripts.run(
        """
        import torch

        class Codec(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner, self.outer = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

            def decode(self, x):
                return self.outer(self.inner(x))

        torch.manual_seed(0)
        codec = Codec()
        decode = torch.compile(codec.decode, fullgraph=True, backend="eager")
        with torch.no_grad():
            print(float(decode(torch.ones(1, 4)).sum()))
            print(float(codec.decode(torch.ones(1, 4)).sum()))
        """,
        **CALLS_ONLY,
    )
    assert ours.code == 0, ours.err
    first, second = ours.out.split()
    assert first == second
    assert [name for name, *_ in labels(ours.bundle)] == ["codec"]
