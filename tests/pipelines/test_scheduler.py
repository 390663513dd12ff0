"""The NumPy scheduler is diffusers' FlowMatchEulerDiscreteScheduler."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.errors import InputError
from profiler.pipelines.pipeline import FlowMatchEulerDiscreteScheduler
from tests.examples import examples

CONFIGS = [
    {},
    {"shift": 3.0},
    {"shift": 1.7, "num_train_timesteps": 500},
    {"shift": 3.0, "shift_terminal": 0.1},
    {"shift": 3.0, "invert_sigmas": True},
    {"shift": 3.0, "use_karras_sigmas": True},
    {"shift": 3.0, "use_exponential_sigmas": True},
    {"use_dynamic_shifting": True},
    {"use_dynamic_shifting": True, "time_shift_type": "linear"},
    {"use_dynamic_shifting": True, "shift_terminal": 0.02},
]

CASES = [
    (config, steps)
    for config in CONFIGS
    for steps in (1, 2, 3, 28, 50)
    # diffusers divides by zero in that case, which test_misuse_is_refused has
    if not (steps == 1 and "shift_terminal" in config)
]


def started(config, steps, mu=None):
    scheduler = FlowMatchEulerDiscreteScheduler(config)
    scheduler.set_timesteps(steps, mu=mu)
    return scheduler


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("config", "steps"), CASES, ids=str)
def test_schedules_and_steps_equal_diffusers(torch_stack, config, steps):
    """Timesteps, sigmas and every step's result agree for each setting and number of steps."""
    torch = torch_stack.torch
    theirs = torch_stack.diffusers.FlowMatchEulerDiscreteScheduler(**config)
    mu = 0.7 if config.get("use_dynamic_shifting") else None
    ours = started(config, steps, mu)
    theirs.set_timesteps(steps, mu=mu)
    assert ours.timesteps.dtype == ours.sigmas.dtype == np.float32
    np.testing.assert_allclose(ours.timesteps, theirs.timesteps.numpy(), rtol=1e-6)
    np.testing.assert_allclose(ours.sigmas, theirs.sigmas.numpy(), rtol=1e-6, atol=1e-7)
    generator = np.random.default_rng(1)
    mine = generator.standard_normal((1, 16, 4, 6), dtype=np.float32)
    other = torch.from_numpy(mine)
    for t, their_t in zip(ours.timesteps, theirs.timesteps, strict=True):
        noise = generator.standard_normal(mine.shape, dtype=np.float32)
        mine = ours.step(noise, t, mine)
        other = theirs.step(torch.from_numpy(noise), their_t, other, return_dict=False)[0]
        assert ours.step_index == theirs.step_index
        np.testing.assert_allclose(mine, other.numpy(), atol=1e-5)


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("config", "steps"), CASES, ids=str)
def test_given_sigmas_equal_diffusers(torch_stack, config, steps):
    """A schedule of given sigmas, as FLUX and Qwen-Image have it, agrees for each setting."""
    theirs = torch_stack.diffusers.FlowMatchEulerDiscreteScheduler(**config)
    sigmas = np.linspace(1.0, 1 / steps, steps)
    ours = FlowMatchEulerDiscreteScheduler(config)
    ours.set_timesteps(steps, mu=0.7, sigmas=sigmas)
    theirs.set_timesteps(steps, mu=0.7, sigmas=sigmas)
    np.testing.assert_allclose(ours.timesteps, theirs.timesteps.numpy(), rtol=1e-6)
    np.testing.assert_allclose(ours.sigmas, theirs.sigmas.numpy(), rtol=1e-6, atol=1e-7)


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
def test_mu_equals_diffusers(torch_stack):
    """The shift for a number of image tokens is the one diffusers' pipeline works out."""
    from diffusers.pipelines.stable_diffusion_3 import pipeline_stable_diffusion_3 as theirs

    scheduler = FlowMatchEulerDiscreteScheduler({})
    for tokens in (64, 256, 1024, 4096, 9216):
        assert scheduler.mu(tokens) == pytest.approx(theirs.calculate_shift(tokens))


@settings(max_examples=examples(60), deadline=None)
@given(steps=st.integers(1, 200), shift=st.floats(0.2, 12.0))
def test_sigmas_fall_from_one_to_zero(steps, shift):
    """For any shift and number of steps, sigmas start at most at 1, fall, and end at 0."""
    scheduler = started({"shift": shift}, steps)
    assert len(scheduler.sigmas) == steps + 1
    assert scheduler.sigmas[0] <= 1 + 1e-6
    assert scheduler.sigmas[-1] == 0
    assert (np.diff(scheduler.sigmas) < 0).all()


@settings(max_examples=examples(30), deadline=None)
@given(steps=st.integers(1, 60), seed=st.integers(0, 2**32))
def test_constant_flow_reaches_its_end(steps, seed):
    """Along a constant velocity, any number of steps covers the whole way, sigma 1 to 0."""
    generator = np.random.default_rng(seed)
    start, velocity = generator.standard_normal((2, 1, 2, 2, 2), dtype=np.float32)
    scheduler = started({"shift": 3.0}, steps)
    latents = start
    for t in scheduler.timesteps:
        latents = scheduler.step(velocity, t, latents)
    np.testing.assert_allclose(latents, start - velocity * scheduler.sigmas[0], atol=1e-4)


def test_step_index_counts_the_steps_done():
    """The step is None before the first, then what the profiler reads as the step's number."""
    scheduler = started({"shift": 3.0}, 3)
    latents = np.zeros((1, 1, 2, 2), dtype=np.float16)
    seen = [scheduler.step_index]
    for t in scheduler.timesteps:
        latents = scheduler.step(latents, t, latents)
        seen.append(scheduler.step_index)
    assert seen == [None, 1, 2, 3]
    assert latents.dtype == np.float32
    scheduler.set_timesteps(2)
    assert scheduler.step_index is None


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"use_beta_sigmas": True}, "beta sigmas"),
        ({"stochastic_sampling": True}, "stochastic sampling"),
        ({"use_karras_sigmas": True, "use_exponential_sigmas": True}, "at once"),
        ({"time_shift_type": "cubic"}, "exponential or linear"),
        ({"shift": "3"}, "must be a number"),
        ({"num_train_timesteps": 0}, "positive integer"),
        ({"use_dynamic_shifting": 1}, "true or false"),
    ],
)
def test_settings_that_cannot_be_honored_are_refused(config, words):
    """A setting that would change the result, or makes no sense, is an error that names it."""
    with pytest.raises(InputError, match=words):
        FlowMatchEulerDiscreteScheduler(config)


def test_unknown_settings_are_said(caplog):
    """A setting that this scheduler has never heard of is named in a warning."""
    FlowMatchEulerDiscreteScheduler({"_class_name": "x", "warp": 2})
    assert "['warp']" in caplog.text


def test_misuse_is_refused():
    """No steps, no mu, a foreign timestep and a used-up schedule each have their sentence."""
    zeros = np.zeros((1, 1, 2, 2), dtype=np.float32)
    with pytest.raises(InputError, match="at least one"):
        started({}, 0)
    with pytest.raises(InputError, match="needs mu"):
        started({"use_dynamic_shifting": True}, 4)
    with pytest.raises(InputError, match="schedule of one step"):
        started({"shift_terminal": 0.1}, 1)
    scheduler = started({}, 1)
    with pytest.raises(InputError, match="not a timestep"):
        scheduler.step(zeros, 0.5, zeros)
    scheduler.step(zeros, scheduler.timesteps[0], zeros)
    with pytest.raises(InputError, match="used up"):
        scheduler.step(zeros, scheduler.timesteps[0], zeros)
