"""Workloads whose timelines can be worked out by hand, and strategies for others."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from profiler.prediction import Workload
from profiler.prediction.pieces import HOST
from profiler.prediction.workload import Task


def call(submodule, ns, device="cpu:0", branch="", *, first=None):
    """A call that takes `ns`; a list: what it took in each pipeline call."""
    times = np.array(ns if isinstance(ns, list) else [ns], dtype=np.int64).reshape(-1, 1)
    firsts = np.zeros(0, np.int64) if first is None else np.full(len(times), first, np.int64)
    name = f"{submodule}.{branch}" if branch else submodule
    return Task(name, submodule, "", branch, device, firsts, times)


def host(ns):
    """Host work that takes `ns`."""
    return Task(HOST, None, "", "", "", np.zeros(0, np.int64), np.array([[ns]], dtype=np.int64))


def workload(encode=(), step=(), decode=(), steps=1, **known):
    """What a request is made of; `weights` and `activations` as in Workload."""
    return Workload(
        encode=tuple(encode),
        step=tuple(step),
        decode=tuple(decode),
        steps=steps,
        weights=known.get("weights", {}),
        activations=known.get("activations", {}),
        measured_ns=np.zeros(known.get("calls", 1), dtype=np.int64),
        devices=tuple({t.device for t in (*encode, *step, *decode) if t.device}),
    )


_DEVICES = ("cpu:0", "cpu:1", "cpu:2")
_DURATIONS = st.integers(1, 1000)


@st.composite
def workloads(draw):
    """Encoders, steps with host work and sometimes two branches, decoding; each submodule on one
    of three devices."""
    place = st.sampled_from(_DEVICES)
    encode = []
    for number in range(draw(st.integers(0, 3))):
        encode.append(host(draw(_DURATIONS)))
        encode.append(call(f"text_encoder_{number}", draw(_DURATIONS), draw(place)))
    device = draw(place)
    branches = ("cond", "uncond") if draw(st.booleans()) else ("batched",)
    step = [call("transformer", draw(_DURATIONS), device, branch) for branch in branches]
    step.insert(draw(st.integers(0, len(step))), host(draw(_DURATIONS)))
    decode = [call("vae", draw(_DURATIONS), draw(place)), host(draw(_DURATIONS))]
    return workload(encode, step, decode, draw(st.integers(1, 4)))
