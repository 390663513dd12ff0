"""Replays against a small machine that is simulated anew: what it would have done is known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import profiler
from profiler.analysis.replay import Recording, Replayed, Script, recording_of, replay
from tests.async_runs import TICK_NS, Invocation, Launch, Machine, Piece, Wait
from tests.corpus import SD35, needs_corpus
from tests.runs import EPOCH

_LATENCY, _LAUNCH, _BACK = 2, 1, 1  # ticks
_DEPTH = 24


@dataclass(frozen=True)
class Do:
    """Host work of some ticks, then a kernel, copy or synchronization."""

    host: int
    kind: str
    length: int = 2
    stream: int = 0


def simulated(program: list[Do], *, depth: int = 1 << 20, pace: int = 1) -> Machine:
    """The machine that runs a program: one call, one device; a launch returns when its queue has
    room. What the host does takes `pace` times as long."""
    made = Machine(calls=[Invocation(0, "cuda:0", 0)])
    free, now = [0, 0], 0
    for each in program:
        now += each.host * pace
        if each.kind == "sync":
            end = max(now, *free)
            made.waits.append(Wait(0, 0, now, end))
            now = end
            continue
        own = [piece.end for piece in made.pieces if piece.stream == each.stream]
        waiting = [end for end in own if end > now + _LAUNCH * pace]
        returned = now + _LAUNCH * pace if len(waiting) < depth else waiting[-depth]
        start = max(free[each.stream], now + _LATENCY)
        free[each.stream] = start + each.length
        blocking = each.kind == "dma"
        if blocking:
            returned = max(returned, free[each.stream] + _BACK)
        layer = "cudaMemcpy" if blocking else "cudaLaunchKernel"
        launch = len(made.launches)
        made.pieces.append(
            Piece(0, "cuda:0", each.stream, each.kind, start, start + each.length, launch)
        )
        made.launches.append(Launch(0, 0, layer, now, returned))
        now = returned
    made.calls[0].returned = now
    return made


def replayed(machine: Machine, factor: float = 1.0, pace: float = 1.0) -> Replayed:
    """Its replay with kernels, and a host, that take so many times as long; copies stay."""
    run = machine.run()
    recording = recording_of(run)
    assert recording is not None
    kinds = run.commands["category"].cast(str).to_numpy()[recording.works.row]
    kept = recording.works.length
    lengths = np.where(kinds == "dma", kept, np.rint(kept * factor).astype(np.int64))
    script = whole(recording, machine)
    paced = Script(script.first, script.last, script.pace * pace, script.graph)
    return replay(recording, paced, lengths)


def whole(recording: Recording, machine: Machine) -> Script:
    end = max([machine.calls[0].returned, *(wait.end for wait in machine.waits)]) + 1
    return Script.of(np.array([EPOCH]), np.array([EPOCH + end * TICK_NS]))


def times(machine: Machine) -> list[tuple[int, int, int]]:
    """Stream, begin and end of each piece of work, in ns."""
    return sorted(
        (p.stream, EPOCH + p.start * TICK_NS, EPOCH + p.end * TICK_NS) for p in machine.pieces
    )


def times_of(found: Replayed, machine: Machine) -> list[tuple[int, int, int]]:
    run = machine.run()
    recording = recording_of(run)
    assert recording is not None
    tracks = run.commands["track"].cast(str).gather(recording.works.row[found.work])
    streams = [int(track.split()[1]) for track in tracks]
    return sorted(zip(streams, found.start.tolist(), found.done.tolist(), strict=True))


_DOING = st.builds(
    Do,
    st.integers(0, 4),
    st.sampled_from(("compute", "compute", "compute", "dma", "sync")),
    st.sampled_from((2, 4, 8)),
    st.integers(0, 1),
)
_PROGRAMS = st.lists(_DOING, max_size=40).map(lambda some: [Do(1, "compute"), *some])


def test_a_script_of_nothing_has_no_work():
    """A change may leave nothing of a pipeline call."""
    run = simulated([Do(1, "compute"), Do(1, "compute")]).run()
    recording = recording_of(run)
    assert recording is not None
    script = whole(recording, simulated([Do(1, "compute")]))
    nothing = Script(script.first[:0], script.last[:0], script.pace[:0], script.graph[:0])
    found = replay(recording, nothing)
    assert (len(found.start), found.device_span_ns) == (0, 0)


@given(_PROGRAMS)
def test_an_unchanged_replay_is_the_run(program):
    """Every piece of work of every program runs when it ran."""
    machine = simulated(program)
    assert times_of(replayed(machine), machine) == times(machine)


@given(_PROGRAMS, st.sampled_from((0.5, 2.0)))
def test_a_replay_is_what_the_machine_would_have_done(program, factor):
    """With kernels of another length every piece runs when the machine, simulated anew with these
    lengths, runs it: launches wait for streams, the host for copies and synchronizations."""
    changed = [
        Do(d.host, d.kind, d.length if d.kind == "dma" else round(d.length * factor), d.stream)
        for d in program
    ]
    machine = simulated(program)
    assert times_of(replayed(machine, factor), machine) == times(simulated(changed))


@given(_PROGRAMS, st.integers(2, 3))
def test_a_slower_host_takes_longer_but_does_not_wait_longer(program, pace):
    """Each piece runs when the machine, simulated anew with a slower host, runs it: waits for
    devices last as long as these need, no multiple of what they lasted."""
    machine = simulated(program)
    assert times_of(replayed(machine, pace=pace), machine) == times(simulated(program, pace=pace))


def test_halving_the_kernels_of_a_launch_bound_part_saves_nothing():
    """The host launches every 10 ticks what takes 4: with 2 the last one begins as late."""
    machine = simulated([Do(9, "compute", 4)] * 50)
    saved = replayed(machine).device_span_ns - replayed(machine, 0.5).device_span_ns
    assert saved == 2 * TICK_NS  # of the last kernel


def test_halving_the_kernels_of_a_device_bound_part_saves_half():
    """The device works without a pause; the host waits for it at the end."""
    machine = simulated([*[Do(0, "compute", 8)] * 50, Do(0, "sync")])
    assert replayed(machine, 0.5).device_span_ns == 50 * 4 * TICK_NS
    host = [int((r.end - r.begin)[0]) for r in (replayed(machine), replayed(machine, 0.5))]
    assert host[0] - host[1] == 50 * 4 * TICK_NS


def test_a_launch_into_a_full_queue_waits_anew():
    """The host waited for room, not by itself: with half the kernels' time it is done in half."""
    program = [*[Do(0, "compute", 20)] * 200, *[Do(3, "compute", 20)] * 5]
    machine = simulated(program, depth=_DEPTH)
    truth = simulated([Do(d.host, d.kind, 10) for d in program], depth=_DEPTH)
    assert times_of(replayed(machine, 0.5), machine)[-1] == times(truth)[-1]
    end = int(replayed(machine, 0.5).end[0]) - EPOCH
    assert end == pytest.approx((truth.calls[0].returned + 1) * TICK_NS, rel=0.01)


