"""Calls on GPUs whose operators are not traced: CUDA events tell when the device was on them.

No GPU is needed: `queues.Gpus` follows the documented interface of `torch.cuda`.
"""

from __future__ import annotations

import pytest

import profiler
from profiler.analysis.finding_text import works_behind
from profiler.capture import FakeClock, Invocation
from profiler.capture.recorder import DeviceTimes
from profiler.capture.torch.operators import StreamMarks
from profiler.trace import read_journal
from tests.capture.torch.queues import Gpus
from tests.capture.toy import ToyPipeline
from tests.runs import told

MS = 1_000_000


@pytest.fixture
def gpus():
    return Gpus(FakeClock(MS))


@pytest.fixture
def times(gpus):
    """Naps let a millisecond pass."""
    return DeviceTimes(gpus.clock, nap=lambda _: gpus.clock.advance(MS))


def _call(times, gpus, host_ns, device_ns, index=0):
    """A call that takes the host and a device so long."""
    invocation = Invocation("transformer", "denoise", "", 0, f"cuda:{index}", {})
    noting = times.begin(StreamMarks(gpus), invocation, invocation.device)
    invocation.start_ns = gpus.clock.now_ns()
    gpus.launch(device_ns, index)
    gpus.clock.advance(host_ns)
    if noting is not None:
        times.end(noting)
    invocation.end_ns = gpus.clock.now_ns()
    times.collect()
    return invocation


def _noted(invocation):
    return invocation.device_lag_ns, invocation.device_duration_ns


_THREE = [(0, 10 * MS), (9 * MS, 10 * MS), (18 * MS, 10 * MS)]


def test_calls_that_return_early_have_the_time_of_their_device(gpus, times):
    """Three calls of 1 ms of host and 10 ms of device: the second waits 9 ms for its turn, the
    third 18. Until the device has come to their ends nothing is known."""
    calls = [_call(times, gpus, 1 * MS, 10 * MS) for _ in range(3)]
    assert [_noted(call) for call in calls] == [(-1, -1)] * 3
    assert all(call.noting for call in calls)
    gpus.synchronize()
    times.collect()
    assert [_noted(call) for call in calls] == _THREE
    assert not any(call.noting for call in calls)


def test_calls_behind_other_work_are_told_by_a_later_mark(gpus, times):
    """A queue that is not empty tells nothing of its clock. Nobody waits for it: once it is empty,
    calls that it has noted meanwhile are placed."""
    gpus.launch(7 * MS)
    calls = [_call(times, gpus, 1 * MS, 10 * MS) for _ in range(3)]
    assert gpus.clock.now_ns() == 4 * MS
    gpus.synchronize()
    times.collect()
    behind = [(7 * MS + lag, length) for lag, length in _THREE]
    assert [_noted(call) for call in calls] == behind


def test_a_run_that_is_closed_waits_for_its_devices(gpus, times):
    """`finish` naps until they have come to the ends of their calls; later calls are not noted."""
    calls = [_call(times, gpus, 1 * MS, 10 * MS, index) for index in (0, 1, 0)]
    times.finish()
    assert [_noted(call) for call in calls] == [(0, 10 * MS), (0, 10 * MS), (8 * MS, 10 * MS)]
    assert _noted(_call(times, gpus, 1 * MS, 10 * MS)) == (-1, -1)


def test_a_device_that_is_stuck_holds_up_nothing(gpus, times):
    """One device waits for ever, as in a collective whose other side has died: `finish` ends after
    five seconds, with what the other one noted."""
    stuck = _call(times, gpus, 1 * MS, 10**15)
    other = _call(times, gpus, 1 * MS, 10 * MS, index=1)
    begin = gpus.clock.now_ns()
    times.finish()
    assert (_noted(stuck), stuck.noting) == ((-1, -1), False)
    assert _noted(other) == (0, 10 * MS)
    assert gpus.clock.now_ns() - begin < 6000 * MS


def test_no_rounding_or_drift_adds_up(gpus, times):
    """An hour of steps of 1 s on a device whose clock runs 20 ppm fast: with floats of seven
    digits and one reading of both clocks the last would lie 72 ms off."""
    gpus.rate = 1.00002
    off = []
    for number in range(3600):
        truth = gpus.clock.now_ns()
        call = _call(times, gpus, 1 * MS, 1000 * MS)
        gpus.clock.advance(999 * MS + (2 * MS if number % 50 == 49 else 0))
        times.collect()
        off.append(abs(call.start_ns + call.device_lag_ns - truth))
        assert abs(call.device_duration_ns - 1000 * MS) < 0.05 * MS
    assert max(off) < 3 * MS


