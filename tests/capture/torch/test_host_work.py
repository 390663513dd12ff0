"""What a torch pipeline computes between its submodules' calls: commands of no call."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

import profiler
from profiler.analysis import account
from profiler.capture import Invocation, Options, PipelineCall, Recorder, RunClock, Session
from profiler.capture.calls import HostCommands, HostWork
from profiler.capture.host_work import HostPieces, take_host_commands
from profiler.errors import OutputError
from profiler.trace import HOST_NAME, BundleWriter, CommandBuilder, Track, read_trace

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
    recorder = Recorder(RunClock.start())
    recorder.invocations.append(call)
    recorder.host_commands.append(HostCommands(commands.build(), pipeline))
    (columns,) = take_host_commands(recorder)
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


def test_what_a_running_pipeline_call_does_stays():
    """Its stages are not known before it has ended; at the end of the run all is taken."""
    ended, running = PipelineCall("P", 0, end_ns=1000), PipelineCall("P", 0)
    recorder = Recorder(RunClock.start())
    recorder.host_work += [HostWork("a", 10, 20, running), HostWork("b", 10, 20, ended)]
    recorder.host_work += [HostWork("c", 10, 20)]
    for all_left, layers in ((False, ["b", "c"]), (False, []), (True, ["a"])):
        taken = take_host_commands(recorder, all_left=all_left)
        assert [piece.strings[code] for piece in taken for code in piece.layer] == layers


def pieces_of_three_pipeline_calls():
    """Commands of two layers on two tracks, one leading to another, in steps 0 to 2."""
    for step in range(3):
        commands = CommandBuilder()
        begin = 1_000_000 + 1000 * step
        launch = commands.add(
            HOST, "launch", "", begin, 5, stage="denoise", step=step, pipeline=step
        )
        target = commands.add(
            STREAM, "mul", "aten::mul", begin + 50, 9, stage="denoise", step=step, pipeline=step
        )
        commands.link(launch, target)
        yield commands.build()


def slices_of(path):
    """Everything that a file says of its commands, and the flows between them."""
    trace = read_trace(path)
    assert trace.drops == ()
    columns, texts = trace.slices, np.array(trace.strings)
    tracks = [f"{track.name} {track.parent >= 0}" for track in trace.tracks]
    rows = zip(
        [tracks[code] for code in columns.track],
        *(texts[getattr(columns, name)].tolist() for name in ("layer", "op_type", "stage")),
        *(
            getattr(columns, name).tolist()
            for name in ("command_index", "step", "pipeline", "start_ns", "duration_ns")
        ),
        strict=True,
    )
    return list(rows), trace.flows.tolist()


@pytest.mark.parametrize("compress", ["none", "deflate"])
def test_pieces_are_one_file(tmp_path, compress):
    """`host.pb` says the same, whether it was written in one piece or in several."""
    found = []
    for limit in (100, 4, 1):
        bundle = BundleWriter.create(tmp_path, f"run-{limit}", compress=compress)
        pieces = HostPieces(bundle, limit)
        for commands in pieces_of_three_pipeline_calls():
            pieces.add(commands)
        assert not (bundle.directory / HOST_NAME).exists()
        pieces.write([])
        assert [path.name for path in bundle.directory.iterdir()] == [HOST_NAME]
        found.append(slices_of(bundle.directory / HOST_NAME))
        assert list(pieces.drops()) == []
    assert len(found[0][0]) == 6
    assert found[0] == found[1] == found[2]


def test_a_piece_that_cannot_be_written_is_a_drop(tmp_path):
    """A folder in the way of the temporary file; what is left finds its place afterwards."""
    bundle = BundleWriter.create(tmp_path, "run")
    pieces = HostPieces(bundle, 1)
    obstacle = bundle.directory / f".{HOST_NAME}.part"
    first, second, third = pieces_of_three_pipeline_calls()
    pieces.add(first)
    whole = obstacle.read_bytes()
    obstacle.unlink()
    obstacle.mkdir()
    pieces.add(second)
    (drop,) = pieces.drops()
    assert (drop.kind, drop.where, drop.count) == ("dropped_events", HOST_NAME, 2)
    obstacle.rmdir()
    obstacle.write_bytes(whole + b"what a full disk has cut")
    pieces.add(third)
    pieces.write([])
    rows, flows = slices_of(bundle.directory / HOST_NAME)
    assert [row[5] for row in rows] == [0, 0, 2, 2]
    assert flows == [[0, 1], [2, 3]]


def test_a_file_that_cannot_be_written_says_so(tmp_path):
    """The rest of `host.pb` is not lost in silence."""
    bundle = BundleWriter.create(tmp_path, "run")
    (bundle.directory / f".{HOST_NAME}.part").mkdir()
    with pytest.raises(OutputError, match=HOST_NAME):
        HostPieces(bundle).write([])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Three steps of a tiny Stable Diffusion 3, with guidance."""
    pytest.importorskip("torch", reason="needs the torch extra")
    pytest.importorskip("diffusers", reason="needs the torch extra")
    from tests.capture import tiny_diffusers

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


@pytest.mark.torch
def test_no_more_than_a_piece_is_held(tmp_path, monkeypatch, operators):
    """However many pipeline calls a run has: when one has ended, its host work is on its way, and
    in the end all of it is there."""
    from tests.capture import tiny_diffusers

    limit, held = 100, []

    class Pieces(HostPieces):
        def __init__(self, bundle):
            super().__init__(bundle, limit)

        def add(self, commands):
            super().add(commands)
            held.append(sum(map(len, self._waiting)))

    monkeypatch.setattr("profiler.capture.writing.HostPieces", Pieces)
    pipe = tiny_diffusers.quiet(tiny_diffusers.sd3())
    session = Session.open(Options(), tmp_path)
    session.attach(pipe)
    for _ in range(3):
        pipe(
            "a cat",
            negative_prompt="a dog",
            num_inference_steps=3,
            output_type="np",
            **tiny_diffusers.SIZE,
        )
        assert not session.recorder.host_commands
        assert not session.recorder.host_work
    run = profiler.load(session.close())
    assert max(held) < limit <= len(operators)
    assert run.drops == ()
    found = run.commands.filter(
        (pl.col("call") < 0) & (pl.col("track").cast(str) == "CPU thread 1")
    ).with_columns(pl.col("stage", "layer").cast(str))
    wanted = sorted(operators.select("layer", "stage", "step").rows())
    for pipeline in range(3):
        of_call = found.filter(pl.col("pipeline") == pipeline)
        assert sorted(of_call.select("layer", "stage", "step").rows()) == wanted
    assert not found.select("layer", "command_index").is_duplicated().any()
