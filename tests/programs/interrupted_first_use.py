"""Somebody presses Ctrl-C while a large model is called for the first time."""

import signal

import torch


class Children(dict):
    pressed = False

    def values(self):  # what goes through a large model takes a while
        if not Children.pressed:
            Children.pressed = True
            signal.raise_signal(signal.SIGINT)
        return super().values()


class Large(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self._modules = Children()
        self.first, self.second = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

    def forward(self, x):
        return self.second(self.first(x))


net = Large()
print("called", flush=True)
net(torch.ones(1, 8))
print("not interrupted")
