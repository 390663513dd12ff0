"""Which pipeline a model folder holds."""

from importlib import import_module
from pathlib import Path

from profiler.errors import InputError
from profiler.pipelines.model_folder import ModelFolder
from profiler.pipelines.onnx_pipeline import OnnxPipeline

__all__ = ["MODULES", "pipeline_class"]

MODULES = {
    "StableDiffusion3Pipeline": "profiler.pipelines.sd3",
    "FluxPipeline": "profiler.pipelines.flux",
    "QwenImagePipeline": "profiler.pipelines.qwen_image",
}
"""Modules of the pipelines by class, as model_index.json names it."""


def pipeline_class(path: Path | str) -> type[OnnxPipeline]:
    """The class of the pipeline in a folder. Raises `InputError` where there is none of ours."""
    folder = ModelFolder(path)
    if folder.pipeline_class not in MODULES:
        held = str(folder.index.get("_class_name"))[:80]
        raise InputError(
            f"{folder.path} holds a {held!r}: give a folder of one of {', '.join(MODULES)}"
        )
    name = folder.pipeline_class
    found: type[OnnxPipeline] = getattr(import_module(MODULES[name]), name)
    return found
