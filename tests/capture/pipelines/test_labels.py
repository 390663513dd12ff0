"""Steps and branches from what schedulers and pipelines show, one rule a test."""

from __future__ import annotations

import copy
import copyreg
import pickle
from types import SimpleNamespace

import numpy as np
import pytest

from profiler.capture.patching import Wraps
from profiler.capture.pipelines.steps import (
    CACHE_CONTEXT,
    PipelineLabels,
    Stages,
    Steps,
    by_name,
    denoiser_branch,
    first_batch,
    returned_names,
)
from profiler.trace import NO_STEP

FOUR = np.zeros((4, 16, 8, 8), np.float32)


@pytest.mark.parametrize(
    ("context", "arguments", "given", "latents", "guided", "branch"),
    [
        ("cond", {"hidden_states": FOUR}, "", 2, True, "cond"),
        ("uncond", {"hidden_states": FOUR}, "prompt", 2, True, "uncond"),
        ("cond_uncond", {"hidden_states": FOUR}, "", 2, True, "batched"),
        ("", {"hidden_states": FOUR, "skip_layers": [7]}, "prompt", 4, True, "skip_layers"),
        ("", {"hidden_states": FOUR, "skip_layers": None}, "prompt", 4, True, "cond"),
        ("", {"hidden_states": FOUR}, "negative_prompt", 4, True, "uncond"),
        ("", {"hidden_states": FOUR}, "", 2, False, "batched"),
        ("", {"hidden_states": FOUR}, "", 4, True, "cond"),
        ("", {"hidden_states": FOUR}, "", 3, True, "cond"),
        ("", {"sample": FOUR}, "", 1, False, "batched"),
        ("", {"hidden_states": [FOUR]}, "", 2, True, "batched"),
        ("", {"hidden_states": FOUR}, "", 0, True, "batched"),
        ("", {"hidden_states": FOUR}, "", 0, False, "cond"),
        ("", {}, "", 2, True, "batched"),
    ],
)
def test_the_branch_of_a_denoiser(context, arguments, given, latents, guided, branch):
    """Cache context, then skip-layer guidance, then embeddings, then the batch, then guidance."""
    assert denoiser_branch(context, arguments, given, latents, guided=guided) == branch


@pytest.mark.parametrize(
    ("scheduler", "step"),
    [
        (SimpleNamespace(step_index=None), 0),
        (SimpleNamespace(step_index=None, begin_index=None), 0),
        (SimpleNamespace(step_index=None, begin_index=12), 12),
        (SimpleNamespace(step_index=13, begin_index=12), 13),
        (SimpleNamespace(step_index=np.array([4, 5])), 0),
        (SimpleNamespace(), 0),
        (None, NO_STEP),
    ],
)
def test_the_step_is_the_schedulers(scheduler, step):
    """`step_index`, before the first step `begin_index`, else 0; one for each sample is none.
    Without a scheduler there is no step."""
    assert Steps(lambda: scheduler).now() == step


def test_a_scheduler_in_use_is_searched_for_no_more() -> None:
    """Searching looks through all that a pipeline holds: too much for each call of each step."""
    used, searches = SimpleNamespace(step_index=3, timesteps=[9, 6, 3, 0]), []

    def search() -> SimpleNamespace:
        searches.append(1)
        return used

    steps = Steps(search)
    assert not steps.use(used)
    for _ in range(3):
        assert not steps.use(used)
        assert (steps.now(), steps.last()) == (3, 3)
    assert len(searches) == 1


def test_a_scheduler_without_index_is_followed():
    """Each `scheduler.step` that returns closes a step; a new schedule begins at 0 again."""
    steps = Steps(SimpleNamespace)
    seen = [steps.now()]
    steps.end(0)
    seen.append(steps.now())
    steps.restart()
    seen.append(steps.now())
    assert seen == [0, 1, 0]


