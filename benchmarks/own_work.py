"""Our own work in a pipeline call: the embedded SD3 on sessions that answer at once.

Two pipelines on the same sessions, one of them with our hooks, called in turn: what one takes more
than the other, on the thread that runs it, is ours. It hardly feels what else the machine does.
In a tight loop our code stays in the processor's caches; a real session would displace it, so
the sessions may sweep memory before they answer, in time that is not counted.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import profiler
from profiler.pipelines.sd3 import StableDiffusion3Pipeline

SWEEP_BYTES = 8 << 20
PIXELS = 64  # height and width: the pipeline's own NumPy is to be small beside us
PAUSE_S = 0.02  # in which the thread that writes call files is done


class Instant:
    """A session that answers at once what the real one answered first."""

    def __init__(self, session: Any, swept: np.ndarray[Any, Any] | None = None) -> None:
        self.get_inputs, self.get_outputs = session.get_inputs, session.get_outputs
        self.sweeping_s = 0.0
        self.runs = 0
        self._session = session
        self._swept = swept
        self._outputs: list[Any] | None = None

    def run(self, names: Any, feeds: Any) -> list[Any]:
        if self._outputs is None:
            self._outputs = self._session.run(names, feeds)
        self.runs += 1
        if self._swept is not None:
            begin = time.thread_time()
            self._swept += 1
            self.sweeping_s += time.thread_time() - begin
        return self._outputs


def own_work(
    model: Path, ops: str, steps: int, pairs: int, *, cold: bool = False
) -> tuple[list[float], int]:
    """Seconds of each pair that are ours, and how many submodule calls a pipeline call has."""
    plain, hooked = (StableDiffusion3Pipeline.from_folder(model) for _ in range(2))
    swept = np.zeros(SWEEP_BYTES // 8) if cold else None
    sessions = {name: Instant(part.session, swept) for name, part in plain.parts.items()}
    place(sessions, plain)
    place(sessions, hooked)
    found = []
    with (
        tempfile.TemporaryDirectory() as folder,
        profiler.profile(hooked, ops=ops, out=folder, event_cap=1 << 60) as recording,
    ):
        place(sessions, hooked)  # where operators are traced, it was given sessions
        with recording.warmup():
            thread_seconds(hooked, sessions, 2)
        for number in range(pairs):
            taken = {}
            for one in (plain, hooked) if number % 2 else (hooked, plain):
                before = sum(session.runs for session in sessions.values())
                taken[one] = thread_seconds(one, sessions, steps)
                calls = sum(session.runs for session in sessions.values()) - before
                time.sleep(PAUSE_S)
            found.append(taken[hooked] - taken[plain])
    return found, calls


def transformer_inputs(pipeline: StableDiffusion3Pipeline) -> dict[str, Any]:
    """What the transformer is given in a step."""
    part, given = pipeline.transformer, {}

    def note(**inputs: Any) -> dict[str, Any]:
        given.update(inputs)
        return type(part).forward(part, **inputs)

    part.forward = note  # type: ignore[method-assign]
    pipeline("a cat", num_inference_steps=1, seed=0)
    del part.forward
    return given


def place(sessions: dict[str, Instant], pipeline: StableDiffusion3Pipeline) -> None:
    for name, part in pipeline.parts.items():
        part.session = sessions[name]


def thread_seconds(
    pipeline: StableDiffusion3Pipeline, sessions: dict[str, Instant], steps: int
) -> float:
    """Processor seconds of this thread in one pipeline call, without its sessions' sweeping."""
    swept = sum(session.sweeping_s for session in sessions.values())
    begin = time.thread_time()
    pipeline("a cat", num_inference_steps=steps, height=PIXELS, width=PIXELS, seed=0)
    seconds = time.thread_time() - begin
    return seconds - (sum(session.sweeping_s for session in sessions.values()) - swept)


def print_own_work(model: Path, ops: str, steps: int, pairs: int, base: tuple[str, float]) -> None:
    """What it is a submodule call and a pipeline call, and of `base`: a real one's name and
    seconds."""
    name, base_s = base
    for caches in ("warm", "cold"):
        seconds, calls = own_work(model, ops, steps, pairs, cold=caches == "cold")
        own = statistics.median(seconds)
        print(
            f"own work, ops {ops}, {caches} caches: {own * 1e3:.2f} ms a pipeline call, "
            f"{own / calls * 1e6:.0f} us a submodule call, {own / base_s:.2%} of {name}"
        )
