"""`profile-sd3 run`: run a text-to-image pipeline on ONNX Runtime and profile it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profiler.cli import options as shared
from profiler.cli.subcommands import Subcommand, cli_options, opt
from profiler.cli.terminal import bar, handling, note
from profiler.errors import OutputError, ProfilerError
from profiler.text import check_utf8

if TYPE_CHECKING:
    from profiler.pipelines.pipeline import OnnxPipeline, PipelineOutput


@cli_options
class RunOptions:
    """Options of `profile-sd3 run`."""

    model: Path | None = opt(
        "DIR  Folder in the diffusers/optimum ONNX layout: SD3, SD3.5, FLUX or Qwen-Image.  "
        "[default: the embedded tiny SD3]"
    )
    prompt: str = opt(
        "TEXT  What the image should show.", default="a photograph of an astronaut riding a horse"
    )
    negative_prompt: str = opt("TEXT  What it should not show.", default="")
    steps: int = opt("N  Denoising steps.", default=28, min=1)
    height: int | None = opt("N  Pixels.  [default: the model's]")
    width: int | None = opt("N  Pixels.  [default: the model's]")
    guidance: float | None = opt(
        "SCALE  Guidance scale; 1 or less: none.  [default: 7; FLUX 3.5, Qwen-Image 4]"
    )
    seed: int = opt("N  Seed of the noise.", default=0)
    device: list[str] = opt(
        "SUBMODULE=DEVICE  Where it runs, such as text_encoder_3=cpu:1; may be repeated.  "
        "[default: cpu:0]"
    )
    ops: list[str] = opt(
        "[SUBMODULE=]CALLS  Calls whose operators are traced: all, none, first, last, every:N, "
        "steps:A-B, or several with commas; may be repeated.  [default: all]"
    )
    measure_overhead: bool = shared.MEASURE_OVERHEAD
    out: Path = shared.BUNDLE_FOLDER
    image: Path | None = opt("FILE  Write the image here, as PNG.")
    warmup: int = opt("N  Steps to run first, kept out of the run; 0: none.", default=2, min=0)
    name: str | None = shared.RUN_NAME
    compress: str = shared.COMPRESS
    max_size: str | None = shared.MAX_SIZE
    keep_prompts: bool = shared.KEEP_PROMPTS


def run(options: RunOptions) -> None:
    """Run a pipeline on ONNX Runtime and profile it.

    Stable Diffusion 3, FLUX or Qwen-Image. Writes one trace per submodule call, and ends with the
    report, its HTML page beside the traces.
    """
    from profiler.capture.settings import parse_max_size
    from profiler.pipelines.model_folder import parse_device_options
    from profiler.pipelines.pipeline import pipeline_class
    from profiler.pipelines.tiny import default_model_folder
    from profiler.trace.compression import check_compression

    settings = {
        "ops": " ".join([*options.ops, *options.measure_overhead * ["measure-overhead"]]) or "all",
        "compress": check_compression(options.compress),
        "max_size": parse_max_size(options.max_size),
        "out": options.out,
        "name": options.name,
        "keep_prompts": options.keep_prompts,
    }
    _check_text(options)
    _check_image(options.image)
    folder = options.model or default_model_folder()
    kind = pipeline_class(folder)
    devices = parse_device_options(options.device, kind.SUBMODULES)
    pipeline = kind.from_folder(folder, devices=devices)
    guided = pipeline.guidance_arguments(options.guidance, options.negative_prompt)
    scales: dict[str, Any] = {
        key: value for key, value in guided.items() if isinstance(value, float)
    }
    size: dict[str, Any] = {"height": options.height, "width": options.width, "seed": options.seed}
    pipeline.check(**size, **scales)
    arguments = {"prompt": options.prompt, **guided, **size}
    bundle, result = _profiled(options, pipeline, settings, arguments)
    if options.image is not None:
        from profiler.files import appearing

        with appearing(options.image) as file:
            result.images[0].save(file, format="PNG")
    # Imported after the run, so that it is not part of what is measured.
    from profiler.cli.commands.analyze import AnalyzeOptions, analyze
    from profiler.cli.commands.record import summarize_recorded

    analyze(AnalyzeOptions(path=bundle))
    summarize_recorded(bundle, Path.cwd())


def _profiled(
    options: RunOptions, pipeline: OnnxPipeline, settings: dict[str, Any], arguments: dict[str, Any]
) -> tuple[Path, PipelineOutput]:
    """Run the pipeline under `profile`; return the bundle and the output. A pipeline that fails
    before its first call leaves no bundle."""
    from profiler.capture.profile import profile
    from profiler.trace.bundle import call_files

    profiled = profile(pipeline, **settings)
    is_new = not options.out.exists()
    try:
        with _ended_by_signals(), ExitStack() as stack:
            stack.enter_context(profiled)
            if options.warmup:
                with note("loading and warming up"), profiled.warmup():
                    pipeline(**arguments, num_inference_steps=options.warmup)
            with bar("denoising", options.steps) as advance:
                result = pipeline(
                    **arguments, num_inference_steps=options.steps, callback_on_step_end=advance
                )
            with note("writing the traces"):
                stack.close()
    except ProfilerError:
        if profiled.path is not None and not call_files(profiled.path):
            shutil.rmtree(profiled.path, ignore_errors=True)
        if is_new:
            with suppress(OSError):  # fails if it is not empty
                options.out.rmdir()
        raise
    assert profiled.path is not None
    return profiled.path, result


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Within the block, let SIGTERM and SIGHUP end the program like Ctrl-C, through all blocks:
    exit codes 143 and 129. An ignored signal, as SIGHUP under `nohup`, stays ignored."""
    import threading

    def end(number: int, _frame: Any) -> None:
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with handling(("SIGTERM", "SIGHUP"), end):
        yield


def _check_text(options: RunOptions) -> None:
    """Refuse options that are not UTF-8, which neither tokenizers nor manifests accept."""
    for name in ("prompt", "negative_prompt", "out", "name"):
        text = str(getattr(options, name) or "")
        check_utf8(text, f"--{name.replace('_', '-')}")


def _check_image(image: Path | None) -> None:
    """Refuse, before the run, an image path that cannot be written."""
    if image is None:
        return
    if image.suffix.lower() != ".png":
        raise OutputError(f"--image {image} does not end in .png: the image is written as PNG")
    if not image.parent.is_dir():
        raise OutputError(f"--image {image}: the folder {image.parent} does not exist: create it")


SUBCOMMAND = Subcommand(
    run,
    place=10,
    about_runs=True,
    needs="run",
    examples=(
        ("profile-sd3 run", "the embedded tiny SD3"),
        ("profile-sd3 run --model sd35-onnx --steps 28", "a model of your own"),
    ),
    panels={
        "What to generate": "model prompt negative_prompt steps height width guidance seed",
        "What to record": "ops measure_overhead warmup keep_prompts max_size",
        "Files": "out name image compress",
        "Devices": "device",
    },
)
