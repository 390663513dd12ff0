"""The vocabulary of a profiled run, as values. Standard library only.

A *run* is one profiled execution of a pipeline. The pipeline goes through *stages*; in each it
invokes *submodules*. One invocation is a *call*; what it executes on the *tracks* of a *device*
are *commands*. All commands of one call that share a *layer* are one *operator*.

Times are int64 nanoseconds on one clock per run (CLOCK_REALTIME epoch).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, get_args

from profiler.notes import Note

__all__ = [
    "BRANCHES",
    "CALLS_TRACK",
    "CATEGORIES",
    "CPU_DEVICE",
    "GRAPH_CAPTURE",
    "HOST_TRACK",
    "NO_CALL",
    "NO_ITERATION",
    "NO_PIPELINE",
    "NO_RANK",
    "NO_STEP",
    "PIPELINE_TRACK",
    "PROFILER_TRACK",
    "ROLES",
    "ROOT_DEVICE",
    "RUN_STAGE",
    "STAGES",
    "UNKNOWN",
    "Branch",
    "Call",
    "Category",
    "Drop",
    "DropKind",
    "Role",
    "Span",
    "SpanKind",
    "Stage",
    "Track",
    "device_kind",
    "device_of_rank",
    "rank_of_device",
]

Stage = Literal["encode", "denoise", "decode", "run"]
Branch = Literal["prompt", "negative_prompt", "cond", "uncond", "batched", "skip_layers"]
"""For whom a call works: an encoder for one of the prompts; the denoiser for the prompt (`cond`),
the negative prompt (`uncond`), both at once (`batched`), or, in skip-layer guidance, once more for
the prompt with some of its layers left out (`skip_layers`)."""
Category = Literal["host", "compute", "dma", "copy", "collective", "sync", "other"]
Role = Literal[
    "attention",
    "qkv_projection",
    "mlp",
    "norm",
    "modulation",
    "embedding",
    "convolution",
    "resample",
    "rope",
    "residual",
    "adapter",
    "sampling",
    "optimizer",
    "data_movement",
    "collective",
    "matmul",
    "elementwise",
    "other",
]
"""What an operator is for. `matmul` and `elementwise` are of what is known to compute that, and not
for what."""
SpanKind = Literal["pipeline", "stage", "step", "profiler"]
"""`profiler` is work of our own: what recording itself took, on the thread that ran the pipeline or
beside it. No stage holds it."""

STAGES: tuple[str, ...] = ("encode", "denoise", "decode")  # of diffusion
BRANCHES: tuple[str, ...] = get_args(Branch)
CATEGORIES: tuple[str, ...] = get_args(Category)
ROLES: tuple[str, ...] = get_args(Role)

ROOT_DEVICE = "cpu:0"  # where the pipeline itself, and so all host work, runs
PIPELINE_TRACK = "Pipeline"  # pipeline, stage and step spans, nested
PROFILER_TRACK = "Profiler"  # what recording took: spans of kind `profiler`
CALLS_TRACK = "Calls"  # one span a call, on each device
HOST_TRACK = "Host"  # host work outside every call

GRAPH_CAPTURE = "graph_capture"  # capability: graphs of launches were captured, none replayed
RUN_STAGE = "run"  # the only stage of a pipeline that is not diffusion

NO_STEP = -1  # the step of everything outside `denoise`
NO_ITERATION = -1  # the iteration of everything outside of loops
NO_CALL = -1  # the call of a command that belongs to none: host work of the pipeline itself
NO_RANK = -1  # of a run of one process, and of what no process of a job did
NO_PIPELINE = -1  # the pipeline call of what lies in none, or whose producer does not tell
UNKNOWN = -1  # bytes, FLOPs or an end that nobody measured; null in the tables

_OF_FILE_NAME = 100  # bytes of a submodule's or a branch's name
_NO_FILE_NAME = re.compile(r"[^\w.+-]")  # a submodule's name may come from a foreign trace


CPU_DEVICE = r"^(?:rank\d+/)?cpu\b"
"""Names of devices that are hosts themselves, as a pattern."""
_OF_RANK = re.compile(r"rank(\d{1,9})/")


def device_of_rank(rank: int, device: str) -> str:
    """What a device of one process of a job is called beside those of others: `rank3/cuda:0`."""
    return f"rank{rank}/{device}"


def rank_of_device(device: str) -> int:
    """The rank that the name of a device says, `NO_RANK` where it says none."""
    found = _OF_RANK.match(device)
    return int(found[1]) if found else NO_RANK


def device_kind(device: str) -> str:
    """`cuda` of `cuda:1` and of `rank3/cuda:0`."""
    return _OF_RANK.sub("", device, count=1).partition(":")[0]


@dataclass(frozen=True, slots=True)
class Track:
    """A queue of a device, under its producer's own name.

    `category` says what the track does (`CATEGORIES`).
    """

    device: str
    name: str
    category: str


@dataclass(frozen=True, slots=True)
class Call:
    """One invocation of a submodule; one `.pb` file.

    `index` counts the calls of a run from 0 in the order in which they returned; `step` is the
    denoising step from the scheduler, `NO_STEP` outside `denoise`; `branch` is one of `BRANCHES`,
    "" where the notion does not apply (VAE). `ops_traced` tells whether commands were recorded
    for it. `input_shapes` maps input names to "dtype[d0,d1,…]". `pipeline` is the number of the
    pipeline call that it belongs to: pipeline calls of a run count from 0 in the order in which
    they began, those that run in another have its number; `NO_PIPELINE` outside of any.
    `iteration` is the pass, from 0, of a loop that is not denoising (a token, a training or
    profiler step); `NO_ITERATION` where there is none. `device_lag_ns` and `device_duration_ns` are
    its time on the queue of its device, as the device itself noted it ahead of the call and behind
    it: from `start_ns` to its begin, and its length; `UNKNOWN` where it was not asked.
    """

    index: int
    submodule: str
    stage: str
    branch: str
    step: int
    device: str
    start_ns: int
    duration_ns: int
    ops_traced: bool
    input_shapes: Mapping[str, str] = field(default_factory=dict)
    pipeline: int = NO_PIPELINE
    iteration: int = NO_ITERATION
    device_lag_ns: int = UNKNOWN
    device_duration_ns: int = UNKNOWN

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.duration_ns

    @property
    def file_name(self) -> str:
        """`000_text_encoder.prompt.pb`, `006_transformer.step000.pb`, `034_vae.decode.pb`."""
        if self.stage == "denoise":
            branch = "" if self.branch in ("", "batched", "cond") else f".{self.branch}"
            label = f"step{self.step:03d}{branch}"
        else:
            label = self.branch or self.stage
        name = f"{_for_a_file(self.submodule)}.{_for_a_file(label)}".rstrip(".")
        return f"{self.index:03d}_{name}.pb"


def _for_a_file(name: str) -> str:
    """`name` as a part of a file's name, which has 255 bytes."""
    safe = _NO_FILE_NAME.sub("_", name)
    return safe.encode()[:_OF_FILE_NAME].decode(errors="ignore")


