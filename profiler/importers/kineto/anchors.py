"""Calls of a diffusion pipeline whose trace has no modules, guessed from its operators.

- A text encoder begins with an embedding of 20,000 rows or more, with the blocking copy of its
  tokens where that comes directly before it. It ends with the last operator that
  launched a kernel before the next begin or blocking copy.
- A VAE decoder begins with a convolution from 4…32 channels and ends with one to 3.
- The denoiser is what `torch.compile` compiled, in outermost regions before the decoder; without
  any, what begins with a convolution from 4…32 channels, up to the next.

Without a decoder it is no diffusion, and nothing is guessed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from profiler.importers.kineto.calls import CallRange
from profiler.importers.kineto.launch import launched_work
from profiler.importers.kineto.layers import input_dims
from profiler.kineto.names import is_operator
from profiler.kineto.ranges import Ranges
from profiler.kineto.trace_file import KinetoTrace
from profiler.trace.columns import Int64s

__all__ = ["anchored_calls"]

_VOCABULARY = 20_000  # rows of an embedding of tokens; positions have fewer
_LATENT = range(4, 33)  # channels
_IMAGE = 3  # channels
_REGION = "Torch-Compiled Region"
_BLOCKING = frozenset(
    {"hipMemcpyWithStream", "cudaMemcpy", "hipMemcpy", "cudaStreamSynchronize"}
    | {"hipStreamSynchronize", "cudaDeviceSynchronize", "hipDeviceSynchronize"}
)
_MANY_CONVOLUTIONS = 10  # of a UNet; a transformer has one, of its patches
_AHEAD_NS = 1_000_000  # of an embedding, at which the copy of its tokens may lie


class _Convolution(Struct, frozen=True):
    start_ns: int
    end_ns: int
    channels: int  # of its input
    results: int  # channels of its result


class _Host(Struct, frozen=True):
    """Of one thread, each in order of time: begins and ends of outermost operators that launched a
    kernel, times of blocking calls, convolutions, compiled regions, embeddings of tokens with their
    size."""

    thread: int
    begins: list[int]
    ends: list[int]
    blocking: list[int]
    convolutions: list[_Convolution]
    regions: list[tuple[int, int]]
    embeddings: list[tuple[int, str]]

    def last_end(self, begin_ns: int, limit_ns: int) -> int:
        """When the last operator ended that began from `begin_ns` on and before `limit_ns`, which
        stands where there is none."""
        index = bisect_left(self.begins, limit_ns) - 1
        known = index >= 0 and self.begins[index] >= begin_ns
        return min(self.ends[index], limit_ns) if known else limit_ns


def anchored_calls(trace: KinetoTrace) -> list[CallRange]:
    """The calls in order of time; none where nothing decodes an image."""
    rows = trace.rows_of("cpu_op")
    convolving = rows[trace.events.named(rows, "aten::convolution".__eq__)]
    for thread in np.unique(trace.thread[convolving]).tolist():
        host = _host(trace, thread)
        decoders = _decoders(host)
        if decoders:
            denoisers = _denoisers(host, decoders)
            stops = [begin for begin, _ in [*denoisers, *decoders]]
            calls = _encoders(host, sorted(stops))
            calls += _named(host, denoisers, "denoiser", _denoiser_class(host, denoisers))
            calls += _named(host, decoders, "vae", "Decoder")
            return sorted(calls, key=lambda call: call.start_ns)
    return []


def _named(
    host: _Host, ranges: Sequence[tuple[int, int]], instance: str, class_name: str
) -> list[CallRange]:
    of_vae = instance == "vae"
    return [
        CallRange(host.thread, begin, end, instance, class_name, of_vae, (), told=False)
        for begin, end in ranges
    ]


def _host(trace: KinetoTrace, thread: int) -> _Host:
    rows = trace.rows_of("cpu_op")
    rows = rows[trace.thread[rows] == thread]
    nested = Ranges.of(rows, trace.thread[rows], trace.start_ns[rows], trace.end_ns[rows])
    outer = nested.outermost()
    launches = _kernel_launches(trace)
    busy = np.searchsorted(launches, outer.start_ns) < np.searchsorted(launches, outer.end_ns)
    outer = outer.select(busy & trace.events.named(outer.row, is_operator))
    host = _Host(thread, outer.start_ns.tolist(), outer.end_ns.tolist(), [], [], [], [])
    for row, start, end in zip(
        nested.row.tolist(), nested.start_ns.tolist(), nested.end_ns.tolist(), strict=True
    ):
        event = trace.events[row]
        if event.name == "aten::convolution":
            dims = input_dims(event.args)
            if len(dims) >= 2 and len(dims[0]) in (4, 5) and len(dims[1]) in (4, 5):
                found = _Convolution(start, end, dims[0][1], dims[1][0])
                host.convolutions.append(found)
        elif event.name == "aten::embedding":
            dims = input_dims(event.args)
            if dims and len(dims[0]) == 2 and dims[0][0] >= _VOCABULARY:
                host.embeddings.append((start, "x".join(map(str, dims[0]))))
        elif event.name.startswith(_REGION) and (not host.regions or start >= host.regions[-1][1]):
            host.regions.append((start, end))
    runtime = trace.rows_of("cuda_runtime")
    runtime = runtime[trace.thread[runtime] == thread]
    blocking = [row for row in runtime.tolist() if trace.events.name_of(row) in _BLOCKING]
    host.blocking.extend(sorted(trace.start_ns[np.array(blocking, dtype=np.int64)].tolist()))
    return host


def _kernel_launches(trace: KinetoTrace) -> Int64s:
    """When each kernel was launched, ascending."""
    work, launch = launched_work(trace)
    kernels = trace.events.of_category(work, "kernel")
    return np.sort(trace.start_ns[launch[kernels & (launch >= 0)]])


def _decoders(host: _Host) -> list[tuple[int, int]]:
    """From the last convolution of latents before one to an image, to that one."""
    eager = [one for one in host.convolutions if not _within(one.start_ns, host.regions)]
    found = []
    begin = None
    for one in eager:
        if one.channels in _LATENT and one.results > _LATENT[-1]:
            begin = one
        elif one.results == _IMAGE and begin is not None:
            found.append((begin.start_ns, one.end_ns))
            begin = None
    return found


def _denoisers(host: _Host, decoders: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Compiled regions before the last decoder; without any, from one convolution of latents to
    the next."""
    last = decoders[-1][0]
    regions = [region for region in host.regions if region[0] < last]
    if regions:
        return [one for one in regions if not _within(one[0], decoders)]
    begins = [
        one.start_ns
        for one in host.convolutions
        if one.channels in _LATENT
        and one.results > _LATENT[-1]
        and one.start_ns < last
        and not _within(one.start_ns, decoders)
    ]
    following = sorted(begins + [begin for begin, _ in decoders])
    found = []
    for begin in begins:
        limit = following[bisect_right(following, begin)]
        found.append((begin, host.last_end(begin, limit)))
    return found


