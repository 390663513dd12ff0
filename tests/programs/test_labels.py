"""Labels of calls in loops that a script writes itself, without a pipeline object."""

from __future__ import annotations

from pathlib import Path

import pytest

import profiler
from tests.capture.switched_on import CALLS_ONLY, drops, labels

pytest.importorskip("diffusers", reason="needs the torch extra")
pytestmark = pytest.mark.torch

HERE = Path(__file__).parent
GUESS = "the branch of guidance is not recorded and was guessed"


def test_doubled_latents(scripts):
    """The scheduler's step has one latent, the denoiser got two: both branches at once. The
    encoder's second call was then for the negative prompt, by its order alone: that is a guess."""
    program = (HERE / "hand_written_loop.py").read_text(encoding="utf-8")
    plain = scripts.run(program, RBLN_PROFILER=None)
    ours = scripts.run(program, **CALLS_ONLY)
    assert (ours.code, ours.out) == (0, plain.out)
    assert labels(ours.bundle) == [
        ("text_encoder", "encode", "prompt", -1),
        ("text_encoder", "encode", "negative_prompt", -1),
        *(("unet", "denoise", "batched", step) for step in range(5)),
        ("vae", "decode", "", -1),
    ]
    assert drops(ours.bundle) == [("doubtful_label", GUESS)]


def test_a_loop_without_a_scheduler(scripts):
    """Nothing counts its steps, so its calls are of none, and nothing shows their branch."""
    program = (HERE / "two_ranks.py").read_text(encoding="utf-8")
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "0"}
    one = program.replace("both[1]", "both[0]").replace("range(2)", "range(1)")
    ours = scripts.run(one, **CALLS_ONLY, **alone)
    assert ours.code == 0, ours.err
    assert labels(ours.bundle) == [("transformer", "denoise", "cond", -1)] * 4
    assert drops(ours.bundle) == [("doubtful_label", GUESS)]


def test_one_line_loops_of_requests(scripts):
    """Each request makes a scheduler, which its first call shows when `scheduler.step` is looked up
    already: that step counts, whether the scheduler counts its steps or not, and the calls of each
    step are one or two. What follows the last loop decodes between the others as well."""
    program = (HERE / "one_line_loops.py").read_text(encoding="utf-8")
    plain = scripts.run(program, RBLN_PROFILER=None)
    ours = scripts.run(program, **CALLS_ONLY)
    assert (ours.code, ours.out) == (0, plain.out)
    expected = []
    for _ in ("DDIMScheduler", "FlowMatchEulerDiscreteScheduler"):
        for name, branch, times in (("unet", "cond", 1), ("net", "", 1), ("net", "", 2)):
            steps = [step for step in range(3) for _ in range(times)]
            loop = [(name, "denoise", branch, step) for step in steps]
            encoded, decoded = ("encoder", "encode", "", -1), ("decoder", "decode", "", -1)
            expected += [*loop, *loop, encoded, *loop, decoded]
    assert labels(ours.bundle) == expected
    assert drops(ours.bundle) == []
    made = profiler.load(ours.bundle).info.generations
    assert {(one.steps, one.denoiser_passes) for one in made} == {(3, 1), (3, 2)}


def test_a_scheduler_whose_index_is_set_before_its_first_step(scripts):
    """`scale_model_input` of Euler's scheduler sets the index: no step is missed, though the text
    is encoded and a scheduler discovered first."""
    ours = scripts.run(
        """
        import torch
        from diffusers import EulerDiscreteScheduler
        from torch import nn


        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 4)

            def forward(self, x):
                return self.b(self.a(x))


        text, model = Net(), Net()
        scheduler = EulerDiscreteScheduler()
        scheduler.set_timesteps(4)
        with torch.no_grad():
            for _ in range(2):
                x = text(torch.ones(1, 4))
                scheduler.set_timesteps(4)
                for t in scheduler.timesteps:
                    predicted = model(scheduler.scale_model_input(x, t))
                    x = scheduler.step(predicted, t, x).prev_sample
        """,
        **CALLS_ONLY,
    )
    assert ours.code == 0, ours.err
    request = [("text", "encode", -1), *(("model", "denoise", step) for step in range(4))]
    found = [(name, stage, step) for name, stage, _, step in labels(ours.bundle)]
    assert found == [*request, *request]


def test_loops_in_threads(scripts):
    """Loops that take turns have steps of their own. A thread without a scheduler works for the
    loop of another."""
    program = (HERE / "loops_in_threads.py").read_text(encoding="utf-8")
    plain = scripts.run(program, RBLN_PROFILER=None)
    ours = scripts.run(program, **CALLS_ONLY)
    assert (ours.code, ours.out) == (0, plain.out)
    found = {}
    for name, stage, _, step in labels(ours.bundle):
        found.setdefault(name, []).append((stage, step))
    assert found == {
        "encoder": [("encode", -1)],
        "ash": [("denoise", step) for _ in range(3) for step in range(2)],
        "birch": [("denoise", step) for step in range(6)],
        "helped": [("denoise", step) for step in (0, 0, 1, 1, 2, 2)],
        "decoder": [("decode", -1)] * 2,
    }
    made = profiler.load(ours.bundle).info.generations
    assert sorted(one.steps for one in made) == [2, 3, 6]