def test_a_graph_has_one_launch():
    """What was launched every 10 ticks runs back to back, its latency but once."""
    machine = simulated([Do(9, "compute", 4)] * 50)
    recording = recording_of(machine.run())
    assert recording is not None
    script = whole(recording, machine)
    graph = Script(script.first, script.last, script.pace, np.ones(1, dtype=np.bool_))
    found = replay(recording, graph)
    assert found.device_span_ns == 50 * 4 * TICK_NS
    assert int(found.start.min()) == EPOCH + _LATENCY * TICK_NS
    assert int(found.end[0]) == EPOCH + _LAUNCH * TICK_NS


def test_slices_are_left_out_and_repeated():
    """Three kernels, of which the second is left out and the third runs twice."""
    machine = simulated([Do(9, "compute", 4)] * 3)
    recording = recording_of(machine.run())
    assert recording is not None
    cuts = [EPOCH + tick * TICK_NS for tick in (0, 10, 20, 30)]
    first, last = (np.array([cuts[i + add] for i in (0, 2, 2)]) for add in (0, 1))
    found = replay(recording, Script.of(first, last))
    starts = [(start - EPOCH) // TICK_NS for start in found.start.tolist()]
    assert starts == [9 + _LATENCY, 19 + _LATENCY, 29 + _LATENCY]
    assert found.slice.tolist() == [0, 1, 2]


@needs_corpus
def test_sd35_replays_as_it_was_recorded():
    """The device span of 1171.63 ms within 1 ms, and no kernel further off than 0.1 ms."""
    run = profiler.load(SD35)
    recording = recording_of(run)
    assert recording is not None
    works = recording.works
    first, last = (run.spans["start_ns"].min(), recording.waits.end.max() + 1)
    found = replay(recording, Script.of(np.array([first]), np.array([last])))
    assert found.device_span_ns == pytest.approx(1_171_628_656, abs=1_000_000)
    assert int(np.abs(found.start - works.start[found.work]).max()) < 100_000


@needs_corpus
def test_half_the_kernels_of_sd35s_denoiser_save_nothing_and_its_negative_prompt_57_ms():
    """The denoiser is launch-bound: 1.17 s of device span as before; without the calls of the
    encoders for the negative prompt 1.11 s."""
    run = profiler.load(SD35)
    recording = recording_of(run)
    assert recording is not None
    works, calls = recording.works, run.calls
    first, last = run.spans["start_ns"].min(), recording.waits.end.max() + 1
    names = [*calls["submodule"].cast(str), ""]
    denoiser = np.array([name == "transformer" for name in names])[works.call]
    half = np.where(denoiser, works.length // 2, works.length)
    span = replay(recording, Script.of(np.array([first]), np.array([last])), half).device_span_ns
    assert span == pytest.approx(1.1716e9, rel=0.001)
    negative = [branch == "negative_prompt" for branch in calls["branch"].cast(str)]
    gone = calls.filter(negative)
    begins = np.append(first, gone["start_ns"] + gone["duration_ns"])
    ends = np.append(gone["start_ns"], last)
    assert replay(recording, Script.of(begins, ends), half).device_span_ns == pytest.approx(
        1.1145e9, rel=0.001
    )
