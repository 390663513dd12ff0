"""What a script may contain: a class of tensors and a mode that note what torch calls, models that
get their shape in their first call, cannot be hashed, or are a mock, forked children that
end by themselves, and an exception that fails to say its text."""

import os
import sys
from unittest import mock

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

torch.set_num_threads(1)
torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.a, self.b = layer(), layer()

    def forward(self, x):
        return self.b(self.a(x))


class Equal(Net):
    __hash__ = None

    def __eq__(self, other):
        return isinstance(other, Equal)


noted = []


class Noted(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        noted.append(function.__name__)
        return super().__torch_function__(function, types, args, kwargs or {})


class Counting(TorchFunctionMode):
    count = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.count += 1
        return function(*args, **(kwargs or {}))


class WordlessError(Exception):
    def __str__(self):
        raise ValueError("no text")


def child(end):
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        end()
        sys.exit(5)
    print("child", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


net, lazy, x = Net(lambda: nn.Linear(4, 4)), Net(lambda: nn.LazyLinear(4)), torch.ones(2, 4)
equal, mocked = Equal(lambda: nn.Linear(4, 4)), mock.create_autospec(net)
with torch.no_grad():
    for _ in range(2):
        print(float(lazy(x).sum()), float(net(x).sum()), float(equal(x).sum()))
    mocked("x")
    print(mocked.mock_calls)
    net(x.as_subclass(Noted))
    print(noted)
    with Counting() as mode:
        net(x)
    print(mode.count)
    child(lambda: None)
    child(lambda: print("in the child", float(net(x).sum())))
raise WordlessError