def test_a_queue_that_is_never_empty_keeps_seven_digits(gpus, times):
    """Ten minutes without one moment of rest: each begin is told by an end near it, within 50 µs
    after 600 calls; by the first mark alone rounding would be 61 µs of each by itself."""
    calls = [_call(times, gpus, 1000 * MS, 1000 * MS + 333) for _ in range(600)]
    times.finish()
    last = calls[-1]
    end_ns = last.start_ns + last.device_lag_ns + last.device_duration_ns
    assert abs(end_ns - gpus.busy_until_ns[0]) < 50_000


def test_a_mark_that_took_the_host_long_is_no_anchor(gpus, times):
    """The thread lost its core between mark and clock: when the mark was passed is not known by
    that, and the call waits for one that is."""
    gpus.record_ns = 5 * MS
    call = _call(times, gpus, 1 * MS, 10 * MS)
    gpus.synchronize()
    times.collect()
    assert (_noted(call), call.noting) == ((-1, -1), True)
    gpus.record_ns = 0
    times.collect()
    assert sum(_noted(call)) == 10 * MS


def test_what_passed_before_the_call_is_no_part_of_it(gpus, times):
    """Of 5 ms between the mark and the call's begin the device was not on the call."""
    invocation = Invocation("vae", "decode", "", -1, "cuda:0", {})
    noting = times.begin(StreamMarks(gpus), invocation, "cuda:0")
    gpus.clock.advance(5 * MS)
    invocation.start_ns = gpus.clock.now_ns()
    gpus.launch(2 * MS)
    times.end(noting)
    times.finish()
    assert _noted(invocation) == (0, 2 * MS)


def test_a_graph_that_is_captured_is_left_alone(gpus, times):
    """An event would become a part of the graph, and asking for one would spoil it: also of calls
    that were made before."""
    before = _call(times, gpus, MS, MS)
    recorded = len(gpus.recorded)
    gpus.capturing = True
    assert _noted(_call(times, gpus, MS, MS)) == (-1, -1)
    times.collect()
    assert len(gpus.recorded) == recorded
    gpus.capturing = False
    times.finish()
    assert _noted(before) == (0, MS)


@pytest.mark.parametrize("device", ["cpu:0", "mps:0", "cuda", "meta:0"])
def test_other_devices_note_nothing(gpus, device):
    """Nor does a GPU before CUDA has been started, which is not done for this."""
    assert not StreamMarks(gpus).ready(device)
    gpus.started = False
    assert not StreamMarks(gpus).ready("cuda:0")


def test_a_device_that_has_failed_leaves_the_host_s_times(gpus, times):
    """It says so once, and no call waits for its file any more."""
    calls = [_call(times, gpus, MS, 10 * MS) for _ in range(2)]
    gpus.failed = True
    with pytest.raises(RuntimeError, match="illegal memory access"):
        times.collect()
    times.finish()
    assert [(call.noting, _noted(call)) for call in calls] == [(False, (-1, -1))] * 2


@pytest.fixture
def pipeline(gpus, monkeypatch):
    """A pipeline of torch modules, which take the host 1 ms and a GPU behind it 5 (encoders), 40
    (transformer) and 20 (decoder); the image is waited for. The modules themselves do nothing."""
    torch = pytest.importorskip("torch", reason="needs the torch extra")
    from profiler.capture.torch.backend import Torch

    class Part(torch.nn.Module):
        def __init__(self, duration_ns):
            super().__init__()
            self.duration_ns = duration_ns

        def forward(self, **inputs):
            gpus.launch(self.duration_ns)
            gpus.clock.advance(MS)
            return inputs

    class Vae(Part):
        def decode(self, latents):
            return self.forward(latents=latents)

    def decoded(image):
        gpus.synchronize()
        return image

    made = ToyPipeline(gpus.clock)
    made.text_encoder, made.text_encoder_2, made.text_encoder_3 = (Part(5 * MS) for _ in range(3))
    made.transformer, made.vae = Part(40 * MS), Vae(20 * MS)
    made.image_processor.postprocess = decoded
    monkeypatch.setattr(Torch, "device", lambda *_: "cuda:0")
    monkeypatch.setattr(Torch, "device_marks", lambda _: StreamMarks(gpus))
    return made


