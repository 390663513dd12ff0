"""Record evidence on a CUDA GPU: torch traces of full-size pipelines, and what they really took.

    python benchmarks/gpu_record.py OUT --model sd35 [--compiled] [--until 300] [--only graphs]

Writes OUT/MODEL.truth.json and traces OUT/MODEL-*.json.gz, for `gpu_compare.py`. Every stage of a
model is tried; one that fails is noted in the truth by its error. `--until` starts no stage after
so many seconds. `--tiny` tries the script on a processor. Weights are random: see gpu_pipelines.py.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import checkout  # noqa: F401 - finds the project
import torch
from gpu_graphs import graphed
from gpu_peaks import peaks
from gpu_pipelines import PIPELINES, Made, Making
from gpu_truth import Timed, synchronize

_BEGUN = time.perf_counter()
_ACTIVITIES = [torch.profiler.ProfilerActivity.CPU]
if torch.cuda.is_available():
    _ACTIVITIES.append(torch.profiler.ProfilerActivity.CUDA)


class Evidence:
    """What is found of one model, written after every stage: a run may be cut short."""

    def __init__(self, out: Path, name: str, options: argparse.Namespace) -> None:
        self.out, self.name, self.options = out, name, options
        self.packing: list[subprocess.Popen[bytes]] = []
        self.truth: dict[str, Any] = {"torch": torch.__version__, "seconds": {}}
        if torch.cuda.is_available():
            self.truth |= {
                "device": torch.cuda.get_device_name(),
                "driver": _driver(),
                "peak_bytes": {},
            }

    def stage(self, name: str, work: Callable[[], Any]) -> None:
        options = self.options
        late = time.perf_counter() - _BEGUN > options.until
        if late or (options.only and name not in options.only):
            return
        begin = time.perf_counter()
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
        try:
            self.truth[name] = work()
        except Exception as error:  # noqa: BLE001 - a crash is an answer as well, until it is mended
            traceback.print_exc()
            self.truth[name] = {"error": f"{type(error).__name__}: {error}"[:2000]}
        if torch.cuda.is_available():
            self.truth["peak_bytes"][name] = torch.cuda.max_memory_allocated()
        self.truth["seconds"][name] = round(time.perf_counter() - begin, 2)
        print(f"{self.name} {name}: {self.truth['seconds'][name]} s", flush=True)
        (self.out / f"{self.name}.truth.json").write_text(json.dumps(self.truth))

    def traced(
        self, name: str, call: Callable[[], Any], timed: Timed | None = None, **options: Any
    ) -> dict[str, Any]:
        """The call under torch.profiler; its file, packed beside what goes on ("": none is kept).

        With `timed` the calls of its submodules are timed by events in the traced run itself.
        """
        synchronize()
        marked: dict[str, Any] = {}
        profile = torch.profiler.profile(activities=_ACTIVITIES, record_shapes=True, **options)
        with profile as found:
            begin = time.perf_counter()
            if timed:
                marked = timed.measured(call)
            else:
                call()
                synchronize()
            wall = time.perf_counter() - begin
            ended = time.perf_counter()
        stopped = time.perf_counter() - ended
        marked |= {"wall_ms": wall * 1e3, "stopped_s": round(stopped, 3)}
        if not name:
            return marked
        path = self.out / f"{self.name}-{name}.json"
        begin = time.perf_counter()
        found.export_chrome_trace(str(path))
        exported = time.perf_counter() - begin
        size = path.stat().st_size
        self.packing.append(subprocess.Popen(["gzip", "-f", "-6", str(path)]))
        return {**marked, "exported_s": round(exported, 2), "bytes": size}

    def close(self) -> None:
        for process in self.packing:
            process.wait()


def _driver() -> str:
    query = ["nvidia-smi", "--query-gpu=driver_version,clocks.max.sm,power.limit", "--format=csv"]
    return subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()


def many(timed: Timed, call: Callable[[], Any], count: int) -> list[dict[str, Any]]:
    call()  # what is chosen or allocated once for these shapes
    return [timed.measured(call) for _ in range(count)]


def walls(call: Callable[[], Any], count: int) -> list[float]:
    found = []
    for _ in range(count):
        synchronize()
        begin = time.perf_counter()
        call()
        synchronize()
        found.append((time.perf_counter() - begin) * 1e3)
    return found


def eager(evidence: Evidence, made: Made) -> None:
    """Untraced calls, the same under torch.profiler, and what changes of the request take."""
    timed = Timed(made.pipeline)
    made(num_inference_steps=1)
    evidence.traced("", lambda: made(num_inference_steps=1))
    evidence.stage("eager", lambda: many(timed, made, 5))
    evidence.stage("eager_without_marks", lambda: walls(made, 3))
    evidence.stage("trace", lambda: evidence.traced("eager", made))
    evidence.stage("trace_marked", lambda: evidence.traced("marked", made, timed))
    evidence.stage("trace_again", lambda: [evidence.traced("", made) for _ in range(3)])
    few = {"num_inference_steps": 2}
    evidence.stage(
        "trace_stacks", lambda: evidence.traced("stacks", lambda: made(**few), with_stack=True)
    )
    evidence.stage(
        "trace_memory", lambda: evidence.traced("memory", lambda: made(**few), profile_memory=True)
    )
    for name, change in changes(made).items():
        evidence.stage(name, lambda change=change: many(timed, lambda: made(**change), 4))
    evidence.stage("eager_later", lambda: many(timed, made, 3))
    timed.undo()


def changes(made: Made) -> dict[str, dict[str, Any]]:
    """Other requests, as predictions know them."""
    found: dict[str, dict[str, Any]] = {
        "steps_8": {"num_inference_steps": 8},
        "steps_2": {"num_inference_steps": 2},
    }
    name = type(made.pipeline).__name__
    if not name.startswith("Flux"):
        found["guidance_off"] = {"guidance_scale": 1.0}
    if name.startswith("Wan"):
        return found | {"frames_17": {"num_frames": 17}}
    height = made.arguments["height"]
    for part in (2, 4):
        size = height * (part + 2) // 8 if part == 2 else height * 3 // 4
        found[f"size_{size}"] = {"height": size, "width": size}
    return found | {"batch_2": {"num_images_per_prompt": 2}}


def graphs(evidence: Evidence, made: Made) -> None:
    """Each call of a submodule as one CUDA graph: recorded under the profiler, then replayed."""
    timed = Timed(made.pipeline, graphed)
    evidence.stage("trace_capture", lambda: evidence.traced("capture", made))
    evidence.stage("graphs", lambda: many(timed, made, 5))
    evidence.stage("trace_graphs", lambda: evidence.traced("graphs", made, timed))
    for name in ("guidance_off", "steps_8"):
        change = changes(made).get(name)
        if change:
            call = lambda change=change: made(**change)  # noqa: E731 - one line of its kind
            evidence.stage(f"graphs_{name}", lambda call=call: many(timed, call, 4))
    timed.undo()


def streams(evidence: Evidence, made: Made) -> None:
    """The image of one call is decoded on a stream of its own while the next one denoises."""
    timed = Timed(made.pipeline)
    pipeline, aside = made.pipeline, torch.cuda.Stream()

    def overlapped() -> None:
        latents = made(output_type="latent").images
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside), torch.no_grad():
            pipeline.vae.decode(latents, return_dict=False)
        made(output_type="latent")
        torch.cuda.current_stream().wait_stream(aside)

    evidence.stage("streams", lambda: many(timed, overlapped, 5))
    evidence.stage("trace_streams", lambda: evidence.traced("streams", overlapped, timed))
    timed.undo()


def levels(evidence: Evidence, made: Made, rounds: int = 3) -> Any:
    """What the caller of `pipe()` sees with profile-sd3 at each level, and without, in turn.

    Of torch.profiler with the same options, what stopping it takes stands apart: our sessions are
    stopped within the call.
    """
    import profiler

    ways = {"without": None, "calls": "none", "first_last": "first,last", "operators": "all"}
    names = [*ways, "torch.profiler"]
    found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            folder = evidence.out / "bundles" / f"{evidence.name}-{name}-{turn}"
            begin = time.perf_counter()
            if name == "torch.profiler":
                row = evidence.traced("", made, profile_memory=True)
            elif ways[name] is None:
                row = {"first_ms": walls(made, 1)[0], "wall_ms": walls(made, 1)[0]}
            else:
                with profiler.profile(made.pipeline, ops=ways[name], out=folder):
                    row = {"first_ms": walls(made, 1)[0], "wall_ms": walls(made, 1)[0]}
            row["all_s"] = time.perf_counter() - begin
            found[name].append(row)
    return found


def call_level(evidence: Evidence, made: Made, rounds: int = 4) -> Any:
    """Steady calls without us and with calls alone recorded, in turn, ms."""
    import profiler

    found: dict[str, list[float]] = {"without": [], "calls": []}
    for turn in range(rounds):
        found["without"] += walls(made, 4)
        folder = evidence.out / "bundles" / f"{evidence.name}-steady-{turn}"
        with profiler.profile(made.pipeline, ops="none", out=folder):
            found["calls"] += walls(made, 5)[1:]
    return found


def compiled(evidence: Evidence, made: Made) -> None:
    """`torch.compile` of the denoiser, and the mode of it that uses CUDA graphs."""
    pipeline = made.pipeline
    own = pipeline.transformer
    for name, mode in (("compiled", None), ("reduce_overhead", "reduce-overhead")):
        torch.compiler.reset()
        if type(own).__name__.startswith("SD3"):
            pipeline.transformer = torch.compile(own, mode=mode)
        else:  # as diffusers advises for many equal blocks: one is compiled
            own.compile_repeated_blocks(fullgraph=True, mode=mode)
        timed = Timed(pipeline)
        begin = time.perf_counter()
        made()
        synchronize()
        evidence.truth[f"{name}_first_s"] = time.perf_counter() - begin
        evidence.stage(name, lambda timed=timed: many(timed, made, 5))
        evidence.stage(
            f"trace_{name}", lambda name=name, timed=timed: evidence.traced(name, made, timed)
        )
        if mode is None:
            few = lambda: made(num_inference_steps=2)  # noqa: E731 - one line of its kind
            evidence.stage(
                "trace_compiled_stacks",
                lambda few=few: evidence.traced("compiled-stacks", few, with_stack=True),
            )
        timed.undo()
        pipeline.transformer = own


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", choices=PIPELINES, default="sd35")
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--only", type=lambda text: text.split(","), default=[])
    parser.add_argument("--until", type=float, default=600)
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.float32 if options.tiny else torch.bfloat16
    name = f"{options.model}{'-compiled' if options.compiled else ''}"
    evidence = Evidence(options.out, name, options)
    made = PIPELINES[options.model](Making(device, dtype, options.tiny))
    print(f"{name} made after {time.perf_counter() - _BEGUN:.1f} s", flush=True)
    if options.compiled:
        compiled(evidence, made)
    else:
        eager(evidence, made)
        evidence.stage("levels", lambda: levels(evidence, made))
        evidence.stage("call_level", lambda: call_level(evidence, made))
        if device == "cuda":
            graphs(evidence, made)
            streams(evidence, made)
            evidence.stage("peaks", peaks)
    evidence.close()


if __name__ == "__main__":
    main()
