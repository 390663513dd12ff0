"""Somebody presses Ctrl-C while a large model is called for the first time."""

import signal

import torch


class Large(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
        self.pressed = False

    def named_children(self):  # what goes through a large model takes a while
        if not self.pressed:
            self.pressed = True
            signal.raise_signal(signal.SIGINT)
        return super().named_children()

    def forward(self, x):
        return self.second(self.first(x))


net = Large()
print("called", flush=True)
net(torch.ones(1, 8))
print("not interrupted")
