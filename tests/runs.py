"""Small runs with numbers that fit in a head, for the tests of analysis, reports and commands.

`tiny_run` is one pipeline call of 1000 ns on two accelerators; its timeline, in ns from `EPOCH`:

    pipeline       0 ──────────────────────────────────────────────────────── 1000
    stages         0 encode 200 ───────────── denoise ─────────── 900 decode 1000
    steps                   200 ── 0 ── 550 ─────── 1 ─────── 810
    host           0-10 tokenizer       510-550 scheduler.step   760-800 scheduler.step
    rbln:1         10-100 text_encoder
    rbln:0                  210-510 transformer   560-760 transformer   910-990 vae
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from profiler.analysis import worded_note
from profiler.run import CALLS, COMMANDS, COUNTERS, FLOWS, SPANS, Column, Run, empty, schema
from profiler.text import Note
from profiler.trace import (
    HOST_TRACK,
    NO_CALL,
    NO_PIPELINE,
    NO_STEP,
    ROOT_DEVICE,
    BundleWriter,
    Call,
    CommandBuilder,
    Drop,
    DropReason,
    RunInfo,
    Span,
    Track,
)
from profiler.trace.events import rank_of_device
from profiler.trace.manifest import info_document, parse_info

__all__ = [
    "EPOCH",
    "TINY_CALLS",
    "TINY_COMMANDS",
    "TINY_INFO",
    "TINY_SPANS",
    "Command",
    "make_call",
    "make_frame",
    "make_info",
    "make_run",
    "make_span",
    "tiny_run",
    "told",
    "why",
    "write_tiny_bundle",
]

EPOCH = 1_800_000_000_000_000_000  # 2027-01-15 08:00:00 UTC


@dataclass(frozen=True)
class Command:
    """A command in few words; `call` -1 is host work, whose stage and step are its own."""

    call: int
    device: str
    track: str
    category: str
    layer: str
    start: int
    duration: int
    op_type: str = ""
    stage: str = ""
    step: int = NO_STEP
    pipeline: int = NO_PIPELINE
    kernel: str = ""
    module: str = ""


def told(drop: Drop) -> str:
    """What reports say happened, with plain blanks."""
    return worded_note(drop.detail).replace("\N{NO-BREAK SPACE}", " ")


def why(text: str) -> Note:
    """What happened to something dropped: an error of that text."""
    return Note.of(DropReason.ERROR, error=text)


def make_call(
    index: int,
    submodule: str,
    start: int,
    end: int,
    *,
    stage: str = "denoise",
    step: int = NO_STEP,
    device: str = "rbln:0",
    branch: str = "",
    traced: bool = True,
    pipeline: int = NO_PIPELINE,
) -> Call:
    """A call from `start` to `end`, in ns from `EPOCH`."""
    begin = EPOCH + start
    place = (index, submodule, stage, branch, step, device)
    return Call(*place, begin, end - start, traced, pipeline=pipeline)


def make_span(
    kind: str, name: str, start: int, end: int, step: int = NO_STEP, *, pipeline: int = NO_PIPELINE
) -> Span:
    """A span from `start` to `end`, in ns from `EPOCH`; steps lie in `denoise`."""
    stage = {"pipeline": "", "stage": name, "step": "denoise", "profiler": ""}[kind]
    return Span(kind, name, stage, step, EPOCH + start, end - start, pipeline)


TINY_SPANS = (
    make_span("pipeline", "StableDiffusion3Pipeline", 0, 1000),
    make_span("stage", "encode", 0, 200),
    make_span("stage", "denoise", 200, 900),
    make_span("step", "step 0", 200, 550, 0),
    make_span("step", "step 1", 550, 810, 1),
    make_span("stage", "decode", 900, 1000),
)

TINY_CALLS = (
    make_call(0, "text_encoder", 10, 100, stage="encode", branch="prompt", device="rbln:1"),
    make_call(1, "transformer", 210, 510, step=0, branch="batched"),
    make_call(2, "transformer", 560, 760, step=1, branch="batched"),
    make_call(3, "vae", 910, 990, stage="decode"),
)

_LEFT, _RIGHT = "Cluster 0", "Cluster 1"
TINY_COMMANDS = (
    Command(-1, ROOT_DEVICE, HOST_TRACK, "host", "tokenizer", 0, 10, stage="encode"),
    Command(-1, ROOT_DEVICE, HOST_TRACK, "host", "scheduler.step", 510, 40, "", "denoise", 0),
    Command(-1, ROOT_DEVICE, HOST_TRACK, "host", "scheduler.step", 760, 40, "", "denoise", 1),
    Command(0, "rbln:1", _LEFT, "compute", "layers.0", 20, 70, "Gemm"),
    Command(1, "rbln:0", _LEFT, "compute", "blocks.0.attn", 220, 100, "MatMul"),
    Command(1, "rbln:0", _RIGHT, "compute", "blocks.0.attn", 240, 60, "Softmax"),
    Command(1, "rbln:0", _LEFT, "compute", "blocks.0.mlp", 330, 150, "Gemm"),
    Command(2, "rbln:0", _LEFT, "compute", "blocks.0.attn", 570, 60, "MatMul"),
    Command(2, "rbln:0", _RIGHT, "compute", "blocks.0.attn", 570, 80, "Softmax"),
    Command(2, "rbln:0", _LEFT, "compute", "blocks.0.mlp", 660, 80, "Gemm"),
    Command(3, "rbln:0", "Task DMA", "dma", "conv", 915, 10, "copy"),
    Command(3, "rbln:0", _LEFT, "compute", "conv", 920, 60, "Conv"),
)


def make_info(producer: str = "test", **described: Any) -> RunInfo:
    """What a manifest with these keys says; raises ValueError for what none can say."""
    return parse_info({"producer": producer, **described})


TINY_INFO = make_info(
    producer="capture",
    model="tiny-sd3",
    pipeline="StableDiffusion3Pipeline",
    command_line=("profile-sd3", "run"),
    versions={"profile-sd3": "0.1.0", "onnxruntime": "1.20.0"},
    hardware={"cpu": "Example CPU", "cores": 2},
    devices={"cpu:0": {"hardware": "Example CPU", "cores": [0, 1]}, "rbln:0": {"hardware": "CA22"}},
    submodules={"transformer": {"device": "rbln:0"}},
    settings={"steps": 2},
    overhead={
        "traced_ns": 1_000,
        "untraced_ns": 991,
        "untraced_low_ns": 990,
        "untraced_high_ns": 993,
        "method": "estimated",
        "hooks_ns": 4,
        "operator_events": 9,
        "operator_event_ns": 0.5,
        "operators_ns": 5,
        "share": 0.009,
        "share_of": "end_to_end",
        "writing_ns": 300_000,
        "backpressure_ns": 0,
        "conversion_ns": 2_000_000,
        "estimated_by": ["onnxruntime"],
    },
    warmup={"runs": 1, "duration_ns": 800, "calls": 4},
    attribution={"transformer": {"attributed_ns": 99, "total_ns": 100, "share": 0.99}},
)


_LEFT_OUT = ("rank", "recorded_ns")


def make_frame(rows: Sequence[tuple], columns: Sequence[Column]) -> pl.DataFrame:
    """Rows in the order of declared columns; `rank`, which devices tell, and `recorded_ns`, which
    no file of these has, are left out."""
    wanted = schema(columns)
    if "rank" not in wanted:
        return pl.DataFrame(rows, schema=wanted, orient="row")
    given = {name: dtype for name, dtype in wanted.items() if name not in _LEFT_OUT}
    frame = pl.DataFrame(rows, schema=given, orient="row")
    ranks = [rank_of_device(device or "") for device in frame["device"].cast(pl.String)]
    added = {"rank": pl.Series(ranks, dtype=pl.Int32)}
    if "recorded_ns" in wanted:
        added["recorded_ns"] = pl.lit(None, pl.Int64)
    return frame.with_columns(**added).select(wanted.names())


def make_run(
    calls: Sequence[Call] = (),
    commands: Iterable[Command] = (),
    spans: Sequence[Span] = (),
    *,
    info: RunInfo | None = None,
    drops: tuple[Drop, ...] = (),
) -> Run:
    """A run straight from values, without files."""
    of_call = {call.index: call for call in calls}
    return Run(
        run_id="tiny",
        calls=make_frame([_call_row(c) for c in calls], CALLS),
        commands=make_frame([_command_row(c, of_call.get(c.call)) for c in commands], COMMANDS),
        counters=empty(COUNTERS),
        flows=empty(FLOWS),
        spans=pl.DataFrame([_span_row(s) for s in spans], schema=schema(SPANS), orient="row"),
        info=info or RunInfo(producer="test"),
        drops=drops,
    )


def _call_row(call: Call) -> tuple:
    labels = (call.stage, call.submodule, call.branch or None, call.step)
    return (
        call.index,
        call.pipeline,
        *labels,
        call.iteration,
        call.device,
        call.start_ns,
        call.duration_ns,
        *(None if each < 0 else each for each in (call.device_lag_ns, call.device_duration_ns)),
        call.ops_traced,
        "",
    )


def _command_row(command: Command, call: Call | None) -> tuple:
    of = call or command
    place = (
        command.call,
        of.pipeline,
        of.stage or None,
        of.step,
        command.device,
        command.track,
        command.category,
    )
    times = (EPOCH + command.start, command.duration)
    named = (command.layer, command.module or None, 0, command.op_type or None)
    return (*place, *named, command.kernel or None, None, *times, *[None] * 4)


def _span_row(span: Span) -> tuple:
    labels = (span.kind, span.pipeline, span.name)
    return (*labels, span.stage or None, span.step, span.start_ns, span.duration_ns)


def tiny_run(**changes) -> Run:
    """The run of this module's docstring; `changes` replace arguments of `make_run`."""
    given = {"calls": TINY_CALLS, "commands": TINY_COMMANDS, "spans": TINY_SPANS}
    return make_run(**{**given, "info": TINY_INFO, **changes})


