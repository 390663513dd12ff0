"""A server whose threads call their models for the first time at the same moment."""

import threading

import torch
from torch import nn

torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        return self.b(self.a(x))


class Vae(nn.Module):
    def __init__(self):
        super().__init__()
        self.decoder = Net()

    def decode(self, z):
        return self.decoder(z)


nets, vae = [Net() for _ in range(3)], Vae()
start = threading.Barrier(len(nets) + 1)


def serve(call):
    start.wait()
    with torch.no_grad():
        for _ in range(2):
            call(torch.ones(1, 8))


threads = [threading.Thread(target=serve, args=(call,)) for call in (*nets, vae.decode)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