@pytest.mark.parametrize(
    ("timesteps", "timestep", "step"),
    [
        ([9, 6, 3, 0], 6, 1),
        ([9, 6, 3, 0], 5, 0),
        ([9, 6, 6, 0], 6, 0),
        (np.array([9, 6, 3, 0]), np.int64(3), 2),
        (SimpleNamespace(device="cuda:0"), 6, 0),
        (None, 6, 0),
    ],
)
def test_a_timestep_is_of_the_step_at_its_place(timesteps, timestep, step):
    """For schedulers without an index; else calls count: where the place is unknown or one of
    several, and where reading the schedule would wait for a device."""
    assert Steps(lambda: SimpleNamespace(timesteps=timesteps)).now(timestep) == step


def test_a_loop_over_a_schedule_shows_the_places_of_its_timesteps():
    """Of a tensor's own entries, also if two are equal."""
    torch = pytest.importorskip("torch", reason="needs the torch extra")
    scheduler = SimpleNamespace(timesteps=torch.tensor([9, 6, 6, 0]))
    steps = Steps(lambda: scheduler)
    assert [steps.now(t) for t in scheduler.timesteps] == [0, 1, 2, 3]
    assert [steps.now(t.expand(2)) for t in scheduler.timesteps[2:]] == [2, 3]
    assert steps.now(scheduler.timesteps[3].clone()) == 0  # two are equal: no place


def test_two_calls_of_one_step_are_parts_of_it():
    """As of the views of a panorama, until the schedule is another one. What counts its steps
    itself has a step for each call."""
    scheduler = SimpleNamespace(timesteps=[9, 6])
    steps = Steps(lambda: scheduler)
    assert [steps.end(step) for step in (0, 0, 1, 1)] == [False, True, False, True]
    steps.restart()
    assert not steps.end(1)
    counted = Steps(lambda: SimpleNamespace(step_index=1))
    assert [counted.end(1), counted.end(1)] == [False, False]


def labels():
    return PipelineLabels(Steps(SimpleNamespace), Stages(lambda *_: None))


BOTH = ["prompt", "negative_prompt", "prompt_embeds"]
ONE = ["prompt", "prompt_embeds"]


def encoded(state, names, count=2, **arguments):
    state.begin_encoding(arguments, names)
    return [state.encoder_branch("text_encoder") for _ in range(count)]


def test_encoders_follow_the_order_of_prompts():
    """One `encode_prompt` for both prompts takes the prompt first; embeddings are not encoded;
    one for each is called for the prompt first."""
    assert encoded(labels(), BOTH, prompt="a") == ["prompt", "negative_prompt"]
    assert encoded(labels(), BOTH, prompt_embeds=FOUR) == ["negative_prompt"] * 2
    assert encoded(labels(), []) == ["prompt", "negative_prompt"]
    state = labels()
    assert encoded(state, ONE, 1, prompt="a") == ["prompt"]
    assert encoded(state, ONE, 1, prompt="b") == ["negative_prompt"]


def test_embeddings_tell_for_which_prompt_the_denoiser_works():
    """The tensor that `encode_prompt` returned, itself, names the branch; a copy does not."""
    prompt, negative = FOUR.copy(), FOUR.copy()
    state = labels()
    state.latents_batch = 4
    encoded(state, BOTH, prompt="a")
    state.end_encoding((prompt, negative, None, 3), BOTH)

    def branch(embeddings):
        arguments = {"hidden_states": FOUR, "encoder_hidden_states": embeddings}
        return state.denoiser_branch("transformer", arguments, guided=True)

    assert [branch(prompt), branch(negative), branch(FOUR)] == ["cond", "uncond", "cond"]
    token = CACHE_CONTEXT.set("uncond")
    assert branch(prompt) == "uncond"
    CACHE_CONTEXT.reset(token)


def encode_chroma(prompt, negative_prompt):
    prompt_embeds, text_ids, mask, negative_prompt_embeds = prompt, 1, 2, negative_prompt
    if prompt is None:
        return None, None
    return prompt_embeds, text_ids, mask, negative_prompt_embeds


