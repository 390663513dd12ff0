"""A stand-in for `rebel` alone, for optimum-rbln's own classes: a model is compiled to itself and
runs on torch. Runtimes take the keywords of `RUNTIME_KEYWORDS` and no others."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import torch

__version__ = "0.12.0"
NPUS = 2
made = []  # the keywords of each runtime
_reports = []
_running = []
profiled = []  # devices of the profiled runtime calls between `profiler.start()` and `done()`


def npu_is_available(device=0):
    return device < NPUS


def get_npu_name(device=0):
    return "RBLN-CA22" if device < NPUS else None


def device_count():
    return NPUS


class RBLNCompiledModel:
    """What `compile_from_torch` returns; `save` writes no weights."""

    def __init__(self, model, input_info=()):
        self.model, self.input_info = model, input_info

    def save(self, path):
        Path(path).write_bytes(b"")


def compile(mod, input_info=None, npu=None, num_devices=1):  # noqa: A001
    return RBLNCompiledModel(mod, input_info)


def compile_from_torch(mod, input_info, npu=None, **kwargs):
    return compile(mod, input_info, npu, **kwargs)


class Runtime:
    """Refuses inputs of other shapes than those that were compiled."""

    def __init__(
        self, compiled_model, tensor_type="np", device=0, activate_profiler=None, timeout=None
    ):
        self.compiled, self.device = compiled_model, device
        self.activate_profiler = activate_profiler
        made.append({"device": device, "activate_profiler": activate_profiler, "timeout": timeout})

    def __call__(self, *args, **kwargs):
        begin = time.perf_counter_ns()
        names = [name for name, *_ in self.compiled.input_info]
        given = dict(zip(names, args, strict=False)) | kwargs
        for name, shape, _ in self.compiled.input_info:
            if list(given[name].shape) != list(shape):
                raise RuntimeError(f"{name} has shape {list(given[name].shape)}, compiled: {shape}")
        with torch.no_grad():
            output = [*_tensors(self.compiled.model(*[given[name] for name in names]))]
        took = (time.perf_counter_ns() - begin) / 1000
        if _running and self.activate_profiler:
            profiled.append(self.device)
        for reports in _reports:
            reports.append({"total_host": 0, "total_device": int(took), "total_ccl": 0})
        return output if len(output) > 1 else output[0]


def _tensors(output):
    """All tensors of an output, which a compiled graph returns side by side."""
    if isinstance(output, torch.Tensor):
        yield output
    elif output is not None:
        for part in output.values() if isinstance(output, dict) else output:
            yield from _tensors(part)


@contextmanager
def capture_reports():
    reports = []
    _reports.append(reports)
    try:
        yield reports
    finally:
        _reports.remove(reports)


def _submodule(name, **members):
    module = ModuleType(f"rebel.{name}")
    vars(module).update(members)
    sys.modules[module.__name__] = module
    globals()[name] = module


class CompileContext:
    pass


_submodule("profiler", start=lambda: _running.append(True), done=_running.clear)
_submodule("compile_context", CompileContext=CompileContext)