def write_tiny_bundle(parent: Path, run_id: str = "20270115-080000-tiny", **info) -> Path:
    """Write the tiny run as a bundle below `parent`; `info` replaces fields of its `RunInfo`."""
    with BundleWriter.create(parent, run_id) as bundle:
        for call in TINY_CALLS:
            bundle.write_call(call, _builder(call.index).build())
        bundle.write_host(TINY_SPANS, _builder(NO_CALL).build(), ROOT_DEVICE)
        return bundle.finish(parse_info({**info_document(TINY_INFO), **info}))


def write_empty_bundle(parent: Path, run_id: str) -> Path:
    """Write a bundle of a run that ended before its first call."""
    with BundleWriter.create(parent, run_id) as bundle:
        bundle.write_host((), CommandBuilder().build(), ROOT_DEVICE)
        return bundle.finish(TINY_INFO)


def _builder(call: int) -> CommandBuilder:
    builder = CommandBuilder()
    for command in TINY_COMMANDS:
        if command.call == call:
            track = Track(command.device, command.track, command.category)
            where = {"stage": command.stage, "step": command.step} if call == NO_CALL else {}
            where |= {"kernel": command.kernel, "module": command.module}
            start = EPOCH + command.start
            builder.add(track, command.layer, command.op_type, start, command.duration, **where)
    return builder
