"""Damage to recordings of XLA on GPUs and TPUs."""

import pytest

from profiler.importers import xplane
from tests.corpus import CORPUS, needs_corpus

JAX = CORPUS / "xplane" / "jax_conv_minimal_08.xplane.pb"
TPU = CORPUS / "xplane" / "xprof_tpu_inference_2.xplane.pb"

pytestmark = needs_corpus


@pytest.mark.parametrize("path", [JAX, TPU])
def test_healthy_recordings_raise_no_alarm(path):
    assert [note for note in xplane.read_run([path]).health if note.rule.damage] == []


def test_an_impossible_length_is_undone(monkeypatch):
    """One kernel of 1.6 s over those that follow it on its stream."""
    made, own = [], xplane._work

    def work(*given):
        made.append(own(*given))
        if len(made) == 5:
            made[4].end_ns += 1_600_000_000
        return made[-1]

    monkeypatch.setattr(xplane, "_work", work)
    run = xplane.read_run([JAX])
    (note,) = run.health
    (one,) = run.shortened
    assert one.recorded_ns - one.duration_ns == note.excess_ns > 1_590_000_000
    assert (note.rule, note.count, note.action) == ("overrun", 1, "shortened")
    assert made[4].end_ns - made[4].start_ns < 1_000_000


def test_kernels_without_a_length_are_set_aside(monkeypatch):
    """A file of XLA has no other form of an event that never ended."""
    made, own = [], xplane._work

    def work(*given):
        made.append(own(*given))
        if len(made) in (5, 9, 15):
            made[-1].end_ns = made[-1].start_ns
        return made[-1]

    monkeypatch.setattr(xplane, "_work", work)
    notes = [note for note in xplane.read_run([JAX]).health if note.rule.damage]
    assert [(str(note.rule), note.count) for note in notes] == [("no_length", 3)]


@pytest.mark.parametrize("line", ["XLA Modules", "XLA Ops"])
def test_an_impossible_length_on_a_tpu_is_undone(line, monkeypatch):
    """The fortieth module, or operation, of the first TPU is 1.6 s too long; those of a line run
    one after another, and what is in flight does not."""
    made, own = [], xplane._work

    def work(device, of_line, *more):
        one = own(device, of_line, *more)
        if of_line.name == line:
            made.append(one)
            one.end_ns += 1_600_000_000 if len(made) == 40 else 0
        return one

    monkeypatch.setattr(xplane, "_work", work)
    (note,) = xplane.read_run([TPU]).health
    assert (note.rule, note.device, note.count, note.action) == ("overrun", "tpu:0", 1, "shortened")
    assert note.excess_ns > 1_300_000_000  # up to the next one, which starts 0.2 s later
    assert made[39].recorded_ns - (made[39].end_ns - made[39].start_ns) == note.excess_ns
