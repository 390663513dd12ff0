"""What a GPU reaches, by CUDA events: products, a copy, layers and attention of known sizes."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["peaks"]

_IN_A_ROW = 20  # launches between two events


def peaks() -> Any:
    """What a GPU reaches: products of random data and of ones, a copy, and what transformers
    do with the shapes of SD3.5 and FLUX."""
    found: dict[str, Any] = {}
    for size in (4096, 8192):
        for fill in ("randn", "ones"):
            a = getattr(torch, fill)(size, size, dtype=torch.bfloat16, device="cuda")
            b = getattr(torch, fill)(size, size, dtype=torch.bfloat16, device="cuda")
            ms = _median_ms(lambda a=a, b=b: a @ b)
            found[f"product_{size}_{fill}_tflops"] = 2 * size**3 / ms / 1e9
    source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda").random_()
    target = torch.empty_like(source)
    found["copy_gbs"] = 2 * source.numel() / _median_ms(lambda: target.copy_(source)) / 1e6
    for m, k, n in (
        (8192, 1536, 6144),
        (8192, 6144, 1536),
        (8192, 1536, 1536),
        (4608, 3072, 12288),
    ):
        a = torch.randn(m, k, dtype=torch.bfloat16, device="cuda")
        b = torch.randn(n, k, dtype=torch.bfloat16, device="cuda")
        ms = _median_ms(lambda a=a, b=b: torch.nn.functional.linear(a, b))
        found[f"linear_{m}x{k}x{n}"] = {"ms": ms, "tflops": 2 * m * k * n / ms / 1e9}
    for b, h, s, d in ((2, 24, 4429, 64), (2, 24, 4096, 64), (1, 24, 4608, 128)):
        q = [torch.randn(b, h, s, d, dtype=torch.bfloat16, device="cuda") for _ in range(3)]
        ms = _median_ms(lambda q=q: torch.nn.functional.scaled_dot_product_attention(*q))
        found[f"attention_{b}x{h}x{s}x{d}"] = {"ms": ms, "tflops": 4 * b * h * s * s * d / ms / 1e9}
    return found


def _median_ms(work: Callable[[], Any], tries: int = 10) -> float:
    """What `work` takes on the device, in ms: the median of some tries of 20 in a row.

    Around a single launch on an idle device both events would tell of the host: the device is at
    the first one at once, and then waits for the launch. Behind the first of 20 the next ones are
    queued, and that wait is spread over all. Work that is shorter than the host takes to launch it
    still reads as long as that.
    """
    for _ in range(5):
        work()
    times = []
    for _ in range(tries):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        for _ in range(_IN_A_ROW):
            work()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / _IN_A_ROW)
    return statistics.median(times)
