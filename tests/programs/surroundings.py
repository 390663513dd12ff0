"""What a process can see of itself besides its outputs, after models have run, in a program to
which every warning is an error and that prints debugging logs: random numbers, defaults of torch
and NumPy, filters, limits, and what is freed at once."""

import asyncio
import gc
import locale
import logging
import os
import random
import sys
import warnings
import weakref
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from torch import nn

logging.basicConfig(level=logging.DEBUG, stream=sys.stdout, format="%(name)s %(message)s")
warnings.simplefilter("error")
random.seed(0)
np.random.seed(0)
torch.manual_seed(0)
torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return self.b(self.a(x))


def look():
    print(random.random(), np.random.rand(), torch.rand(1).item(), torch.get_default_dtype())
    print(sorted(np.geterr().items()), locale.setlocale(locale.LC_ALL), Path.cwd())
    print([str(one[:3]) for one in warnings.filters], logging.root.handlers)
    print(torch.is_grad_enabled(), torch.get_num_threads(), torch.is_inference_mode_enabled())
    print(gc.isenabled(), gc.get_threshold(), gc.get_freeze_count(), sys.getrecursionlimit())
    print(sys.getswitchinterval(), sys.gettrace(), sys.getprofile(), sys.excepthook.__name__)
    mask = os.umask(0)
    print(mask, os.umask(mask), sorted(name for name in os.environ if "KINETO" in name))


def made():
    return onnxruntime.InferenceSession("encoder.onnx", providers=["CPUExecutionProvider"])


async def serve(net, session, feed):
    loop = asyncio.get_running_loop()
    for _ in range(4):
        tensor = await loop.run_in_executor(None, net, torch.ones(1, 4))
        array = await loop.run_in_executor(None, session.run, None, feed)
        print(tensor.sum().item().hex(), array[0].sum())


look()
x = np.ones((2, 3), np.float32)
with torch.device("meta"):
    empty = Net()
    print(empty(torch.ones(1, 4)).shape, empty(torch.ones(2, 4)).device)
gc.disable()
for _ in range(2):
    net, session, feed = Net(), made(), {"x": x.copy()}
    gone = [weakref.ref(one) for one in (net, net.a.weight, session)]
    with torch.no_grad():
        tensor = net(torch.ones(1, 4))
    array = session.run(None, feed)[0]
    gone.append(weakref.ref(tensor))
    print(
        tensor.sum().item().hex(), array.sum(), sys.getrefcount(array), sys.getrefcount(feed["x"])
    )
    del net, session, tensor
    print([one() is None for one in gone])
gc.enable()
asyncio.run(serve(Net().requires_grad_(False), made(), {"x": x}))
look()
