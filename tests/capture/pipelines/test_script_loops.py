"""What loops of a script's own made: scheduler, steps, sizes, and how often the denoiser ran."""

from __future__ import annotations

import weakref
from types import SimpleNamespace

import pytest

import profiler
from profiler.capture.pipelines.script_loops import ScriptLoops
from profiler.trace import Generation, Scheduler

torch = pytest.importorskip("torch", reason="needs the torch extra")
diffusers = pytest.importorskip("diffusers", reason="needs the torch extra")

pytestmark = pytest.mark.torch


class Denoiser(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, hidden_states, timestep):
        return self.b(self.a(hidden_states))


class Vae(torch.nn.Module):
    """Decodes latents [batch, 4, height, width], also of videos, to pixels twice as large."""

    def __init__(self):
        super().__init__()
        self.decoder = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))

    def decode(self, latents):
        sizes = (*latents.shape[2:-2], 2 * latents.shape[-2], 2 * latents.shape[-1])
        self.decoder(latents.new_zeros(1, 4))
        return SimpleNamespace(sample=latents.new_zeros(latents.shape[0], 3, *sizes))


def denoised(scheduler, transformer, latents, steps, predict):
    """Latents that a loop of `steps` has made."""
    scheduler.set_timesteps(steps)
    for t in scheduler.timesteps:
        latents = scheduler.step(predict(transformer, latents, t), t, latents)[0]
    return latents


def plain(transformer, latents, t):
    return transformer(latents, t)


def batched(transformer, latents, t):
    uncond, cond = transformer(torch.cat([latents, latents]), t).chunk(2)
    return uncond + 3 * (cond - uncond)


def twice(transformer, latents, t):
    uncond, cond = transformer(latents, t), transformer(hidden_states=latents, timestep=t)
    return uncond + 3 * (cond - uncond)


@pytest.mark.parametrize(
    ("shape", "predict", "expected"),
    [
        ((1, 4, 8, 4), plain, (1, 8, 16, None, 1)),
        ((2, 4, 8, 4), batched, (2, 8, 16, None, 2)),
        ((2, 4, 8, 4), twice, (2, 8, 16, None, 2)),
        ((1, 4, 5, 8, 4), batched, (1, 8, 16, 5, 2)),
    ],
)
def test_a_loop_beside_a_scheduler(tmp_path, shape, predict, expected):
    """Class and changed configuration of the scheduler, steps, batch of the latents, pixels of what
    was decoded, and two passes a step with guidance, in one batch or in two calls, of
    which nothing shows the branches."""
    scheduler = diffusers.FlowMatchEulerDiscreteScheduler(shift=3.0)
    parts = {"transformer": Denoiser(), "vae": Vae(), "scheduler": scheduler}
    with profiler.profile(parts, out=tmp_path, ops="none") as run, torch.no_grad():
        latents = denoised(scheduler, parts["transformer"], torch.ones(shape), 3, predict)
        parts["vae"].decode(latents)
    info = profiler.load(run.path).info
    guessed = [(drop.kind, drop.count) for drop in info.drops]
    assert guessed == ([("doubtful_label", 6)] if predict is twice else [])
    batch, width, height, frames, passes = expected
    assert info.generations == (
        Generation(
            scheduler=Scheduler(name="FlowMatchEulerDiscreteScheduler", config={"shift": 3.0}),
            steps=3,
            scheduled_steps=3,
            batch=batch,
            width=width,
            height=height,
            frames=frames,
            denoiser_passes=passes,
        ),
    )


def test_loops_one_after_another(tmp_path):
    """A loop begins with each new schedule; those that made the same are one; latents that nobody
    decodes have no pixels."""
    scheduler = diffusers.DDIMScheduler()
    parts = {"unet": Denoiser(), "scheduler": scheduler}
    with profiler.profile(parts, out=tmp_path, ops="none") as run, torch.no_grad():
        for steps in (2, 3, 2):
            denoised(scheduler, parts["unet"], torch.ones(1, 4, 4, 4), steps, plain)
    made = profiler.load(run.path).info.generations
    assert [(one.steps, one.batch, one.width, one.denoiser_passes) for one in made] == [
        (2, 1, None, 1),
        (3, 1, None, 1),
    ]


