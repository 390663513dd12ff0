"""Calls of a diffusion pipeline whose trace has no modules, guessed from its operators.

- A text encoder begins with an embedding of 20,000 rows or more, with the blocking copy of its
  tokens where that comes directly before it. It ends with the last operator that launched a kernel
  before the next begin, or before a blocking call that comes when a dozen matrix products have run;
  what puts encoded prompts together is the pipeline's.
- VAE decoders are in `guessed_decoders`, denoisers in `guessed_denoisers`.

Without a decoder it is no diffusion, and nothing is guessed. What lies in the capture of a graph
did not run, and what ran directly before for the same capture was its warm-up.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import structs

from profiler.importers.kineto.calls import CallRange, Ran, guessed_call
from profiler.importers.kineto.graph_capture import Window, capture_windows
from profiler.importers.kineto.guessed_decoders import decoders_of, with_images
from profiler.importers.kineto.guessed_denoisers import denoiser_class, denoisers_of
from profiler.importers.kineto.host_marks import HostMarks, begun, host_marks, within
from profiler.kineto.trace_file import KinetoTrace

__all__ = ["anchored_calls"]

_PRODUCTS_OF_TWO_LAYERS = 12
"""Matrix products after which a blocking call ends a text encoder. A layer of CLIP has six (query,
key, value, output, two of its MLP), one of T5 seven; a call before that lies within the encoder, as
in Wan's."""

_AHEAD_NS = 1_000_000  # of an embedding, at which the copy of its tokens may lie
_PUT_TOGETHER = frozenset(
    f"aten::{name}"
    for name in ("cat", "pad", "stack", "repeat", "zeros", "new_zeros", "zeros_like", "randn")
)
"""What a pipeline makes of encoded prompts, and its first noise: of no submodule."""


def anchored_calls(trace: KinetoTrace) -> list[CallRange]:
    """The calls in order of time; none where nothing decodes an image."""
    rows = trace.rows_of("cpu_op")
    convolving = rows[trace.events.named(rows, "aten::convolution".__eq__)]
    windows = capture_windows(trace)
    for marks in host_marks(trace, np.unique(trace.thread[convolving]).tolist()):
        decoders = decoders_of(marks)
        if decoders:
            here = [window for window in windows if window.thread == marks.thread]
            edges = _edges(marks, here)
            denoisers = denoisers_of(marks, decoders, edges)
            stops = [one.start_ns for one in denoisers] + [begin for begin, _ in decoders]
            calls = _encoders(marks, sorted(stops + edges))
            kind = denoiser_class(marks, denoisers)
            calls += [
                guessed_call(marks.thread, *one[:2], "denoiser", kind, one.inputs)
                for one in denoisers
            ]
            images = with_images(marks, decoders)
            calls += [
                guessed_call(marks.thread, *one[:2], "vae", "Decoder", one.inputs) for one in images
            ]
            calls.sort(key=lambda call: call.start_ns)
            return list(_captured(calls, here))
    return []


def _edges(marks: HostMarks, windows: Sequence[Window]) -> list[int]:
    """Begins and ends of the captures of whole parts: of those in which something begins."""
    begins = sorted(
        [one.start_ns for one in marks.convolutions if one.of_latents] + marks.embedded()
    )
    held = [
        window
        for window in windows
        if bisect_left(begins, window.start_ns) < bisect_left(begins, window.end_ns)
    ]
    return sorted(time for window in held for time in (window.start_ns, window.end_ns))


def _captured(calls: Sequence[CallRange], windows: Sequence[Window]) -> Iterator[CallRange]:
    """The calls, with what was captured, and what warmed up for it: the calls of the same part
    since the capture before, or since one of another part."""
    ranges = [(window.start_ns, window.end_ns) for window in windows]
    holds = [within(call.start_ns, ranges) for call in calls]
    upcoming = ""
    found: list[CallRange] = []
    for call, inside in zip(reversed(calls), reversed(holds), strict=True):
        if inside:
            upcoming = call.instance
            ran = Ran.CAPTURED
        elif call.instance == upcoming:
            ran = Ran.WARM_UP
        else:
            upcoming = ""
            ran = Ran.EXECUTED
        found.append(structs.replace(call, ran=ran))
    yield from reversed(found)


def _encoders(marks: HostMarks, stops: Sequence[int]) -> list[CallRange]:
    """Text encoders: from each embedding of tokens to the next anchor or blocking call."""
    calls: list[CallRange] = []
    outside = [one for one in marks.embeddings if not within(one[0], marks.regions)]
    begins = sorted([*(begin for begin, _ in outside), *stops])
    for begin, size in outside:
        at = bisect_left(marks.blocking, begin) - 1
        before = marks.blocking[at] if at >= 0 else begin
        place = bisect_right(begins, begin)
        reached = begins[place - 2] if place > 1 else 0  # nothing is of two parts
        first = before if begin - before <= _AHEAD_NS and before >= reached else begin
        limit = begins[place] if place < len(begins) else marks.end_ns
        end = marks.last_end(begin, _blocked(marks, begin, limit), _PUT_TOGETHER)
        name = f"embedding {size}"
        calls.append(guessed_call(marks.thread, first, end, name, "TextEncoder"))
    return calls


def _blocked(marks: HostMarks, begin_ns: int, limit_ns: int) -> int:
    """The first blocking call behind two layers of an encoder, or `limit_ns`. Where no layers are
    seen the first one of all."""
    products = begun(marks.products, begin_ns - 1, limit_ns)
    layers = products[_PRODUCTS_OF_TWO_LAYERS - 1 : _PRODUCTS_OF_TWO_LAYERS]
    place = bisect_right(marks.blocking, layers[0].end_ns if layers else begin_ns)
    return min(marks.blocking[place], limit_ns) if place < len(marks.blocking) else limit_ns
