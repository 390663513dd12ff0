"""Selections: what they keep, and the sentences for what is not there."""

import re

import pytest

from profiler.analysis import Selection
from profiler.analysis.analyze import analyze
from profiler.errors import InputError
from tests.runs import TINY_CALLS, Command, make_run, tiny_run


def _kept(**names):
    return analyze(tiny_run(), Selection(**names))


def test_nothing_asked_keeps_everything():
    """The empty selection is false, and the counts are those of the run."""
    analysis = _kept()
    assert not Selection()
    assert (analysis.run.selected_calls, analysis.run.selected_commands) == (4, 12)


def test_stage_keeps_its_calls_and_host_work():
    """denoise: two calls with three commands each, two scheduler steps."""
    analysis = _kept(stage=("denoise",))
    assert (analysis.run.selected_calls, analysis.run.selected_commands) == (2, 8)
    assert analysis.submodules["submodule"].to_list() == ["transformer"]
    assert len(analysis.steps) == 2


def test_accounting_and_stages_stay_those_of_the_whole_run():
    """A part of a run has no end-to-end time of its own."""
    whole, part = _kept(), _kept(submodule=("vae",))
    assert part.accounting == whole.accounting
    assert part.stages.equals(whole.stages)


def test_stage_without_steps_has_none():
    """decode has no denoising steps."""
    analysis = _kept(stage=("decode",))
    assert (len(analysis.steps), analysis.step_summary.count) == (0, 0)


def test_submodule_has_no_host_work():
    """Work of no call belongs to no submodule."""
    analysis = _kept(submodule=("transformer", "vae"))
    assert (analysis.run.selected_calls, analysis.run.selected_commands) == (3, 8)
    assert not analysis.operators["host"].any()


def test_device_keeps_what_ran_there():
    """rbln:1 ran the text encoder."""
    analysis = _kept(device=("rbln:1",))
    assert analysis.calls["submodule"].to_list() == ["text_encoder"]
    assert analysis.devices["device"].to_list() == ["rbln:1"]


def test_device_keeps_calls_that_reach_into_it():
    """A call placed on rbln:0 with a command on cpu:0 is in the report of cpu:0."""
    commands = [
        Command(1, "cpu:0", "python", "host", "launch", 220, 10),
        Command(1, "rbln:0", "C", "compute", "mlp", 230, 10),
    ]
    analysis = analyze(tiny_run(commands=commands), Selection(device=("cpu:0",)))
    assert analysis.calls["call"].to_list() == [1]
    assert analysis.operators["layer"].to_list() == ["launch"]


@pytest.mark.parametrize(
    ("asked", "steps"),
    [(("0",), [0]), (("last",), [1]), (("0-1",), [0, 1]), (("1-99",), [1]), (("0", "1"), [0, 1])],
)
def test_steps(asked, steps):
    """One, a range, the last, several."""
    analysis = _kept(step=asked)
    assert analysis.steps["step"].to_list() == steps
    assert analysis.calls["step"].to_list() == steps


def test_filters_combine():
    """Both must hold."""
    analysis = _kept(submodule=("transformer",), step=("last",))
    assert analysis.calls["call"].to_list() == [2]
    assert analysis.operators["commands"].to_list() == [2, 1]


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        ({"stage": ("upscale",)}, "no stage 'upscale' in this run: there is decode, denoise, enc"),
        ({"submodule": ("unet",)}, "there is text_encoder, transformer, vae"),
        ({"device": ("cuda:0",)}, "there is cpu:0, rbln:0, rbln:1"),
        ({"step": ("7",)}, "no step '7' in this run: there is 0-1; write 7, 0-3, 0-3,7 or last"),
        ({"step": ("first",)}, "no step 'first' in this run"),
    ],
)
def test_unknown_names_list_what_there_is(names, sentence):
    """One sentence with the existing names."""
    with pytest.raises(InputError, match=re.escape(sentence)):
        _kept(**names)


def test_step_of_a_run_without_steps():
    """Encoders only."""
    with pytest.raises(InputError, match="it has no steps"):
        analyze(make_run(TINY_CALLS[:1]), Selection(step=("last",)))


def test_filters_that_exclude_each_other():
    """vae is not in denoise: an empty report would help nobody."""
    with pytest.raises(InputError, match="leaves no call: drop one of the filters"):
        _kept(submodule=("vae",), stage=("denoise",))