@dataclass(frozen=True, slots=True)
class Span:
    """Pipeline, stage or step: what encloses calls and host work. The spans of one pipeline call
    nest; `pipeline` is its number, as in `Call`. Those of kind `profiler` are our own work, which
    encloses nothing; `pipeline` is the call that waited for it, `NO_PIPELINE` where none did."""

    kind: SpanKind
    name: str
    stage: str
    step: int
    start_ns: int
    duration_ns: int
    pipeline: int = NO_PIPELINE


class DropKind(StrEnum):
    """What may be wrong with a trace: all kinds there are."""

    TRUNCATED_FILE = "truncated_file"  # cut or damaged; read up to its last whole packet
    MISSING_FILE = "missing_file"
    CHANGED_FILE = "changed_file"  # its size is not what the manifest says
    DAMAGED_COPY = "damaged_copy"  # merged.pb, of calls that were read from their own files
    DROPPED_EVENTS = "dropped_events"  # the producer's buffer was full, or nothing places them
    UNCLOSED_SLICE = "unclosed_slice"  # begun and never ended
    ABORTED_RUN = "aborted_run"
    UNTRACED_CALL = "untraced_call"  # a call that should have operators has none
    UNLABELLED_CALL = "unlabelled_call"  # of an import: it fits no description
    DOUBTFUL_LABEL = "doubtful_label"  # its description fits badly, was guessed, or names no module
    AGGREGATE_MISMATCH = "aggregate_mismatch"  # of an import: two records of a run disagree
    UNALIGNED_CLOCK = "unaligned_clock"  # nothing relates a device's clock to the run's
    MISSING_RANK = "missing_rank"  # of an import: processes of the job of which no trace was given
    ESTIMATED_TIMES = "estimated_times"  # averages, or an order in place of begins

    @property
    def time_missing(self) -> bool:
        """Whether time that the run spent is missing from the report. Elsewhere it is there, but
        not broken down, or under a doubtful name or moment."""
        return self in _TIME_MISSING


_TIME_MISSING = frozenset(
    {
        DropKind.TRUNCATED_FILE,
        DropKind.MISSING_FILE,
        DropKind.CHANGED_FILE,
        DropKind.DROPPED_EVENTS,
        DropKind.UNCLOSED_SLICE,
        DropKind.ABORTED_RUN,
        DropKind.MISSING_RANK,
    }
)


@dataclass(frozen=True, slots=True)
class Drop:
    """Something that was executed but is not, or not fully, in the trace.

    `count` counts what was lost (events, bytes or calls: `unit` says which), `UNKNOWN` when nobody
    can tell. `detail` says what happened (`DropReason`).
    """

    kind: DropKind
    where: str
    count: int
    unit: str
    detail: Note
