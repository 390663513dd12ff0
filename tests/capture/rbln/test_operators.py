"""Capture of RBLN's runtimes, on a fake `rebel` with the documented interface."""

from __future__ import annotations

import gc
import weakref

import pytest

import profiler
from profiler.capture import FakeClock
from profiler.capture.rbln import rbln_device
from profiler.errors import InputError

from .fake_rebel import (
    FakeRebel,
    RBLNKandinskyV22ControlnetPipeline,
    RBLNStableDiffusion3Pipeline,
    Runtime,
)

START = 1_790_000_000_000_000_000
ON_ONE = {"text_encoder_3": {"device": 1}}


@pytest.fixture
def rebel(tmp_path, monkeypatch):
    fake = FakeRebel(FakeClock(START), tmp_path)
    fake.install(monkeypatch)
    monkeypatch.delenv("RBLN_PROFILER", raising=False)
    return fake


def record(pipeline, rebel, tmp_path, **options):
    """The run of one image with one step."""
    out = tmp_path / "bundles"
    with profiler.profile(pipeline, out=out, clock=rebel.clock, **options) as run:
        pipeline(num_inference_steps=1)
    return profiler.load(run.path)


def commands_of(run):
    """Call, device, track, category, layer, start behind the call's begin and duration in ns."""
    starts = dict(run.calls.select("call", "start_ns").iter_rows())
    columns = ("call", "device", "track", "category", "layer", "start_ns", "duration_ns")
    rows = run.commands.filter(run.commands["call"] >= 0).select(columns).iter_rows()
    return [(*row[:5], row[5] - starts[row[0]], row[6]) for row in rows]


def test_calls_run_on_the_devices_of_their_runtimes(rebel, tmp_path):
    """Each call has the device of its runtime, though optimum-rbln's submodules say "cpu"."""
    run = record(RBLNStableDiffusion3Pipeline(rebel, ON_ONE), rebel, tmp_path)
    columns = ("submodule", "branch", "step", "device", "duration_ns")
    assert run.calls.select(columns).rows() == [
        ("text_encoder", "prompt", -1, "rbln:0", 100_037),
        ("text_encoder_2", "prompt", -1, "rbln:0", 100_037),
        ("text_encoder_3", "prompt", -1, "rbln:1", 100_037),
        ("text_encoder", "negative_prompt", -1, "rbln:0", 100_037),
        ("text_encoder_2", "negative_prompt", -1, "rbln:0", 100_037),
        ("text_encoder_3", "negative_prompt", -1, "rbln:1", 100_037),
        ("transformer", "batched", 0, "rbln:0", 100_037),
        ("vae", None, -1, "rbln:0", 100_037),
    ]
    assert run.info.submodules["text_encoder_3"].device == "rbln:1"


def test_reports_divide_a_runtime_call_and_leave_the_host_glue(rebel, tmp_path):
    """A call of 100,037 ns is 30 ns of preparation, 20 µs host and 70 µs device as reported."""
    run = record(RBLNStableDiffusion3Pipeline(rebel), rebel, tmp_path)
    assert commands_of(run)[-4:] == [
        (6, "rbln:0", "Host", "host", "model[0]", 30, 20_000),
        (6, "rbln:0", "Device Workload", "other", "model[0]", 20_030, 70_000),
        (7, "rbln:0", "Host", "host", "runtime", 30, 20_000),
        (7, "rbln:0", "Device Workload", "other", "runtime", 20_030, 70_000),
    ]
    assert run.drops == ()


def test_without_reports_a_runtime_call_is_as_long_as_measured(tmp_path, monkeypatch):
    """An older `rebel` has no `capture_reports`: the device's work is the whole runtime call."""
    rebel = FakeRebel(FakeClock(START), tmp_path, reports=False)
    rebel.install(monkeypatch)
    run = record(RBLNStableDiffusion3Pipeline(rebel), rebel, tmp_path)
    assert commands_of(run)[-2:] == [
        (6, "rbln:0", "Device Workload", "other", "model[0]", 30, 100_000),
        (7, "rbln:0", "Device Workload", "other", "runtime", 30, 100_000),
    ]


@pytest.mark.parametrize(("device_us", "lost"), [(90, 8), (float("nan"), 0), (-30, 8)])
def test_a_report_that_cannot_be_is_not_shown(rebel, tmp_path, device_us, lost):
    """More time than the call took, less than none, or no number: the measured time stands, and
    reports of such times are counted."""
    rebel.device_us = device_us
    run = record(RBLNStableDiffusion3Pipeline(rebel), rebel, tmp_path)
    assert {row[2:] for row in commands_of(run)} == {
        ("Device Workload", "other", name, 30, 100_000) for name in ("model[0]", "runtime")
    }
    assert sum(drop.count for drop in run.drops if drop.kind == "dropped_events") == lost