@pytest.mark.torch
def test_calls_alone_are_on_the_device_s_axis(tmp_path, gpus, pipeline):
    """Without operators each call takes what its device took, in the first pipeline call and in
    the second, and end to end they are all of it: 6 × 5, 4 × 40 and 20 ms."""
    with profiler.profile(pipeline, out=tmp_path, ops="none", clock=gpus.clock) as recorded:
        for _ in range(2):
            pipeline(num_inference_steps=4)
    run = profiler.load(recorded.path)
    assert run.drops == ()
    wanted = ([5 * MS] * 6 + [40 * MS] * 4 + [20 * MS]) * 2
    elapsed = run.tiles.calls["elapsed_ns"].to_list()
    assert max(abs(a - b) for a, b in zip(elapsed, wanted, strict=True)) < 1000
    assert run.calls["duration_ns"].to_list() == [MS] * 22
    analysis = profiler.analyze(run)
    assert works_behind(analysis) == ""
    stages = analysis.requests.select("encode_ns", "denoise_ns", "decode_ns").row(1)
    assert stages == pytest.approx((30 * MS, 160 * MS, 20 * MS), rel=1e-3)
    assert analysis.accounting.end_to_end_ns == pytest.approx(2 * 210 * MS, rel=1e-3)


@pytest.mark.torch
def test_a_killed_run_keeps_what_its_device_has_noted(tmp_path, gpus, pipeline):
    """While the run lasts its journal, from which `merge` takes calls that have no file, has the
    device's time of each call that the device has done."""
    with profiler.profile(pipeline, out=tmp_path, ops="none", clock=gpus.clock):
        pipeline(num_inference_steps=4)
        (bundle,) = tmp_path.iterdir()
        entries = read_journal(bundle)
    lasted = [entries[number].call.device_duration_ns for number in range(11)]
    wanted = [5 * MS] * 6 + [40 * MS] * 4 + [20 * MS]
    assert max(abs(a - b) for a, b in zip(lasted, wanted, strict=True)) < 1000


@pytest.mark.torch
def test_a_device_that_fails_costs_no_call(tmp_path, gpus, pipeline, capsys):
    """The device fails before the run is closed: the last call has the host's time, all others
    what was noted, and the run says why."""
    pipeline.image_processor.postprocess = lambda image: image  # and nobody waits for the last
    with profiler.profile(pipeline, out=tmp_path, ops="none", clock=gpus.clock) as recorded:
        pipeline(num_inference_steps=1)
        gpus.failed = True
    run = profiler.load(recorded.path)
    assert len(run.calls) == 8
    assert run.calls["device_duration_ns"].to_list()[-1] is None
    assert "illegal memory access" in capsys.readouterr().err
    (drop,) = run.drops
    assert "illegal memory access" in told(drop)


@pytest.mark.torch
def test_what_is_onloaded_for_a_call_is_timed_from_its_second_call_on(
    tmp_path, gpus, pipeline, monkeypatch
):
    """Offloaded weights are on `meta` when a call begins, and its result is on the GPU: from the
    second call on it is known where to put the marks. A report does not warn of the submodule."""
    from profiler.capture import pipelines
    from profiler.capture.torch.backend import Torch

    monkeypatch.setattr(Torch, "device", lambda *_: "meta:0")
    monkeypatch.setattr(pipelines.call_hooks, "output_device", lambda _: "cuda:0")
    with profiler.profile(pipeline, out=tmp_path, ops="none", clock=gpus.clock) as recorded:
        pipeline(num_inference_steps=3)
    run = profiler.load(recorded.path)
    steps = run.calls.filter(run.calls["stage"] == "denoise")
    assert steps["device_duration_ns"].is_null().to_list() == [True, False, False]
    assert steps["device"].cast(str).to_list() == ["cuda:0"] * 3
    assert works_behind(profiler.analyze(run)) == "cuda:0"  # the decoder has but one call


@pytest.mark.torch
def test_a_call_that_ends_on_another_device_is_not_timed(tmp_path, gpus, pipeline, monkeypatch):
    """What a model that lies on two devices does on the second is not between the first's marks."""
    from profiler.capture import pipelines

    monkeypatch.setattr(pipelines.call_hooks, "output_device", lambda _: "cuda:1")
    with profiler.profile(pipeline, out=tmp_path, ops="none", clock=gpus.clock) as recorded:
        pipeline(num_inference_steps=3)
    run = profiler.load(recorded.path)
    assert run.calls["device_duration_ns"].null_count() == len(run.calls)
    assert works_behind(profiler.analyze(run)) == "cuda:1"
