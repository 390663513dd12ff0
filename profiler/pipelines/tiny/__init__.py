"""A small Stable Diffusion 3: the real architecture, random weights, shipped with the package.

`default_model_folder` returns its folder; `profiler.graph.tiny_model` regenerates it.
"""

from importlib.resources import files
from pathlib import Path

__all__ = ["default_model_folder"]


def default_model_folder() -> Path:
    """Return the folder of the embedded model, in the diffusers/optimum ONNX layout."""
    return Path(str(files(__name__).joinpath("tiny-sd3")))
