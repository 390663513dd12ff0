"""What a torch pipeline computes between its submodules' calls: commands of no call."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

import profiler
from profiler.analysis.accounting import account
from profiler.capture.host_commands import HostCommands, add_host_commands
from profiler.capture.recorder import Invocation
from profiler.capture.timeline import PipelineCall
from profiler.events import Track
from profiler.trace.columns import CommandBuilder

HOST = Track("cpu:0", "CPU thread 1 launches", "host")
STREAM = Track("cuda:0", "stream 7", "compute")


def test_commands_have_stage_and_step_of_their_launch():
    """A kernel that runs in the next step belongs to the step that launched it; what was launched
    inside a call is that call's, and no host work."""
    pipeline = PipelineCall("P", 0, end_ns=1000)
    pipeline.end_encoding(100)
    pipeline.begin_call("denoise", 200)
    pipeline.end_step(0, 500)
    pipeline.end_step(1, 900)
    call = Invocation("transformer", "denoise", "", 0, "cuda:0", {}, start_ns=200, end_ns=300)
    call.pipeline = pipeline
    commands = CommandBuilder()
    commands.add(HOST, "aten::randn", "aten::randn", 50, 5)
    launch = commands.add(HOST, "cudaLaunchKernel", "", 450, 5)
    commands.link(launch, commands.add(STREAM, "aten::mul", "aten::mul", 600, 50))
    commands.add(HOST, "cudaLaunchKernel", "", 250, 5)
    builder = CommandBuilder()
    add_host_commands([HostCommands(pipeline, commands.build())], [call], builder)
    columns = builder.build()
    rows = zip(
        [columns.strings[i] for i in columns.layer],
        [columns.strings[i] for i in columns.stage],
        columns.step.tolist(),
        columns.start_ns.tolist(),
        strict=True,
    )
    assert list(rows) == [
        ("aten::randn", "encode", -1, 50),
        ("cudaLaunchKernel", "denoise", 0, 450),
        ("aten::mul", "denoise", 0, 600),
    ]
    assert columns.flows.tolist() == [[1, 2]]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Three steps of a tiny Stable Diffusion 3, with guidance."""
    pytest.importorskip("torch", reason="needs the torch extra")
    pytest.importorskip("diffusers", reason="needs the torch extra")
    from . import tiny_diffusers

    pipe = tiny_diffusers.sd3()
    with profiler.profile(pipe, out=tmp_path_factory.mktemp("traces")) as profiled:
        pipe(
            "a cat",
            negative_prompt="a dog",
            num_inference_steps=3,
            output_type="np",
            **tiny_diffusers.SIZE,
        )
    return profiler.load(profiled.path)


@pytest.fixture(scope="module")
def operators(run):
    """Operators of no call."""
    return run.commands.filter(
        (pl.col("call") < 0) & (pl.col("track").cast(str) == "CPU thread 1")
    ).with_columns(pl.col("stage", "layer").cast(str))


@pytest.mark.torch
def test_the_schedulers_arithmetic_lies_in_its_step(run, operators):
    """Of every step: `scheduler.step` of FlowMatchEulerDiscreteScheduler subtracts two sigmas and
    adds the product to the sample, and guidance takes the halves of the batch apart."""
    host = run.commands.with_columns(pl.col("layer").cast(str))
    spans = host.filter(pl.col("layer") == "scheduler.step").sort("start_ns")
    for step, (begin, length) in enumerate(spans.select("start_ns", "duration_ns").rows()):
        of_step = operators.filter(pl.col("step") == step)
        assert {"aten::chunk", "aten::sub", "aten::mul", "aten::add"} <= set(of_step["layer"])
        inside = of_step.filter(pl.col("start_ns").is_between(begin, begin + length))
        assert {"aten::sub", "aten::mul", "aten::add"} <= set(inside["layer"])


@pytest.mark.torch
def test_every_stage_has_its_own_work(operators):
    """Latents and timesteps before the loop, the image's range after the decoder."""
    by_stage = {stage: set(frame["layer"]) for (stage,), frame in operators.group_by("stage")}
    assert "aten::randn" in by_stage["denoise"]
    assert {"aten::clamp", "aten::permute"} <= by_stage["decode"]
    assert set(operators.filter(pl.col("stage") != "denoise")["step"]) == {-1}


@pytest.mark.torch
def test_no_operator_of_a_call_is_counted_twice(run, operators):
    """Host work and calls do not overlap, and the accounting closes."""
    calls = run.calls.sort("start_ns")
    begins = calls["start_ns"].to_numpy()
    ends = begins + calls["duration_ns"].to_numpy()
    starts = operators["start_ns"].to_numpy()
    last = np.searchsorted(begins, starts, side="right") - 1
    assert not np.any((last >= 0) & (starts < ends[last]))
    found, *_ = account(run)
    assert found.residual_share <= 0.01
    assert all(stage.host_ns for stage in found.stages)
