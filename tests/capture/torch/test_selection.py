"""Some steps traced, others not, on a torch pipeline: torch's profiler rests in between."""

from __future__ import annotations

import polars as pl
import pytest

import profiler
from profiler.trace.manifest_fields import CallCounts

pytest.importorskip("torch", reason="needs the torch extra")
pytest.importorskip("diffusers", reason="needs the torch extra")
pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Five steps of a tiny Stable Diffusion 3, of which the first two and the last are traced."""
    import torch

    from tests.capture import tiny_diffusers

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
    assert run.drops == ()


def test_two_calls_of_a_kind_measure_nothing(run):
    """Of three traced and two untraced calls the first stand apart: too few, which is said."""
    overhead = run.info.overhead
    assert overhead.too_few == {"transformer": CallCounts(traced_calls=2, untraced_calls=1)}
    assert overhead.measured == {}
    assert run.info.submodules["transformer"].overhead_ratio is None


def profiled_calls(modules):
    """By name, whether torch's profiler ran in each call of the modules, noted by hooks."""
    import torch

    found = {name: [] for name in modules}
    for name, module in modules.items():
        module.register_forward_pre_hook(
            lambda *_, name=name: found[name].append(
                bool(torch.autograd.profiler._is_profiler_enabled)
            )
        )
    return found


def test_submodules_that_are_not_traced_run_unprofiled(tmp_path):
    """`none` for a submodule stops torch's profiler ahead of each of its calls, in the middle of
    a loop, too; the others have all their operators, and the memory counter goes on."""
    import torch

    from tests.capture import tiny_diffusers

    pipe = tiny_diffusers.sd3_controlnet()
    found = profiled_calls({"controlnet": pipe.controlnet, "transformer": pipe.transformer})
    with profiler.profile(pipe, out=tmp_path, ops="all controlnet=none text_encoder_2=none") as run:
        pipe(
            "a cat",
            control_image=tiny_diffusers.image(),
            num_inference_steps=3,
            output_type="np",
            generator=torch.Generator().manual_seed(0),
            **tiny_diffusers.SIZE,
        )
    assert found == {"controlnet": [False] * 3, "transformer": [True] * 3}
    loaded = profiler.load(run.path)
    calls = loaded.calls.with_columns(pl.col("submodule").cast(str))
    traced = dict(calls.group_by("submodule").agg(pl.col("ops_traced").unique()).iter_rows())
    assert traced.pop("controlnet") == [False]
    assert traced.pop("text_encoder_2") == [False]
    assert set(map(tuple, traced.values())) == {(True,)}
    steps = loaded.commands.filter(
        pl.col("call").is_in(calls.filter(submodule="transformer")["call"])
    )
    assert steps.group_by("call").len()["len"].n_unique() == 1
    assert loaded.drops == ()
    own = loaded.spans.filter(pl.col("kind").cast(str) == "profiler")["name"].cast(str).to_list()
    assert own.count("stop_session") == 2 + 3 + 1  # text_encoder_2 runs for both prompts
    assert own.count("start_session") == 1 + 2 + 3


def test_nothing_is_hooked_where_nothing_is_traced(tmp_path):
    """`none` for all of them opens no source: no session is there to rest."""
    from tests.capture import tiny_diffusers

    pipe = tiny_diffusers.flux()
    found = profiled_calls({"transformer": pipe.transformer})
    with profiler.profile(pipe, out=tmp_path, ops="none") as run:
        pipe("a cat", num_inference_steps=2, output_type="np", **tiny_diffusers.SIZE)
    assert found == {"transformer": [False, False]}
    loaded = profiler.load(run.path)
    assert set(loaded.commands["track"].cast(str)) <= {"Host"}
    assert loaded.info.overhead.operator_events == 0
