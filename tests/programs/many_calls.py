"""A service that calls a small pipeline again and again; prints by how much the process has grown
for each of the later calls: in bytes, and in objects that the collector knows."""

import gc
import statistics
import sys
from pathlib import Path

import torch
from diffusers import DiffusionPipeline
from diffusers.configuration_utils import ConfigMixin, register_to_config
from diffusers.models.modeling_utils import ModelMixin


class Part(ModelMixin, ConfigMixin):
    @register_to_config
    def __init__(self, width=8):
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.GELU())

    def forward(self, x):
        return self.inner(x)


class Small(DiffusionPipeline):
    def __init__(self, text_encoder, transformer, vae):
        super().__init__()
        self.register_modules(text_encoder=text_encoder, transformer=transformer, vae=vae)

    @torch.no_grad()
    def __call__(self, steps=3):
        x = self.text_encoder(torch.ones(1, 8))
        for _ in range(steps):
            x = self.transformer(x)
        return self.vae(x)


def resident():
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


torch.set_num_threads(1)
pipe = Small(Part(), Part(), Part())
calls, before = int(sys.argv[1]), int(sys.argv[2])
for _ in range(before):
    pipe()
objects, windows, last = len(gc.get_objects()), [], resident()
for _ in range(10):  # tables of the interpreter grow at once, by megabytes, and then for long not
    for _ in range(calls // 10):
        pipe()
    now = resident()
    windows.append((now - last) / (calls // 10))
    last = now
print(round(statistics.median(windows)), (len(gc.get_objects()) - objects) / calls)
