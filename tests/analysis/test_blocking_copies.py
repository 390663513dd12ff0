"""What less work gains in calls that wait amid for a blocking copy, and what they gain without it:
the wait collapses, and all that is launched after it moves forward. The shape is that of an
open-vocabulary detector: unfused attention, a mask or a list of boxes copied within the call, and
the host's preparation of the next image between calls. A few lines simulate it, so what it would
have taken is known."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl
import pytest

from profiler.analysis import transfers
from profiler.analysis.analyze import analyze
from tests.importers.kineto.traces import Trace

_CALLS, _LAYERS, _PREPARE = 3, 8, 120_000  # the last in us
_TOKENS, _HEADS, _WIDTH = 3600, 12, 64
_SCORES = [_HEADS, _TOKENS, _TOKENS]
_QUERY, _KEY = [_HEADS, _TOKENS, _WIDTH], [_HEADS, _WIDTH, _TOKENS]
_LINEAR = [[_TOKENS, 768], [768, 768]]
_LAYER = (
    ("aten::mm", _LINEAR, 300),
    ("aten::bmm", [_QUERY, _KEY], 900),
    ("aten::add", [_SCORES, _SCORES], 1500),
    ("aten::_softmax", [_SCORES], 1500),
    ("aten::bmm", [_SCORES, _QUERY], 900),
    ("aten::mm", _LINEAR, 200),
)
_ATTENTION = {"aten::bmm", "aten::add", "aten::_softmax"}
_DEVICE = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "computeMajor": 9, "computeMinor": 0}
_COPIES = {  # name, and when its call returns from the copy's end on, in us
    "to_host": ("Memcpy DtoH (Device -> Pageable)", 9),
    "to_device": ("Memcpy HtoD (Pageable -> Device)", -5),
    "ahead": ("Memcpy HtoD (Pinned -> Device)", None),  # on a stream of its own, waited for by none
}


@dataclass
class _Machine:
    """A host that launches, and one stream that works through what was launched."""

    trace: Trace
    now: float = 0.0
    free: float = 0.0
    first: float = 0.0
    copies: bool = True
    copied: float = 0.0

    def launch(self, name: str, dims: list[list[int]], length: float) -> None:
        self.now += 12
        operator = {"Input Dims": dims, "Input type": ["c10::Half"] * len(dims)}
        external = self.trace.op(name, self.now - 11, 12.5, **operator)
        start = self._start()
        kernel = name.removeprefix("aten::") + "_kernel"
        self.trace.kernel(kernel, start, length, launched=self.now, external=external)
        self.free, self.now = start + length, self.now + 1.5

    def copy(self, kind: str, length: float = 50) -> None:
        name, tail = _COPIES[kind]
        self.now += 12
        if not self.copies:
            return
        if tail is None:
            self._copy_ahead(name, length)
            return
        start = self._start()
        self.free = start + length
        returned = self.free + tail
        number = self.trace.op("aten::copy_", self.now - 1, returned - self.now + 1)
        call = {"correlation": 10**6 + number}
        self.trace.event("cuda_runtime", "cudaMemcpyAsync", self.now, returned - self.now, **call)
        place = {"pid": 0, "tid": 7, "device": 0, "stream": 7, "External id": number}
        self.trace.event("gpu_memcpy", name, start, length, **place, **call)
        self.trace.event("cuda_runtime", "cudaStreamSynchronize", returned + 1, 1)
        self.now = returned + 3

    def _copy_ahead(self, name: str, length: float) -> None:
        start = max(self.copied, self.now + 4)
        number = self.trace.op("aten::copy_", self.now - 1, 4)
        call = {"correlation": 10**6 + number}
        self.trace.event("cuda_runtime", "cudaMemcpyAsync", self.now, 2, **call)
        place = {"pid": 0, "tid": 8, "device": 0, "stream": 8, "External id": number}
        self.trace.event("gpu_memcpy", name, start, length, **place, **call)
        self.copied, self.now = start + length, self.now + 3

    def _start(self) -> float:
        start = max(self.free, self.now + 4)
        self.first = self.first or start
        return start


def _simulated(copy: str, of_attention: float = 1.0) -> tuple[Trace, float]:
    """The trace of some calls whose attention takes so many times as long; its device span in
    ns."""
    machine = _Machine(Trace(deviceProperties=[_DEVICE]))
    for _ in range(_CALLS):
        machine.now += _PREPARE
        begin = machine.now
        for layer in range(_LAYERS):
            for name, dims, length in _LAYER:
                factor = of_attention if name in _ATTENTION else 1.0
                machine.launch(name, dims, length * factor)
            if layer == _LAYERS // 2:
                machine.copy(copy)
        machine.copy("to_host")
        machine.trace.module("Owlv2ForObjectDetection_0", begin, machine.now + 2 - begin)
        machine.now += 5
    return machine.trace, (machine.free - machine.first) * 1e3


@pytest.mark.parametrize("copy", ["to_host", "to_device"])
def test_work_ahead_of_a_blocking_copy_gains_what_it_takes_less(tmp_path, copy):
    """Unfused attention gains what the calls, simulated anew without what fusing takes off the
    device, gain, with the host as recorded and with one that is never late: within 1 %."""
    trace, span = _simulated(copy)
    analysis = analyze(trace.imported(tmp_path))
    (found,) = (one for one in analysis.findings if one.rule == "unfused_attention")
    attention = _CALLS * _LAYERS * 1e3 * sum(row[2] for row in _LAYER if row[0] in _ATTENTION)
    shorter = 1.0 - found.effect.less_ns / attention
    truth = span - _simulated(copy, shorter)[1]
    assert truth > 0.9 * attention * (1.0 - shorter)
    assert found.cost_ns == pytest.approx(truth, rel=0.01)
    assert found.evidence["gain_low_ns"] == pytest.approx(truth, rel=0.01)
    assert found.evidence["gain_high_ns"] == pytest.approx(truth, rel=0.01)


_LONG, _SHORT = 2_000.0, 3.0  # us; a launch takes 13


def _launching(kind: str, length: float, *, copies: bool = True) -> tuple[Trace, float]:
    """The trace of calls whose long kernels let the host get ahead of a copy, so that it waits, and
    short ones behind it are launched late; without the copies for which it does not wait. Its
    device span in ns."""
    machine = _Machine(Trace(deviceProperties=[_DEVICE]), copies=copies)
    for _ in range(_CALLS):
        begin = machine.now
        for kernel in (_LONG, _SHORT):
            for number in range(100 if kernel == _SHORT else 5):
                if kind == "ahead" and number in (1, 2):
                    machine.copy(kind, length)
                machine.launch("aten::mm", _LINEAR, kernel)
            if kernel == _LONG and kind != "ahead":
                machine.copy(kind, length)
        machine.trace.module("Net_0", begin, machine.now + 2 - begin)
        machine.now += 5
    return machine.trace, (machine.free - machine.first) * 1e3


@pytest.mark.parametrize("replays", [True, False], ids=["replayed", "not replayed"])
@pytest.mark.parametrize(
    ("kind", "length", "rule"),
    [("to_host", 800, "blocking_copies"), ("to_device", 900, "transfers_exposed")],
)
def test_a_copy_that_holds_the_host_gains_what_is_late_behind_it(
    tmp_path, monkeypatch, replays, kind, length, rule
):
    """The same calls simulated without it: by replay within 1 %, and far more than the device stood
    still. Of a run that cannot be replayed no less is said, and no more than it was idle."""
    if not replays:
        monkeypatch.setattr(transfers, "replay_gains", lambda _: None)
    trace, span = _launching(kind, length)
    analysis = analyze(trace.imported(tmp_path))
    (found,) = (one for one in analysis.findings if one.rule == rule)
    truth = span - _launching(kind, length, copies=False)[1]
    stopped_ns = found.evidence.get("stopped_ns", found.evidence.get("data_wait_ns"))
    assert truth > 1.5 * stopped_ns
    if replays:
        assert found.cost_ns == pytest.approx(truth, rel=0.01)
    else:
        late_ns = analysis.idle.select(pl.sum("launch_ns", "sync_ns")).sum_horizontal()[0]
        assert truth <= found.cost_ns <= stopped_ns + late_ns


def test_a_copy_beneath_computation_gains_nothing(tmp_path):
    """On a stream of its own, beneath long kernels: the same span with and without it, and nothing
    is found."""
    trace, span = _launching("ahead", 900)
    analysis = analyze(trace.imported(tmp_path))
    assert analysis.copies["hidden_share"].to_list() == [1.0]
    assert span == pytest.approx(_launching("ahead", 900, copies=False)[1], rel=0.001)
    assert not {"blocking_copies", "transfers_exposed"} & {one.rule for one in analysis.findings}
