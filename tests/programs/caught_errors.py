"""A service that catches what a model raises, and then ends by an exception of `argv[1]`."""

import sys

import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.b(self.a(x))


net = Net()
for width in (4, 3, 3, 4):
    try:
        net(torch.ones(1, width))
    except RuntimeError as error:
        print(type(error).__name__)
if sys.argv[1] == "another":
    raise RuntimeError("the client has gone")
try:
    net(torch.ones(1, 3))
except RuntimeError as error:
    raise ValueError("no such request") from error
