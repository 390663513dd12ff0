"""Calls on GPUs whose operators are not traced: CUDA events tell when the device was on them.

No GPU is needed: `queues.Gpus` follows the documented interface of `torch.cuda`.
"""

from __future__ import annotations

import pytest

import profiler
from profiler.analysis.findings.measures import works_behind
from profiler.capture.device_times import DeviceTimes
from profiler.capture.invocations import Invocation
from profiler.capture.torch.device_marks import StreamMarks
from profiler.testing import FakeClock
from profiler.trace.journal import read_journal
from tests.capture.torch.queues import Gpus
from tests.capture.toy import ToyPipeline
from tests.runs import told

MS = 1_000_000


@pytest.fixture
def gpus():
    return Gpus(FakeClock(MS))


def _call(times: DeviceTimes, gpus: Gpus, host_ns: int, device_ns: int) -> Invocation:
    """A call that takes the host and the device so long."""
    invocation = Invocation("transformer", "denoise", "", 0, "cuda:0", {})
    noting = times.begin(StreamMarks(gpus), invocation)
    invocation.start_ns = gpus.clock.now_ns()
    gpus.launch(device_ns)
    gpus.clock.advance(host_ns)
    if noting is not None:
        times.end(noting)
    invocation.end_ns = gpus.clock.now_ns()
    times.collect()
    return invocation


def _noted(invocation: Invocation) -> tuple[int, int]:
    return invocation.device_lag_ns, invocation.device_duration_ns


def test_calls_that_return_early_have_the_time_of_their_device(gpus):
    """Three calls of 1 ms of host and 10 ms of device: the second waits 9 ms for its turn, the
    third 18. Until the device has come to their ends nothing is known, and nobody waited."""
    times = DeviceTimes(gpus.clock)
    calls = [_call(times, gpus, 1 * MS, 10 * MS) for _ in range(3)]
    assert [_noted(call) for call in calls] == [(-1, -1)] * 3
    assert all(call.noting for call in calls)
    gpus.synchronize()
    times.collect()
    assert [_noted(call) for call in calls] == [(0, 10 * MS), (9 * MS, 10 * MS), (18 * MS, 10 * MS)]
    assert (any(call.noting for call in calls), gpus.waits) == (False, 0)


def test_the_first_call_behind_other_work_waits_once(gpus):
    """A queue that is not empty tells nothing of the device's clock: the first call's mark is
    waited for, and never another one."""
    gpus.launch(7 * MS)
    times = DeviceTimes(gpus.clock)
    calls = [_call(times, gpus, 1 * MS, 10 * MS) for _ in range(3)]
    times.finish()
    assert [_noted(call) for call in calls] == [(0, 10 * MS), (9 * MS, 10 * MS), (18 * MS, 10 * MS)]
    assert gpus.waits == 1 + 3  # the calls that `finish` waited for


def test_no_rounding_or_drift_adds_up(gpus):
    """An hour of steps of 1 s on a device whose clock runs 20 ppm fast: with floats of seven
    digits and one reading of both clocks the last would lie 72 ms off."""
    gpus.rate = 1.00002
    times, off = DeviceTimes(gpus.clock), []
    for number in range(3600):
        truth = gpus.clock.now_ns()
        call = _call(times, gpus, 1 * MS, 1000 * MS)
        gpus.clock.advance(999 * MS + (2 * MS if number % 50 == 49 else 0))
        times.collect()
        off.append(abs(call.start_ns + call.device_lag_ns - truth))
        assert abs(call.device_duration_ns - 1000 * MS) < 0.05 * MS
    assert max(off) < 3 * MS


def test_a_queue_that_is_never_empty_keeps_seven_digits(gpus):
    """Ten minutes without one moment of rest: each begin is told by an end near it, within 50 µs
    after 600 calls; by the first mark alone rounding would be 61 µs of each by itself."""
    gpus.launch(MS)
    times = DeviceTimes(gpus.clock)
    calls = [_call(times, gpus, 1000 * MS, 1000 * MS + 333) for _ in range(600)]
    times.finish()
    ends = [call.start_ns + call.device_lag_ns + call.device_duration_ns for call in calls]
    assert abs(ends[-1] - gpus.busy_until_ns) < 50_000


def test_a_graph_that_is_captured_gets_no_marks(gpus):
    """An event would become a part of the graph, or spoil it."""
    times = DeviceTimes(gpus.clock)
    gpus.capturing = True
    assert _noted(_call(times, gpus, MS, MS)) == (-1, -1)
    assert gpus.recorded == []


@pytest.mark.parametrize("device", ["cpu:0", "mps:0", "cuda", "meta:0"])
def test_other_devices_note_nothing(gpus, device):
    """Nor does a GPU before CUDA has been started, which is not done for this."""
    assert StreamMarks(gpus).mark(device) is None
    assert not StreamMarks(gpus).empty(device)
    gpus.started = False
    assert StreamMarks(gpus).mark("cuda:0") is None


def test_a_device_that_has_failed_leaves_the_host_s_times(gpus):
    """What waits for it is told the error once, and no call waits for its file any more."""
    times = DeviceTimes(gpus.clock)
    calls = [_call(times, gpus, MS, 10 * MS) for _ in range(2)]
    gpus.failed = True
    with pytest.raises(RuntimeError, match="illegal memory access"):
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
