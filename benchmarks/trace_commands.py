"""Commands to measure the trace engine with: real ones, repeated in time, and adversarial ones.

A real run is repeated as a whole. All times of one repetition are stretched by one factor between
0.9 and 1.1, so that no two repetitions have the same durations: otherwise a compressor would see
one run and copies of it. Layers, shapes, bytes, overlap and flows are the run's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import profiler
from profiler.pipelines.sd3 import StableDiffusion3Pipeline
from profiler.pipelines.tiny import default_model_folder
from profiler.trace.columns import CommandColumns, SliceColumns, TraceColumns, read_trace
from profiler.trace.events import UNKNOWN, Call, Track

SAMPLE = Path(__file__).parent.parent / "sample_traces" / "sd35_mi300x"
_GPU_CALLS = ("000_text_encoder.prompt", "007_transformer.step001", "010_vae.decode")
_TEXTS = ("layer", "op_type", "role", "shapes", "stage")
_AMOUNTS = ("bytes_read", "bytes_written", "flops")
_PAUSE_NS = 1_000_000  # between two repetitions


@dataclass(frozen=True, slots=True)
class Kind:
    """What is repeated: `commands` once, in units of `unit_ns`."""

    name: str
    what: str
    commands: CommandColumns
    unit_ns: int

    def repeated(self, count: int) -> CommandColumns:
        """`count` commands: as many repetitions as that takes, the last one cut."""
        return _repeated(self.commands, count, self.unit_ns)


def record_run(folder: Path, steps: int = 28) -> Path:
    """Profile the embedded Stable Diffusion 3 on ONNX Runtime; the bundle's path."""
    pipeline = StableDiffusion3Pipeline.from_folder(default_model_folder())
    run = profiler.profile(pipeline, out=folder)
    with run:
        with run.warmup():
            pipeline("a cat", num_inference_steps=1, seed=0)
        pipeline("a cat", num_inference_steps=steps, seed=0)
    assert run.path is not None
    return run.path


def onnxruntime(bundle: Path) -> Kind:
    """All calls of a bundle recorded on ONNX Runtime, whose times are whole microseconds."""
    calls = [read_trace(path) for path in sorted(bundle.glob("[0-9]*.pb"))]
    return Kind("onnxruntime", "embedded SD3, all calls of a run", _joined(calls), 1000)


def gpu() -> Kind:
    """Three calls of the Stable Diffusion 3.5 sample: host thread, stream and flows between."""
    calls = [read_trace(SAMPLE / f"{name}.pb") for name in _GPU_CALLS]
    return Kind("gpu", "SD3.5 on an MI300X, three calls", _joined(calls), 1)


def adversarial() -> Kind:
    """Every field set to a large value of its own, 64 tracks that take turns."""
    rng = np.random.default_rng(0)
    rows, layers = 1 << 16, 1 << 14
    texts = [f"{number:060d}" for number in rng.permutation(2 * layers)]
    start_ns = np.cumsum(rng.integers(1, 1 << 24, rows)) + (1 << 60)
    columns: dict[str, Any] = {
        name: rng.integers(1, 2 * layers, rows).astype(np.int32) for name in _TEXTS
    }
    amounts = {name: rng.integers(1 << 40, 1 << 50, rows) for name in _AMOUNTS}
    commands = CommandColumns(
        tracks=tuple(Track(f"npu:{n // 8}", f"queue {n % 8}", "compute") for n in range(64)),
        strings=("", *texts),
        track=rng.integers(0, 64, rows).astype(np.int32),
        command_index=rng.integers(1 << 20, 1 << 30, rows).astype(np.int32),
        step=rng.integers(1 << 20, 1 << 30, rows).astype(np.int32),
        start_ns=start_ns,
        duration_ns=rng.integers(1, 1 << 28, rows),
        flows=np.empty((0, 2), dtype=np.int64),
        **columns,
        **amounts,
    )
    return Kind("adversarial", "all fields large, 64 tracks, nothing repeats", commands, 1)


def call_of(commands: CommandColumns) -> Call:
    """A call that encloses the commands."""
    first, last = int(commands.start_ns[0]), int(commands.end_ns.max())
    return Call(0, "transformer", "denoise", "cond", 0, "cpu:0", first, last - first, True, {})


def _joined(calls: Sequence[TraceColumns]) -> CommandColumns:
    """The commands of several calls as those of one, in order of their start."""
    tracks: dict[Track, int] = {}
    strings: dict[str, int] = {"": 0}
    parts: list[dict[str, Any]] = []
    flows, rows = [], 0
    for call in calls:
        parts.append(_part(call, tracks, strings))
        flows.append(call.flows + rows)
        rows += len(call.slices)
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    order = np.argsort(columns["start_ns"], kind="stable")
    place = np.empty(rows, dtype=np.int64)
    place[order] = np.arange(rows)
    return CommandColumns(
        tracks=tuple(tracks),
        strings=tuple(strings),
        flows=place[np.concatenate(flows)],
        **{name: column[order] for name, column in columns.items()},
    )


def _part(call: TraceColumns, tracks: dict[Track, int], strings: dict[str, int]) -> dict[str, Any]:
    """The columns of one call, its tracks and strings numbered among those of all."""
    slices: SliceColumns = call.slices
    device = call.calls[0].device
    category = dict(zip(slices.track.tolist(), slices.category.tolist(), strict=True))
    track = np.zeros(len(call.tracks), dtype=np.int32)
    for place, number in category.items():
        key = Track(device, call.tracks[place].name, call.strings[number])
        track[place] = tracks.setdefault(key, len(tracks))
    code = np.array([strings.setdefault(text, len(strings)) for text in call.strings], np.int32)
    return {
        "track": track[slices.track],
        **{name: code[getattr(slices, name)] for name in _TEXTS},
        **{name: np.array(getattr(slices, name)) for name in ("command_index", "step")},
        **{name: np.array(getattr(slices, name)) for name in ("start_ns", "duration_ns")},
        **{name: np.array(getattr(slices, name)) for name in _AMOUNTS},
    }


def _repeated(once: CommandColumns, count: int, unit_ns: int) -> CommandColumns:
    rng = np.random.default_rng(1)
    rows, times = len(once), -(-count // len(once))
    base = int(once.start_ns[0])
    length = int(once.end_ns.max()) - base
    factor = rng.uniform(0.9, 1.1, (times, 1))
    pauses = np.arange(times)[:, None] * (int(length * 1.1) // unit_ns * unit_ns + _PAUSE_NS)

    def stretched(offsets: Any) -> Any:
        return np.rint(offsets * factor / unit_ns).astype(np.int64) * unit_ns + pauses

    start = stretched(once.start_ns - base)
    end = stretched(once.end_ns - base)
    duration = np.where(once.duration_ns < 0, UNKNOWN, end - start)
    narrow = ("track", "command_index", "step", *_TEXTS)
    flows = (once.flows + np.arange(times)[:, None, None] * rows).reshape(-1, 2)
    return replace(
        once,
        start_ns=start.ravel()[:count] + base,
        duration_ns=duration.ravel()[:count],
        flows=flows[(flows < count).all(axis=1)],
        **{name: np.tile(getattr(once, name), times)[:count] for name in (*narrow, *_AMOUNTS)},
    )
