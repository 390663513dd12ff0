"""A run of a tiny pipeline of which nothing is reported, as `profile-sd3 run` does."""

from __future__ import annotations

from pathlib import Path

import profiler
from profiler.pipelines import StableDiffusion3Pipeline

__all__ = ["recorded"]


def recorded(model: Path, folder: Path, name: str, *, steps: int = 2) -> Path:
    """The bundle of one image by the model in a folder."""
    pipeline = StableDiffusion3Pipeline.from_folder(model)
    with profiler.profile(pipeline, out=folder, name=name) as run:
        pipeline("a photograph of a cat", num_inference_steps=steps, seed=0)
    return run.path