def test_reports_that_fail_never_reach_the_pipeline(rebel, tmp_path, monkeypatch):
    """`capture_reports` raises: the pipeline runs, and its calls are recorded as measured."""

    def broken():
        raise RuntimeError("no timer")

    monkeypatch.setattr("sys.modules", dict(__import__("sys").modules))
    monkeypatch.setattr(__import__("sys").modules["rebel"], "capture_reports", broken)
    run = record(RBLNStableDiffusion3Pipeline(rebel), rebel, tmp_path)
    assert run.calls["ops_traced"].to_list() == [True] * 8


def test_runtimes_are_what_they_were(rebel, tmp_path):
    """While a run lasts a proxy answers as the runtime; afterwards the runtimes stand again."""
    pipeline = RBLNStableDiffusion3Pipeline(rebel)
    runtime, decoder = pipeline.transformer.model[0], pipeline.vae.decoder.runtime
    with profiler.profile(pipeline, out=tmp_path, clock=rebel.clock):
        proxy = pipeline.transformer.model[0]
        assert proxy is not runtime
        assert isinstance(proxy, Runtime)
        assert (proxy.device, proxy.model) == (0, "transformer")
        pipeline.vae.tiles = None
        with pytest.raises(TypeError):
            pipeline(num_inference_steps=1)
    assert pipeline.transformer.model[0] is runtime
    assert pipeline.vae.decoder.runtime is decoder
    assert "forward" not in vars(pipeline.transformer)


def test_components_of_other_names_and_shapes(rebel, tmp_path):
    """Of a VQ model called `movq`, and of two ControlNets in one: operators, the device and the
    numbers of runtime calls, under the runtime that was called."""
    config = {"controlnet": {"device": 1}, "movq": {"activate_profiler": False}}
    pipeline = RBLNKandinskyV22ControlnetPipeline(rebel, config)
    kept = [net.model[0] for net in pipeline.controlnet.nets] + [pipeline.movq.decoder.runtime]
    run = record(pipeline, rebel, tmp_path, config={"movq": {"activate_profiler": True}})
    assert run.calls.select("submodule", "stage", "step", "device", "ops_traced").rows() == [
        ("controlnet", "denoise", 0, "rbln:1", True),
        ("unet", "denoise", 0, "rbln:0", True),
        ("movq", "decode", -1, "rbln:0", True),
    ]
    layers = run.commands.filter(run.commands["track"] == "Device Workload")["layer"]
    assert layers.to_list() == [
        "nets[0].model[0]",
        "nets[1].model[0]",
        "model[0]",
        "decoder.runtime",
    ]
    known = run.info.submodules
    assert [len(known[name].runtime_calls) for name in ("controlnet", "unet", "movq")] == [2, 1, 1]
    assert [known[name].writes_shards for name in ("controlnet", "movq")] == [True, False]
    assert run.drops == ()
    now = [net.model[0] for net in pipeline.controlnet.nets] + [pipeline.movq.decoder.runtime]
    assert all(one is before for one, before in zip(now, kept, strict=True))


def test_a_shared_submodule_is_given_back_in_any_order(rebel, tmp_path):
    """Two runs of two pipelines with one transformer: its calls are noted once, and it is free
    again when both have ended."""
    first, second = (RBLNStableDiffusion3Pipeline(rebel) for _ in range(2))
    second.transformer = first.transformer
    runtime = first.transformer.model[0]
    one = profiler.profile(first, out=tmp_path, name="one", ops="all", clock=rebel.clock)
    two = profiler.profile(second, out=tmp_path, name="two", clock=rebel.clock)
    one.__enter__()
    two.__enter__()
    first(num_inference_steps=1)
    one.__exit__(None, None, None)
    second(num_inference_steps=1)
    two.__exit__(None, None, None)
    assert first.transformer.model[0] is runtime
    assert profiler.load(two.path).calls["ops_traced"].to_list() == [True] * 8


def test_a_profile_holds_no_runtime(rebel, tmp_path):
    """`del pipe` within a run frees its runtimes, and with them the device's memory."""
    pipeline = RBLNStableDiffusion3Pipeline(rebel)
    runtime = weakref.ref(pipeline.transformer.model[0])
    with profiler.profile(pipeline, out=tmp_path, clock=rebel.clock) as run:
        pipeline(num_inference_steps=1)
        del pipeline
        run._given, run._pipelines = None, []
        gc.collect()
        assert runtime() is None


