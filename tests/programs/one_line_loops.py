"""Loops in one line, whose schedulers are made for each request: the first call of the model shows
a scheduler when Python has looked up its `step`."""

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


class UNet(Net):
    def forward(self, sample, timestep):
        return self.b(self.a(sample))


encoder, unet, net, decoder = Net(), UNet(), Net(), Net()


def plain(x, t):
    return net(x)


def twice(x, t):
    return net(x) + 2 * net(x)


def loop(kind, predict, x):
    scheduler = kind()
    scheduler.set_timesteps(3)
    for t in scheduler.timesteps:
        x = scheduler.step(predict(x, t), t, x, return_dict=False)[0]
    return x


with torch.no_grad():
    for kind in (DDIMScheduler, FlowMatchEulerDiscreteScheduler):
        for predict in (unet, plain, twice):
            for _ in range(2):
                loop(kind, predict, torch.ones(1, 4))
            print(float(decoder(loop(kind, predict, encoder(torch.ones(1, 4)))).sum()))
