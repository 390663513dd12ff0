"""Loops of two threads that take turns, each with a scheduler of its own, then one whose model is
called in threads that have no scheduler."""

import threading
from concurrent.futures import ThreadPoolExecutor

import torch
from diffusers import DDIMScheduler, FlowMatchEulerDiscreteScheduler
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x):
        return self.b(self.a(x))


scheduler = FlowMatchEulerDiscreteScheduler()
encoder, ash, birch, decoder, helped = Net(), Net(), Net(), Net(), Net()
encoder(torch.ones(1, 4))
turns = threading.Barrier(2)
sums = {}


class Service:
    def __init__(self, name, model, scheduler):
        self.name, self.model, self.scheduler = name, model, scheduler

    @torch.no_grad()
    def serve(self, requests, steps):
        for _ in range(requests):
            x = torch.ones(1, 4)
            self.scheduler.set_timesteps(steps)
            for t in self.scheduler.timesteps:
                turns.wait()
                noise = self.model(x)
                turns.wait()
                x = self.scheduler.step(noise, t, x, return_dict=False)[0]
        sums[self.name] = float(decoder(x).sum())


threads = [
    threading.Thread(target=Service("ash", ash, DDIMScheduler()).serve, args=(3, 2)),
    threading.Thread(target=Service("birch", birch, DDIMScheduler()).serve, args=(1, 6)),
]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()

x = torch.ones(1, 4)
with ThreadPoolExecutor(2) as pool, torch.no_grad():
    scheduler.set_timesteps(3)
    for t in scheduler.timesteps:
        cond, uncond = pool.submit(helped, x), pool.submit(helped, 2 * x)
        x = scheduler.step(cond.result() + uncond.result(), t, x, return_dict=False)[0]
print(sorted(sums.items()), float(x.sum()))
