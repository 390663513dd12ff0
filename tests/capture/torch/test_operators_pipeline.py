"""Whole diffusers pipelines on torch: every call has operators, and the reports read them."""

from __future__ import annotations

import polars as pl
import pytest

import profiler
from profiler.capture.torch.operators import TRACING

pytest.importorskip("torch", reason="needs the torch extra")
pytest.importorskip("diffusers", reason="needs the torch extra")
pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """The bundle of two steps of a tiny Stable Diffusion 3, with guidance."""
    from tests.capture import tiny_diffusers

    pipe = tiny_diffusers.sd3()
    with profiler.profile(pipe, out=tmp_path_factory.mktemp("traces"), name="sd3") as run:
        pipe(
            "a cat",
            negative_prompt="a dog",
            num_inference_steps=2,
            output_type="np",
            **tiny_diffusers.SIZE,
        )
    return run.path


@pytest.fixture(scope="module")
def stable_diffusion(bundle):
    """The tables of that run."""
    return profiler.load(bundle)


def test_every_call_of_a_pipeline_has_its_operators(stable_diffusion):
    """The two steps execute the same operators in the same layers."""
    run = stable_diffusion
    assert run.calls["ops_traced"].to_list() == [True] * 9
    assert run.info.drops == ()
    operators = [
        run.commands.filter(pl.col("call") == call).select("layer", "command_index", "op_type")
        for call in run.calls.filter(pl.col("submodule") == "transformer")["call"]
    ]
    assert len(operators) == 2
    assert operators[0].equals(operators[1])
    layers = set(operators[0]["layer"].cast(pl.String))
    assert {"transformer_blocks.0.attn.to_q", "transformer_blocks.1.ff.net.2", "proj_out"} <= layers


def test_calls_have_what_they_have_in_sessions_of_their_own(
    stable_diffusion, tmp_path, monkeypatch
):
    """One session of all calls is cut into those operators and no others."""
    from tests.capture import tiny_diffusers

    monkeypatch.setattr("profiler.capture.torch.profiler_session.LONGEST_S", 0.0)
    pipe = tiny_diffusers.sd3()
    with profiler.profile(pipe, out=tmp_path) as run:
        pipe(
            "a cat",
            negative_prompt="a dog",
            num_inference_steps=2,
            output_type="np",
            **tiny_diffusers.SIZE,
        )
    alone = profiler.load(run.path)
    sessions = alone.spans.filter(pl.col("name").cast(str) == "start_session")
    assert len(sessions) == len(alone.calls) == 9
    columns = ("call", "layer", "command_index", "op_type", "shapes")
    found, expected = (
        each.commands.filter(pl.col("call") >= 0).select(
            pl.col(name).cast(pl.Int32 if name in ("call", "command_index") else str)
            for name in columns
        )
        for each in (stable_diffusion, alone)
    )
    assert found.equals(expected)


def test_operators_lie_within_their_calls(stable_diffusion):
    """Also in the file: the call's span encloses its commands, and their sum is no longer."""
    run = stable_diffusion
    calls = run.calls.select("call", begin="start_ns", length="duration_ns")
    inside = run.commands.join(calls, on="call")
    end = pl.col("start_ns") + pl.col("duration_ns")
    assert inside.filter(pl.col("start_ns") < pl.col("begin")).is_empty()
    assert inside.filter(end > pl.col("begin") + pl.col("length")).is_empty()
    busy = inside.group_by("call").agg(pl.col("duration_ns").sum(), pl.col("length").first())
    assert (busy["duration_ns"] <= busy["length"]).all()


def test_nearly_all_operators_belong_to_modules(stable_diffusion):
    """What the transformer does itself, outside its modules, is a handful of operators a call."""
    commands = stable_diffusion.commands.with_columns(pl.col("layer").cast(pl.String))
    own = commands.filter(pl.col("layer") == "SD3Transformer2DModel")
    newer = {"aten::contiguous"}  # than diffusers 0.38
    assert set(own["op_type"].cast(pl.String)) - newer == {"aten::einsum", "aten::reshape"}
    assert set(stable_diffusion.info.attribution) == {
        "text_encoder",
        "text_encoder_2",
        "text_encoder_3",
        "transformer",
        "vae",
    }


def test_the_vae_has_the_paths_of_its_decoder(stable_diffusion):
    """It is entered by `decode`, not by `forward`."""
    run = stable_diffusion
    (vae,) = run.calls.filter(pl.col("submodule") == "vae")["call"]
    layers = run.commands.filter(pl.col("call") == vae)["layer"].cast(pl.String)
    assert {"decoder.conv_in", "decoder.conv_out"} <= set(layers)


def test_analyze_reports_a_run_on_torch(cli, bundle):
    """`profile-sd3 analyze` folds the blocks of the transformer."""
    code, text, error = cli("analyze", bundle, "--full", "--no-html")
    assert code == 0, error
    assert "transformer_blocks.*.attn" in text


@pytest.mark.parametrize("asked", [False, True])
def test_allocations_are_recorded_where_they_are_asked_for(tmp_path, monkeypatch, asked):
    """The manifest says whether they were; counters are there only then, in a process of one
    thread: torch tells of none where several are recorded, as tests before this may have asked."""
    import torch

    monkeypatch.setattr(TRACING, "_several_threads", False)

    class Part(torch.nn.Linear):
        pass

    part = Part(64, 64)
    with profiler.profile({"part": part}, out=tmp_path, memory=asked) as run:
        part(torch.zeros(8, 64))
    loaded = profiler.load(run.path)
    assert loaded.info.recording.profile_memory is asked
    assert bool(len(loaded.counters)) is asked


def test_a_session_is_written_after_its_call(tmp_path, monkeypatch):
    """Not before the caller has its result, but before the next session starts, so that no more
    than one is in memory."""
    import torch

    from profiler.capture.torch import profiler_session

    for name in ("_LINGER_S", "_LONGEST_S"):  # the thread that converts stays away
        monkeypatch.setattr(f"profiler.capture.host_work.{name}", 600.0)
    writing, found = profiler_session.written, []
    monkeypatch.setattr(
        profiler_session, "written", lambda results: found.append(results) or writing(results)
    )
    net, seen = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)), []
    with profiler.profile({"net": net}, out=tmp_path) as run:
        for _ in range(3):
            net(torch.ones(1, 4))
            seen.append(len(found))
    assert seen == [0, 1, 2]
    calls = profiler.load(run.path).calls
    assert calls["ops_traced"].to_list() == [True] * 3