def test_loops_that_alternate(tmp_path):
    """Whose call is whose is not known where two schedulers step in turn: no passes are told."""
    first, second = diffusers.DDIMScheduler(), diffusers.DDIMScheduler()
    parts = {"unet": Denoiser(), "one": first, "two": second}
    with profiler.profile(parts, out=tmp_path, ops="none") as run, torch.no_grad():
        for scheduler in (first, second):
            scheduler.set_timesteps(2)
        latents = torch.ones(1, 4, 4, 4)
        for t in first.timesteps:
            for scheduler in (first, second):
                latents = scheduler.step(parts["unet"](latents, t), t, latents).prev_sample
    made = profiler.load(run.path).info.generations
    assert [(one.steps, one.denoiser_passes) for one in made] == [(2, None)]


class Counted:
    """A scheduler that counts its steps, and whose schedule was set before anybody watched."""

    def __init__(self, step_index):
        self.step_index = step_index


def with_id(identity, step_index):
    """A scheduler where another lay that is gone."""
    others = []
    while id(found := Counted(step_index)) != identity:
        assert len(others) < 10_000, "its memory is not used again"
        others.append(found)
    return found


def test_a_scheduler_where_another_lay_has_a_loop_of_its_own():
    """Python gives the id of an object that is gone to a later one: that one's third step is no
    third step of the first one's loop."""
    loops = ScriptLoops()
    scheduler = Counted(0)
    for step in range(2):
        loops.stepped(scheduler, step, ((None, 1, torch.ones(1, 4, 8, 8)), {}), step)
    identity = id(scheduler)
    del scheduler
    later = with_id(identity, 2)
    loops.stepped(later, 2, ((None, 1, torch.ones(3, 4, 8, 8)), {}), 2)
    assert [(made.steps, made.batch) for made in loops.generations([])] == [(2, 1), (1, 3)]


def test_loops_keep_no_scheduler_alive():
    """A scheduler that has stepped goes when the script lets go of it."""
    loops, scheduler = ScriptLoops(), Counted(0)
    loops.stepped(scheduler, 0, ((None, 1, torch.ones(1, 4, 8, 8)), {}), 0)
    gone = weakref.ref(scheduler)
    del scheduler
    assert gone() is None


def test_the_first_step_of_a_scheduler_that_a_call_in_its_step_shows(tmp_path):
    """In `scheduler.step(transformer(…))` the transformer's first call shows a script's scheduler
    when Python has looked `step` up already: that step counts, and so does its pass."""
    profiler.start(out=tmp_path, ops="none")
    scheduler, transformer = diffusers.FlowMatchEulerDiscreteScheduler(), Denoiser()
    scheduler.set_timesteps(4)
    latents = torch.ones(1, 4, 4, 4)
    with torch.no_grad():
        for t in scheduler.timesteps:
            latents = scheduler.step(transformer(latents, t), t, latents)[0]
    run = profiler.load(profiler.done())
    assert run.calls["step"].to_list() == [0, 1, 2, 3]
    (made,) = run.info.generations
    assert (made.steps, made.scheduled_steps, made.batch, made.denoiser_passes) == (4, 4, 1, 1)


class Edit:
    """A pipeline whose guidance nothing shows but the batches: it neither has
    `do_classifier_free_guidance` nor `prepare_latents`."""

    def __init__(self):
        self.unet, self.scheduler = Denoiser(), diffusers.DDIMScheduler()

    @torch.no_grad()
    def __call__(self, predict):
        return denoised(self.scheduler, self.unet, torch.ones(1, 4, 4, 4), 2, predict)


@pytest.mark.parametrize(("predict", "branch"), [(plain, "cond"), (batched, "batched")])
def test_a_pipeline_whose_steps_show_its_guidance(tmp_path, predict, branch):
    """The denoiser has twice the latents of `scheduler.step`: both branches, from the first step
    on."""
    pipeline = Edit()
    with profiler.profile(pipeline, out=tmp_path, ops="none") as run:
        pipeline(predict)
    calls = profiler.load(run.path).calls
    assert calls["branch"].to_list() == [branch] * 2
    assert calls["step"].to_list() == [0, 1]
