"""Settings of runs with several pipeline calls."""

from __future__ import annotations

from profiler.analysis.provenance import run_settings
from profiler.analysis.result import SettingNote
from profiler.text import Note


def test_what_differs_is_said_as_a_range_or_as_differing():
    """Numbers have a range, switches differ, and what few calls have says how many."""
    shared = {"height": 32}
    by_call = {
        "0": {"num_inference_steps": 9, "guidance_scale": 3.0, "tiled": True},
        "1": {"num_inference_steps": 2, "guidance_scale": 7.0, "tiled": False, "strength": 0.5},
    }
    assert run_settings(shared, by_call) == {
        "num_inference_steps": Note.of(SettingNote.RANGE, least=2, most=9),
        "guidance_scale": Note.of(SettingNote.RANGE, least=3.0, most=7.0),
        "tiled": Note.of(SettingNote.DIFFERS),
        "strength": Note.of(SettingNote.IN_SOME_CALLS, value=0.5, of=1, calls=2),
        "height": 32,
    }


def test_one_pipeline_call():
    """Its settings stay what they are."""
    assert run_settings({"steps": 2, "tiled": True}, {}) == {"steps": 2, "tiled": True}
