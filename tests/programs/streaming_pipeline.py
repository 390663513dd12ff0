"""Pipelines whose calls return a generator, coroutine or async generator: what is recorded, and
what the caller sees of them."""

import asyncio
import inspect
import sys

import torch
from diffusers import DDIMScheduler, DiffusionPipeline
from diffusers.configuration_utils import ConfigMixin, register_to_config
from diffusers.models.modeling_utils import ModelMixin
from torch import nn

torch.set_num_threads(1)


class Net(ModelMixin, ConfigMixin):
    @register_to_config
    def __init__(self, width=4):
        super().__init__()
        self.a = nn.Linear(width, width)

    def forward(self, sample):
        return self.a(sample)


class Pipeline(DiffusionPipeline):
    def __init__(self, unet, scheduler):
        super().__init__()
        self.register_modules(unet=unet, scheduler=scheduler)

    def sampled(self, steps):
        self.scheduler.set_timesteps(steps)
        x = torch.ones(1, 4)
        for t in self.scheduler.timesteps:
            x = self.scheduler.step(self.unet(x), t, x).prev_sample
            yield x


class Stream(Pipeline):
    @torch.no_grad()
    def __call__(self, steps):
        got = 1
        for number, _ in enumerate(self.sampled(steps)):
            try:
                got = yield number * (got or 1)
            except KeyError as error:
                print("told", error)
        return "returned"


class Served(Pipeline):
    @torch.no_grad()
    async def __call__(self, steps):
        for _ in self.sampled(steps):
            await asyncio.sleep(0)
        return steps


class Feed(Pipeline):
    async def __call__(self, steps):
        try:
            for number, _ in enumerate(self.sampled(steps)):
                await asyncio.sleep(0)
                yield number
        finally:
            print("closed")


def generators(pipe):
    whole = pipe(3)
    print(inspect.isgenerator(whole), whole.__name__, inspect.getgeneratorstate(whole))
    print(list(whole), inspect.getgeneratorstate(whole))
    pipe(3)  # never begun
    first, second = pipe(2), pipe(2)  # in turns, with a call of the script's own between
    print(next(first), next(second), tuple(pipe.unet(torch.ones(1, 4)).shape))
    print(first.send(5), next(second), next(first, "over"), next(second, "over"))
    early = pipe(3)
    print(next(early), early.throw(KeyError("told")), early.close(), list(early))
    failing = pipe(3)
    next(failing)
    try:
        failing.throw(ValueError("no"))
    except ValueError as error:
        print("raised", error)


async def coroutines(pipe):
    made = pipe(3)
    print(inspect.iscoroutine(made), asyncio.iscoroutine(made), made.__qualname__)
    print(await made, await asyncio.gather(pipe(2), asyncio.create_task(pipe(2))))
    pipe(3)  # Python says that nobody awaits it


async def feeds(pipe):
    made = pipe(3)
    print(inspect.isasyncgen(made), [number async for number in made])
    early = pipe(3)
    print(await early.__anext__(), await early.aclose())
    async for number in pipe(3):
        print(number)
        break


what, classes = sys.argv[1], {"generators": Stream, "coroutines": Served, "feeds": Feed}
pipe = classes[what](Net(), DDIMScheduler(clip_sample=False))
if what == "generators":
    generators(pipe)
    left, unused = pipe(3), pipe(3)
    next(left)
else:
    asyncio.run({"coroutines": coroutines, "feeds": feeds}[what](pipe))
