"""What recording one event of torch costs: measured on small transformer blocks, recorded as runs
are."""

from __future__ import annotations

import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from profiler.capture.event_cost import EventCost
from profiler.capture.torch.events import Activity, session_events
from profiler.capture.torch.modules import ModuleRanges, close_range, open_range
from profiler.capture.torch.profiler import accelerator, is_profiling, new_profiler, started
from profiler.capture.torch.ranges import CALL
from profiler.errors import InputError
from profiler.kineto.trace_file import read_kineto

__all__ = ["torch_event_cost"]

_BLOCKS, _PAIRS, _RUNS = 8, 5, 5  # of each few runs the fastest counts
_TOKENS, _WIDTH, _HEADS = 16, 32, 4
_RANGE = f"{CALL}0"
_LONGEST_S = 1.0  # after which no further pair is begun
_BUSY_S = 0.3  # that two runs of the chain take where other threads hold the interpreter


def torch_event_cost() -> EventCost | None:
    """What one recorded event costs of this thread's CPU time: median and quartiles of pairs.

    A chain of transformer blocks runs with and without a session and our hooks in turn, on the
    accelerator where there is one. None where it cannot be measured, as while a profiler of the
    script runs or other threads leave no time, or noise exceeds it. What a session takes to be
    stopped and read comes between calls and is none of it.
    """
    import torch

    with suppress(RuntimeError, InputError, OSError), torch.no_grad():
        device = accelerator() or "cpu"
        chain = torch.nn.Sequential(*(_block() for _ in range(_BLOCKS))).to(device).eval()
        given = torch.ones(1, _TOKENS, _WIDTH, device=device)
        begin = time.perf_counter()
        plain, traced, events = [], [], 0
        _fastest(chain, given, runs=2)
        if time.perf_counter() > begin + _BUSY_S:
            return None
        for pair in range(_PAIRS + 1):  # the first of either kind stands apart
            if is_profiling():
                return None
            without = _fastest(chain, given)
            with_, results = _traced_seconds(chain, given)
            if pair == 0:
                events = _count(results)
            else:
                plain.append(without)
                traced.append(with_)
            if time.perf_counter() > begin + _LONGEST_S and plain:
                break
        pairs = [b - a for a, b in zip(plain, traced, strict=True)]
        if events and len(pairs) > 1:
            return EventCost.of_pairs(pairs, events)
        return EventCost(pairs[0] * 1e9 / events) if events and pairs[0] > 0 else None
    return None


def _block() -> Any:
    """Attention and a feed-forward part behind their norms, as in diffusion transformers."""
    import torch
    from torch import nn

    class Block(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.norm_1, self.norm_2 = nn.LayerNorm(_WIDTH), nn.LayerNorm(_WIDTH)
            self.to_q, self.to_k, self.to_v, self.to_out, self.ff_1, self.ff_2 = (
                nn.Linear(_WIDTH, _WIDTH) for _ in range(6)
            )
            self.activation = nn.GELU()

        def forward(self, x: Any) -> Any:
            normed = self.norm_1(x)
            q, k, v = (
                to(normed).view(1, _TOKENS, _HEADS, -1).transpose(1, 2)
                for to in (self.to_q, self.to_k, self.to_v)
            )
            attended = torch.nn.functional.scaled_dot_product_attention(q, k, v)
            x = x + self.to_out(attended.transpose(1, 2).reshape(1, _TOKENS, _WIDTH)) * 0.5
            return x + self.ff_2(self.activation(self.ff_1(self.norm_2(x) * 1.5 + 0.5)))

    return Block()


def _fastest(chain: Any, given: Any, runs: int = _RUNS) -> float:
    """CPU time of the fastest of a few runs, in s."""
    found = []
    for _ in range(runs):
        begin = time.thread_time()
        chain(given)
        found.append(time.thread_time() - begin)
    return min(found)


def _traced_seconds(chain: Any, given: Any) -> tuple[float, Any]:
    """The same in a session of its own, in which all layers are hooked, and what the session
    recorded."""
    ranges, profiler = ModuleRanges(chain), new_profiler()
    if not started(profiler):
        raise RuntimeError("this thread has a profiler already")
    ranges.attach()
    try:
        open_range(_RANGE)
        seconds = _fastest(chain, given)
        close_range(_RANGE)
    finally:
        profiler.__exit__(None, None, None)
        ranges.detach()
    return seconds, profiler.kineto_results


def _count(results: Any) -> int:
    """How many host events of a run were recorded."""
    if results is None or not results.trace_start_ns():
        return 0
    with tempfile.TemporaryDirectory(prefix="profile-sd3-") as folder:
        path = Path(folder) / "chain.json"
        results.save(str(path))
        events = session_events(read_kineto(path))
    return len(events.rows_of(Activity.OPERATOR, Activity.ANNOTATION)) // _RUNS
