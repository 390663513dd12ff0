"""The Python frames of a Kineto trace that tell how a pipeline is built.

With `with_stack=True` torch.profiler records each Python frame as `file.py(line): function` and
each `nn.Module.__call__` as `nn.Module: Class_k`, where k numbers the instances of a class
(torch/csrc/autograd/profiler_python.cpp). A class keeps its numbers through the whole trace.
"""

from __future__ import annotations

import re
from enum import IntEnum

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from profiler.kineto.ranges import Bools, Ranges
from profiler.kineto.trace_file import KinetoTrace
from profiler.trace.columns import Int64s

__all__ = ["PYTHON", "Frame", "Frames", "Kind", "class_of", "parse_frame"]

PYTHON = "python_function"
_MODULE = "nn.Module: "
_FRAME = re.compile(r"(?P<file>.+)\((?P<line>\d+)\): (?P<function>.+)")
_INSTANCE = re.compile(r"(?P<name>.+)_(?P<number>\d+)")


class Kind(IntEnum):
    """What a frame says about the pipeline."""

    OTHER = 0
    MODULE = 1  # an nn.Module was called
    PIPELINE = 2  # a pipeline's __call__
    STEP = 3  # a noise scheduler's step
    ENCODE_PROMPT = 4
    AUTOENCODER = 5  # encode or decode of an autoencoder, which is no nn.Module.__call__
    COMPILED = 6  # torch.compile runs what it has compiled


class Frame(Struct, frozen=True):
    """`folder/stem.py(line): function`, with "/" in paths on every system."""

    folder: str
    stem: str
    function: str


class Frames(Struct, frozen=True, eq=False):
    """The Python frames of a trace: `rows` int64 [n] and the `Kind` of each, int8 [n].

    `modules` are the nn.Module ranges, `instances` their names without prefix ("Linear_3").
    """

    trace: KinetoTrace
    rows: Int64s
    kinds: npt.NDArray[np.int8]
    modules: Ranges
    instances: tuple[str, ...]

    @classmethod
    def of(cls, trace: KinetoTrace) -> Frames:
        rows = trace.rows_of(PYTHON)
        kinds = trace.events.named(rows, _kind).astype(np.int8)
        modules = trace.ranges(rows[kinds == Kind.MODULE])
        instances = tuple(name[len(_MODULE) :] for name in trace.events.names_of(modules.row))
        return cls(trace, rows, kinds, modules, instances)

    def of_kind(self, kind: Kind) -> Ranges:
        """The frames of one kind, nested; `row` is the row in the trace."""
        return self.trace.ranges(self.rows[self.kinds == kind])

    def outermost(self, among: Bools) -> Ranges:
        """Of the frames chosen by a mask over `rows` those that lie in no other of them."""
        trace, rows = self.trace, self.rows[among]
        return Ranges.outermost_of(
            rows, trace.thread[rows], trace.start_ns[rows], trace.end_ns[rows]
        )

    def name(self, row: int) -> str:
        """The recorded name of the event in `row`."""
        return self.trace.events.name_of(row)


def class_of(instance: str) -> tuple[str, int]:
    """Class and number of a module instance: "T5Block_3" → ("T5Block", 3)."""
    match = _INSTANCE.fullmatch(instance)
    return (match["name"], int(match["number"])) if match else (instance, 0)


def parse_frame(name: str) -> Frame | None:
    """The parts of a recorded frame; None for builtins and modules."""
    match = _FRAME.fullmatch(name)
    if match is None or name.startswith(("<", _MODULE)):
        return None
    folder, _, file = match["file"].replace("\\", "/").rpartition("/")
    return Frame(folder, file.removesuffix(".py"), match["function"])


def _kind(name: str) -> Kind:
    if name.startswith(_MODULE):
        return Kind.MODULE
    frame = parse_frame(name)
    if frame is None:
        return Kind.OTHER
    place = f"{frame.folder.rpartition('/')[2]}/{frame.stem}"
    kind = Kind.OTHER
    match frame.function:
        case "__call__" if "pipeline" in place:
            kind = Kind.PIPELINE
        case "step" if _is_noise_scheduler(frame):
            kind = Kind.STEP
        case "encode_prompt":
            kind = Kind.ENCODE_PROMPT
        case "encode" | "decode" if "autoencoder" in place or "vae" in place:
            kind = Kind.AUTOENCODER
        case "compile_wrapper":
            kind = Kind.COMPILED
        case _ if "torch/_inductor" in frame.folder:
            kind = Kind.COMPILED
    return kind


def _is_noise_scheduler(frame: Frame) -> bool:
    """Not a learning-rate scheduler, not the profiler's own `step`."""
    return (
        "schedul" in frame.stem and "lr_schedul" not in frame.stem and "optim" not in frame.folder
    )
