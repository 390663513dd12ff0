"""The ways to run a tiny diffusers SD3 on torch, on the CPU: plain, with us, under profilers.

One pipeline serves all runs; each has two steps of warm-up, outside what is counted. We take
torch.profiler's `record_shapes` and `profile_memory`, so it stands here with them and without.
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
from pathlib import Path
from typing import Any

import paired
import torch
from paired import Measured, Mode, measured
from side_by_side_onnxruntime import WARMUP_STEPS, ours, timed_events, viztracer

from tests.capture import tiny_diffusers

OUR_OPTIONS = {"record_shapes": True, "profile_memory": True}
os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # else it prints two lines a session
BASE = "torch.profiler, our options"


class TorchRuns:
    """Runs with `steps` steps of a transformer with `layers` blocks, `hidden` wide."""

    def __init__(self, steps: int, hidden: int = 32, layers: int = 4) -> None:
        self.steps = steps
        self.pipeline = paired.noting_end(
            tiny_diffusers.sd3(
                num_layers=layers,
                attention_head_dim=hidden // 4,  # of four heads
                caption_projection_dim=hidden,
            )
        )

    def modes(self) -> list[Mode]:
        """The plain one first."""
        operators = "operators, no steps, no submodules"
        found = [
            Mode("plain", self.plain),
            Mode("calls", lambda: self.ours("none"), "submodules, steps, branches, host work"),
            Mode("operators", lambda: self.ours("all"), "the same; operators by layer, memory"),
            Mode(BASE, lambda: self.torch_profiler(OUR_OPTIONS), f"{operators}; memory"),
            Mode("torch.profiler", lambda: self.torch_profiler({}), operators),
        ]
        if importlib.util.find_spec("viztracer"):
            found.append(Mode("VizTracer", self.viztracer, "Python functions"))
        return found

    def plain(self) -> Measured:
        self.call(WARMUP_STEPS)
        return measured(self.pipeline, self.call)

    def ours(self, ops: str) -> Measured:
        return ours(self.pipeline, ops, self.call, self.steps)

    def torch_profiler(self, options: dict[str, Any]) -> Measured:
        """As its manual has it: the Chrome trace is its file."""
        self.call(WARMUP_STEPS)
        recording = torch.profiler.profile(**options)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"

            def finish() -> None:
                recording.stop()
                recording.export_chrome_trace(str(path))

            found = measured(self.pipeline, self.call, recording.start, finish)
            found.size = path.stat().st_size
            found.events = timed_events(path)
        return found

    def viztracer(self) -> Measured:
        self.call(WARMUP_STEPS)
        return viztracer(self.pipeline, self.call)

    def call(self, steps: int = 0) -> None:
        self.pipeline(
            "a cat",
            negative_prompt="a dog",
            num_inference_steps=steps or self.steps,
            output_type="np",
            generator=torch.manual_seed(0),
            **tiny_diffusers.SIZE,
        )
