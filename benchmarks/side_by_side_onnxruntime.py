"""The ways to run the embedded SD3 on ONNX Runtime: plain, with us, under other profilers.

Each run has a pipeline and sessions of its own and two steps of warm-up, which the counted bytes
and events leave out.
"""

from __future__ import annotations

import importlib.util
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import paired
from own_work import transformer_inputs
from paired import Measured, Mode, Moment, measured

import profiler
from profiler.pipelines.sd3 import StableDiffusion3Pipeline
from profiler.pipelines.tiny import default_model_folder

WARMUP_STEPS = 2
ITS_OWN = "ONNX Runtime's profiler"


class OnnxRuntimeRuns:
    """Runs of the model in `model`, each with `steps` steps."""

    def __init__(self, steps: int, model: Path | None = None) -> None:
        self.steps = steps
        self.model = model or default_model_folder()

    def modes(self) -> list[Mode]:
        """The plain one first."""
        found = [
            Mode("plain", self.plain),
            Mode("calls", lambda: self.ours("none"), "submodules, steps, branches, host work"),
            Mode("operators", lambda: self.ours("all"), "the same; operators by layer"),
            Mode(ITS_OWN, self.its_own, "nodes, a file for each session"),
        ]
        if importlib.util.find_spec("viztracer"):
            tells = "Python functions; a session's run is one of them"
            found.append(Mode("VizTracer", self.viztracer, tells))
        return found

    def plain(self) -> Measured:
        pipeline = self.pipeline()
        self.call(pipeline, WARMUP_STEPS)
        return measured(pipeline, lambda: self.call(pipeline))

    def ours(self, ops: str) -> Measured:
        pipeline = self.pipeline()
        return ours(pipeline, ops, lambda steps: self.call(pipeline, steps), self.steps)

    def its_own(self) -> Measured:
        """Every session with `enable_profiling`, nothing else."""
        pipeline = self.pipeline()
        with tempfile.TemporaryDirectory() as folder:
            open_profiled(pipeline, Path(folder))
            self.call(pipeline, WARMUP_STEPS)
            files: dict[str, str] = {}

            def end() -> None:
                for name, part in pipeline.parts.items():
                    files[name] = part.session.end_profiling()

            found = measured(pipeline, lambda: self.call(pipeline), finish=end)
            for name, file in files.items():
                runs = {"transformer": WARMUP_STEPS, "vae": 1}.get(name, 2)
                lines = list(lines_after(Path(file), runs))
                found.events += len(lines)
                found.size += sum(map(len, lines))
        return found

    def viztracer(self) -> Measured:
        pipeline = self.pipeline()
        self.call(pipeline, WARMUP_STEPS)
        return viztracer(pipeline, lambda: self.call(pipeline))

    def operator_pairs(self, pairs: int) -> dict[str, list[float]]:
        """One transformer call with our operators to one under ONNX Runtime's profiler, in turn:
        ratios by both clocks. Finer than whole runs, but without the rest of the pipeline."""
        found: dict[str, list[float]] = {"wall": [], "processor": []}
        hooked, its_own = self.pipeline(), self.pipeline()
        given = transformer_inputs(its_own)
        with tempfile.TemporaryDirectory() as folder:
            open_profiled(its_own, Path(folder))
            with profiler.profile(hooked, out=folder):
                for number in range(-WARMUP_STEPS, pairs):
                    taken = {}
                    for one in (its_own, hooked) if number % 2 else (hooked, its_own):
                        begin = Moment.now()
                        one.transformer(**given)
                        taken[one] = Moment.now().since(begin)
                    for clock, ratios in found.items() if number >= 0 else ():
                        ours, other = (getattr(taken[one], clock) for one in (hooked, its_own))
                        ratios.append(ours / other)
        return found

    def pipeline(self) -> Any:
        return paired.noting_end(StableDiffusion3Pipeline.from_folder(self.model))

    def call(self, pipeline: Any, steps: int = 0) -> None:
        pipeline("a cat", num_inference_steps=steps or self.steps, seed=0)


def open_profiled(pipeline: Any, folder: Path) -> None:
    """Give every part a session with `enable_profiling`."""
    for name, part in pipeline.parts.items():
        options = part.session_options()
        options.enable_profiling = True
        options.profile_file_prefix = str(folder / name)
        part.session = part.open_session(options)


def lines_after(profile: Path, runs: int) -> Iterator[bytes]:
    """The events of one of ONNX Runtime's files, one a line, after so many runs."""
    with profile.open("rb") as file:
        for line in file:
            if runs <= 0 and line.startswith(b"{"):
                yield line
            runs -= b'"model_run"' in line


def ours(pipeline: Any, ops: str, call: Callable[[int], None], steps: int) -> Measured:
    """One run with us; the whole bundle counts, its merged trace included."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as block:
        recording = profiler.profile(pipeline, ops=ops, out=folder)
        block.enter_context(recording)
        with recording.warmup():
            call(WARMUP_STEPS)
        found = measured(pipeline, lambda: call(steps), finish=block.close)
        assert recording.path is not None
        found.size = sum(path.stat().st_size for path in recording.path.iterdir())
        run = profiler.load(recording.path)
        found.events = len(run.commands) + len(run.calls) + len(run.spans)
    return found


def viztracer(pipeline: Any, call: Callable[[], None]) -> Measured:
    """One run under VizTracer with its defaults."""
    from viztracer import VizTracer

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "viztracer.json"
        tracer = VizTracer(output_file=str(path), verbose=0)

        def finish() -> None:
            tracer.stop()
            tracer.save()

        found = measured(pipeline, call, tracer.start, finish)
        tracer.terminate()
        found.size = path.stat().st_size
        found.events = timed_events(path)
    return found


def timed_events(path: Path) -> int:
    """How many events of a Chrome trace have a duration."""
    return sum(event["ph"] == "X" for event in json.loads(path.read_bytes())["traceEvents"])