def test_the_manifest_numbers_runtime_calls(rebel, tmp_path):
    """Every runtime call has a number in its order and its call's index; warm-up has -1."""
    pipeline = RBLNStableDiffusion3Pipeline(rebel, {"vae": {"activate_profiler": False}})
    pipeline.vae.tiles = 2
    with profiler.profile(pipeline, out=tmp_path, clock=rebel.clock) as run:
        with run.warmup():
            pipeline.transformer(hidden_states=None)
        pipeline(num_inference_steps=1)
    known = profiler.load(run.path).info.submodules
    first = known["transformer"].runtime_calls[0][0]
    noted = {
        name: [(number - first, call) for number, call in facts.runtime_calls]
        for name, facts in known.items()
    }
    assert noted == {
        "text_encoder": [(1, 0), (4, 3)],
        "text_encoder_2": [(2, 1), (5, 4)],
        "text_encoder_3": [(3, 2), (6, 5)],
        "transformer": [(0, -1), (7, 6)],
        "vae": [(8, 7), (9, 7)],
    }
    assert {name for name, facts in known.items() if not facts.writes_shards} == {"vae"}


def test_calls_that_are_left_out_are_numbered_all_the_same(rebel, tmp_path):
    """Steps that `ops` leaves out have no operators; their runtime calls keep their numbers."""
    pipeline = RBLNStableDiffusion3Pipeline(rebel)
    with profiler.profile(pipeline, out=tmp_path, clock=rebel.clock, ops="every:2") as run:
        pipeline(num_inference_steps=3)
    loaded = profiler.load(run.path)
    steps = loaded.calls.filter(loaded.calls["step"] >= 0)
    assert steps["ops_traced"].to_list() == [True, False, True]
    noted = loaded.info.submodules["transformer"].runtime_calls
    assert [call for _, call in noted] == [6, 7, 8]


def test_a_submodule_with_its_runtimes_elsewhere_has_calls_alone(rebel, tmp_path):
    """Of a submodule of another build the calls are recorded, on its device, and no operators."""
    pipeline = RBLNStableDiffusion3Pipeline(rebel, ON_ONE)
    encoder = pipeline.text_encoder_3
    encoder.model = tuple(encoder.model)
    run = record(pipeline, rebel, tmp_path)
    found = run.calls.filter(run.calls["submodule"] == "text_encoder_3")
    assert found.select("device", "ops_traced").rows() == [("rbln:1", False)] * 2
    assert run.calls["ops_traced"].sum() == 6


@pytest.mark.parametrize(
    ("activated", "variable", "expected"),
    [(True, "", True), (False, "1", False), (None, "1", True), (None, "0", False)],
)
def test_which_submodules_write_files(rebel, tmp_path, monkeypatch, activated, variable, expected):
    """`activate_profiler` decides; where it says nothing, RBLN_PROFILER does."""
    monkeypatch.setenv("RBLN_PROFILER", variable)
    config = {"transformer": {"activate_profiler": activated}}
    run = record(RBLNStableDiffusion3Pipeline(rebel, config), rebel, tmp_path)
    assert run.info.submodules["transformer"].writes_shards is expected


@pytest.mark.parametrize(
    ("of_runtime", "device_map", "device", "expected"),
    [
        (3, {"compiled_model": 2}, 1, "rbln:3"),
        (None, {"compiled_model": 2}, 1, "rbln:2"),
        (None, {"compiled_model": [4, 5]}, 1, "rbln:4"),
        (None, {"part": 2}, 1, "rbln:2"),
        (None, {}, 1, "rbln:1"),
        (-1, {}, None, "rbln:0"),
    ],
)
def test_where_a_device_is_found(rebel, of_runtime, device_map, device, expected):
    """The runtime says its device, else the configuration does; of several the first counts."""
    submodule = RBLNStableDiffusion3Pipeline(rebel).transformer
    submodule.model[0].device = of_runtime
    submodule.rbln_config.device_map, submodule.rbln_config.device = device_map, device
    assert rbln_device(submodule, "transformer") == expected


def test_a_configured_device_is_held_against_the_runtime(rebel, tmp_path):
    """RBLN's own form of configuration is checked: device 0 is `rbln:0`, not `rbln:1`."""
    pipeline = RBLNStableDiffusion3Pipeline(rebel, ON_ONE)
    config = {"text_encoder_3": {"device": 0, "activate_profiler": True}}
    with pytest.raises(InputError, match="runs on rbln:1"):
        profiler.profile(pipeline, config=config, out=tmp_path)
