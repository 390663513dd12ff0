"""What a script profiles and says itself: lists, dicts, modules, functions, names, steps."""

from __future__ import annotations

import pytest

import profiler
from profiler.capture import FakeClock
from profiler.errors import InputError
from tests.capture.toy import ToyPipeline

torch = pytest.importorskip("torch", reason="needs the torch extra")


class Net(torch.nn.Module):
    """A module of the script's own."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.inner(x)


class Codec(Net):
    """A VAE of the script's own."""

    def decode(self, x):
        return self.inner(x)


class Sampler:
    """A scheduler of the script's own."""

    def __init__(self, steps):
        self.timesteps = range(steps)

    def step(self, x):
        return x / 2


X = torch.ones(1, 4)


def labels(run):
    calls = profiler.load(run.path).calls
    return calls.select("submodule", "stage", "step").rows()


def looped(transformer, vae, sampler):
    x = X
    for _ in sampler.timesteps:
        x = sampler.step(transformer(x))
    return vae.decode(x)


LOOPED = [*(("transformer", "denoise", step) for step in range(4)), ("vae", "decode", -1)]


def test_modules_under_names(tmp_path):
    """A dict of modules beside a scheduler: four calls of the transformer, one of the VAE."""
    parts = {"transformer": Net(), "vae": Codec(), "sampler": Sampler(4)}
    with profiler.profile(parts, out=tmp_path, ops="none") as run:
        looped(*parts.values())
    assert labels(run) == LOOPED


def test_a_function_that_uses_modules(tmp_path):
    """What a function refers to is profiled under the names that it has there."""
    transformer, vae, sampler = Net(), Codec(), Sampler(4)

    def generate():
        return looped(transformer, vae, sampler)

    with profiler.profile(generate, out=tmp_path, ops="none") as run:
        generate()
    assert labels(run) == LOOPED


def test_one_module(tmp_path):
    """It is a submodule under its class's name, with its operators; without a scheduler its stage
    is `run`."""
    module = Net()
    with profiler.profile(module, out=tmp_path) as run:
        module(X)
    assert labels(run) == [("Net", "run", -1)]
    assert profiler.load(run.path).calls["ops_traced"].all()


def test_pipelines_in_a_list(tmp_path):
    """Base and refiner are two pipelines of one run, whose steps are their own."""
    clock = FakeClock(1_790_000_000_000_000_000)
    base, refiner = ToyPipeline(clock), ToyPipeline(clock)
    with profiler.profile([base, refiner], out=tmp_path, ops="none", clock=clock) as run:
        base(num_inference_steps=2)
        refiner(num_inference_steps=1)
    calls = profiler.load(run.path).calls
    assert len(calls) == 9 + 8
    assert calls.filter(calls["stage"] == "denoise")["step"].to_list() == [0, 1, 0]


def test_a_name_and_a_step_that_the_script_says(tmp_path):
    """Calls in `step(i)` are of that denoising step; what comes before and after has its stage."""
    with profiler.profile(Net(), out=tmp_path, ops="none") as run:
        brain = profiler.submodule("brain", Net())
        dreamer = profiler.submodule("dreamer", Net())
        x = brain(X)
        for i in range(2):
            with profiler.step(i):
                x = dreamer(x)
        profiler.submodule("maker", brain)
    assert labels(run) == [
        ("brain", "encode", -1),
        ("dreamer", "denoise", 0),
        ("dreamer", "denoise", 1),
    ]


def test_a_name_wins_over_the_pipelines(tmp_path):
    """What is named before the pipeline is profiled has that name in its calls, too."""

    class Pipeline:
        def __init__(self):
            self.net_7 = Net()

        def __call__(self, x):
            return self.net_7(x)

    pipeline = Pipeline()
    profiler.submodule("upscaler", pipeline.net_7)
    with profiler.profile(pipeline, out=tmp_path, ops="none") as run:
        pipeline(X)
    assert labels(run) == [("upscaler", "run", -1)]


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: profiler.submodule("a b", Net()), "'a b' cannot name a submodule"),
        (lambda: profiler.submodule("net", 3), "net is a int, which is no module"),
        (lambda: profiler.step(-1).__enter__(), "-1 is no step: give a whole number"),
        (lambda: profiler.profile([]), "list holds no module, session or runtime"),
    ],
)
def test_what_cannot_be_said_gets_one_sentence(call, sentence):
    """Names, objects, steps and lists that are none are refused."""
    with pytest.raises(InputError, match=sentence):
        call()
