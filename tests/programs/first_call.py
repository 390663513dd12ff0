"""A script with many live objects calls its first model; it prints what that call waited for."""

import gc
import sys

import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(16, 16), torch.nn.Linear(16, 16)

    def forward(self, x):
        return self.second(self.first(x).relu())


if "gc_off" in sys.argv:
    gc.disable()
net, x = Net(), torch.ones(2, 16)
modules = set(sys.modules)
waited = []


def collected(phase, info):
    frame = sys._getframe(1)
    while frame is not None and phase == "start":
        if frame.f_globals["__name__"].startswith("profiler."):
            waited.append(info["generation"])
            return
        frame = frame.f_back


gc.collect()
gc.callbacks.append(collected)
gc.set_threshold(1, 1, 1)
y = net(x)
gc.set_threshold(700, 10, 10)
imported = sorted(name for name in set(sys.modules) - modules if name.startswith("profiler."))
print("imported", imported, "full collections in our code", waited.count(2), gc.isenabled())
