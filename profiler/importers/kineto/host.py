"""Host work of the pipeline itself: the Python frames outside every call.

Of all frames in a section the largest ones are taken that neither lie in a call nor hold one:
`scheduler.step`, tokenizers, `postprocess`, and whatever else the pipeline does between calls.
They do not overlap, and with the calls they leave only the pipeline's own bytecode unexplained.
"""

from __future__ import annotations

import re

import numpy as np

from profiler.events import HOST_TRACK, ROOT_DEVICE, Track
from profiler.importers.kineto.calls import call_ranges
from profiler.importers.kineto.frames import Frames, parse_frame
from profiler.importers.kineto.stages import Staging
from profiler.kineto.ranges import Ranges
from profiler.trace.columns import CommandBuilder

__all__ = ["add_host_work", "plain_name"]

_BUILTIN = re.compile(r"<built-in (?:function|method) (\w+)(?: of (?!type object)(\w+))?.*>")
_SET_TIMESTEPS = ("set_timesteps", "retrieve_timesteps")


def add_host_work(
    frames: Frames, staging: Staging, builder: CommandBuilder, root: str = ROOT_DEVICE
) -> None:
    """Add the host work of one section as commands of the track `Host` of the device `root`."""
    track = Track(root, HOST_TRACK, "host")
    found = _largest(frames, staging)
    steps = np.array([start for start, _ in staging.section.steps], dtype=np.int64)
    for row, start, end in zip(
        found.row.tolist(), found.start_ns.tolist(), found.end_ns.tolist(), strict=True
    ):
        name = frames.name(row)
        first = int(np.searchsorted(steps, start))
        is_step = first < len(steps) and int(steps[first]) < end
        layer = "scheduler.step" if is_step else _layer(name, staging, start)
        stage, step = staging.stage_at(start), staging.step_at(start)
        builder.add(track, layer, plain_name(name), start, end - start, stage=stage, step=step)


def _largest(frames: Frames, staging: Staging) -> Ranges:
    """The outermost frames of the section that neither lie in a call nor hold one."""
    trace, section = frames.trace, staging.section
    start, end = trace.start_ns[frames.rows], trace.end_ns[frames.rows]
    inside = (start >= section.start_ns) & (end <= section.end_ns) & (end > start)
    inside &= (start > section.start_ns) | (end < section.end_ns)  # not the pipeline's own frame
    inside &= trace.thread[frames.rows] == section.thread
    calls = call_ranges([call for call in section.calls if call.thread == section.thread])
    begins, ends = calls.start_ns, calls.end_ns
    before = np.searchsorted(begins, start, side="right") - 1  # the last call begun by then
    if len(calls):
        within = (before >= 0) & (start < ends[before])
        following = np.searchsorted(begins, start, side="left")
        holds = (following < len(begins)) & (begins[np.minimum(following, len(begins) - 1)] < end)
        inside &= ~within & ~holds
    return frames.outermost(inside)


def _layer(name: str, staging: Staging, start_ns: int) -> str:
    """A short name: `tokenizer_2`, `scheduler.set_timesteps`, `image_processor.postprocess`."""
    frame = parse_frame(name)
    if frame is None:
        return plain_name(name)
    if "tokenization" in frame.stem:
        return _tokenizer(staging, start_ns)
    if frame.function in _SET_TIMESTEPS:
        return "scheduler.set_timesteps"
    own = frame.stem.startswith(("pipeline_", "__init__")) or frame.function.startswith("<")
    return frame.function if own else f"{frame.stem}.{frame.function}"


def _tokenizer(staging: Staging, start_ns: int) -> str:
    """The tokenizer of the text encoder that is called next: `tokenizer_2`."""
    for call in staging.calls:
        if call.range.start_ns >= start_ns and call.submodule.startswith("text_encoder"):
            return call.submodule.replace("text_encoder", "tokenizer")
    return "tokenizer"


def plain_name(name: str) -> str:
    """A frame's name without what differs from run to run: line numbers and addresses."""
    match = _BUILTIN.fullmatch(name)
    if match:
        return f"{match[2]}.{match[1]}" if match[2] else match[1]
    frame = parse_frame(name)
    if frame is None:
        return name
    folder = frame.folder.rpartition("site-packages/")[2]
    return f"{folder}/{frame.stem}.py: {frame.function}".lstrip("/")
