"""How fast this machine's devices are: matrix products, copies, and one command after another.

CPU devices are measured with ONNX Runtime, with the threads and cores that a submodule placed on
them has; CUDA and ROCm devices with torch. Of several tries the fastest counts: a rate is what the
device can do, not what it does while others use it.

Products and copies use random numbers, like real data: a GPU that multiplies ones switches few
transistors, draws less power and keeps higher clocks than in any pipeline (an H200 reaches 888
TFLOP/s in bfloat16 with ones, and 790 with random numbers).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from profiler.capture.onnxruntime.weights import CONSTANT, SmallNode, chain, small_model
from profiler.capture.run_info import hardware
from profiler.errors import InputError, install_command, needing
from profiler.pipelines.model_folder import Placement, pinned

_TYPES = ("float32", "bfloat16", "float16")
_CHAIN = 256  # commands in a row
_IN_A_ROW = 8  # products and copies on an accelerator per wait, which takes time, too
_SEED = 0


@dataclass(frozen=True, slots=True)
class Effort:
    """How much to measure: `seconds` for each rate, products of `size` by `size`, copies of
    `copy_bytes`, which should be several times the caches."""

    seconds: float = 1.0
    size: int = 1024
    copy_bytes: int = 256 << 20


DEFAULT_EFFORT = Effort()
ACCELERATOR_EFFORT = Effort(size=8192, copy_bytes=1 << 30)


@dataclass(frozen=True, slots=True)
class DeviceRates:
    """The measured rates: FLOP/s of products by type, bytes/s of a copy (read and written), ns from
    one small command to the next, and the method."""

    hardware: str
    peak_flops: Mapping[str, float]
    memory_bandwidth: float
    launch_ns: float
    method: str


def measure_cpu(placement: Placement, device: str, effort: Effort = DEFAULT_EFFORT) -> DeviceRates:
    """Measure the CPU device `device` with the cores that `placement` gives it, by ONNX Runtime."""
    with needing("run", "profiler.pipelines", "onnxruntime"):
        import onnxruntime

    share = placement.of(device)
    first = share.cores[:1] if share.pinned else ()  # where a submodule's thread runs
    with TemporaryDirectory(prefix="profile-sd3-") as folder, pinned(first):
        bench = _Bench(Path(folder), placement, device, effort)
        peaks = {"float32": bench.product()}
        bandwidth, launch = bench.copy(), bench.launch()
    count = len(share.cores)
    return DeviceRates(
        hardware=hardware().cpu,
        peak_flops=peaks,
        memory_bandwidth=bandwidth,
        launch_ns=launch,
        method=f"onnxruntime {onnxruntime.__version__}, {count} "
        f"thread{'' if count == 1 else 's'}, {_how(effort)}",
    )


def _how(effort: Effort) -> str:
    return f"random data, best of {effort.seconds:g} s each"


def _fastest(work: Callable[[], object], seconds: float) -> float:
    """The shortest time of `work` in seconds, run for about `seconds` and three times at least."""
    work()  # the first one allocates
    best, until, tries = float("inf"), time.perf_counter() + seconds, 0
    while tries < 3 or time.perf_counter() < until:
        begin = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - begin)
        tries += 1
    return max(best, 1e-9)


def _noise(*dims: int) -> Any:
    """Random numbers between 0 and 1, float32."""
    return np.random.default_rng(_SEED).random(dims, dtype=np.float32)


@dataclass(frozen=True, slots=True)
class _Bench:
    """Measures one CPU device; models are written to `folder`."""

    folder: Path
    placement: Placement
    device: str
    effort: Effort

    def product(self) -> float:
        """FLOP/s of a float32 product with a constant factor, as layers have it."""
        size = self.effort.size
        weight = _noise(size, size)
        model = small_model([SmallNode("MatMul", ("x", CONSTANT), "y")], [size, size], weight)
        return 2 * size**3 / self._seconds("product", model, weight)

    def copy(self) -> float:
        """Bytes/s read and written by a sum with a constant, in an array beyond the caches."""
        count = max(self.effort.copy_bytes // 4, 1)
        model = small_model(chain(1), [count], np.ones(1, np.float32))
        return 8 * count / self._seconds("copy", model, _noise(count))

    def launch(self) -> float:
        """ns per node in a chain of nodes with one element each."""
        model = small_model(chain(_CHAIN), [1], np.ones(1, np.float32))
        return self._seconds("chain", model, np.zeros(1, dtype=np.float32)) / _CHAIN * 1e9

    def _seconds(self, name: str, model: bytes, x: Any) -> float:
        """The shortest run of a model in s, in a session opened as the pipeline does for a
        submodule."""
        from profiler.pipelines.pipeline import OnnxPart

        path = self.folder / f"{name}.onnx"
        path.write_bytes(model)
        part = OnnxPart(name, path, self.device, placement=self.placement)
        return _fastest(_bound(part.open_session(part.session_options()), x), self.effort.seconds)


def _bound(session: Any, x: Any) -> Callable[[], object]:
    """Return a function that runs with fixed input and output buffers: it allocates nothing."""
    with needing("run", "profiler.pipelines", "onnxruntime"):
        import onnxruntime

    binding = session.io_binding()
    source = onnxruntime.OrtValue.ortvalue_from_numpy(x)
    target = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros_like(x))
    binding.bind_ortvalue_input("x", source)
    binding.bind_ortvalue_output("y", target)
    return lambda: session.run_with_iobinding(binding)


def measure_torch(device: str, effort: Effort = ACCELERATOR_EFFORT) -> DeviceRates:
    """Measure a device of torch (`cuda:0`, also for ROCm), for every type that it multiplies.

    Raises InputError if torch is not installed or has no such device.
    """
    torch = _torch(device)
    kind = device.partition(":")[0]
    wait = partial(torch.cuda.synchronize, device) if kind == "cuda" else (lambda: None)
    peaks = {}
    for name in _TYPES:
        rate = _torch_product(torch, device, name, effort, wait)
        if rate is not None:
            peaks[name] = rate
    return DeviceRates(
        hardware=torch.cuda.get_device_name(device) if kind == "cuda" else "",
        peak_flops=peaks,
        memory_bandwidth=_torch_copy(torch, device, effort, wait),
        launch_ns=_torch_launch(torch, device, effort, wait),
        method=f"torch {torch.__version__}, {_how(effort)}",
    )


def _torch(device: str) -> Any:
    try:
        import torch
    except ImportError as error:
        raise InputError(f"measuring {device} needs torch: `{install_command('torch')}`") from error
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"torch has no device {device} here ({reason}): name another") from error
    return torch


def _torch_product(
    torch: Any, device: str, dtype: str, effort: Effort, wait: Callable[[], object]
) -> float | None:
    """FLOP/s of a product of one type, None if the device does not multiply it."""
    try:
        a, b = _factors(torch, device, dtype, effort.size)
        out = torch.empty_like(a)
        with torch.inference_mode():
            seconds = _fastest(_repeated(lambda: torch.mm(a, b, out=out), wait), effort.seconds)
    except RuntimeError:
        return None
    return float(2 * effort.size**3 * _IN_A_ROW / seconds)


def _factors(torch: Any, device: str, dtype: str, size: int) -> tuple[Any, Any]:
    """Two square matrices of normally distributed numbers."""
    generator = torch.Generator(device=device).manual_seed(_SEED)
    found = (torch.randn(size, size, generator=generator, device=device) for _ in range(2))
    a, b = (one.to(getattr(torch, dtype)) for one in found)
    return a, b


def _torch_copy(torch: Any, device: str, effort: Effort, wait: Callable[[], object]) -> float:
    """Bytes/s read and written by a copy of random bytes on the device."""
    generator = torch.Generator(device=device).manual_seed(_SEED)
    size = (max(effort.copy_bytes, 1),)
    source = torch.randint(256, size, generator=generator, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    seconds = _fastest(_repeated(lambda: target.copy_(source), wait), effort.seconds)
    return float(2 * source.numel() * _IN_A_ROW / seconds)


def _repeated(work: Callable[[], object], wait: Callable[[], object]) -> Callable[[], None]:
    """`work` several times in a row, and one wait for all of them."""

    def run() -> None:
        for _ in range(_IN_A_ROW):
            work()
        wait()

    return run


def _torch_launch(torch: Any, device: str, effort: Effort, wait: Callable[[], object]) -> float:
    """ns from one small command to the next; on a CUDA device replayed as a graph, since single
    launches would wait for the host, which takes several times as long."""
    small = torch.zeros(1, device=device)

    def chain() -> None:
        for _ in range(_CHAIN):
            small.add_(1)

    run = chain
    if device.partition(":")[0] == "cuda":
        chain()  # loads the kernel, which a capture must not
        wait()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(device), torch.cuda.graph(graph):
            chain()
        run = graph.replay
    return _fastest(lambda: (run(), wait()), effort.seconds) / _CHAIN * 1e9