def _denoiser_class(host: _Host, denoisers: Sequence[tuple[int, int]]) -> str:
    if not denoisers:
        return ""
    begin, end = denoisers[0]
    inside = sum(begin <= one.start_ns < end for one in host.convolutions)
    return "UNet" if inside >= _MANY_CONVOLUTIONS else "Transformer"


def _encoders(host: _Host, stops: Sequence[int]) -> list[CallRange]:
    """Text encoders: from each embedding of tokens to the next anchor or blocking copy."""
    calls: list[CallRange] = []
    outside = [one for one in host.embeddings if not _within(one[0], host.regions)]
    begins = [begin for begin, _ in outside]
    for begin, size in outside:
        at = bisect_left(host.blocking, begin) - 1
        before = host.blocking[at] if at >= 0 else begin
        first = before if begin - before <= _AHEAD_NS else begin
        limits = [*begins, *stops, *host.blocking]
        limit = min((time for time in limits if time > begin), default=host.ends[-1])
        end = host.last_end(begin, limit)
        name = f"embedding {size}"
        calls.append(CallRange(host.thread, first, end, name, "TextEncoder", False, (), told=False))
    return calls


def _within(time_ns: int, ranges: Sequence[tuple[int, int]]) -> bool:
    """Whether a time lies in one of ranges that are in order and do not overlap."""
    index = bisect_right(ranges, (time_ns, 1 << 63)) - 1
    return index >= 0 and time_ns < ranges[index][1]