def test_variables_that_are_returned_tell_the_prompt():
    """Chroma's negative embeddings are not the second thing that `encode_prompt` returns."""
    prompt, negative = FOUR.copy(), FOUR.copy()
    returned = returned_names(encode_chroma)
    assert returned == ("prompt_embeds", "text_ids", "mask", "negative_prompt_embeds")
    assert returned_names(len) == returned_names(lambda: 1) == ()
    state = labels()
    state.latents_batch = 4
    state.end_encoding(encode_chroma(prompt, negative), BOTH, returned)
    found = [
        state.denoiser_branch("transformer", {"encoder_hidden_states": one}, guided=False)
        for one in (prompt, negative)
    ]
    assert found == ["cond", "uncond"]


def test_arguments_by_name_and_batch():
    """Positional arguments get their parameters' names; a batch is a first dimension."""
    assert by_name(["sample"], (1, 2), {"t": 3}) == {"sample": 1, "arg1": 2, "t": 3}
    assert [first_batch(v) for v in (FOUR, (FOUR, 1), [None, FOUR], None, np.float32(1))] == [
        *(4, 4, 4),
        *(0, 0),
    ]


class Plain:
    def work(self, value):
        return [value]

    def __call__(self, value):
        return self.work(value)


def tagged(tag):
    return lambda original, args, kwargs: [tag, *original(*args, **kwargs)]


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("method", ["around", "around_method"])
def test_wraps_are_undone_in_any_order(method, first):
    """Two wraps of one method work together and alone, and leave nothing behind."""
    plain, wraps = Plain(), [Wraps(), Wraps()]
    for tag, wrap in zip("ab", wraps, strict=True):
        getattr(wrap, method)(plain, "work", tagged(tag))
    assert plain.work(1) == ["b", "a", 1]
    wraps[first].undo()
    assert plain.work(1) == ["b" if first == 0 else "a", 1]
    wraps[1 - first].undo()
    assert plain.work(1) == [1]
    assert vars(plain) == {}
    assert type(plain) is Plain


def test_what_somebody_else_put_over_a_wrap_stays():
    """Undoing below a later replacement keeps that, and our wrapper only passes on."""
    plain, wraps = Plain(), Wraps()
    wraps.around(plain, "work", tagged("ours"))
    below = plain.work
    plain.work = lambda value: ["theirs", *below(value)]
    assert plain.work(1) == ["theirs", "ours", 1]
    wraps.undo()
    assert plain.work(1) == ["theirs", 1]


class Named(Plain):
    """An object that is made with arguments by name, as its pickle says."""

    def __new__(cls, *, name):
        made = super().__new__(cls)
        made.name = name
        return made

    def __getnewargs_ex__(self):
        return (), {"name": self.name}


class Reduced(Plain):
    """An object that says how it is made itself."""

    def __reduce__(self):
        return Reduced, ()


class Registered(Plain):
    """An object of a class that pickle knows how to reduce."""


copyreg.pickle(Registered, lambda registered: (Registered, (), vars(registered)))


@pytest.mark.parametrize("made", [Plain(), Named(name="a"), Reduced(), Registered()])
@pytest.mark.parametrize("protocol", [0, 2, pickle.HIGHEST_PROTOCOL])
def test_a_wrapped_object_is_pickled_as_what_it_is(made, protocol):
    """Its pickles and copies have its own class and methods, however it is pickled."""
    wraps = Wraps()
    wraps.around_method(made, "__call__", tagged("ours"))
    wraps.around(made, "work", tagged("ours"))
    written = pickle.dumps(made, protocol)
    others = [pickle.loads(written), copy.deepcopy(made)]
    assert b"profiler.capture" not in written
    wraps.undo()
    assert [type(other) for other in others] == [type(made)] * 2
    assert [other(1) for other in others] == [[1]] * 2
    assert [getattr(other, "name", "") for other in others] == [getattr(made, "name", "")] * 2


def test_a_wrapped_call_concerns_one_object():
    """Another object of the changed class is not wrapped; the wrapped one keeps its type's name."""
    plain, wraps = Plain(), Wraps()
    wraps.around_method(plain, "__call__", tagged("ours"))
    assert plain(1) == ["ours", 1]
    assert type(plain)()(1) == [1]
    assert isinstance(plain, Plain)
    assert type(plain).__name__ == "Plain"
