"""Damage to recordings of XLA on GPUs."""

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
