"""`profile-sd3 run`: run a text-to-image pipeline on ONNX Runtime and profile it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from profiler.cli.options import BundleFolder, Compress, MaxSize, MeasureOverhead, RunName
from profiler.cli.subcommands import Subcommand
from profiler.cli.terminal import bar, note
from profiler.errors import ProfilerError

if TYPE_CHECKING:
    from profiler.pipelines.pipeline import OnnxPipeline, PipelineOutput


_Model = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Folder in the diffusers/optimum ONNX layout: SD3, SD3.5, FLUX or Qwen-Image.  "
        "[default: the embedded tiny SD3]",
    ),
]
_Prompt = Annotated[str, typer.Option(metavar="TEXT", help="What the image should show.")]
_NegativePrompt = Annotated[str, typer.Option(metavar="TEXT", help="What it should not show.")]
_Steps = Annotated[int, typer.Option(metavar="N", min=1, help="Denoising steps.")]
_Height = Annotated[int | None, typer.Option(metavar="N", help="Pixels.  [default: the model's]")]
_Width = Annotated[int | None, typer.Option(metavar="N", help="Pixels.  [default: the model's]")]
_Guidance = Annotated[
    float | None,
    typer.Option(
        metavar="SCALE",
        help="Guidance scale; 1 or less: none.  [default: 7; FLUX 3.5, Qwen-Image 4]",
    ),
]
_Seed = Annotated[int, typer.Option(metavar="N", help="Seed of the noise.")]
_Device = Annotated[
    list[str] | None,
    typer.Option(
        metavar="SUBMODULE=DEVICE",
        help="Where it runs, such as text_encoder_3=cpu:1; may be repeated.  [default: cpu:0]",
    ),
]
_Ops = Annotated[
    list[str] | None,
    typer.Option(
        metavar="[SUBMODULE=]CALLS",
        help="Calls whose operators are traced: all, none, first, last, every:N, steps:A-B, "
        "or several with commas; may be repeated.  [default: all]",
    ),
]
_Image = Annotated[Path | None, typer.Option(metavar="FILE", help="Write the image here, as PNG.")]
_Warmup = Annotated[
    int,
    typer.Option(metavar="N", min=0, help="Steps to run first, kept out of the run; 0: none."),
]


def run(
    model: _Model = None,
    prompt: _Prompt = "a photograph of an astronaut riding a horse",
    negative_prompt: _NegativePrompt = "",
    steps: _Steps = 28,
    height: _Height = None,
    width: _Width = None,
    guidance: _Guidance = None,
    seed: _Seed = 0,
    device: _Device = None,
    ops: _Ops = None,
    measure_overhead: MeasureOverhead = False,
    out: BundleFolder = Path("traces"),
    image: _Image = None,
    warmup: _Warmup = 2,
    name: RunName = None,
    compress: Compress = "none",
    max_size: MaxSize = None,
) -> None:
    """Run a pipeline on ONNX Runtime and profile it.

    Stable Diffusion 3, FLUX or Qwen-Image. Writes one trace per submodule call, and ends with the
    report, its HTML page beside the traces.
    """
    from profiler.capture.settings import parse_max_size
    from profiler.trace.compression import check_compression

    packing, most = check_compression(compress), parse_max_size(max_size)
    _check_text(prompt=prompt, negative_prompt=negative_prompt, out=str(out), name=name or "")
    _check_image(image)
    pipeline = _pipeline(model, device or [])
    guided = pipeline.guidance_arguments(guidance, negative_prompt)
    scales = {key: value for key, value in guided.items() if isinstance(value, float)}
    pipeline.check(height=height, width=width, seed=seed, **scales)
    arguments = {"prompt": prompt, **guided, "height": height, "width": width, "seed": seed}
    selected = _selected(ops or [], measure_overhead=measure_overhead)
    options = {"ops": selected, "out": out, "name": name, "compress": packing, "max_size": most}
    bundle, result = _profiled(pipeline, options, arguments, steps, warmup)
    _write_image(result.images[0], image)
    _report(bundle)


def _selected(ops: list[str], *, measure_overhead: bool) -> str:
    """The calls whose operators are traced, as one text."""
    return " ".join([*ops, *(["measure-overhead"] if measure_overhead else [])]) or "all"


def _profiled(
    pipeline: OnnxPipeline,
    options: dict[str, Any],
    arguments: dict[str, Any],
    steps: int,
    warmup: int,
) -> tuple[Path, PipelineOutput]:
    """Run the pipeline under `profile` with these options; the bundle, and what the run made. A
    pipeline that fails before its first call leaves no bundle."""
    from profiler.capture.profile import profile

    profiled = profile(pipeline, **options)
    try:
        with _ended_by_signals(), ExitStack() as stack:
            stack.enter_context(profiled)
            if warmup:
                with note("loading and warming up"), profiled.warmup():
                    pipeline(**arguments, num_inference_steps=warmup)
            with bar("denoising", steps) as advance:
                result = pipeline(
                    **arguments, num_inference_steps=steps, callback_on_step_end=advance
                )
            with note("writing the traces"):
                stack.close()
    except ProfilerError:
        _remove_without_calls(profiled.path)
        raise
    assert profiled.path is not None
    return profiled.path, result


def _remove_without_calls(bundle: Path | None) -> None:
    from profiler.trace.bundle import call_files

    if bundle is not None and not call_files(bundle):
        shutil.rmtree(bundle, ignore_errors=True)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Inside, SIGTERM and SIGHUP end the program as Ctrl-C does, through all blocks: exit codes 143
    and 129. One that is ignored, as SIGHUP under `nohup`, stays so."""
    import signal
    import threading

    def end(number: int, _frame: Any) -> None:
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {}
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _pipeline(model: Path | None, device: list[str]) -> OnnxPipeline:
    from profiler.pipelines.model_folder import parse_device_options
    from profiler.pipelines.pipeline import pipeline_class
    from profiler.pipelines.tiny import default_model_folder

    folder = model or default_model_folder()
    kind = pipeline_class(folder)
    return kind.from_folder(folder, devices=parse_device_options(device, kind.SUBMODULES))


def _check_text(**options: str) -> None:
    """Refuse options that are no UTF-8: neither tokenizers nor manifests can hold them."""
    from profiler.errors import InputError

    for option, text in options.items():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            flag = f"--{option.replace('_', '-')}"
            raise InputError(f"{flag} {text!a} is not valid UTF-8: type it again") from error


def _check_image(image: Path | None) -> None:
    """Refuse an image path that cannot be written before the run, not after it."""
    from profiler.errors import OutputError

    if image is None:
        return
    if image.suffix.lower() != ".png":
        raise OutputError(f"--image {image} does not end in .png: the image is written as PNG")
    if not image.parent.is_dir():
        raise OutputError(f"--image {image}: the folder {image.parent} does not exist: create it")


def _write_image(image: Any, path: Path | None) -> None:
    from profiler.files import appearing

    if path is None:
        return
    with appearing(path) as file:
        image.save(file, format="PNG")


def _report(bundle: Path) -> None:
    from profiler.cli.commands.analyze import analyze
    from profiler.metrics import summarize_recorded

    analyze(bundle)
    summarize_recorded(bundle, Path.cwd())


SUBCOMMAND = Subcommand(run, place=10, about_runs=True, needs="run")
