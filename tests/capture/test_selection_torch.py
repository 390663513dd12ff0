"""Some steps traced, others not, on a torch pipeline: torch's profiler rests in between."""

from __future__ import annotations

import polars as pl
import pytest

import profiler

pytest.importorskip("torch", reason="needs the torch extra")
pytest.importorskip("diffusers", reason="needs the torch extra")
pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Five steps of a tiny Stable Diffusion 3, of which the first two and the last are traced."""
    import torch

    from . import tiny_diffusers

    pipe = tiny_diffusers.sd3()
    profiling = []

    def note(*_):
        profiling.append(torch.autograd.profiler._is_profiler_enabled)
        return {}

    with profiler.profile(
        pipe, out=tmp_path_factory.mktemp("traces"), ops="none transformer=steps:0-1,last"
    ) as profiled:
        pipe(
            "a cat",
            num_inference_steps=5,
            output_type="np",
            callback_on_step_end=note,
            **tiny_diffusers.SIZE,
        )
    assert profiling == [True, True, False, False, True]
    return profiler.load(profiled.path)


def test_the_selected_steps_have_their_operators(run):
    """`last` is known from the scheduler's schedule; nothing else holds commands or is lost."""
    steps = run.calls.filter(pl.col("submodule").cast(str) == "transformer").sort("step")
    assert steps["ops_traced"].to_list() == [True, True, False, False, True]
    others = run.calls.filter(pl.col("submodule").cast(str) != "transformer")
    assert not others["ops_traced"].any()
    in_calls = run.commands.filter(pl.col("call") >= 0)
    assert set(in_calls["step"]) == {0, 1, 4}
    assert in_calls.group_by("step").len()["len"].n_unique() == 1
    assert run.losses == ()


def test_torchs_cost_is_measured_too(run):
    """The run's own calls measure what no estimate is known for."""
    cost = run.info.overhead["measured"]["transformer"]
    assert (cost["traced_calls"], cost["untraced_calls"]) == (2, 1)
    assert "share" in run.info.overhead
